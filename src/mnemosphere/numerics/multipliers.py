"""Maximize Σ q log p over a transportation polytope: p = q/(λ + ω), the multipliers by Newton's.

Damped Newton steps on λ and ω together take six to twelve iterations where q is a few decades from
the polytope, as statistics of a model are. The few problems where they crawl (a row or column
must live on entries many decades below the others) go to the interior-point method.
"""

from __future__ import annotations

import numpy as np

from mnemosphere.numerics import interior
from mnemosphere.numerics.interior import Path, relative
from mnemosphere.numerics.laplacian import TINY, Array, NewtonSystem

_STEPS = 25  # far more than a problem takes that does not crawl
_STEPS_FROM_START = 8  # as many as without one take; more, and it was none
_SHORT, _PATIENCE = 0.03, 3  # as many steps in a row shorter than this: it crawls


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
        quick = _newton(q, r, c, tol, min(_STEPS_FROM_START, max_iter), start)
        if (quick.error <= tol).all():
            return quick
    quick = _newton(q, r, c, tol, min(_STEPS, max_iter), None)
    left = np.flatnonzero(~(quick.error <= tol))
    if len(left) == 0:
        return quick
    safe = interior.solve(q[left], r[left], c[left], tol, max_iter)
    for out, value in zip(quick[:5], safe[:5], strict=True):
        out[left] = value
    return quick._replace(iterations=max(quick.iterations, safe.iterations))


def _newton(
    q: Array, r: Array, c: Array, tol: float, max_iter: int, start: tuple[Array, Array] | None
) -> Path:
    """Newton's method on the marginals of q/ζ, ζ = λ + ω > 0, while its steps are not short."""
    if start is None:  # the rows right, if λ = 0
        start = np.zeros_like(c), q.sum(-2) / np.maximum(r, TINY)
    lam, omega = np.where(c > 0, start[0], 1e30), np.where(r > 0, start[1], 1e30)
    short = np.zeros(len(q), dtype=np.int64)
    todo = np.arange(len(q))
    ended = None
    iterations = 0
    while True:
        low = lam.min(-1, keepdims=True)
        lam, omega = lam - low, omega + low  # the gauge: sums of two non-negative numbers
        inverse = 1.0 / (lam[:, :, None] + omega[:, None, :])
        x = q * inverse
        rows, cols = x.sum(-2) - r, x.sum(-1) - c
        error = np.maximum(relative(rows, r), relative(cols, c))
        go = ~(error <= tol) & (short < _PATIENCE)
        going = int(go.sum())
        over = going == 0 or iterations >= max_iter
        if over or going <= len(go) // 2:
            found = Path(lam, omega, x, error, np.zeros_like(error), iterations)
            if ended is None:
                ended = found
            else:
                for out, value in zip(ended[:5], found[:5], strict=True):
                    out[todo] = value
            if over:
                return ended._replace(iterations=iterations)
            todo, short = todo[go], short[go]
            q, r, c, x, rows, cols = (z[go] for z in (q, r, c, x, rows, cols))
            lam, omega, inverse = (z[go] for z in (lam, omega, inverse))
        system = NewtonSystem(x, inverse, lam, c)
        change = system.solve(rows, cols)[2]
        # With δ = Δζ/ζ the new p is x (1 − δ + δ² − …): have the second order right as well.
        np.minimum(np.abs(change, out=change), 0.9, out=change)
        change *= change
        change *= x
        d_lam, d_omega, change = system.solve(rows + change.sum(-2), cols + change.sum(-1))
        step = 0.9 / np.maximum(-change.min((-2, -1)), 0.9)
        short = np.where(step < _SHORT, short + 1, 0)
        lam, omega = lam + step[:, None] * d_lam, omega + step[:, None] * d_omega
        iterations += 1
