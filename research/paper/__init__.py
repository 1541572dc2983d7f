"""The paper's tables and figures, each an `Experiment` by its name.

A module holds a tuple EXPERIMENTS and joins by its name in the import and a line of _IN_ORDER.
"""

from research.paper import (
    accuracy,
    capacity,
    hierarchy,
    interpretability,
    memories,
    performance,
    prior,
    regularizer,
    umap_tree,
    unsupervised,
)
from research.paper.experiment import Experiment

_IN_ORDER: tuple[tuple[Experiment, ...], ...] = (
    memories.EXPERIMENTS,
    capacity.EXPERIMENTS,
    hierarchy.EXPERIMENTS,
    accuracy.EXPERIMENTS,
    regularizer.EXPERIMENTS,
    prior.EXPERIMENTS,
    interpretability.EXPERIMENTS,
    unsupervised.EXPERIMENTS,
    umap_tree.EXPERIMENTS,
    performance.EXPERIMENTS,
)

REGISTRY: dict[str, Experiment] = {e.name: e for group in _IN_ORDER for e in group}
