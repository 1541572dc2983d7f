"""Dense associative memory on the sphere: classify, cluster, recall, explain and grow."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemosphere import data, export, interpret, plots, theory
    from mnemosphere.data.dataset import Dataset
    from mnemosphere.estimators import (
        DAMClassifier,
        DAMClusterer,
        LabelIssues,
        PatchEncoder,
        as_estimator,
        load,
        save,
    )
    from mnemosphere.export import to_onnx
    from mnemosphere.fitted import FittedModel
    from mnemosphere.interpret import explain_images, memory_pictures
    from mnemosphere.labels import OUT_OF_SCOPE
    from mnemosphere.training import SGD, Adam, Callback, Checkpoint, FixedPoint

__all__ = [
    "OUT_OF_SCOPE",
    "SGD",
    "Adam",
    "Callback",
    "Checkpoint",
    "DAMClassifier",
    "DAMClusterer",
    "Dataset",
    "FittedModel",
    "FixedPoint",
    "LabelIssues",
    "PatchEncoder",
    "__version__",
    "as_estimator",
    "data",
    "explain_images",
    "export",
    "interpret",
    "load",
    "memory_pictures",
    "plots",
    "save",
    "theory",
    "to_onnx",
]
__version__ = "0.3.0"

# Resolved on first use, so that `import mnemosphere` and `mnemosphere --help` are instant.
_HOME = {
    "Dataset": "data.dataset",
    **dict.fromkeys(("DAMClassifier", "DAMClusterer", "PatchEncoder"), "estimators"),
    **dict.fromkeys(("LabelIssues", "as_estimator", "load", "save"), "estimators"),
    **dict.fromkeys(("explain_images", "memory_pictures"), "interpret"),
    "FittedModel": "fitted",
    "OUT_OF_SCOPE": "labels",
    "to_onnx": "export",
    **dict.fromkeys(("SGD", "Adam", "Callback", "Checkpoint", "FixedPoint"), "training"),
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"mnemosphere.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"mnemosphere.{name}")
    raise AttributeError(f"module 'mnemosphere' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
