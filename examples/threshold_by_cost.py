"""A threshold for unequal costs, by scikit-learn

A missed tumor costs more than a false alarm. scikit-learn's `TunedThresholdClassifierCV` finds the
threshold of a classifier by cross-validation. The model itself does not change, so its explanations
stay true.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import confusion_matrix, make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV, train_test_split

import mnemosphere as mn

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
y = y.map({0: "malignant", 1: "benign"})
X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
clf = mn.DAMClassifier(random_state=0).fit(X, y)
print(f"{clf.n_memories_} memories, {clf.geometry_}, {clf.objective_}")


# %%
# A missed tumor counts as twenty false alarms. The settings that `fit` found are passed on, so the
# folds do not search for them again.
def cost(truth, answer):
    missed = (truth == "malignant") & (answer == "benign")
    alarm = (truth == "benign") & (answer == "malignant")
    return (20 * missed + alarm).mean()


clf.set_params(
    n_memories=clf.n_memories_, geometry=clf.geometry_, objective=clf.objective_
)
scorer = make_scorer(cost, greater_is_better=False)
tuned = TunedThresholdClassifierCV(clf, scoring=scorer, random_state=0).fit(X, y)
for threshold, model in {0.5: clf, tuned.best_threshold_: tuned}.items():
    answer = model.predict(X_test)
    print(
        f"malignant from {threshold:.3f}: cost {cost(y_test, answer):.2f} per test row"
    )
    print(confusion_matrix(y_test, answer, labels=["malignant", "benign"]))

# %%
# For calibrated probabilities, the best threshold is 1 / (1 + 20), or 0.048. The one found is close to it.
# Limits: the wrapper only takes two classes, and it never abstains. For more classes, and for rows that
# should get no class, use `calibrate` and `predict_or_reject`.
#
# `estimator_` is the classifier in the wrapper. Its explanations state probabilities, so they can name
# a different class than the costs do:
row = X_test[tuned.predict(X_test) != clf.predict(X_test)][:1]
print(tuned.predict(row))
print(str(tuned.estimator_.explain(row)).partition("\n\n")[0])
