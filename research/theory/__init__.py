"""The data of the theory's pictures, and the pictures.

A function that computes returns a frozen dataclass of plain arrays; its `draw` returns axes.
"""

from mnemosphere.experiments.theory.branches import (
    Branches,
    coexistence_window,
    follow_branches,
)
from mnemosphere.experiments.theory.hierarchy import (
    Hierarchy,
    Spectrum,
    duplicated_spectrum,
    follow_hierarchy,
    tree_patterns,
)
from mnemosphere.experiments.theory.overlaps import OverlapCurves, Sampling, compare_overlaps
from mnemosphere.experiments.theory.phases import PhaseDiagram, map_phases
from mnemosphere.experiments.theory.setting import Setting

__all__ = [
    "Branches",
    "Hierarchy",
    "OverlapCurves",
    "PhaseDiagram",
    "Sampling",
    "Setting",
    "Spectrum",
    "coexistence_window",
    "compare_overlaps",
    "duplicated_spectrum",
    "follow_branches",
    "follow_hierarchy",
    "map_phases",
    "tree_patterns",
]
