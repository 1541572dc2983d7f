"""A table, from the first fit to a model you can ship

569 biopsies of breast tissue: 30 measurements of the cell nuclei, and whether the tumor was malignant.
The table comes with scikit-learn. Nothing is scaled or tuned.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import mnemosphere as mn

data = load_breast_cancer(as_frame=True)
X, y = data.data, data.target_names[data.target]
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
clf = mn.DAMClassifier(random_state=0).fit(X, y)
print(f"{clf.score(X_test, y_test):.1%} of {len(y_test)} held-out biopsies are right")

# %%
# A search on held-out rows chose the settings. Its best trials: log-loss, geometry, memories.
for trial in clf.search_[:4]:
    print(f"{trial['log_loss']:.4f}", trial["geometry"], trial["n_memories"])

# %%
# Why did one biopsy get its class? The columns that speak for and against it, each with its pull:
# the change of the log-odds if this value were typical of the other class.
sure = clf.predict_proba(X_test).max(axis=1)
doubted = X_test.iloc[[sure.argmin()]]
why = clf.explain(doubted)
print(why)
why.plot(truth=y_test[sure.argmin()]).savefig("why.png")
# Figure: One biopsy: probabilities, and the pull of each column for and against the class.

# %%
# What would change the class? A few columns, with values that other rows have:
print(clf.counterfactual(doubted))

# %%
# Which columns matter for all rows, and what each value of a column says:
mn.plots.importance(clf.model_, X_test, n_features=10).figure.savefig("importance.png")
# Figure: The columns with the largest mean pull on the held-out rows.
mn.plots.column_curves(clf.model_, X_test, n_features=4).savefig("columns.png")
# Figure: What each value of a column says about the class.

# %%
# Half of the held-out values are lost. The model compares rows by the values that are left.
lost = np.random.default_rng(0).random(X_test.shape) < 0.5
print(f"{clf.score(X_test.mask(lost), y_test):.1%} right with half of the values")

# %%
# Some answers are not worth giving. Half of the held-out rows set the threshold that rejects one row in
# ten, the least sure and the least familiar. The other half shows the result.
clf.calibrate(X_test[::2], y_test[::2])
answers = clf.predict_or_reject(X_test[1::2], rate=0.1)
given = np.array([answer is not None for answer in answers])
right = np.mean(answers[given] == y_test[1::2][given])
print(
    f"{given.mean():.1%} of the rows are answered, {right:.1%} of the answers are right"
)

# %%
# Five labels are swapped. Models that did not see a row say whether they believe its label.
spoiled, swapped = y.copy(), [10, 60, 110, 160, 210]
spoiled[swapped] = np.where(y[swapped] == "benign", "malignant", "benign")
issues = clf.label_issues(X, spoiled)
print(issues)
print("swapped:", X.index[swapped].tolist())

# %%
# One file for Python, one page for people. The page runs the model and needs no server.
clf.save("tumors.safetensors")
clf.explore("tumors.html", X_test, y_test, title="Biopsies")
same = mn.load("tumors.safetensors")
assert (same.predict(X_test) == clf.predict(X_test)).all()
