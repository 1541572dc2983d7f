"""Layer 2: where rows come from, and how they get on the sphere."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemosphere.data.dataset import Dataset
    from mnemosphere.data.named import NamedData, load

__all__ = ["Dataset", "NamedData", "load"]

# Resolved on first use, so that tables can be read without torch.
_HOME = {
    **dict.fromkeys(("ArrayDataset", "Dataset", "FileDataset"), "dataset"),
    "read_idx": "idx",
    **dict.fromkeys(("NAMES", "NamedData", "load"), "named"),
    **dict.fromkeys(("NORMALIZATIONS", "Normalizer"), "normalize"),
    "StoredRows": "rows",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"mnemosphere.data.{_HOME[name]}"), name)
    raise AttributeError(f"module 'mnemosphere.data' has no attribute {name!r}")
