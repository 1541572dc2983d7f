"""How likely rows are under a fitted model."""

from __future__ import annotations

from typing import Any

from mnemosphere.fitted.model import FittedModel, Floats, like


def score_samples(model: FittedModel, X: Any) -> Floats:
    """Compute the log of the effective density of each row on the sphere, labels summed out.

    For ς = 1 that is the model's log-density. For ς < 1 it is the log of 𝒫_{β,ς}(x) of
    Eq. (effective_loss), which ranks rows, but its exponential does not integrate to 1. With geometry="circles" it is a score too:
    tables fill a small part of the sphere, and it is no density of their rows.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.

    Returns
    -------
    ndarray of shape (n,)
        Log-densities; a tensor if X is one.

    Examples
    --------
    >>> mn.interpret.score_samples(model, X_test).shape
    (60,)
    """
    scores: Floats = like(X, model.log_density(X))
    return scores


def novelty(model: FittedModel, X: Any) -> Floats:
    """Compute the posterior weight of the uniform component: near 1, no memory resembles the row.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.

    Returns
    -------
    ndarray of shape (n,)
        Weights in [0, 1]; a tensor if X is one.

    Examples
    --------
    >>> mn.interpret.novelty(model, X_test[:2]).round(), mn.interpret.novelty(model, -X_test[:2]).round()
    (array([0., 0.]), array([1., 1.]))
    """
    found: Floats = like(X, model.novelty(X))
    return found
