"""A wrong memory, found and edited

Wrong labels often come together: here every 1 of one style of writing was filed as a 7. A memory then
votes for the wrong class. A few checked rows show which, and one line corrects it.
"""

from collections import Counter

import numpy as np

import mnemosphere as mn

data = mn.load_data("digits")
X, y = data.x_train, data.y_train.copy()
ones = np.flatnonzero(y == 1)
styles = mn.DAMClusterer(2, n_memories=2, geometry="center", random_state=0).fit(
    X[ones]
)
y[ones[styles.labels_ == 1]] = 7
settings = {
    "objective": "joint",
    "varsigma": 0.8,
    "geometry": "center",
    "random_state": 0,
}
clf = mn.DAMClassifier(30, **settings).fit(X, y)
checked, truth = data.x_test[::2], data.y_test[::2]
fresh, labels = data.x_test[1::2], data.y_test[1::2]
print(f"{np.sum(y != data.y_train)} of {len(y)} labels are wrong")
print(f"accuracy on fresh rows: {clf.score(fresh, labels):.1%}")

# %%
# Which memory had the largest vote on the checked rows that came out wrong?
wrong = clf.predict(checked) != truth
strongest = [reasons[0].name for reasons in clf.explain(checked[wrong])]
blame = Counter(zip(strongest, truth[wrong].tolist(), strict=True))
for (memory, right), rows in blame.most_common(3):
    print(f"memory {memory} decided, truth {right}: {rows} rows")

# %%
# Look at it before you change it, among all memories of 1 and 7:
(memory, right), _ = blame.most_common(1)[0]
table = clf.memory_table()
table = table[table["label"].isin([1, 7])]
names = [f"label {label}" for label in table["label"]]
ax = mn.plots.memories(
    clf.memories_,
    data.image_shape,
    indices=table.index,
    labels=names,
    ncols=6,
    title=f"{memory} looks like a {right} and has another label",
)
ax.figure.savefig("memories.png")

# %%
# An edit returns another model; nothing is trained.
edited = mn.as_estimator(mn.interpret.relabel_memory(clf.model_, memory, right))
print(f"accuracy on fresh rows: {edited.score(fresh, labels):.1%}")
