"""How likely rows are under a fitted model."""

from __future__ import annotations

from typing import Any

from mnemosphere.fitted import FittedModel, Floats, like


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
