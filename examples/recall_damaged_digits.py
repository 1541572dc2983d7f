"""Recall of damaged digits

The model is an associative memory: `recall` completes a row by going down the energy −log P(x).
"""

import numpy as np

import mnemosphere as mn

data = mn.load_data("mnist-small")
clf = mn.DAMClassifier(
    300, objective="joint", varsigma=0.8, geometry="center", random_state=0
).fit(data.x_train, data.y_train)

rng = np.random.default_rng(0)
digits, labels = data.x_test[:300], data.y_test[:300]
for share in (0.5, 0.7, 0.9):
    lost = rng.random(digits.shape) < share
    restored = clf.recall(np.where(lost, np.nan, digits))
    right = clf.predict(restored) == labels
    print(
        f"{share:.0%} of the pixels lost: {right.mean():.1%} of recalled digits have their class"
    )

# %%
# Digits that lost 90% of their pixels, step by step. Known pixels stay. The last row shows a
# failure: the energy falls there, too, but into the valley of another digit.
good = [np.flatnonzero(right & (labels == digit))[0] for digit in (2, 4, 9)]
shown = [*good, np.flatnonzero(~right)[0]]
rows, known = digits[shown], ~lost[shown]
path = clf.recall(np.where(known, rows, np.nan), steps=8, path=True)
centered = rows - rows.mean(1, keepdims=True)  # as the geometry "center" has them
figure = mn.plots.recall_strips(
    path.rows, path.energies, data.image_shape, originals=centered, known=known,
    names=labels[shown], predictions=[*labels[shown[:3]], f"{clf.predict(path.rows[-1])[3]}, wrong"],
)  # fmt: skip
figure.savefig("recall.png")
# Figure: Damaged digits, steps of recall, and the last state. The last row ends in a wrong digit.
