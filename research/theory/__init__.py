"""The data of the theory's pictures, and the pictures.

A function that computes returns a frozen dataclass of plain arrays; its `draw` returns axes.
"""

from research.theory.branches import (
    Branches,
    coexistence_window,
    trace_branches,
)
from research.theory.hierarchy import (
    Hierarchy,
    Spectrum,
    duplicated_spectrum,
    trace_hierarchy,
    tree_patterns,
)
from research.theory.overlaps import (
    OverlapCurves,
    Sampling,
    compare_overlaps,
    near_transition,
)
from research.theory.phases import PhaseDiagram, map_phases
from research.theory.setting import Setting

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
    "map_phases",
    "near_transition",
    "trace_branches",
    "trace_hierarchy",
    "tree_patterns",
]
