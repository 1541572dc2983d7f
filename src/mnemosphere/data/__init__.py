"""Layer 2: where rows come from, and how they get on the sphere."""

from mnemosphere.data.dataset import ArrayDataset, Dataset
from mnemosphere.data.idx import read_idx
from mnemosphere.data.named import NAMES, NamedData, load
from mnemosphere.data.normalize import NORMALIZATIONS, Normalizer
from mnemosphere.data.patches import Patches, extract_patches
from mnemosphere.data.rows import StoredRows

__all__ = [
    "NAMES",
    "NORMALIZATIONS",
    "ArrayDataset",
    "Dataset",
    "NamedData",
    "Normalizer",
    "Patches",
    "StoredRows",
    "extract_patches",
    "load",
    "read_idx",
]
