"""Completed rows in the units in which the rows came."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["fill_blanks"]


def fill_blanks(rows: NDArray[Any], found: NDArray[Any], normalize: str) -> NDArray[Any]:
    """Rows (n, N) whose NaN are filled in from `found` (n, N), the same rows as recalled.

    What is known stays as it is. On the sphere a row has lost its length, and with "center" its
    mean as well: both are those that fit the known features best.
    """
    filled = np.array(rows, dtype=np.float64)
    for row, pattern in zip(filled, found, strict=True):
        unknown = np.isnan(row)
        if normalize in ("center", "unit"):
            ones = np.full_like(pattern, normalize == "center")
            basis = np.stack([pattern, ones], axis=1)[~unknown]
            scale, mean = np.linalg.lstsq(basis, row[~unknown], rcond=None)[0]
            pattern = scale * pattern + mean
        row[unknown] = pattern[unknown]
    return filled
