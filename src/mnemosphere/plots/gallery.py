"""The memories of a model and what they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mnemosphere.model.mixture import memory_name
from mnemosphere.plots.checks import Array, as_indices, as_patterns
from mnemosphere.plots.patterns import Box, aspect, draw_pattern, frame, largest
from mnemosphere.plots.style import DIVERGING, figure_style, new_axes, plain, root_figure

_GAP, _BAND = 0.1, 0.26  # between tiles, and for the names above one; a tile is 1 wide
_MAX_FEATURES = 25  # rows of names


@figure_style()
def memories(
    w: Any,
    image_shape: Sequence[int] | None = None,
    *,
    indices: Any = None,
    named: bool = True,
    labels: Sequence[object] | None = None,
    feature_names: Sequence[object] | None = None,
    unit: str = "standard units",
    ncols: int | None = None,
    vmax: float | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a gallery of memories, each with its name above it: #17, counted from 0.

    Rows that are not images become bars, one per feature, and lines with more than 64 features.

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
        One for each memory shown, written next to its name.
    feature_names : sequence of N objects, default None
        Draws each memory as a column of the 25 features that differ most between memories; entries
        should be in one unit, which is named.
    unit : str, default "standard units"
        Unit of these features, for the scale.
    ncols : int, default None
        Columns of the gallery; None: about a square.
    vmax : float, default None
        All memories share one scale, −vmax to vmax; None: the largest entry.
    title : str, default None
        Title; None: how many memories are shown, in a new figure.
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> mn.plots.memories(pipeline[0].patch_memories_[0], (4, 4))
    <Axes: ...>
    """
    w = as_patterns(w, "w", image_shape)
    chosen = as_indices(indices, len(w))
    names = [memory_name(k) if named else "" for k in chosen]
    own = [""] * len(chosen) if labels is None else [str(label) for label in labels]
    shown = w[chosen]
    if title is None and ax is None:
        title = counted(len(shown), len(w))
    if feature_names is not None:
        titles = [plain(f"{a} {b}", 24).strip() for a, b in zip(names, own, strict=True)]
        ax = _feature_map(ax, shown, feature_names, titles, unit)
    else:
        scale = largest(shown) if vmax is None else vmax
        ax = _tiles(ax, shown, image_shape, names, own, scale, ncols)
    if title is not None:
        ax.set_title(title)
    return ax


def counted(shown: int, total: int) -> str:
    """How many memories of how many."""
    return f"{shown} of {total} memories" if shown < total else f"all {total} memories"


def _tiles(
    ax: Axes | None, shown: Array, image_shape: Sequence[int] | None, names: list[str],
    labels: list[str], scale: float, ncols: int | None,
) -> Axes:  # fmt: skip
    """Small multiples, about as many side by side as below each other."""
    if ncols is None:  # the first from a square on that leaves no gaps, if there is one
        square = math.ceil(math.sqrt(len(shown)))
        full = (k for k in range(square, 2 * square) if len(shown) % k == 0)
        ncols = next(full, square)
    ncols = min(ncols, len(shown))
    nrows, height = math.ceil(len(shown) / ncols), aspect(image_shape)
    band = _BAND if any(names) or any(labels) else 0.0
    width_units, height_units = ncols * (1 + _GAP), nrows * (height + band + _GAP)
    if ax is None:
        tile = max(0.5, min(1.2, 8.0 / ncols))
        ax = new_axes(tile * width_units, tile * height_units + 0.25)
    font = _font(ax, width_units, height_units)
    for k, (pattern, name, label) in enumerate(zip(shown, names, labels, strict=True)):
        row, column = divmod(k, ncols)
        top = -row * (height + band + _GAP)
        box = Box(column * (1 + _GAP), top - band - height, 1.0, height)
        draw_pattern(ax, pattern, box, image_shape, vmax=scale)
        frame(ax, box)
        above = top - band + 0.04
        if name:
            ax.text(box.left, above, name, fontsize=font, va="bottom")
        if label:
            ax.text(box.left + 1, above, plain(label, 9), fontsize=font, va="bottom", ha="right")
    ax.set_xlim(-0.02, width_units - _GAP + 0.02)
    ax.set_ylim(-height_units + _GAP - 0.02, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def _font(ax: Axes, width_units: float, height_units: float) -> float:
    """Font size of names that fill their band, between 6.5 and 10 points."""
    box = ax.get_window_extent()
    tile = min(
        box.width / width_units, box.height / height_units
    )  # about how wide it will come out
    return float(np.clip(72 / root_figure(ax).dpi * tile * _BAND * 0.6, 6.5, 10.0))


def _feature_map(
    ax: Axes | None, shown: Array, names: Sequence[object], titles: list[str], unit: str
) -> Axes:
    """The features that differ most between memories (n, N), in their own order."""
    order = np.sort(np.argsort(-shown.std(0), kind="stable")[:_MAX_FEATURES])
    shown = shown[:, order]
    scale = float(np.quantile(np.abs(shown), 0.98)) or largest(shown)  # a few may be far out
    ax = ax or new_axes(8.0, 1.4 + 0.24 * len(order))
    image = ax.imshow(shown.T, aspect="auto", cmap=DIVERGING, vmin=-scale, vmax=scale)
    ax.set_yticks(np.arange(len(order)), [plain(names[i], 24) for i in order], fontsize=9)
    turn = 90 if len(titles) * max(map(len, titles)) > 80 else 0
    ax.set_xticks(np.arange(len(titles)), titles, fontsize=9, rotation=turn)
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.figure.colorbar(image, ax=ax, label=unit, fraction=0.06, aspect=24, pad=0.01, extend="both")
    return ax
