"""Pictures of recall: patterns on their way down the energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from mnemosphere.plots.checks import Array, as_array, as_patterns
from mnemosphere.plots.patterns import aspect, pattern_axes
from mnemosphere.plots.style import BLUE, GREY, VERMILLION, figure_style, new_figure, plain

_BETWEEN = 3  # patterns shown between the first and the last


@figure_style()
def recall_strips(
    path: Any,
    energies: Any,
    image_shape: Sequence[int] | None = None,
    *,
    originals: Any = None,
    known: Any = None,
    names: Sequence[object] | None = None,
    predictions: Sequence[object] | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draw the recall of rows: the original, the start, a few steps, the end, and the energy.

    Parameters
    ----------
    path : array-like of shape (S+1, n, N)
        Rows after each step, as in a `RecallPath`.
    energies : array-like of shape (S+1, n)
        Energies after each step.
    image_shape : (rows, columns) or (rows, columns, 3), default None
        How a row is an image; None: it is none.
    originals : array-like of shape (n, N), default None
        Drawn first.
    known : array-like of bool of shape (n, N), default None
        Features that are not known are left white in the start.
    names : sequence of n objects, default None
        Written under the originals, or else under the starts.
    predictions : sequence of n objects, default None
        Written under the ends.
    figure : matplotlib Figure or SubFigure, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Figure or SubFigure
        The figure.

    Examples
    --------
    >>> found = mn.interpret.recall(model, X_test[:2], path=True)
    >>> mn.plots.recall_strips(found.rows, found.energies)
    <Figure ...>
    """
    path, energies = as_array(path, "path", 3), as_array(energies, "energies", 2)
    n = path.shape[1]
    as_patterns(path[0], "path", image_shape)
    columns: list[tuple[str, Array]] = []
    if originals is not None:
        columns.append(("original", as_patterns(originals, "originals", image_shape)))
    start = path[0].copy()
    if known is not None:
        start[~np.asarray(known, dtype=bool)] = np.nan
    columns.append(("start", start))
    shown = _steps_shown(energies)
    columns += [(f"step {k}", path[k]) for k in shown[:-1]]
    if len(path) > 1:
        columns.append((f"recalled\n{shown[-1]} steps", path[-1]))
    height = aspect(image_shape)
    if figure is None:
        figure = new_figure(1.05 * len(columns) + 2.2, n * (1.05 * height + 0.32) + 1.0)
        figure.suptitle("recall: down the energy to a memory", fontsize=12, x=0.01, ha="left")
    grid = figure.add_gridspec(n, len(columns) + 1, width_ratios=[1.0] * len(columns) + [1.6])
    for row in range(n):
        for k, (title, patterns) in enumerate(columns):
            ax = figure.add_subplot(grid[row, k])
            last = k == len(columns) - 1
            pattern_axes(
                ax, patterns[row], image_shape, BLUE if last else GREY, 1.6 if last else 0.6
            )
            if row == 0:
                ax.set_title(title, fontsize=10, loc="center")
            below = names if k == 0 else predictions if last else None
            if below is not None:
                text = plain(below[row], 14)
                ax.text(0.5, -0.06, text, fontsize=10, ha="center", va="top")
        ax = figure.add_subplot(grid[row, len(columns)])
        _energy(ax, energies[:, row], bottom=row == n - 1)
        if row == 0:
            ax.set_title("energy", fontsize=10)
    return figure


def _steps_shown(energies: Array) -> list[int]:
    """The last step and a few before it, each after as much of the whole descent as any other."""
    last = len(energies) - 1
    fallen = (energies[:1] - energies).mean(1)
    if last < 1 or fallen[-1] <= 0:
        return [last]
    levels = fallen[-1] * np.arange(1, _BETWEEN + 1) / (_BETWEEN + 1)
    between = {int(np.argmax(fallen >= level)) for level in levels}
    return [*sorted(between - {0, last}), last]


def _energy(ax: Axes, energy: Array, *, bottom: bool) -> None:
    steps = np.arange(len(energy))
    ax.plot(steps, energy, color=VERMILLION, marker="o", markersize=2.5, linewidth=1.2)
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(3))
    ax.tick_params(labelsize=9)
    if bottom:
        ax.set_xlabel("step", fontsize=10)
