"""The memories of a model and what they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.model.parameters import memory_name
from mnemosphere.plots.checks import (
    Array,
    as_indices,
    as_memories,
    as_patterns,
    as_soft_labels,
    same_length,
)
from mnemosphere.plots.patterns import MAX_BARS, Box, aspect, draw_pattern, frame, largest
from mnemosphere.plots.style import (
    BLUE,
    DIVERGING,
    ORANGE,
    SEQUENTIAL,
    class_names,
    figure_style,
    new_axes,
    new_figure,
    plain,
    root_figure,
)

_GAP, _BAND = 0.1, 0.26  # between tiles, and for the names above one; a tile is 1 wide
_MAX_PROFILES = 100  # small multiples of more memories would be specks
_MAX_GRID = 120  # columns of that matrix that lines may separate
_MAX_FEATURES = 25  # rows of names
_MAX_MAPPED = 100  # features of which those rows tell most; of more, each memory has its own
_TERMS, _TERM_COLUMNS = 6, 5  # that are named of a memory then; memories side by side
_MAX_NAMES = 50  # that fit under the class-weight matrix


@figure_style()
def memories(
    w: Any,
    image_shape: Sequence[int] | None = None,
    *,
    indices: Any = None,
    named: bool = True,
    labels: Sequence[object] | None = None,
    ncols: int | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a gallery of memories, each with its name above it: #17, counted from 0.

    Rows that are not images become bars, one per feature. With more than 64 features or 100 memories
    they become the rows of a heat map.

    Parameters
    ----------
    w : array-like of shape (P, N)
        Memories.
    image_shape : (rows, columns) or (rows, columns, 3), default None
        How a memory is an image; None: it is none.
    indices : array-like of int, default None
        Memories to show; None: the first 25.
    named : bool, default True
        Whether names are written.
    labels : sequence of objects, default None
        One for each memory shown, written beside its name.
    ncols : int, default None
        Columns of the gallery; None: about a square.
    vmax : float, default None
        All memories share one scale, −vmax to vmax; None: the largest entry.
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> mn.plots.memories(mn.memory_pictures(pipeline), (8, 8))
    <Axes: ...>
    """
    w = as_patterns(w, "w", image_shape)
    chosen = as_indices(indices, len(w))
    names = [memory_name(k) if named else "" for k in chosen]
    if labels is not None:
        same_length(len(chosen), "memory shown", labels=labels)
    if vmax is not None and not vmax > 0:
        raise ValueError(f"vmax must be positive, got {vmax}")
    shown = w[chosen]
    scale = largest(shown) if vmax is None else vmax
    if image_shape is None and (w.shape[1] > MAX_BARS or len(shown) > _MAX_PROFILES):
        return _heat_map(shown, names, labels, scale, ax)
    nrows, ncols = _grid(len(shown), ncols)
    band = _BAND if named or labels is not None else 0.0
    height = aspect(image_shape)
    width_units, height_units = ncols * (1 + _GAP), nrows * (height + band + _GAP)
    if ax is None:
        tile = max(0.5, min(1.2, 8.0 / ncols))
        ax = new_axes(tile * width_units, tile * height_units + 0.25)
        ax.set_title(_counted(len(shown), len(w)))
    font = _font(ax, width_units, height_units)
    for k, pattern in enumerate(shown):
        row, column = divmod(k, ncols)
        top = -row * (height + band + _GAP)
        box = Box(column * (1 + _GAP), top - band - height, 1.0, height)
        draw_pattern(ax, pattern, box, image_shape, vmax=scale)
        frame(ax, box)
        above = top - band + 0.04
        if named:
            ax.text(box.left, above, names[k], fontsize=font, va="bottom")
        if labels is not None:
            right = box.left + 1
            ax.text(right, above, plain(labels[k], 9), fontsize=font, va="bottom", ha="right")
    ax.set_xlim(-0.02, width_units - _GAP + 0.02)
    ax.set_ylim(-height_units + _GAP - 0.02, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def _counted(shown: int, total: int) -> str:
    return f"{shown} of {total} memories" if shown < total else f"all {total} memories"


def _grid(n: int, ncols: int | None = None) -> tuple[int, int]:
    """(rows, columns); by default about as many of both."""
    if ncols is None:
        ncols = math.ceil(math.sqrt(n))
    if ncols < 1:
        raise ValueError(f"ncols must be at least 1, got {ncols}")
    ncols = min(ncols, n)
    return math.ceil(n / ncols), ncols


def _font(ax: Axes, width_units: float, height_units: float) -> float:
    """Font size of names that fill their band, between 6.5 and 10 points."""
    box = ax.get_position()
    owner, dpi = ax.figure.bbox, root_figure(ax).dpi
    width, height = owner.width / dpi * box.width, owner.height / dpi * box.height
    tile = min(width / width_units, height / height_units)  # about how wide it will come out
    return float(np.clip(72 * tile * _BAND * 0.6, 6.5, 10.0))


def _heat_map(
    shown: Array,
    names: list[str],
    labels: Sequence[object] | None,
    scale: float,
    ax: Axes | None,
) -> Axes:
    n = len(shown)
    if ax is None:
        ax = new_axes(7.2, min(9.0, 1.2 + 0.18 * n))
    image = ax.imshow(shown, aspect="auto", cmap=DIVERGING, vmin=-scale, vmax=scale)
    text = (
        names if labels is None else [f"{a} {plain(b)}" for a, b in zip(names, labels, strict=True)]
    )
    step = math.ceil(n / 40)
    ax.set_yticks(np.arange(0, n, step), text[::step], fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("feature")
    ax.set_ylabel("memory")
    ax.figure.colorbar(image, ax=ax, label="entry of $w$", fraction=0.05, pad=0.02)
    return ax


@figure_style()
def class_weights(
    p: Any, classes: Sequence[object], *, indices: Any = None, ax: Axes | None = None
) -> Axes:
    """Soft labels of memories as a matrix, classes down, memories across.

    p (P+1, C+1) as `class_weights_`; a ring marks the class of each memory.
    """
    soft = as_soft_labels(p)
    names = class_names(classes, soft.shape[1])
    chosen = as_indices(indices, len(soft))
    shown = soft[chosen].T  # (C+1, memories)
    n_classes, n = shown.shape
    if ax is None:
        ax = new_axes(
            float(np.clip(1.8 + 0.3 * n, 4.4, 9.0)),
            float(np.clip(1.3 + 0.25 * n_classes, 2.0, 9.0)),
        )
        ax.set_title(f"what {_counted(n, len(soft))} stand for (ring: the class of the memory)")
    image = ax.imshow(shown, aspect="auto", cmap=SEQUENTIAL, vmin=0.0, vmax=max(1.0, shown.max()))
    size = float(np.clip(260 / n, 1.5, 6.0))
    ax.plot(
        np.arange(n),
        shown.argmax(0),
        "o",
        markersize=size,
        markerfacecolor="none",
        markeredgecolor=ORANGE,
        markeredgewidth=1.2,
        label="column maximum",
    )
    ax.set_yticks(np.arange(n_classes), names, fontsize=float(np.clip(130 / n_classes, 6.0, 10.0)))
    step = 1 if n <= _MAX_NAMES else math.ceil(n / 20)
    ax.set_xticks(
        np.arange(0, n, step),
        [memory_name(k) for k in chosen[::step]],
        fontsize=float(np.clip(240 * step / n, 6.5, 9.5)),
        rotation=90 if n / step > 20 else 0,
    )
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    if n <= _MAX_GRID:
        ax.set_xticks(np.arange(n + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(n_classes + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="#DDDDDD", linewidth=0.4)
    ax.tick_params(which="minor", length=0)
    ax.set_xlabel("memory")
    ax.set_ylabel("class")
    ax.figure.colorbar(
        image, ax=ax, label=r"soft label $p^\mu_y/p_h(\mu)$", fraction=0.06, aspect=24, pad=0.01
    )
    return ax


@figure_style()
def memory_gallery(
    w: Any,
    p: Any,
    *,
    classes: Sequence[object],
    image_shape: Sequence[int] | None = None,
    feature_names: Sequence[object] | None = None,
    unit: str = "standard units",
    indices: Any = None,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draw a gallery of memories above their class weights: Fig. (DAM_memories) of the paper.

    Parameters
    ----------
    w : array-like of shape (P, N)
        Memories.
    p : array-like of shape (P+1, C+1)
        Class weights, as `class_weights_`.
    classes : sequence of C objects
        Names of the classes.
    image_shape : (rows, columns) or (rows, columns, 3), default None
        How a memory is an image; None: it is none.
    feature_names : sequence of N objects, default None
        Draws each memory as a column of features, those that differ most between memories; entries
        should be in one unit, which is named. With more than 100 features, each memory names its own strongest.
    unit : str, default "standard units"
        Unit of the features, for the scale.
    indices : array-like of int, default None
        Memories to show; None: the first 25.
    figure : matplotlib Figure or SubFigure, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Figure or SubFigure
        The figure.

    Examples
    --------
    >>> pictures, second = mn.memory_pictures(pipeline), pipeline[1]
    >>> mn.plots.memory_gallery(
    ...     pictures, second.class_weights_, classes=second.classes_, image_shape=(8, 8)
    ... )
    <Figure ...>
    """
    w, soft = as_memories(w, p, image_shape)
    chosen = as_indices(indices, len(w))
    n_classes = soft.shape[1]
    nrows, ncols = _grid(len(chosen))
    width = 8.0
    tile = min(1.0, 0.88 * width / ncols / (1 + _GAP))
    upper = tile * nrows * (aspect(image_shape) + _BAND + _GAP)
    if feature_names is not None:
        same_length(w.shape[1], "feature", feature_names=feature_names)
        upper = 0.5 + 0.24 * min(w.shape[1], _MAX_FEATURES)
        if w.shape[1] > _MAX_MAPPED:
            width, upper = 9.0, 0.18 * (_TERMS + 2) * -(-len(chosen) // _TERM_COLUMNS)
    lower = float(np.clip(1.0 + 0.24 * n_classes, 2.0, 6.5))
    if figure is None:
        figure = new_figure(width, upper + lower + 0.5)
    top, bottom = figure.subplots(2, 1, height_ratios=[upper, lower])
    if feature_names is None:
        memories(w, image_shape, indices=chosen, ax=top)
    elif w.shape[1] > _MAX_MAPPED:
        _strongest(top, w[chosen], feature_names, [memory_name(k) for k in chosen])
    else:
        _feature_map(top, w[chosen], feature_names, unit)
    top.set_title(_counted(len(chosen), len(w)))
    class_weights(p, classes, indices=chosen, ax=bottom)
    bottom.set_title("what they stand for (ring: the class of the memory)")
    return figure


def _feature_map(ax: Axes, shown: Array, names: Sequence[object], unit: str) -> None:
    """The features that differ most between memories (n, N), in their own order."""
    order = np.sort(np.argsort(-shown.std(0), kind="stable")[:_MAX_FEATURES])
    scale = float(np.quantile(np.abs(shown), 0.98)) or largest(shown)  # a few may be far out
    image = ax.imshow(shown[:, order].T, aspect="auto", cmap=DIVERGING, vmin=-scale, vmax=scale)
    ax.set_yticks(np.arange(len(order)), [plain(names[i], 24) for i in order], fontsize=9)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.figure.colorbar(image, ax=ax, label=unit, fraction=0.06, aspect=24, pad=0.01, extend="both")


def _strongest(ax: Axes, shown: Array, names: Sequence[object], memory: list[str]) -> None:
    """The features in which each memory (n, N) points furthest, with bars as long as they are."""
    scale = largest(shown)
    for k, w in enumerate(shown):
        row, column = divmod(k, _TERM_COLUMNS)
        top = -row * (_TERMS + 2.0)
        ax.text(column, top, memory[k], fontsize=9.5, va="center", weight="bold")
        best = np.argsort(-np.abs(w), kind="stable")[:_TERMS]
        for line, i in enumerate(best, start=1):
            color = BLUE if w[i] > 0 else ORANGE
            ax.barh(top - line, 0.9 * abs(w[i]) / scale, 0.85, left=column, color=color, alpha=0.3)
            ax.text(column + 0.01, top - line, plain(names[i], 24), fontsize=9, va="center")
    ax.set_xlim(-0.02, min(len(shown), _TERM_COLUMNS))
    ax.set_ylim(top - _TERMS - 0.6, 0.8)
    ax.set_axis_off()
