"""What methods are compared by: calibration error, mean ranks and which of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]


def calibration_gaps(probabilities: ArrayLike, y: ArrayLike, n_bins: int = 15) -> Floats:
    """Rows that are right less their confidences, summed in each bin.

    Confidence is the largest probability of a row; bins are equally wide, as in Guo et al. (2017). The
    expected calibration error is the sum of their absolute values over the number of rows.
    """
    p = np.asarray(probabilities, float)  # (rows, classes)
    confidence, right = p.max(1), p.argmax(1) == np.asarray(y)
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    return np.bincount(bins, weights=right - confidence, minlength=n_bins)


def ranks(scores: ArrayLike, *, high_is_good: bool) -> Floats:
    """Ranks within each row (sets, methods): 1 is best, equal scores share the mean of theirs."""
    values = np.asarray(scores, float)
    return np.asarray(stats.rankdata(-values if high_is_good else values, axis=1))


def wilcoxon_holm(scores: ArrayLike, names: Sequence[str]) -> dict[tuple[str, str], float]:
    """P-values of every pair of columns, Wilcoxon's signed ranks, corrected by Holm's rule."""
    values = np.asarray(scores, float)
    found = {}
    for a, b in combinations(range(len(names)), 2):
        gap = values[:, a] - values[:, b]
        p = stats.wilcoxon(gap, zero_method="zsplit", method="approx").pvalue if gap.any() else 1.0
        found[names[a], names[b]] = float(p)
    corrected, least = {}, 0.0
    for k, pair in enumerate(sorted(found, key=found.__getitem__)):
        least = max(least, min(1.0, found[pair] * (len(found) - k)))
        corrected[pair] = least
    return corrected
