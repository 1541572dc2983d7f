"""Layer 3: scikit-learn estimators, explanations and model files."""

from mnemosphere.estimators.classifier import DAMClassifier
from mnemosphere.estimators.clusterer import DAMClusterer
from mnemosphere.estimators.counterfactual import Counterfactual
from mnemosphere.estimators.explanation import Explanation, Reason
from mnemosphere.estimators.feature_reasons import FeatureReasons
from mnemosphere.estimators.image_explanation import (
    ImageExplanation,
    explain_images,
    memory_pictures,
)
from mnemosphere.estimators.memory_model import RecallPath
from mnemosphere.estimators.module import DAMModule
from mnemosphere.estimators.patches import PatchEncoder
from mnemosphere.estimators.persistence import load, save
from mnemosphere.estimators.progress import ProgressBar

__all__ = [
    "Counterfactual",
    "DAMClassifier",
    "DAMClusterer",
    "DAMModule",
    "Explanation",
    "FeatureReasons",
    "ImageExplanation",
    "PatchEncoder",
    "ProgressBar",
    "Reason",
    "RecallPath",
    "explain_images",
    "load",
    "memory_pictures",
    "save",
]
