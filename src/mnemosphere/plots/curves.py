"""Curves and bars: how training went, what a search compared, how new rows are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mnemosphere.plots.style import (
    GREY,
    figure_style,
    new_figure,
)  # fmt: skip

_PANELS = {
    "loss": ("loss", "validation_loss"),
    "validation\naccuracy": ("validation_accuracy",),
    r"$\beta$": ("beta",),
}  # of training, and the curves of each


@figure_style()
def learning_curves(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss, validation accuracy and β over the passes of `history_`, one above the other.

    Dashed lines mark where a phase of growth begins; the title has the number of memories.
    """
    if len(history) == 0:
        raise ValueError("history is empty: train first")
    curves = {
        name: np.array([row.get(name) for row in history], dtype=np.float64)  # None: NaN
        for panel in _PANELS.values()
        for name in panel
    }
    known = {name for name, values in curves.items() if np.isfinite(values).any()}
    panels = {label: known.intersection(names) for label, names in _PANELS.items()}
    shown = {label: sorted(names) for label, names in panels.items() if names}
    phase = [row["phase"] for row in history]
    starts = [k for k in range(1, len(phase)) if phase[k] != phase[k - 1]]
    figure = new_figure(6.8, 1.2 + 1.8 * len(shown))
    axes: Any = figure.subplots(len(shown), 1, sharex=True)
    # A curve of one or a few points is seen by its markers only.
    marks: Any = {"marker": "o" if len(history) <= 40 else "", "markersize": 3.5}
    for ax, (label, names) in zip(axes, shown.items(), strict=True):
        for name in names:
            passes = np.arange(1, len(history) + 1)
            ax.plot(passes, curves[name], label=name.replace("_", " "), **marks)
        for k in starts:
            ax.axvline(k + 0.5, color=GREY, linestyle=(0, (4, 3)), linewidth=0.8, zorder=0)
        ax.set_ylabel(label)
    axes[0].legend()
    first, last = (history[k]["n_memories"] for k in (0, -1))
    width = f"{first} to {last}" if starts else f"{last}"
    axes[0].set_title(f"{len(history)} passes, {width} memories, loss {curves['loss'][-1]:.4g}")
    axes[-1].set_xlabel("pass over the data")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.align_ylabels()
    return figure
