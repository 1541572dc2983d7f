"""How training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from mnemosphere.plots.checks import Array, as_array
from mnemosphere.plots.style import BLUE, GREEN, GREY, PURPLE, VERMILLION, figure_style, new_figure
from mnemosphere.training.callbacks import PassRecord


@figure_style()
def learning_curves(
    history: Sequence[PassRecord | Mapping[str, Any]], *, figure: Figure | SubFigure | None = None
) -> Figure | SubFigure:
    """Draw loss, validation accuracy and β over the passes, one above the other.

    Passes are counted from 1 across phases of growth. Dashed lines mark where a phase begins, with its
    number of memories. Without validation there is no panel of accuracy.

    Parameters
    ----------
    history : sequence of dicts or PassRecord
        `history_` of an estimator.
    figure : matplotlib Figure or SubFigure, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Figure or SubFigure
        The figure.

    Examples
    --------
    >>> mn.plots.learning_curves(clf.history_)
    <Figure ...>
    """
    if len(history) == 0:
        raise ValueError("history is empty: train first")
    rows = [dict(r.as_dict() if isinstance(r, PassRecord) else r) for r in history]
    loss, beta = _column(rows, "loss"), _column(rows, "beta")
    held_out = _column(rows, "validation_loss", optional=True)
    accuracy = _column(rows, "validation_accuracy", optional=True)
    has_accuracy = bool(np.isfinite(accuracy).any())
    passes = np.arange(1, len(rows) + 1)

    n_panels = 3 if has_accuracy else 2
    if figure is None:
        figure = new_figure(6.8, 1.2 + 1.8 * n_panels)
    panels: list[Axes] = list(
        figure.subplots(n_panels, 1, sharex=True, height_ratios=[1.4, *[1.0] * (n_panels - 1)])
    )
    top, bottom = panels[0], panels[-1]
    # A curve of one or a few points is seen by its markers only.
    mark = "o" if len(rows) <= 40 else ""
    size = 3.5
    top.plot(passes, loss, marker=mark, markersize=size, color=BLUE, label="training")
    if np.isfinite(held_out).any():
        top.plot(
            passes,
            held_out,
            marker=mark and "s",
            markersize=size,
            color=VERMILLION,
            linestyle="--",
            label="validation",
        )
        top.legend(loc="best")
    top.set_ylabel("loss")
    top.set_title(f"training: {len(rows)} passes, loss {loss[-1]:.4g}", pad=14)
    if has_accuracy:
        panels[1].plot(passes, accuracy, marker=mark, markersize=size, color=GREEN)
        panels[1].yaxis.set_major_formatter(PercentFormatter(1.0))
        panels[1].set_ylabel("validation\naccuracy")
        best = int(np.nanargmax(accuracy))
        panels[1].set_title(f"best {accuracy[best]:.2%} at pass {best + 1}", fontsize=10)
    bottom.plot(passes, beta, marker=mark, markersize=size, color=PURPLE)
    bottom.set_ylabel(r"$\beta$")
    bottom.set_xlabel("pass over the data")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    margin = max(0.5, 0.02 * len(rows))
    bottom.set_xlim(1 - margin, len(rows) + margin)
    _mark_phases(panels, rows)
    figure.align_ylabels(panels)
    return figure


def _mark_phases(panels: Sequence[Axes], rows: Sequence[Mapping[str, Any]]) -> None:
    """A line before the first pass of each phase, its width above where there is room."""
    starts = [0] + [
        k for k in range(1, len(rows)) if rows[k].get("phase") != rows[k - 1].get("phase")
    ]
    if len(starts) == 1:
        return
    left, right = panels[0].get_xlim()
    last = -np.inf
    for k in starts:
        x = k + 0.5
        if k > 0:
            for panel in panels:
                panel.axvline(x, color=GREY, linestyle=(0, (4, 3)), linewidth=0.8, zorder=0)
        if "n_memories" in rows[k] and (x - last) > 0.11 * (right - left):
            name = f"P = {rows[k]['n_memories']}"
            panels[0].annotate(
                name,
                (x, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(2, 3),
                textcoords="offset points",
                fontsize=9,
                color="#444444",
            )
            last = x


def _column(rows: Sequence[Mapping[str, Any]], name: str, *, optional: bool = False) -> Array:
    """One field over all rows; None becomes NaN where the field is optional."""
    if not optional and any(name not in row for row in rows):
        raise ValueError(f"history has rows without {name!r}: pass the records of training")
    values = [row.get(name) for row in rows]
    if optional:
        values = [np.nan if value is None else value for value in values]
    return as_array(values, f"{name} of history", 1, missing=optional)
