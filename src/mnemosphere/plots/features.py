"""Why a row that is no image got its class: features, or the training rows like it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.plots.checks import Array
from mnemosphere.plots.decision import REST, Decision, draw_classes
from mnemosphere.plots.style import (
    GREEN,
    GREY,
    VERMILLION,
    figure_style,
    new_figure,
    plain,
)

_SHOWN = 12  # features
_LEAST = 0.01  # share of a memory that is named
_TEXTS, _LONGEST = 3, 300  # training rows of a memory, letters of one
_LINE = 0.17  # inches
_FAR = 1e9  # standard units: farther points lie at the edge


@figure_style()
def feature_figure(
    found: Any, decision: Decision, *, figure: Figure | SubFigure | None = None
) -> Figure | SubFigure:
    """Where the row and the memories lie in each feature, what each adds to overlap and odds.

    Positions are in standard units or ranks, with the value as given beside the name. The bars of overlap
    and log-odds add up to what their titles say. found: what `Explanation.features` returns.
    """
    parts = found.summands(_SHOWN)
    shown = [i for *_, i in parts if i >= 0]
    names = [name if i < 0 else f"{plain(name, 36)}  {found.written[i]}" for name, *_, i in parts]
    overlap, odds = [part or 0.0 for _, part, *_ in parts], [part for *_, part, _ in parts]
    if figure is None:
        figure = new_figure(9.0, float(np.clip(1.8 + 0.27 * len(names), 3.4, 6.4)))
    axes: Any = figure.subplots(1, 4, width_ratios=[1.5, 1.0, 1.0, 1.1])
    predicted, runner = plain(found.predicted), plain(found.runner_up)
    _positions(axes[0], found, shown, len(names), f"memories of {predicted}", f"of {runner}")
    known = {str(found.predicted): GREEN, str(found.runner_up): VERMILLION}
    by_class = {k: known[str(c)] for k, c in enumerate(decision.classes) if str(c) in known}
    first = by_class.get(decision.memory_class[0], GREY)
    colors = [first] * len(shown) + [REST] * (len(names) - len(shown))
    title = f"overlap\nwith {found.memory[0]}: {sum(overlap):.2f}"
    _bars(axes[1], overlap, colors, title, "part of\nthe overlap")
    colors = [GREEN if v > 0 else VERMILLION for v in odds]
    title = f"log-odds: {found.log_odds:+.2f}"
    _bars(axes[2], odds, colors, title, f"← {runner}\n{predicted} →")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].tick_params(axis="y", length=0)
    draw_classes(axes[3], decision, by_class)
    own = zip(decision.names, decision.shares, strict=True)
    listed = [f"{name} {share:.0%}" for name, share in own if share >= _LEAST]
    axes[3].text(0.98, 0.02, "\n".join(["memories", *listed]) if listed else "", fontsize=9,
                 ha="right", transform=axes[3].transAxes)  # fmt: skip
    return figure


def _positions(
    ax: Axes, found: Any, shown: list[int], n_lines: int, predicted: str, runner: str
) -> None:
    y = np.arange(len(shown))
    row, near, far = (
        np.asarray(values)[shown].clip(-_FAR, _FAR)
        for values in (found.position, found.predicted_position, found.runner_up_position)
    )
    low, high = np.minimum(np.minimum(row, near), far), np.maximum(np.maximum(row, near), far)
    ax.hlines(y, low, high, color="#DDDDDD", linewidth=1.0, zorder=0)
    ax.axvline(0.0, color=GREY, linewidth=0.5, zorder=0)
    ax.plot(row, y, "D", color="black", markersize=3.5, zorder=3, label="the row")
    ax.plot(near, y, "o", color=GREEN, label=predicted)
    ax.plot(far, y, "o", color=VERMILLION, zorder=1, label=runner)
    _lines(ax, n_lines)
    ax.set_xlabel(found.unit)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=1, fontsize=9,
              handletextpad=0.2, columnspacing=0.8, borderpad=0.1)  # fmt: skip


def _bars(ax: Axes, values: Sequence[float], colors: Sequence[Any], title: str, label: str) -> None:
    ax.barh(range(len(values)), values, height=0.7, color=colors)
    ax.axvline(0.0, color=GREY, linewidth=0.5)
    _lines(ax, len(values))
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.locator_params(axis="x", nbins=5)
    ax.set_title(title, fontsize=10)
    ax.set_xlabel(label)


def _lines(ax: Axes, n: int) -> None:
    ax.set_ylim(n - 0.4, -0.6)


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
    if figure is None:
        figure = new_figure(10.0, max(2.8, _LINE * heights.sum() + 0.9))
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
