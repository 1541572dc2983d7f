"""Maximize Σ q log p over a transportation polytope: p = q/(λ + ω), by the multipliers λ and ω.

The interior-point method (`interior`) takes about a dozen steps, whatever q is. Next to a problem that was
solved before, damped Newton steps from its multipliers take two.
"""

from __future__ import annotations

import numpy as np

from mnemosphere.numerics import interior
from mnemosphere.numerics.interior import Path, relative
from mnemosphere.numerics.laplacian import Array, NewtonSystem

_STEPS = 8  # of Newton's: if they do not suffice, the start was none


def solve(
    q: Array,
    r: Array,
    c: Array,
    tol: float,
    max_iter: int,
    start: tuple[Array, Array] | None = None,
) -> Path:
    """Find p = q/(λ+ω) in the polytope of row sums r (B, R) and column sums c (B, C).

    q (B, C, R), Σ q = Σ r, positive where both marginals are. start: (λ, ω) of a problem like it.
    """
    if q.shape[-1] < q.shape[-2]:  # fewer rows: then the small systems are theirs
        turned = solve(np.ascontiguousarray(q.swapaxes(-1, -2)), c, r, tol, max_iter,
                       None if start is None else start[::-1])  # fmt: skip
        return turned._replace(lam=turned.omega, omega=turned.lam, p=turned.p.swapaxes(-1, -2))
    if start is not None:
        quick = _newton(q, r, c, tol, min(_STEPS, max_iter), start)
        if (quick.error <= tol).all():
            return quick
    return interior.solve(q, r, c, tol, max_iter)


def _newton(
    q: Array, r: Array, c: Array, tol: float, max_iter: int, start: tuple[Array, Array]
) -> Path:
    """Newton's method on the marginals of q/ζ, ζ = λ + ω > 0."""
    lam, omega = np.where(c > 0, start[0], 1e30), np.where(r > 0, start[1], 1e30)
    for iterations in range(max_iter + 1):
        low = lam.min(-1, keepdims=True)
        lam, omega = lam - low, omega + low  # the gauge: sums of two non-negative numbers
        inverse = 1.0 / (lam[:, :, None] + omega[:, None, :])
        x = q * inverse
        rows, cols = x.sum(-2) - r, x.sum(-1) - c
        error = np.maximum(relative(rows, r), relative(cols, c))
        if (error <= tol).all() or iterations == max_iter:
            break
        system = NewtonSystem(x, inverse, lam, c)
        change = system.solve(rows, cols)[2]
        # With δ = Δζ/ζ the new p is x (1 − δ + δ² − …): have the second order right as well.
        np.minimum(np.abs(change, out=change), 0.9, out=change)
        change *= change
        change *= x
        d_lam, d_omega, change = system.solve(rows + change.sum(-2), cols + change.sum(-1))
        step = 0.9 / np.maximum(-change.min((-2, -1)), 0.9)
        lam, omega = lam + step[:, None] * d_lam, omega + step[:, None] * d_omega
    return Path(lam, omega, x, error, np.zeros_like(error), iterations)
