"""Dense associative memory on the sphere: classify, cluster, recall, explain and grow."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemosphere import export, interpret, theory
    from mnemosphere import plots as plots
    from mnemosphere.estimators import (
        DAMClassifier,
        DAMClusterer,
        LabelIssues,
        as_estimator,
        load,
        save,
    )
    from mnemosphere.export import to_onnx
    from mnemosphere.fitted.model import FittedModel
    from mnemosphere.images import PatchEncoder
    from mnemosphere.rows.batches import Dataset
    from mnemosphere.rows.labels import OUT_OF_SCOPE
    from mnemosphere.rows.named import NamedData, load_data
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
    "NamedData",
    "PatchEncoder",
    "__version__",
    "as_estimator",
    "export",
    "interpret",
    "load",
    "load_data",
    "save",
    "theory",
    "to_onnx",
]
__version__ = "0.5.0"

# Resolved on first use, so that `import mnemosphere` and `mnemosphere --help` are instant.
_HOME = {
    "Dataset": "rows.batches",
    **dict.fromkeys(("DAMClassifier", "DAMClusterer"), "estimators"),
    **dict.fromkeys(("LabelIssues", "as_estimator", "load", "save"), "estimators"),
    "FittedModel": "fitted.model",
    "OUT_OF_SCOPE": "rows.labels",
    "PatchEncoder": "images",
    **dict.fromkeys(("NamedData", "load_data"), "rows.named"),
    "to_onnx": "export",
    **dict.fromkeys(("SGD", "Adam", "Callback", "Checkpoint", "FixedPoint"), "training"),
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"mnemosphere.{_HOME[name]}"), name)
    if name in (*__all__, "plots"):  # plots needs matplotlib: a star import leaves it out
        return import_module(f"mnemosphere.{name}")
    raise AttributeError(f"module 'mnemosphere' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "plots"]
