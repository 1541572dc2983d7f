"""Data to learn from: named data sets, patches of images, and a reader for tables of one's own."""

from mnemosphere.datasets.catalog import NAMES, Dataset, load
from mnemosphere.datasets.idx import read_idx
from mnemosphere.datasets.patches import Patches, extract_patches
from mnemosphere.datasets.table import Table, read_table

__all__ = [
    "NAMES",
    "Dataset",
    "Patches",
    "Table",
    "extract_patches",
    "load",
    "read_idx",
    "read_table",
]
