"""Completed rows in the units in which the rows came."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def fill_missing(rows: NDArray[Any], found: NDArray[Any], normalize: str) -> NDArray[Any]:
    """Rows (n, N) whose NaN are filled in from `found` (n, N), the same rows as completed.

    What is known stays as it is. On the sphere a row has lost its length, and with "center" its
    mean as well: both are those that fit the known features best.
    """
    rows = np.array(rows, dtype=np.float64)
    known = ~np.isnan(rows)
    if normalize in ("center", "unit"):
        given, pattern = np.where(known, rows, 0.0), np.where(known, found, 0.0)
        mean, base = np.zeros((2, len(rows), 1))
        if normalize == "center":
            count = np.maximum(known.sum(1, keepdims=True), 1)
            mean, base = (a.sum(1, keepdims=True) / count for a in (given, pattern))
            given, pattern = (np.where(known, a, 0.0) for a in (given - mean, pattern - base))
        square = (pattern * pattern).sum(1, keepdims=True)
        scale = (given * pattern).sum(1, keepdims=True) / np.where(square > 0, square, 1.0)
        found = mean + scale * (found - base)
    return np.where(known, rows, found)
