"""Class probabilities written down once more, in NumPy: P(y|x) = Σ_γ s_γ(x) g_γ,y."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ive, logsumexp

FLOOR = 0.003  # of the class prior in every soft label

Array = NDArray[np.float64]


def log_omega(beta: float | Array, n: int) -> Any:
    """log Ω_N(β)/Ω_N(0) by SciPy's Bessel function; for moderate N and β."""
    order = n / 2 - 1
    bessel = np.log(ive(order, beta)) + beta
    return gammaln(n / 2) + order * np.log(2 / beta) + bessel


def net_of_smoothing(p: Array, smoothing: float) -> Array:
    """Soft labels g (P+1, C+1) of class weights p: what smoothing added is taken off, then FLOOR.

    One row at a time; nothing left, or a row without weight: the class prior.
    """
    mass = (p.sum(0) - smoothing / p.shape[1] * p.sum())[:-1].clip(0.0)
    prior = np.append(mass / mass.sum(), 0.0)
    found = []
    for row in p:
        left = [0.0] * len(row)
        if row.sum() > 0:
            left = [max(value / row.sum() - smoothing / len(row), 0.0) for value in row]
        g = np.array(left) / sum(left) if sum(left) > 0 else prior
        found.append((1 - FLOOR) * g + FLOOR * prior)
    return np.array(found)


def log_shares(w: Array, p_h: Array, beta: float, varsigma: float, t: float, x: Array) -> Array:
    """log s (B, P+1), s ∝ p_h exp(h/T); the uniform component, h = 0, comes first."""
    h = varsigma * beta * x @ w.T - log_omega(beta, x.shape[1])
    h = np.c_[np.zeros(len(x)), h]
    with np.errstate(divide="ignore"):
        a = np.log(p_h) + h / t
    return np.asarray(a - logsumexp(a, axis=1, keepdims=True))


def log_probabilities(shares: Array, soft: Array) -> Array:
    """log P(y | x, y is one of the C classes) from log shares and soft labels (P+1, C+1)."""
    with np.errstate(divide="ignore"):
        a = logsumexp(shares[:, :, None] + np.log(soft[:, :-1])[None], axis=1)
    return np.asarray(a - logsumexp(a, axis=1, keepdims=True))


def soft_labels_of(model: object) -> Array:
    """Those that the model reads classes from, (P+1, C+1); fit counts them in its last pass."""
    net = model.model_.votes.p.double().numpy()  # type: ignore[attr-defined]
    return np.asarray(net / net.sum(axis=1, keepdims=True))


def of_model(model: object, x: Array, t: float | None = None) -> tuple[Array, Array, Array]:
    """Shares (B, P+1), soft labels (P+1, C+1) and probabilities (B, C) of unit rows."""
    params = model.model_.trained  # type: ignore[attr-defined]
    t = model.temperature_ if t is None else t  # type: ignore[attr-defined]
    p = params.p.double().numpy()
    soft = soft_labels_of(model)
    w = params.w.double().numpy()
    shares = log_shares(w, p.sum(1), float(params.beta), params.varsigma, t, x)
    return np.exp(shares), soft, np.exp(log_probabilities(shares, soft))
