"""Layer 3: pictures. Arrays in, axes or figures out; no global state of matplotlib is touched."""

from mnemosphere.plots.coverage import coverage_curve
from mnemosphere.plots.curves import memory_curves
from mnemosphere.plots.gallery import (
    class_weight_histogram,
    class_weights,
    memories,
    memory_gallery,
)
from mnemosphere.plots.growth import lineage_tree, split_spectrum
from mnemosphere.plots.latent import latent_classes
from mnemosphere.plots.novelty import novelty_histogram
from mnemosphere.plots.output import save
from mnemosphere.plots.predictions import confusion_matrix
from mnemosphere.plots.recall import recall_strips
from mnemosphere.plots.search import search
from mnemosphere.plots.style import figure_style
from mnemosphere.plots.terminal import terminal_gallery
from mnemosphere.plots.training import learning_curves

__all__ = [
    "class_weight_histogram",
    "class_weights",
    "confusion_matrix",
    "coverage_curve",
    "figure_style",
    "latent_classes",
    "learning_curves",
    "lineage_tree",
    "memories",
    "memory_curves",
    "memory_gallery",
    "novelty_histogram",
    "recall_strips",
    "save",
    "search",
    "split_spectrum",
    "terminal_gallery",
]
