"""scikit-learn estimators: each holds a fitted model and delegates to functions of it."""

from mnemosphere.estimators.classifier import DAMClassifier
from mnemosphere.estimators.clusterer import DAMClusterer
from mnemosphere.estimators.label_issues import LabelIssues
from mnemosphere.estimators.patches import PatchEncoder
from mnemosphere.estimators.saving import as_estimator, load, save
from mnemosphere.schema import check_arguments

__all__ = [
    "DAMClassifier",
    "DAMClusterer",
    "LabelIssues",
    "PatchEncoder",
    "as_estimator",
    "load",
    "save",
]

check_arguments(globals())
