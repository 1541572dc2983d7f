"""Dense associative memory on the sphere: classify, cluster, recall, explain and grow."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemosphere import data, plots, theory
    from mnemosphere.data.source import Dataset
    from mnemosphere.estimators import (
        DAMClassifier,
        DAMClusterer,
        PatchEncoder,
        explain_images,
        load,
        memory_pictures,
        save,
    )
    from mnemosphere.export import to_onnx
    from mnemosphere.training import SGD, Adam, Callback, Checkpoint, FixedPoint

__all__ = [
    "SGD",
    "Adam",
    "Callback",
    "Checkpoint",
    "DAMClassifier",
    "DAMClusterer",
    "Dataset",
    "FixedPoint",
    "PatchEncoder",
    "__version__",
    "data",
    "explain_images",
    "load",
    "memory_pictures",
    "plots",
    "save",
    "theory",
    "to_onnx",
]
__version__ = "0.1.0"

# Resolved on first use, so that `import mnemosphere` and `mnemosphere --help` are instant.
_HOME = {
    "Dataset": "data.source",
    **dict.fromkeys(("DAMClassifier", "DAMClusterer", "PatchEncoder"), "estimators"),
    **dict.fromkeys(("explain_images", "load", "memory_pictures", "save"), "estimators"),
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
