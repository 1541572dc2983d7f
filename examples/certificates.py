"""Certificates: has each memory converged, and would it split?

A memory is a minimum of the loss, a saddle that gains from a split in two, or not at rest yet.
`certify` says which, after a copy of the model has taken exact passes until it converged.
"""

from sklearn.datasets import load_iris

import mnemosphere as mn

settings = {"objective": "joint", "varsigma": 0.8, "random_state": 0}
flowers, species = load_iris(return_X_y=True)
clf = mn.DAMClassifier(3, normalize="standard", **settings).fit(flowers, species)
print(clf.certify(flowers, species).counts)

# %%
# Three memories are enough for three compact species. Ten digits are written in more than ten ways:
data = mn.data.load("digits")
clf = mn.DAMClassifier(15, normalize="center", **settings).fit(
    data.x_train, data.y_train
)
certificate = clf.certify(data.x_train, data.y_train)
print(certificate.summary(max_rows=5))

# %%
# A memory splits if β_eff is above its own β_split. Those below the line gain from more memories, the
# lowest ones most.
mn.plots.split_spectrum(certificate.beta_split, certificate.beta_eff).figure.savefig(
    "splits.png"
)
