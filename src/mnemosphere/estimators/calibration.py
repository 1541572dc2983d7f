"""What held-out rows settle: a temperature for probabilities, a threshold for rejection."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax

Floats = NDArray[np.floating[Any]]

_COLDEST, _HOTTEST = 1e-3, 1e3


def best_temperature(
    log_proba: Floats, index: NDArray[np.intp], sample_weight: Floats | None = None
) -> float:
    """The T > 0 that minimizes the log-loss of softmax(log_proba / T).

    log_proba (n, C); index (n,) the true columns. In s = 1/T the loss is convex, a log-sum-exp
    minus a linear function, so its one minimum is where the slope crosses zero: the mean of
    Σ_y π_y a_y − a_true. T stays within [0.001, 1000], which is met where every row is right (the
    colder the better) or where the scores tell nothing (the hotter the better).
    """
    truth = log_proba[np.arange(index.size), index]
    weight = np.ones(index.size) if sample_weight is None else sample_weight

    def slope(log_s: float) -> float:
        proba = softmax(np.exp(log_s) * log_proba, axis=1)
        return float(weight @ ((proba * log_proba).sum(axis=1) - truth))

    low, high = -np.log(_HOTTEST), -np.log(_COLDEST)
    if slope(high) <= 0:
        return _COLDEST
    if slope(low) >= 0:
        return _HOTTEST
    return float(np.exp(-brentq(slope, low, high, xtol=1e-12, rtol=1e-12)))


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
