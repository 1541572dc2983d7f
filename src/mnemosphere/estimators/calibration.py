"""A threshold for rejection, set by held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def rejection_threshold(scores: Floats, rate: float) -> float:
    """The score above which a row is rejected: at most `rate` of rows like these, on average.

    With the k-th largest of n held-out scores, k = ⌊rate·(n+1)⌋, a new row from the same law lies
    above it with probability at most k/(n+1) ≤ rate, whatever the law.
    """
    if not 0 < rate < 1:
        raise ValueError(f"rate must lie between 0 and 1, got {rate}")
    # A rounding error must not cost a rank: 0.29 * 100 is 28.999999999999996.
    rank = int(np.floor(rate * (scores.size + 1) * (1 + 1e-12)))
    if rank < 1:
        raise ValueError(
            f"a rate of {rate:g} needs at least {int(np.ceil(1 / rate)) - 1} held-out rows, got "
            f"{scores.size}: pass more rows or a larger rate"
        )
    return float(np.sort(scores)[-rank])
