"""Novelty at a promised rate

Rows that resemble no memory are rejected. You choose the share of ordinary rows that may be lost. It
holds for any data, on average over draws of the held-out rows.
"""

import numpy as np
from matplotlib.figure import Figure

import mnemosphere as mn

data = mn.load_data("digits")
known = data.y_train < 8  # 8 and 9 are not seen in training
settings = {
    "objective": "joint",
    "varsigma": 0.8,
    "geometry": "center",
    "random_state": 0,
}
clf = mn.DAMClassifier(60, **settings).fit(data.x_train[known], data.y_train[known])

ordinary, novel = data.x_test[data.y_test < 8], data.x_test[data.y_test >= 8]
held, fresh = ordinary[::2], ordinary[1::2]
for rate in (0.01, 0.05, 0.1):
    limit = mn.interpret.rejection_threshold(clf.novelty_score(held), rate)
    lost, found = ((clf.novelty_score(rows) > limit).mean() for rows in (fresh, novel))
    print(f"rate {rate:.0%}: {lost:.1%} of 0–7 rejected, {found:.1%} of 8 and 9")

# %%
# The scores behind it, and the threshold for 5%:
rate = 0.05
threshold = mn.interpret.rejection_threshold(clf.novelty_score(held), rate)
with mn.plots.figure_style():
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    ax = figure.subplots()
    scores = [clf.novelty_score(fresh), clf.novelty_score(novel)]
    bins = np.histogram_bin_edges(np.concatenate(scores), 60)
    for own, name in zip(scores, ("digits 0–7", "digits 8 and 9"), strict=True):
        label = f"{name}: {np.mean(own > threshold):.1%} rejected"
        ax.hist(
            own, bins, weights=np.full(len(own), 100 / len(own)), alpha=0.5, label=label
        )
    ax.axvline(
        threshold, color="black", linestyle="--", label=f"threshold for {rate:.0%}"
    )
    ax.set(xlabel="novelty score: far from all memories →", ylabel="rows (%)")
    ax.legend()
    figure.savefig("novelty.png")
    # Figure: Novelty of digits that were trained and of two that were not. Line: the threshold.

# %%
# Over 200 draws of the held-out rows, the rejected share of fresh rows is on average as promised:
scores, rng, lost = clf.novelty_score(ordinary), np.random.default_rng(0), []
for _ in range(200):
    order = rng.permutation(len(scores))
    threshold = mn.interpret.rejection_threshold(scores[order[:140]], rate)
    lost.append(np.mean(scores[order[140:]] > threshold))
print(f"mean {np.mean(lost):.1%}, from {min(lost):.1%} to {max(lost):.1%}")
