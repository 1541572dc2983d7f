"""Layer 3: scikit-learn estimators, explanations and model files."""

from mnemosphere.estimators.classifier import DAMClassifier
from mnemosphere.estimators.clusterer import DAMClusterer
from mnemosphere.estimators.explanation import Explanation, Reason
from mnemosphere.estimators.inference import RecallPath
from mnemosphere.estimators.module import DAMModule
from mnemosphere.estimators.persistence import load, load_classifier
from mnemosphere.estimators.progress import ProgressBar

__all__ = [
    "DAMClassifier",
    "DAMClusterer",
    "DAMModule",
    "Explanation",
    "ProgressBar",
    "Reason",
    "RecallPath",
    "load",
    "load_classifier",
]
