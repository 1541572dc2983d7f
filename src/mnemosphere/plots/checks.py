"""Checks at the border: what a plot is given becomes a finite float64 array, or a clear error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
FIRST = 25  # memories shown when none are named


def as_array(value: Any, name: str, ndim: int) -> Array:
    """`value` (NumPy, torch on any device, nested lists) with `ndim` axes and no NaN or infinity."""
    if isinstance(value, torch.Tensor):
        value = value.detach().to("cpu", torch.float64).numpy()
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be an array of numbers, got {type(value).__name__}"
        ) from error
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty, shape {array.shape}: there is nothing to draw")
    bad = ~np.isfinite(array)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} holds {array[place]} at {list(place)}: only finite numbers can be drawn"
        )
    return array


def as_patterns(value: Any, name: str, image_shape: Sequence[int] | None) -> Array:
    """Rows (P, N) whose N entries fill `image_shape`, (rows, columns) or (rows, columns, 3)."""
    array = as_array(value, name, 2)
    if image_shape is None:
        return array
    if len(image_shape) not in (2, 3) or (len(image_shape) == 3 and image_shape[2] != 3):
        raise ValueError(
            f"image_shape must be (rows, columns) or (rows, columns, 3), got {tuple(image_shape)}: "
            "pass None where rows are not images"
        )
    if math.prod(image_shape) != array.shape[1]:
        raise ValueError(
            f"image_shape {tuple(image_shape)} has {math.prod(image_shape)} pixels but {name} has "
            f"{array.shape[1]} features: pass the shape of the images, or None"
        )
    return array


def as_indices(indices: Any, n: int) -> NDArray[np.int64]:
    """Numbers of the memories to show, counted from 0; by default the first 25."""
    if indices is None:
        return np.arange(min(FIRST, n))
    chosen = np.asarray(indices)
    if chosen.ndim != 1 or chosen.size == 0 or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(
            f"indices must be a non-empty list of whole numbers, got shape {chosen.shape} of "
            f"{chosen.dtype}"
        )
    if chosen.min() < 0 or chosen.max() >= n:
        raise ValueError(f"indices must lie in 0..{n - 1}, got {chosen.min()}..{chosen.max()}")
    return chosen.astype(np.int64)


def same_length(expected: int, what: str, **arrays: Any) -> None:
    """Raise unless each of `arrays` has `expected` entries, as many as there are `what`."""
    for name, array in arrays.items():
        if len(array) != expected:
            raise ValueError(
                f"{name} must have {expected} entries, one per {what}, got {len(array)}"
            )
