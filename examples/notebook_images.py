"""Images: memories you can look at, a wrong one edited, and two layers

1,797 handwritten digits of 8×8 pixels, from scikit-learn. A memory has as many numbers as a row, so
memories of images are images.
"""

from collections import Counter

import numpy as np
from sklearn.pipeline import make_pipeline

import mnemosphere as mn

data = mn.load_data("digits")
settings = {"objective": "joint", "geometry": "center", "random_state": 0}
clf = mn.DAMClassifier(30, **settings).fit(data.x_train, data.y_train)
print(
    f"{clf.score(data.x_test, data.y_test):.1%} of {len(data.y_test)} held-out digits are right"
)

# %%
# Each memory with the class that it votes for: red where a pixel is brighter than the mean of the
# image, blue where it is darker.
table = clf.memory_table()
ax = mn.plots.memories(
    clf.memories_, data.image_shape, indices=table.index, labels=table["label"], ncols=10
)  # fmt: skip
ax.figure.savefig("memories.png")
# Figure: All memories with their labels. Red: brighter than the mean of the image; blue: darker.

# %%
# The digit on which the model is least sure, and the memories that vote on it:
k = clf.predict_proba(data.x_test).max(1).argmin()
why = clf.explain(data.x_test[k : k + 1], n_memories=4)
why.plot(image_shape=data.image_shape, truth=data.y_test[k]).savefig("doubt.png")
# Figure: The digit in doubt, the memories with the largest shares, and the probabilities.

# %%
# Wrong labels often come together. Here every 1 of one style of writing is filed as a 7.
y = data.y_train.copy()
ones = np.flatnonzero(y == 1)
styles = mn.DAMClusterer(2, n_memories=2, geometry="center", random_state=0).fit(
    data.x_train[ones]
)
y[ones[styles.labels_ == 1]] = 7
spoiled = mn.DAMClassifier(30, **settings).fit(data.x_train, y)
checked, truth = data.x_test[::2], data.y_test[::2]
fresh, fresh_labels = data.x_test[1::2], data.y_test[1::2]
print(f"{np.sum(y != data.y_train)} of {len(y)} labels are wrong")
print(f"accuracy on fresh rows: {spoiled.score(fresh, fresh_labels):.1%}")

# %%
# Half of the held-out rows are checked by hand. Which memory decided the wrong ones?
wrong = spoiled.predict(checked) != truth
strongest = [reasons[0].name for reasons in spoiled.explain(checked[wrong])]
blame = Counter(zip(strongest, truth[wrong].tolist(), strict=True))
(memory, right), rows = blame.most_common(1)[0]
print(f"memory {memory} decided about {rows} rows that are a {right}")

# %%
# Look at it among all memories of 1 and 7, then give it the right label. Nothing is trained.
table = spoiled.memory_table()
table = table[table["label"].isin([1, 7])]
ax = mn.plots.memories(
    spoiled.memories_, data.image_shape, indices=table.index, labels=table["label"], ncols=8,
    title=f"{memory} looks like a {right} and has another label",
)  # fmt: skip
ax.figure.savefig("suspects.png")
# Figure: Memories labeled 1 and 7. One of them looks like the other class.
edited = mn.as_estimator(mn.interpret.relabel_memory(spoiled.model_, memory, right))
print(f"accuracy on fresh rows: {edited.score(fresh, fresh_labels):.1%}")

# %%
# Pixels are a poor view of an image. `PatchEncoder` learns memories of small patches without labels;
# the classifier on top sees how much of each there is in each part of the image.
layers = make_pipeline(
    mn.PatchEncoder(data.image_shape, patch=4, n_memories=32, random_state=0),
    mn.DAMClassifier(40, geometry="unit", objective="conditional", random_state=0),
).fit(data.x_train, data.y_train)
print(f"two layers: {layers.score(data.x_test, data.y_test):.1%}")
ax = mn.plots.memories(
    layers[0].patch_memories_[0], (4, 4), indices=range(32), ncols=16,
    title="32 memories of patches: strokes, edges and dots",
)  # fmt: skip
ax.figure.savefig("strokes.png")
# Figure: The memories of the first layer, 4 by 4 pixels each.
