"""What a plot is given becomes a finite float64 array, or a clear error."""

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
        value = value.detach().to("cpu", torch.float64)
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != ndim or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite numbers with {ndim} axes, got shape {array.shape} with "
            f"{np.count_nonzero(~np.isfinite(array))} that are not finite"
        )
    return array


def as_patterns(value: Any, name: str, image_shape: Sequence[int] | None) -> Array:
    """Rows (P, N) whose N entries fill `image_shape`, (rows, columns) or (rows, columns, 3)."""
    array = as_array(value, name, 2)
    if image_shape is not None and math.prod(image_shape) != array.shape[1]:
        raise ValueError(
            f"image_shape {tuple(image_shape)} has {math.prod(image_shape)} pixels but {name} has "
            f"{array.shape[1]} features: pass the shape of the images, or None"
        )
    return array


def as_indices(indices: Any, n: int) -> NDArray[np.int64]:
    """Numbers of the memories to show, counted from 0; by default the first 25."""
    shown: NDArray[np.int64] = np.arange(n)[:FIRST] if indices is None else np.arange(n)[indices]
    return shown
