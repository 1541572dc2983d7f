"""Certificates: has each memory converged, and would it split?

A memory is a minimum of the loss, a saddle that benefits from a split, or not yet at rest.
`certify` says which, after a copy of the model has taken exact passes until it converged.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_iris

import mnemosphere as mn

settings = {"objective": "joint", "varsigma": 0.8, "random_state": 0}
flowers, species = load_iris(return_X_y=True)
clf = mn.DAMClassifier(3, geometry="standard", **settings).fit(flowers, species)
print(clf.certify(flowers, species).counts)

# %%
# Three memories are enough for three compact species. Ten digits are written in more than ten ways:
data = mn.load_data("digits")
clf = mn.DAMClassifier(15, geometry="center", **settings).fit(
    data.x_train, data.y_train
)
certificate = clf.certify(data.x_train, data.y_train)
print(certificate)

# %%
# A memory splits if β_eff is above its own β_split. Those below the line benefit from more memories,
# the lowest ones most.
splits = np.sort(certificate.beta_split)
with mn.plots.figure_style():
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    ax = figure.subplots()
    ax.plot(np.arange(1, 16), splits, "s", label="β_split of a memory")
    ax.axhline(certificate.beta_eff, color="black", label="β_eff of the model")
    ax.set(xlabel="memories, in order", ylabel="inverse temperature", ylim=(0, None))
    ax.set_title(f"{np.sum(splits < certificate.beta_eff)} of 15 memories would split")
    ax.legend(loc="center left")
    figure.savefig("splits.png")
    # Figure: The inverse temperature at which each memory would split, against that of the model.
