"""Maximize Σ q log p over a transportation polytope: p = q/(λ + ω), by an interior-point method.

It takes about a dozen steps, whatever q is, and two from the multipliers λ and ω of a problem like it.

Arrays are (B, C, R), a batch of problems with the columns of the polytope first: there are few of
them, so that sums over either axis run along contiguous memory. On problems of this size NumPy is
several times faster than torch, on a GPU too, where a step would be sixty launches of kernels.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TINY = 1e-300  # keeps a division by zero finite
_STEPS = 8  # from a start: if they do not suffice, it was none


class Path(NamedTuple):
    """Where a search ended, problem by problem."""

    lam: Array  # λ (B, C)
    omega: Array  # ω (B, R)
    p: Array  # (B, C, R)
    error: Array  # (B,) largest marginal error, relative to that marginal
    gap: Array  # (B,) relative duality gap; 0 where p = q/(λ + ω)
    iterations: int


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
        quick = _solve(q, r, c, tol, min(_STEPS, max_iter), start)
        if (quick.error <= tol).all():
            return quick
    return _solve(q, r, c, tol, max_iter, None)


def _solve(
    q: Array, r: Array, c: Array, tol: float, max_iter: int, start: tuple[Array, Array] | None
) -> Path:
    """A primal-dual method: Newton's on p·ζ = target with ζ = λ + ω, the marginals kept.

    From the product of the marginals, where ζ is constant, to target = q; or from a start, where p·ζ = q.
    """
    total = r.sum(-1, keepdims=True)  # (B, 1)
    p = (c / total)[:, :, None] * r[:, None, :]
    dead = None if p.all() else p == 0
    per_even = 1.0 / np.maximum(p, TINY)  # products p·ζ are measured in units of this start
    goal = q * per_even
    if dead is not None:
        goal[dead] = 1.0
    # Half and half: exact if q has the right marginals. The clamp keeps the products p·ζ of a
    # poor row near those of the others; zero rows and columns are out of the way.
    lam = np.where(c > 0, np.maximum(0.5 * q.sum(-1) / np.maximum(c, TINY), 0.1), 1e30)
    omega = np.where(r > 0, np.maximum(0.5 * q.sum(-2) / np.maximum(r, TINY), 0.1), 1e30)
    if start is not None:
        lam, omega = np.where(c > 0, start[0], 1e30), np.where(r > 0, start[1], 1e30)
        p = q / (lam[:, :, None] + omega[:, None, :])
    cut, iterations = np.full((len(q), 1, 1), 0.1), 0
    while True:
        low = lam.min(-1, keepdims=True)
        lam, omega = lam - low, omega + low  # the gauge: sums of two non-negative numbers
        zeta = lam[:, :, None] + omega[:, None, :]
        inverse = 1.0 / zeta
        x = q * inverse
        error = marginal_error(x, r, c)
        left = ~(error <= tol)
        if not left.any():
            return Path(lam, omega, x, error, np.zeros_like(error), iterations)
        w = p * zeta
        if iterations >= max_iter:
            # The iterate p has the marginals, whatever ζ is; by duality its objective is
            # below the maximum by no more than Σ w − q − q log(w/q).
            ratio = np.divide(w, q, out=np.ones_like(w), where=q > 0)
            fall = np.log(np.maximum(ratio, TINY))
            excess = np.where(q > 0, w - q - q * fall, 0.0).sum((-2, -1)) / total[:, 0]
            error = np.where(left, marginal_error(p, r, c), error)
            x = np.where(left[:, None, None], p, x)
            return Path(lam, omega, x, error, np.where(left, excess, 0.0), iterations)
        iterations += 1
        w *= per_even
        if dead is not None:
            w[dead] = 1.0
        p, lam, omega, cut = _step(r, c, p, goal, w, cut, lam, omega, inverse)


def _step(
    r: Array, c: Array, p: Array, goal: Array, w: Array, cut: Array,
    lam: Array, omega: Array, inverse: Array,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """One step: new p, λ, ω, and how far the target may come down at the next."""
    # Newton on p·ζ = t·p·ζ and the marginals: p + Δp = p t − h Δζ with h = p/ζ. The target is the
    # goal, but for now no lower than a level: all the products still above their goals come down
    # together, by the factor `cut` a step.
    level = np.minimum(np.maximum((w - 2.0 * goal).max((-2, -1), keepdims=True), 0.0), 1.0)
    t = np.minimum(np.maximum(goal, cut * level) / w, 1e3)
    system = NewtonSystem(p, inverse, lam, c)
    a = p * t
    _, _, d_zeta = system.solve(a.sum(-2) - r, a.sum(-1) - c)
    # Add to the target the product ΔpΔζ that the linear step leaves out.
    missed = np.minimum(np.maximum(d_zeta * (t - 1.0 - d_zeta), -0.9), 0.9)
    fixed = np.maximum(t - missed, 0.1 * t)
    a = p * fixed
    d_lam, d_omega, d_zeta = system.solve(a.sum(-2) - r, a.sum(-1) - c)
    d_p = fixed - 1.0 - d_zeta
    # Stay inside p > 0 and ζ > 0, and let no product fall far below its target, where the two
    # would jam each other.
    lowest = np.minimum(d_zeta, d_p).min((-2, -1), keepdims=True)
    step = 0.99 / np.maximum(-lowest, 0.99)
    least = np.minimum(0.05 * t, 1.0)
    for _ in range(20):
        ratio = (1.0 + step * d_zeta) * (1.0 + step * d_p)
        falls = (ratio < least).any((-2, -1), keepdims=True)
        if not falls.any():
            break
        step = np.where(falls, 0.7 * step, step)
    cut = np.where(step > 0.9, np.maximum(cut * cut, 1e-2), np.where(step > 0.5, 0.1, 0.5))
    p = p * (1.0 + step * d_p)
    return p, lam + step[..., 0] * d_lam, omega + step[..., 0] * d_omega, cut


def marginal_error(p: Array, r: Array, c: Array) -> Array:
    """The largest error (B,) of the marginals of p, relative to each; a zero marginal has none."""
    both = ((p.sum(-2), r), (p.sum(-1), c))
    rows, cols = ((np.abs(own - m) / np.maximum(m, TINY)).max(-1) for own, m in both)
    return np.asarray(np.maximum(rows, cols))


class NewtonSystem:
    """The linear equations of a Newton step on the marginals of p, reduced to the columns.

    Changes Δλ (B, C) and Δω (B, R) of the multipliers change p by −p Δζ/ζ with Δζ = Δλ + Δω.
    """

    def __init__(self, p: Array, inverse: Array, lam: Array, c: Array) -> None:
        self.inverse = inverse  # 1/ζ
        self.h = p * inverse
        self.spring = 1.0 / np.maximum(self.h.sum(-2), TINY)  # (B, R)
        edges = (self.h * self.spring[:, None, :]) @ self.h.swapaxes(-1, -2)  # (B, C, C)
        self.graph = Laplacian(edges, lam.argmin(-1), c.argmax(-1))

    def solve(self, rows: Array, cols: Array) -> tuple[Array, Array, Array]:
        """Δλ, Δω and Δζ/ζ that take rows (B, R) off the row sums, cols (B, C) off the others."""
        lack = rows * self.spring
        b = cols - np.matmul(self.h, lack[..., None])[..., 0]  # (B, C, R) @ (B, R, 1)
        d_lam = self.graph.solve(b)
        pull = np.matmul(d_lam[:, None, :], self.h)[:, 0]  # (B, 1, C) @ (B, C, R)
        d_omega = lack - pull * self.spring
        change = d_lam[:, :, None] + d_omega[:, None, :]
        change *= self.inverse
        return d_lam, d_omega, change


class Laplacian:
    """Solve Σ_j edges_ij (x_i − x_j) = b_i with x = 0 at the node `ground`.

    edges (B, n, n) symmetric, non-negative, diagonal ignored; ground (B,). A solution needs
    Σ b = 0; what rounding left over is put on the node `sink` (B,), the one that feels it least.

    The inverse matrix loses small weights where they differ by many decades. There it is built up as
    node by node is eliminated (the star-mesh transform), which adds, multiplies and divides positive
    numbers alone and keeps their relative precision.
    """

    def __init__(self, edges: Array, ground: NDArray[Any], sink: NDArray[Any]) -> None:
        n, problems = edges.shape[-1], np.arange(len(edges))
        self.sink = problems * n + sink
        weights = np.concatenate([np.zeros_like(edges[..., :1]), edges], -1)  # a wire to zero first
        weights.reshape(-1, n * (n + 1))[:, 1 :: n + 2] = 0.0  # the diagonal
        # A strong wire holds the ground.
        weights[problems, ground, 0] = 1e20 * np.maximum(weights.sum(-1).max(-1), 1e-280)
        degree = weights.sum(-1)
        degree[degree <= TINY] = 1.0  # a node alone stays where it is
        with contextlib.suppress(np.linalg.LinAlgError):
            self.inverse = np.linalg.inv(degree[..., None] * np.eye(n) - weights[..., 1:])
            # Its diagonal times the matrix's: one over the share of an entry that eliminating all
            # the other nodes leaves. What cancels is lost.
            lost = np.einsum("bii->bi", self.inverse) * degree
            if lost.min() > 0 and lost.max() < 1e6:
                return
        m = np.concatenate([np.broadcast_to(np.eye(n), edges.shape), weights], -1)
        for k in range(n - 1, -1, -1):
            row = m[
                :, k, k : n + 1 + k
            ]  # what flows in so far, and weights of the nodes that are left
            degree = row[:, n - k :].sum(-1, keepdims=True)
            row /= np.where(degree > TINY, degree, 1.0)
            m[:, :k, k : n + 1 + k] += m[:, :k, n + 1 + k, None] * row[:, None]
        for k in range(1, n):
            m[:, k, :n] += np.matmul(m[:, k, None, n + 1 : n + 1 + k], m[:, :k, :n])[:, 0]
        self.inverse = m[..., :n]

    def solve(self, b: Array) -> Array:
        """Return x (B, n) for b (B, n)."""
        b = b.copy()
        b.reshape(-1)[self.sink] -= b.sum(-1)
        return np.asarray(np.matmul(self.inverse, b[..., None])[..., 0])
