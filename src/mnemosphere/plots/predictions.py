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
from mnemosphere.plots.patterns import Box, aspect, draw_pattern, frame, largest
from mnemosphere.plots.style import (
    PALETTE,
    SEQUENTIAL,
    class_names,
    figure_style,
    letters,
    new_axes,
    new_figure,
    plain,
    text_on,
)

_MAX_PRINTED = 30  # classes beyond which the counts would be too small to read
_MAX_BARS = 12  # classes in the verdict


@figure_style()
def confusion_matrix(counts: Any, classes: Sequence[object], *, ax: Axes | None = None) -> Axes:
    """Counts (C, C), rows true and columns predicted, each cell with its number (none for 0).

    The color is the share of the row, so that rare classes show as well as common ones.
    """
    counts = as_array(counts, "counts", 2)
    n = len(counts)
    if counts.shape != (n, n):
        raise ValueError(f"counts must be square, got shape {counts.shape}")
    if counts.min() < 0:
        raise ValueError(f"counts must not be negative, got {counts.min():g}")
    same_length(n, "row of counts", classes=classes)
    names = [plain(c) for c in classes]
    totals = counts.sum(1, keepdims=True)
    share = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    if ax is None:
        side = float(np.clip(1.6 + 0.4 * n, 3.2, 10.0))
        ax = new_axes(side + 0.6, side)
    image = ax.imshow(share, cmap=SEQUENTIAL, vmin=0.0, vmax=1.0)
    if n <= _MAX_PRINTED:
        font = float(np.clip(190 / n, 5.5, 9.0))
        for row, column in zip(*np.nonzero(counts), strict=True):
            ax.text(
                column,
                row,
                f"{counts[row, column]:.5g}",
                ha="center",
                va="center",
                fontsize=font,
                color=text_on(SEQUENTIAL(share[row, column])),
            )
    size = float(np.clip(200 / n, 6.0, 8.5))
    step = 1 if n <= _MAX_PRINTED else math.ceil(n / 20)
    long = max(map(len, names)) > 3
    ax.set_xticks(np.arange(0, n, step), names[::step], fontsize=size, rotation=90 if long else 0)
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
    x: Any,
    memories: Any,
    shares: Any,
    soft_labels: Any,
    verdict: object,
    classes: Sequence[object],
    image_shape: Sequence[int] | None = None,
    *,
    truth: object = None,
    names: Sequence[object] | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """An input, the memories that decide about it with their shares, and the verdict.

    x (N,); memories (K, N); shares (K,), the posterior weights of the memories given x, which sum
    to at most 1; soft_labels (K, C) or (K, C+1), p^μ/p_h(μ). Since P(y|x) is the sum of
    share · soft label over all memories, the bars of the verdict are stacked from the memories, in
    the colors of their shares. `names` of the memories: by default letter pairs.
    """
    pattern = as_array(x, "x", 1)
    memories = as_patterns(memories, "memories", image_shape)
    n, n_features = memories.shape
    same_length(n_features, "feature of a memory", x=pattern)
    shares = as_array(shares, "shares", 1)
    soft_labels = as_array(soft_labels, "soft_labels", 2)
    same_length(n, "memory", shares=shares, soft_labels=soft_labels)
    if shares.min() < 0 or shares.sum() > 1 + 1e-6:
        raise ValueError(
            f"shares must not be negative and sum to at most 1, got min {shares.min():g} and sum "
            f"{shares.sum():g}: pass the posterior weights of the memories"
        )
    labels = (
        [plain(c) for c in classes]
        if len(classes) == soft_labels.shape[1]
        else class_names(classes, soft_labels.shape[1])
    )
    texts = [str(c) for c in classes]
    texts += ["none"] * (len(labels) - len(texts))
    if str(verdict) not in texts:
        raise ValueError(f"verdict {verdict!r} is not one of the classes {', '.join(labels)}")
    decided = texts.index(str(verdict))
    names = letters(n) if names is None else names
    same_length(n, "memory", names=names)

    height = aspect(image_shape)
    if figure is None:
        figure = new_figure(1.3 * (n + 1) + 2.6, float(np.clip(1.3 * height + 1.1, 2.1, 4.0)))
    grid = figure.add_gridspec(
        2, n + 2, width_ratios=[1.0] * (n + 1) + [1.7], height_ratios=[height, 0.22]
    )
    known = truth is not None
    title = f"input\ntruth: {plain(truth)}" if known else "input\n"
    _pattern_axes(figure.add_subplot(grid[0, 0]), pattern, image_shape, title, "black")
    for k in range(n):
        color = PALETTE[k % len(PALETTE)]
        top = int(soft_labels[k].argmax())
        title = f"{plain(names[k], 10)}\n{plain(labels[top], 9)} ({soft_labels[k, top]:.2f})"
        _pattern_axes(figure.add_subplot(grid[0, k + 1]), memories[k], image_shape, title, color)
        _share_axes(figure.add_subplot(grid[1, k + 1]), float(shares[k]), color)
    ax = figure.add_subplot(grid[:, n + 1])
    _verdict_axes(ax, shares, soft_labels, labels, decided)
    remark = "" if not known else ", right" if str(truth) == str(verdict) else ", wrong"
    ax.set_title(f"verdict: {labels[decided]}{remark}")
    return figure


def _pattern_axes(
    ax: Axes, pattern: Array, image_shape: Sequence[int] | None, title: str, color: str
) -> None:
    box = Box(0.0, 0.0, 1.0, aspect(image_shape))
    # Each on its own scale: an input is often stronger than the memories near it.
    draw_pattern(ax, pattern, box, image_shape, vmax=largest(pattern))
    frame(ax, box, color, 2.0)
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, box.height + 0.03)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(title, fontsize=8.5, loc="center")


def _share_axes(ax: Axes, share: float, color: str) -> None:
    ax.barh([0.0], [share], height=0.8, color=color)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(-0.5, 0.5)
    ax.set_yticks([])
    ax.set_xticks([])
    ax.spines[["left", "bottom", "top", "right"]].set_visible(True)
    ax.spines[["left", "bottom", "top", "right"]].set_color("#BBBBBB")
    ax.set_xlabel(f"share {share:.0%}" if share >= 0.01 else "share < 1%", fontsize=8.5)


def _verdict_axes(
    ax: Axes, shares: Array, soft_labels: Array, labels: list[str], decided: int
) -> None:
    parts = shares[:, None] * soft_labels  # (K, classes)
    order = np.arange(len(labels))
    if len(labels) > _MAX_BARS:
        # The strongest classes, in the order of the classes.
        order = np.sort(np.argsort(-parts.sum(0), kind="stable")[:_MAX_BARS])
    y = np.arange(len(order))
    start = np.zeros(len(order))
    for k, part in enumerate(parts[:, order]):
        ax.barh(y, part, left=start, height=0.8, color=PALETTE[k % len(PALETTE)])
        start = start + part
    ax.set_yticks(y, [labels[i] for i in order], fontsize=float(np.clip(90 / len(y), 6.0, 8.5)))
    for tick, i in zip(ax.get_yticklabels(), order, strict=True):
        if i == decided:
            tick.set_fontweight("bold")
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0.0, max(0.05, math.ceil(20 * float(start.max())) / 20))
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.locator_params(axis="x", nbins=4)
    ax.set_xlabel(f"weight (memories shown: {shares.sum():.0%})")
