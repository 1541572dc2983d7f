"""Layer 3: pictures. Arrays in, axes or figures out; no global state of matplotlib is touched."""

from mnemosphere.plots.curves import coverage_curve, learning_curves, novelty_histogram, search
from mnemosphere.plots.functions import memory_curves
from mnemosphere.plots.gallery import (
    class_weights,
    memories,
    memory_gallery,
)
from mnemosphere.plots.growth import lineage_tree, split_spectrum
from mnemosphere.plots.latent import latent_classes
from mnemosphere.plots.output import save
from mnemosphere.plots.predictions import confusion_matrix
from mnemosphere.plots.recall import recall_strips
from mnemosphere.plots.style import figure_style

__all__ = [
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
]
