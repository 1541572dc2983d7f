"""scikit-learn estimators: each holds a fitted model and delegates to functions of it."""

from mnemosphere.estimators.classifier import DAMClassifier
from mnemosphere.estimators.clusterer import DAMClusterer
from mnemosphere.estimators.label_issues import LabelIssues
from mnemosphere.estimators.saving import as_estimator, load, save

__all__ = [
    "DAMClassifier",
    "DAMClusterer",
    "LabelIssues",
    "as_estimator",
    "load",
    "save",
]
