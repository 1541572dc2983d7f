"""Few labels, many rows without

A few labeled digits of each class among 1,400. Rows without a label help to place the memories.
"""

import numpy as np

import mnemosphere as mn
from mnemosphere.plots.fitted import memories_of

data = mn.load_data("digits")
X, y = data.x_train, data.y_train
settings = {
    "objective": "joint",
    "geometry": "center",
    "varsigma": 0.8,
    "random_state": 0,
}
rng = np.random.default_rng(0)
print("labels per class   alone  with the other rows")
for n in (2, 5, 10):
    own = (rng.permutation(np.flatnonzero(y == k))[:n] for k in range(10))
    labeled = np.concatenate([*own])
    partly = np.full(len(y), -1)  # -1: not known
    partly[labeled] = y[labeled]
    both = mn.DAMClassifier(100, unlabeled=-1, **settings).fit(X, partly)
    alone = mn.DAMClassifier(10 * n, **settings).fit(X[labeled], y[labeled])
    scores = [model.score(data.x_test, data.y_test) for model in (alone, both)]
    print(f"{n:16d}  {scores[0]:6.1%}  {scores[1]:19.1%}")

# %%
# Digits form clusters that agree with the classes, so rows without labels help. On many tables they
# do not: compare both on held-out labels, or leave `objective="auto"`, which does that.
#
# With two labels per class, most memories never see a label. Labels spread to them from memories that
# share rows with them:
partly = np.full(len(y), -1)
for k in range(10):
    partly[np.flatnonzero(y == k)[:2]] = k
clf = mn.DAMClassifier(20, unlabeled=-1, **settings).fit(X, partly)
memories_of(clf.model_, data.image_shape, count=20).savefig("memories.png")
# Figure: Twenty memories, each with its label, from two labels per class.
