"""What a model decides, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.plots.checks import Array, as_patterns
from mnemosphere.plots.decision import Decision, draw_classes
from mnemosphere.plots.patterns import aspect, pattern_axes
from mnemosphere.plots.style import figure_style, new_figure, plain


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
