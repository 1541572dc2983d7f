"""Maximize Σ a log p + b log (c − p) where Σ p is given: a transportation polytope of two rows.

Each column has p from a quadratic equation once the one multiplier t of the row is known,

    a/p − b/(c − p) = t,    so    t p² − (a + b + t c) p + a c = 0,

and Σ p falls with t, from Σ c to 0: Newton's steps within a bracket that they never leave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["divide"]

Array = NDArray[np.float64]

_STEPS = 200  # bisection alone would be done by then
_TOL = 1e-13
_TINY, _SMALL, _FLOOR = 1e-300, 1e-150, 1e-30


def divide(a: Any, b: Any, c: Any, total: Any) -> tuple[Array, Array]:
    """(p, c − p), each (..., C), of the maximum with Σ p = total (...).

    a, b, c (..., C): weights a, b ≥ 0 and columns c ≥ 0, 0 ≤ total < Σ c. Weights are taken to be
    at least 1e-30 of an even spread, as in `polytope.maximize`.
    """
    a, b, c = (np.asarray(v, dtype=np.float64) for v in (a, b, c))
    total = np.asarray(total, dtype=np.float64)[..., None]
    whole = c.sum(-1, keepdims=True)
    given, some = total, total > _SMALL * whole
    total = np.where(some, total, whole / 2)  # of none, or so little, all is known: p = a/t
    even = _FLOOR * (a + b).sum(-1, keepdims=True) * c / whole**2
    a, b = np.maximum(a, even * total), np.maximum(b, even * (whole - total))
    # p ≤ a/t for t > 0, and c − p ≤ −b/t for t < 0.
    low = -b.sum(-1, keepdims=True) / np.maximum(whole - total, _TINY)
    high = a.sum(-1, keepdims=True) / total
    # Where the row is a small part: Σ a/(t + b/c) = Σ p, to first order in b/c.
    pull = (a * (b / np.maximum(c, _TINY))).sum(-1, keepdims=True) / a.sum(-1, keepdims=True)
    t = np.where(high - pull > low, high - pull, 0.0)
    both, apart, product = a + b, a - b, 4 * a * b
    last = earlier = np.inf  # how far off the sum was, two steps ago at most
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for _ in range(_STEPS):
            tc = t * c
            root = np.sqrt(np.square(apart - tc) + product)  # √(s² − 4tac) without cancellation
            p = _column(2 * a * c, both + tc, root, t)
            over = p.sum(-1, keepdims=True) - total
            low, high = np.where(over > 0, t, low), np.where(over > 0, high, t)
            done = (np.abs(over) <= _TOL * total) | (high - low <= 1e-15 * np.abs(t))
            if done.all():
                break
            slope = (p * (c - p) / np.maximum(root, _TINY)).sum(-1, keepdims=True)  # −dΣp/dt
            # Of 1/Σp, which is nearly a line in t: p ≈ a/t where the row is a small part.
            newton = t + over * (over / total + 1) / np.maximum(slope, _TINY)
            # From both sides it can leap back and forth, and come no nearer.
            stuck = 2 * np.abs(over) > earlier
            inside = (newton > low) & (newton < high) & ~stuck
            t = np.where(done, t, np.where(inside, newton, (low + high) / 2))
            last, earlier = np.abs(over), last
        rest = _column(2 * b * c, both - tc, root, -t)
    share = np.where(c > 0, a, 0.0)
    little = given * (share / np.maximum(share.sum(-1, keepdims=True), _TINY))
    return np.where(some, p, little), np.where(some, rest, c)


def _column(product: Array, s: Array, root: Array, t: Array) -> Array:
    """The root of t p² − s p + product/2 = 0 that vanishes with the product."""
    return np.where(s < 0, (root - s) / (-2 * t), product / np.maximum(s + root, _TINY))
