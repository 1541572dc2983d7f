"""What a row is: an image or a signal, and how settings for its sides are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from mnemosphere.estimators.base import check_whole

_LEAST_IMAGE = 64  # numbers per row; fewer are a signal unless they are said to be an image


def image_shape(
    given: Sequence[int] | None, of_array: tuple[int, ...], n_features: int
) -> tuple[int, ...]:
    """What a row of n_features is: as given, as the array has it, or guessed."""
    if given is not None:
        for side in given:
            check_whole(side, "image_shape", 1)
        shape = tuple(int(side) for side in given)
        if len(shape) not in (1, 2, 3) or math.prod(shape) != n_features:
            raise ValueError(
                f"image_shape {shape} does not fit rows of {n_features} features: pass "
                "(rows, columns), (rows, columns, channels) or (length,)"
            )
        return shape
    if len(of_array) in (2, 3):
        return of_array
    if n_features < _LEAST_IMAGE:
        return (n_features,)
    side = math.isqrt(n_features)
    if side * side != n_features:
        raise ValueError(
            f"{n_features} features are no square image: pass image_shape=(rows, columns), "
            f"(rows, columns, channels), or ({n_features},) for a signal"
        )
    return (side, side)


def as_plane(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(rows, columns, channels); a signal has one row and one channel."""
    if len(shape) == 1:
        return 1, shape[0], 1
    rows, columns, *channels = shape
    return rows, columns, channels[0] if channels else 1


def two_sides(given: Any, name: str, *, one_row: bool) -> tuple[int, int]:
    """(rows, columns) of a setting that may be one number; a signal has one row."""
    if isinstance(given, Integral):
        given = (1 if one_row else given, given)
    elif isinstance(given, Sequence) and one_row and len(given) == 1:
        given = (1, *given)
    if not isinstance(given, Sequence) or len(given) != 2:
        raise ValueError(f"{name} must be a whole number or (rows, columns), got {given!r}")
    for side in given:
        check_whole(side, name, 1)
    return int(given[0]), int(given[1])
