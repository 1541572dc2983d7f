"""A check that only these pictures need."""

from __future__ import annotations

from typing import Any

import numpy as np

from mnemosphere.plots.checks import Array, as_array


def increasing(value: Any, name: str) -> Array:
    """A strictly increasing axis."""
    array = as_array(value, name, 1)
    if (np.diff(array) <= 0).any():
        raise ValueError(f"{name} must increase strictly: sort it and drop repeated values")
    return array
