"""Memories that are images, drawn in a terminal as a plain string."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mnemosphere.model.parameters import memory_name
from mnemosphere.plots.checks import Array
from mnemosphere.plots.patterns import largest

_SHADES = " .:-=+*#%@"
# Dark in the middle: zero recedes on a dark terminal and still frames the picture on a light one.
_NEGATIVE, _ZERO, _POSITIVE = (86, 180, 233), (22, 22, 26), (255, 183, 64)
# The 6 x 6 x 6 cube and the 24 greys that every terminal with colors has, by number from 16 on.
_STEPS = np.array([0, 95, 135, 175, 215, 255])
_CUBE = np.stack(np.meshgrid(_STEPS, _STEPS, _STEPS, indexing="ij"), -1).reshape(-1, 3)
_COLORS = np.concatenate([_CUBE, np.repeat(np.arange(8, 248, 10), 3).reshape(-1, 3)])


def terminal_gallery(
    w: Array, image_shape: Sequence[int], columns: int, *, ncols: int, indices: Sequence[int],
    color: bool,
) -> str:  # fmt: skip
    """Memories w (P, pixels) side by side, `ncols` in `columns` characters; two pixels a character.

    Positive entries are amber, negative ones blue, zero dark. Without color: shades of the positive
    part. Images are shrunk by averaging to fit.
    """
    shown = w[list(indices)] / largest(w[list(indices)])
    rows, width = image_shape[:2]
    tile = min(width, (columns + 1) // ncols - 1)
    down = _averages(max(1, round(rows * tile / width / 2)) * 2, rows)
    images = shown.reshape(len(shown), rows, width, -1).mean(3)
    drawn = [_draw(down @ image @ _averages(tile, width).T, color) for image in images]
    lines = []
    for first in range(0, len(drawn), ncols):
        group = slice(first, first + ncols)
        lines.append(" ".join(memory_name(k).ljust(tile)[:tile] for k in indices[group]))
        lines += (" ".join(parts) for parts in zip(*drawn[group], strict=True))
    return "\n".join(line.rstrip() for line in lines)


def _averages(new: int, old: int) -> Array:
    """(new, old) weights: the overlap of cell i/new with cell j/old; each row sums to 1."""
    edges, cells = np.arange(new + 1) * old / new, np.arange(old)
    low, high = np.maximum(edges[:-1, None], cells), np.minimum(edges[1:, None], cells + 1)
    weights: Array = np.maximum(0.0, high - low) * new / old
    return weights


def _draw(image: Array, color: bool) -> list[str]:
    """Lines of text for an image with an even number of rows and entries in [−1, 1]."""
    upper, lower = image[0::2], image[1::2]
    if not color:
        level = np.clip((upper + lower) / 2, 0, 1) ** 0.75 * (len(_SHADES) - 1)
        return ["".join(_SHADES[round(k)] for k in row) for row in level.tolist()]
    pairs = zip(_codes(upper).tolist(), _codes(lower).tolist(), strict=True)
    return [
        "".join(f"\x1b[38;5;{a};48;5;{b}m▀" for a, b in zip(*pair, strict=True)) + "\x1b[0m"
        for pair in pairs
    ]


def _codes(values: Array) -> NDArray[np.intp]:
    """Numbers of the nearest colors; faint strokes are raised, since screens show little of them."""
    strength = np.abs(values)[..., None] ** 0.75
    wanted = (1 - strength) * np.array(_ZERO)
    wanted = wanted + strength * np.where(values[..., None] < 0, _NEGATIVE, _POSITIVE)
    nearest: NDArray[np.intp] = np.square(wanted[..., None, :] - _COLORS).sum(-1).argmin(-1)
    return nearest + 16
