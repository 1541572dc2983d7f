"""Memories drawn in a terminal, as a plain string."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mnemosphere.model.parameters import memory_name
from mnemosphere.plots.checks import Array, as_indices, as_patterns
from mnemosphere.plots.patterns import largest

Color = Literal["truecolor", "256", "none"]
_SHADES = " .:-=+*#%@"
# Dark in the middle: zero recedes on a dark terminal and still frames the picture on a light one.
_NEGATIVE, _ZERO, _POSITIVE = (86, 180, 233), (22, 22, 26), (255, 183, 64)
_RESET = "\x1b[0m"
_GAP = 1


def terminal_gallery(
    w: Any,
    image_shape: Sequence[int] | None = None,
    columns: int = 80,
    *,
    ncols: int = 5,
    indices: Any = None,
    color: Color = "truecolor",
) -> str:
    """Draw memories with characters, for a terminal.

    Two pixels share a character by half blocks: positive entries are amber, negative ones blue, zero
    dark. Images are shrunk by averaging to fit. Rows that are not images become one line each.

    Parameters
    ----------
    w : array-like of shape (P, N)
        Memories.
    image_shape : (rows, columns), default None
        How a memory is an image; None: it is none.
    columns : int, default 80
        Characters of a line at most.
    ncols : int, default 5
        Memories side by side.
    indices : array-like of int, default None
        Memories to show; None: the first 25.
    color : {"truecolor", "256", "none"}, default "truecolor"
        "none": ASCII shades of the positive part, without escape sequences.

    Returns
    -------
    str
        Text.

    Examples
    --------
    >>> text = mn.plots.terminal_gallery(mn.memory_pictures(pipeline), (8, 8), color="none")
    >>> "#0" in text
    True
    """
    if color not in ("truecolor", "256", "none"):
        raise ValueError(f"color must be 'truecolor', '256' or 'none', got {color!r}")
    w = as_patterns(w, "w", image_shape)
    chosen = as_indices(indices, len(w))
    shown, names = w[chosen], [memory_name(k) for k in chosen]
    left = max(map(len, names))
    names = [name.ljust(left) for name in names]
    scale = largest(shown)
    if image_shape is None:
        return _strips(shown / scale, names, columns, color)
    if ncols < 1:
        raise ValueError(f"ncols must be at least 1, got {ncols}")
    ncols = min(ncols, len(shown))
    room = (columns + _GAP) // ncols - _GAP
    if room < len(names[0]):
        raise ValueError(f"{columns} columns are too few for {ncols} memories: lower ncols")
    rows, width = image_shape[:2]
    tile_width = min(width, room)
    # Characters are twice as tall as wide, and a half block is half a character: square pixels.
    tile_height = max(2, 2 * round(rows * tile_width / width / 2))
    images = (shown / scale).reshape(len(shown), rows, width, -1).mean(3)
    tiles = [_shrink(image, tile_height, tile_width) for image in images]
    cell = max(tile_width, len(names[0]))
    lines = []
    for first in range(0, len(tiles), ncols):
        group = range(first, min(first + ncols, len(tiles)))
        lines.append((" " * _GAP).join(names[k].ljust(cell) for k in group).rstrip())
        drawn = [_draw(tiles[k], color) for k in group]
        for parts in zip(*drawn, strict=True):
            line = (" " * (_GAP + cell - tile_width)).join(parts)
            lines.append(line if color != "none" else line.rstrip())
    return "\n".join(lines)


def _strips(shown: Array, names: list[str], columns: int, color: Color) -> str:
    """One line a memory."""
    width = min(shown.shape[1], columns - len(names[0]) - 1)
    if width < 1:
        raise ValueError(f"{columns} columns are too few: pass at least {len(names[0]) + 2}")
    lines = []
    for name, row in zip(names, shown, strict=True):
        strip = np.repeat(_shrink(row[None, :], 1, width), 2, axis=0)
        lines.append(f"{name} {_draw(strip, color)[0]}".rstrip())
    return "\n".join(lines)


def _shrink(image: Array, rows: int, columns: int) -> Array:
    """Average `image` over the pixels of a (rows, columns) grid laid on it."""
    down, across = (
        _averages(new, old) for new, old in zip((rows, columns), image.shape, strict=True)
    )
    small: Array = down @ image @ across.T  # (rows, H) @ (H, W) @ (W, columns)
    return small


def _averages(new: int, old: int) -> Array:
    """(new, old) weights: the overlap of cell i/new with cell j/old; each row sums to 1."""
    edges = np.arange(new + 1) * old / new
    cells = np.arange(old)
    low = np.maximum(edges[:-1, None], cells)
    high = np.minimum(edges[1:, None], cells + 1)
    weights: Array = np.maximum(0.0, high - low) * new / old
    return weights


def _draw(image: Array, color: Color) -> list[str]:
    """Lines of text for an image with an even number of rows and entries in [-1, 1]."""
    upper, lower = image[0::2], image[1::2]
    if color == "none":
        ink = _lift((upper + lower) / 2)
        level = np.minimum((ink * len(_SHADES)).astype(int), len(_SHADES) - 1)
        return ["".join(_SHADES[k] for k in row) for row in level]
    code = _code24 if color == "truecolor" else _code256
    above, below = _rgb(upper), _rgb(lower)
    lines = []
    for row in range(len(upper)):
        parts, before = [], ""
        for column in range(upper.shape[1]):
            escape = f"\x1b[38;{code(above[row, column])};48;{code(below[row, column])}m"
            parts.append("▀" if escape == before else escape + "▀")
            before = escape
        lines.append("".join(parts) + _RESET)
    return lines


def _rgb(values: Array) -> NDArray[np.int64]:
    """Colors (..., 3) in 0..255 of signed values in [-1, 1]."""
    strength = _lift(np.abs(values))[..., None]
    end = np.where(values[..., None] < 0, _NEGATIVE, _POSITIVE)
    mixed = (1 - strength) * np.array(_ZERO) + strength * end
    rounded: NDArray[np.int64] = np.rint(mixed).astype(np.int64)
    return rounded


def _lift(strength: Array) -> Array:
    """Strength in [0, 1], faint strokes raised: screens show little of the first few per cent."""
    lifted: Array = np.clip(strength, 0.0, 1.0) ** 0.75
    return lifted


def _code24(rgb: NDArray[np.int64]) -> str:
    return f"2;{rgb[0]};{rgb[1]};{rgb[2]}"


def _code256(rgb: NDArray[np.int64]) -> str:
    """The nearest of the 6x6x6 color cube and the 24 greys of a 256-color terminal."""
    steps = np.array([0, 95, 135, 175, 215, 255])
    place = [int(np.abs(steps - c).argmin()) for c in rgb]
    cube = np.array([steps[k] for k in place])
    grey_step = min(23, max(0, round((float(rgb.mean()) - 8) / 10)))
    grey = 8 + 10 * grey_step
    if math.dist(rgb, (grey,) * 3) < math.dist(rgb, cube):
        return f"5;{232 + grey_step}"
    return f"5;{16 + 36 * place[0] + 6 * place[1] + place[2]}"
