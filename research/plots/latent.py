"""Memories sorted by their latent class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mnemosphere.plots.checks import Array
from mnemosphere.plots.patterns import Box, aspect, draw_pattern, frame
from mnemosphere.plots.style import GREY, figure_style
from research.plots.gallery import soft_labels

_GAP, _ROW_GAP, _BAR = 0.1, 0.16, 0.1  # between tiles, between classes, height of a bar
_MAX_ROW = 20  # memories of one class before a second line begins


@figure_style()
def latent_classes(ax: Axes, w: Any, p: Any, *, image_shape: Sequence[int], vmax: float) -> None:
    """All memories w (P, N), one row per latent class of p (P+1, C+1), the clearest first.

    The bar under a memory is as long as its largest soft label. Left of a row stands its class with the
    number of its memories.
    """
    soft = soft_labels(p)
    names = [*map(str, range(soft.shape[1] - 1)), "none"]
    rows = _rows(soft)
    height = aspect(image_shape)
    ncols = max(1, *(len(line) for _, _, line in rows))
    pitch = height + _BAR + _ROW_GAP
    for place, (y, first, line) in enumerate(rows):
        bottom = -place * pitch - height
        for column, memory in enumerate(line):
            box = Box(column * (1 + _GAP), bottom, 1.0, height)
            draw_pattern(ax, w[memory], box, image_shape, vmax=vmax)
            frame(ax, box, width=0.4)
            _sureness(ax, box, float(soft[memory].max()))
        if first:
            count = int((soft.argmax(1) == y).sum())
            text = f"{names[y]}  ({count})"
            ax.text(-0.25, bottom + height / 2, text, ha="right", va="center", fontsize=10)
    ax.set_xlim(-0.05, ncols * (1 + _GAP) - _GAP + 0.05)
    ax.set_ylim(-len(rows) * pitch + _ROW_GAP / 2, 0.05)
    ax.set_aspect("equal")
    ax.set_axis_off()


def _rows(soft: Array) -> list[tuple[int, bool, NDArray[np.int64]]]:
    """(class, whether its first line, memories) of every line of the picture."""
    label, sureness = soft.argmax(1), soft.max(1)
    found = []
    for y in range(soft.shape[1]):
        members = np.flatnonzero(label == y)
        if y == soft.shape[1] - 1 and members.size == 0:
            continue
        members = members[np.argsort(-sureness[members], kind="stable")]
        for start in range(0, max(len(members), 1), _MAX_ROW):
            found.append((y, start == 0, members[start : start + _MAX_ROW]))
    return found


def _sureness(ax: Axes, box: Box, value: float) -> None:
    bottom = box.bottom - 0.6 * _BAR
    ax.plot([box.left, box.left + box.width], [bottom] * 2, color="#E0E0E0", linewidth=1.6,
            solid_capstyle="butt")  # fmt: skip
    ax.plot([box.left, box.left + box.width * min(value, 1.0)], [bottom] * 2, color=GREY,
            linewidth=1.6, solid_capstyle="butt")  # fmt: skip
