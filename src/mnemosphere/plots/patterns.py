"""A pattern (an input or a memory) drawn inside a box: an image, bars or a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from mnemosphere.plots.checks import Array
from mnemosphere.plots.style import BLUE, DIVERGING, GREY, VERMILLION

MAX_BARS = 64  # features that still have a bar of their own


class Box(NamedTuple):
    """A rectangle in data coordinates."""

    left: float
    bottom: float
    width: float
    height: float


def largest(patterns: Array) -> float:
    """The scale of signed patterns: max |entry|, 1 if all are zero."""
    return float(np.abs(patterns).max()) or 1.0


def aspect(image_shape: Sequence[int] | None) -> float:
    """Height over width of a box that suits the pattern."""
    return 0.7 if image_shape is None else image_shape[0] / image_shape[1]


def draw_pattern(
    ax: Axes,
    pattern: Array,
    box: Box,
    image_shape: Sequence[int] | None,
    *,
    vmax: float,
) -> None:
    """Draw `pattern` (N,) with ±vmax at the ends of the color map, or at the rims of the box."""
    if image_shape is None:
        _draw_profile(ax, pattern, box, vmax)
        return
    image = pattern.reshape(image_shape)
    if image.ndim == 3:  # colors have no zero of their own: grey is
        image = np.clip(0.5 + image / (2 * vmax), 0.0, 1.0)
    extent = (box.left, box.left + box.width, box.bottom, box.bottom + box.height)
    ax.imshow(image, extent=extent, cmap=DIVERGING, vmin=-vmax, vmax=vmax, interpolation="nearest")


def frame(ax: Axes, box: Box, color: str = GREY, width: float = 0.6) -> None:
    """A thin frame around a box."""
    ax.add_patch(
        Rectangle(
            box[:2],
            box.width,
            box.height,
            fill=False,
            edgecolor=color,
            linewidth=width,
            zorder=3,
            clip_on=False,  # a frame at the edge of its axes keeps its outer half
        )
    )


def pattern_axes(
    ax: Axes, pattern: Array, image_shape: Sequence[int] | None, color: str, width: float
) -> None:
    """One pattern in axes of its own, in a frame; NaN is left blank.

    Each on its own scale: an input is often stronger than the memories near it, or fainter.
    """
    box = Box(0.0, 0.0, 1.0, aspect(image_shape))
    seen = pattern[np.isfinite(pattern)]
    ax.set_facecolor("#DDDDDD" if seen.size < pattern.size else "white")
    if image_shape is None:
        pattern = np.nan_to_num(pattern)  # a bar of no height
    draw_pattern(ax, pattern, box, image_shape, vmax=largest(seen) if seen.size else 1.0)
    frame(ax, box, color, width)
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, box.height + 0.03)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def _draw_profile(ax: Axes, pattern: Array, box: Box, vmax: float) -> None:
    n = len(pattern)
    middle = box.bottom + box.height / 2
    heights = pattern / vmax * box.height / 2
    x = box.left + (np.arange(n) + 0.5) / n * box.width
    ax.plot([box.left, box.left + box.width], [middle, middle], color=GREY, linewidth=0.5)
    if n <= MAX_BARS:
        colors = np.where(pattern < 0, BLUE, VERMILLION).tolist()
        ax.bar(x, heights, width=0.8 * box.width / n, bottom=middle, color=colors)
    else:
        ax.plot(x, middle + heights, color=BLUE, linewidth=0.6)
