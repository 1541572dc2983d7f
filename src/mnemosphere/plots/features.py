"""Why a row that is no image got its class: features, or the training rows like it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.base.colors import category_colors
from mnemosphere.base.text import percent
from mnemosphere.plots.checks import Array
from mnemosphere.plots.decision import Decision, draw_classes
from mnemosphere.plots.style import GREY, figure_style, new_figure, plain

_SHOWN, _SHORT = 12, 16  # columns, letters of a value
_LEAST = 0.01  # share of a memory that is named
_TEXTS, _LONGEST = 3, 300  # training rows of a memory, letters of one
_LINE = 0.17  # inches


@figure_style()
def feature_figure(
    pulls: Sequence[Any], decision: Decision, *, figure: Figure | SubFigure | None = None
) -> Figure | SubFigure:
    """The columns that pull most, with their values and what is typical of both classes; the classes.

    pulls: what `Explanation.pulls` returns.
    """
    shown = sorted(pulls[:_SHOWN], key=lambda own: -own.pull)
    order = np.argsort(-decision.proba, kind="stable").tolist()
    predicted, runner = (plain(decision.classes[c], _SHORT) for c in (order[0], order[1]))
    figure = figure or new_figure(9.0, float(np.clip(1.6 + 0.3 * len(shown), 3.0, 6.4)))
    axes: Any = figure.subplots(1, 2, width_ratios=[2.4, 1.0])
    ax, values = axes[0], [own.pull for own in shown]
    colors = category_colors(len(decision.classes))
    by_class = {place: colors[place] for place in order[:2]}
    ax.barh(range(len(shown)), values, 0.7, color=[colors[order[v <= 0]] for v in values])
    ax.axvline(0.0, color=GREY, linewidth=0.5)
    names = [f"{plain(own.column, 30)}  {plain(own.value, _SHORT)}" for own in shown]
    ax.set_yticks(range(len(shown)), names)
    typical = [f"{plain(own.predicted, _SHORT)} | {plain(own.runner_up, _SHORT)}" for own in shown]
    right = ax.secondary_yaxis("right")
    right.set_yticks(range(len(shown)), typical)
    ax.set_title(f"typical of\n{predicted} | {runner}", fontsize=9, loc="right", ha="left")
    for side in (ax, right):
        side.tick_params(axis="y", length=0)
        side.spines[["left", "right"]].set_visible(False)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel(f"← for {runner}     pull     for {predicted} →")
    draw_classes(axes[1], decision, by_class)
    own = zip(decision.names, decision.shares, strict=True)
    listed = [f"{name} {percent(float(share))}" for name, share in own if share >= _LEAST]
    axes[1].text(0.98, 0.02, "\n".join(["memories", *listed]) if listed else "", fontsize=9,
                 ha="right", transform=axes[1].transAxes)  # fmt: skip
    return figure


@figure_style()
def memory_texts(names: Sequence[str], texts: Sequence[Sequence[str]]) -> Figure | SubFigure:
    """Memories of texts: the name of each, and the training rows most like it."""
    blocks, heights = _blocks(texts, 100)
    figure = new_figure(9.0, _LINE * heights.sum() + 0.5)
    ax = figure.subplots()
    _write_blocks(ax, blocks, heights, names)
    ax.set_xticks([])
    ax.spines[["bottom", "left"]].set_visible(False)
    ax.set_title("memories, by the training rows most like them")
    return figure


def _blocks(texts: Sequence[Sequence[str]], width: int) -> tuple[list[str], Array]:
    """For each memory its first texts, broken into lines, and the height of that block in lines."""
    blocks = []
    for own in texts:
        lines = [textwrap.fill(plain(text, _LONGEST), width, subsequent_indent="    ")
                 for text in own[:_TEXTS]]  # fmt: skip
        blocks.append("\n".join(lines))
    return blocks, np.array([max(2, block.count("\n") + 1) + 1.0 for block in blocks])


def _write_blocks(ax: Axes, blocks: list[str], heights: Array, names: Sequence[str]) -> Array:
    """Blocks below each other, names at their left; their middles."""
    middle: Array = heights.cumsum() - heights / 2
    for place, block in zip(middle.tolist(), blocks, strict=True):
        ax.text(0.01, place, block, va="center", fontsize=9, linespacing=1.25)
    ax.set_yticks(middle, list(names), fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(heights.sum(), 0.0)
    return middle


@figure_style()
def typical_rows(
    texts: Sequence[Sequence[str]],
    decision: Decision,
    *,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """The training rows like the memories that decided: for each memory its texts or ids.

    For rows whose features say nothing to people, such as embeddings.
    """
    blocks, heights = _blocks(texts, 66)
    figure = figure or new_figure(10.0, max(2.8, _LINE * heights.sum() + 0.9))
    axes: Any = figure.subplots(1, 2, width_ratios=[2.4, 1.0])
    left, right = axes
    names = [decision.memory(k, 26) for k in range(len(texts))]
    middle = _write_blocks(left, blocks, heights, names)
    by_class = decision.class_colors
    colors = [by_class[label] for label in decision.memory_class]
    left.barh(middle, decision.shares, height=heights - 0.6, color=colors, alpha=0.25)
    left.set_xticks([0.0, 0.5, 1.0], ["0", "50%", "100%"])
    left.set_xlabel("share of the memory")
    left.set_title("training rows like the memories that decided")
    draw_classes(right, decision, by_class)
    return figure
