"""How likely rows are under a fitted model, and which are novel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemosphere.fitted import FittedModel, Floats, like

_NO_THRESHOLD = "no threshold yet: call calibrate_novelty(X, rate=0.01) with held-out rows first"

_ROUNDING = 2e-6  # of scores in single precision, relative to the largest of them


def score_samples(model: FittedModel, X: Any) -> Floats:
    """Log of the effective density of each row on the sphere, labels summed out, (n,).

    For ς = 1 that is the model's log-density. For ς < 1 it is the log of 𝒫_{β,ς}(x) of
    Eq. (effective_loss), which is not normalized: it ranks rows, but its exponential does not
    integrate to 1.
    """
    scores: Floats = like(X, model.log_density(X))
    return scores


def novelty(model: FittedModel, X: Any) -> Floats:
    """Posterior weight of the uniform component, in [0, 1]: near 1, no memory answers."""
    found: Floats = like(X, model.novelty(X))
    return found


def is_novel(model: FittedModel, X: Any) -> NDArray[np.bool_]:
    """Which rows have a `novelty_score` above the threshold of `calibrate_novelty`, (n,)."""
    threshold = model.calibration.novelty_threshold
    if threshold is None:
        raise ValueError(_NO_THRESHOLD)
    found: NDArray[np.bool_] = like(X, model.novelty_score(X) > threshold)
    return found


def rejection_threshold(scores: Floats, rate: float) -> float:
    """The score above which a row is rejected: at most `rate` of rows like these, on average.

    With the k-th largest of n held-out scores, k = ⌊rate·(n+1)⌋, a new row from the same law lies
    above it with probability at most k/(n+1) ≤ rate, whatever the law. The threshold is that score
    and a margin for rounding: a score depends on the batch that a row is in by a few units in the
    last place, and a copy of the row at the threshold must not be rejected in one batch only.
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
    threshold = float(np.sort(scores)[-rank])
    return threshold + _ROUNDING * max(1.0, float(np.abs(scores).max(initial=0.0)))
