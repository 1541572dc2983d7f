"""What a model decides, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import PercentFormatter

from mnemosphere.plots.checks import Array, as_array, as_patterns, same_length
from mnemosphere.plots.decision import Decision, draw_classes
from mnemosphere.plots.patterns import aspect, pattern_axes
from mnemosphere.plots.style import SEQUENTIAL, figure_style, new_axes, new_figure, plain

_MAX_PRINTED = 30  # classes beyond which the counts would be too small to read


@figure_style()
def confusion_matrix(
    counts: Any,
    classes: Sequence[object],
    *,
    answers: Sequence[object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a confusion matrix, each cell with its number.

    The color is the share of the row, so rare classes show as well as common ones.

    Parameters
    ----------
    counts : array-like of int of shape (C, C), or (C, K)
        Rows true, columns predicted.
    classes : sequence of C objects
        Names of the classes.
    answers : sequence of K objects, default None
        Names of the columns, if they differ: those of `interpret.classification_report` end with
        "rejected".
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> found = mn.interpret.evaluate(model, [(X_test, y_test, X_test.index)])
    >>> mn.plots.confusion_matrix(found["confusion"], clf.classes_)
    <Axes: ...>
    """
    counts = as_array(counts, "counts", 2)
    n = len(counts)
    answers = classes if answers is None else answers
    if counts.shape != (n, len(answers)):
        raise ValueError(f"counts must be square, got shape {counts.shape}: or pass answers=")
    if counts.min() < 0:
        raise ValueError(f"counts must not be negative, got {counts.min():g}")
    same_length(n, "row of counts", classes=classes)
    names, columns = [plain(c) for c in classes], [plain(c) for c in answers]
    totals = counts.sum(1, keepdims=True)
    share = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    if ax is None:
        side = float(np.clip(1.8 + 0.45 * n, 3.6, 10.0))
        ax = new_axes(side + 0.6, side)
    image = ax.imshow(share, cmap=SEQUENTIAL, vmin=0.0, vmax=1.0)
    if n <= _MAX_PRINTED:
        font = float(np.clip(230 / n, 6.5, 11.0))
        for row, column in zip(*np.nonzero(counts), strict=True):
            color = "white" if share[row, column] > 0.5 else "black"
            ax.text(column, row, f"{counts[row, column]:.5g}", ha="center", va="center",
                    fontsize=font, color=color)  # fmt: skip
    size = float(np.clip(240 / n, 7.0, 10.0))
    step = 1 if n <= _MAX_PRINTED else math.ceil(n / 20)
    turn = 90 if max(map(len, columns)) > 3 else 0
    ax.set_xticks(np.arange(0, len(columns), step), columns[::step], fontsize=size, rotation=turn)
    ax.set_yticks(np.arange(0, n, step), names[::step], fontsize=size)
    ax.tick_params(length=0)
    ax.set_xlabel("predicted")
    ax.set_ylabel("true")
    total = counts.sum()
    if total > 0:
        ax.set_title(f"accuracy {np.trace(counts) / total:.2%} of {total:g}")
    bar = ax.figure.colorbar(image, ax=ax, label="share of the true class", shrink=0.8)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    return ax


@figure_style()
def explanation_strip(
    x: Array,
    memories: Array,
    decision: Decision,
    image_shape: Sequence[int] | None = None,
    *,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """An input x (N,), the memories (K, N) that decide about it with their shares, the predicted class."""
    pattern = as_patterns([x], "x", image_shape)[0]
    n, height = len(decision.shares), aspect(image_shape)
    figure = figure or new_figure(1.1 * (n + 1) + 2.6, strip_height(height))
    grid = figure.add_gridspec(
        2, n + 2, width_ratios=[1.0] * (n + 1) + [1.7], height_ratios=[height, 0.22]
    )
    truth = "" if decision.truth is None else f"truth: {plain(decision.truth)}"
    titles = [f"input\n{truth}", *(decision.memory(k) for k in range(n))]
    by_class = decision.class_colors
    colors = ["black", *(by_class[label] for label in decision.memory_class)]
    for k, shown in enumerate([pattern, *memories]):
        ax = figure.add_subplot(grid[0, k])
        pattern_axes(ax, shown, image_shape, colors[k], 2.0)
        ax.set_title(titles[k], fontsize=10, loc="center")
    for k, color in enumerate(colors[1:]):
        _share_axes(figure.add_subplot(grid[1, k + 1]), float(decision.shares[k]), color)
    draw_classes(figure.add_subplot(grid[:, n + 1]), decision, by_class)
    return figure


def strip_height(height: float) -> float:
    """Inches, for patterns of this height over width."""
    return float(np.clip(1.1 * height + 1.6, 2.6, 4.2))


def _share_axes(ax: Axes, share: float, color: str) -> None:
    ax.barh([0.0], [share], height=0.8, color=color)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(-0.5, 0.5)
    ax.set_yticks([])
    ax.set_xticks([])
    ax.spines[["left", "bottom", "top", "right"]].set_visible(True)
    ax.spines[["left", "bottom", "top", "right"]].set_color("#BBBBBB")
    ax.set_xlabel(f"share {share:.0%}" if share >= 0.01 else "share < 1%", fontsize=10)
