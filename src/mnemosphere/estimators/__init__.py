"""Layer 3: scikit-learn estimators, explanations and model files."""

from mnemosphere.estimators.classifier import DAMClassifier
from mnemosphere.estimators.clusterer import DAMClusterer
from mnemosphere.estimators.explanation import Explanation, Reason
from mnemosphere.estimators.memory_model import RecallPath
from mnemosphere.estimators.module import DAMModule
from mnemosphere.estimators.patches import PatchEncoder
from mnemosphere.estimators.persistence import load
from mnemosphere.estimators.progress import ProgressBar

__all__ = [
    "DAMClassifier",
    "DAMClusterer",
    "DAMModule",
    "Explanation",
    "PatchEncoder",
    "ProgressBar",
    "Reason",
    "RecallPath",
    "load",
]
