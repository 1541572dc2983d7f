"""Maximise Σ q log p over a transportation polytope: an interior-point method in NumPy.

Arrays are (B, C, R), a batch of problems with the columns of the polytope first: there are few of
them, so that sums over either axis run along contiguous memory. On problems of this size NumPy is
several times faster than torch, on a GPU too, where a step would be sixty launches of kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TINY = 1e-300  # keeps a division by zero finite


class Path(NamedTuple):
    """Where the search ended, problem by problem."""

    lam: Array  # λ (B, C)
    omega: Array  # ω (B, R)
    p: Array  # (B, C, R)
    error: Array  # (B,) largest marginal error, relative to that marginal
    gap: Array  # (B,) relative duality gap; 0 where p = q/(λ + ω)
    iterations: int


def follow(q: Array, r: Array, c: Array, tol: float, max_iter: int) -> Path:
    """Solve p = q/(λ+ω) in the polytope of row sums r (B, R) and column sums c (B, C).

    q (B, C, R), Σ q = Σ r. A primal-dual method: Newton's on p·ζ = target with ζ = λ + ω, the
    marginals kept, from the product of the marginals, where ζ is constant, to target = q.
    """
    total = r.sum(-1, keepdims=True)  # (B, 1)
    even = (c / total)[:, :, None] * r[:, None, :]
    live = None if even.all() else even > 0
    per_even = 1.0 / np.maximum(even, _TINY)
    p = even
    # Half and half: exact if q has the right marginals. The clamp keeps the products p·ζ of a
    # poor row near those of the others; zero rows and columns are out of the way.
    lam = np.where(c > 0, np.maximum(0.5 * q.sum(-1) / np.maximum(c, _TINY), 0.1), 1e30)
    omega = np.where(r > 0, np.maximum(0.5 * q.sum(-2) / np.maximum(r, _TINY), 0.1), 1e30)
    cut = np.full((len(q), 1, 1), 0.1)
    todo = np.arange(len(q))
    ended = Path(lam.copy(), omega.copy(), p.copy(), np.zeros(len(q)), np.zeros(len(q)), 0)
    iterations = 0
    while True:
        low = lam.min(-1, keepdims=True)
        lam, omega = lam - low, omega + low  # the gauge: sums of two non-negative numbers
        zeta = lam[:, :, None] + omega[:, None, :]
        inverse = 1.0 / zeta
        x = q * inverse
        error = _error(x, r, c)
        left = ~(error <= tol)
        n_left = int(left.sum())
        if n_left <= len(left) // 2 or iterations >= max_iter:
            gap = np.zeros_like(error)
            if n_left > 0 and iterations >= max_iter:
                # The iterate p has the marginals, whatever ζ is; by duality its objective is
                # below the maximum by no more than Σ w − q − q log(w/q), w = p·ζ.
                x = np.where(left[:, None, None], p, x)
                w = p * zeta
                some = q > 0
                fall = np.log(np.divide(w, q, out=np.ones_like(w), where=some))
                excess = np.where(some, w - q - q * fall, 0.0).sum((-2, -1)) / total[todo, 0]
                gap = np.where(left, excess, 0.0)
                error = np.where(left, _error(p, r, c), error)
            for out, value in zip(ended[:5], (lam, omega, x, error, gap), strict=True):
                out[todo] = value
            if n_left == 0 or iterations >= max_iter:
                return ended._replace(iterations=iterations)
            if n_left < len(left):  # most problems of the batch are done: go on with the rest
                todo, live = todo[left], None if live is None else live[left]
                q, r, c, p, even, per_even = (z[left] for z in (q, r, c, p, even, per_even))
                lam, omega, zeta, inverse, cut = (z[left] for z in (lam, omega, zeta, inverse, cut))
        p, lam, omega, cut = _step(q, r, c, p, even, per_even, cut, lam, omega, zeta, inverse, live)
        iterations += 1


def _step(
    q: Array, r: Array, c: Array, p: Array, even: Array, per_even: Array, cut: Array,
    lam: Array, omega: Array, zeta: Array, inverse: Array, live: NDArray[np.bool_] | None,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """One step: new p, λ, ω, and how far the target may come down at the next."""
    # Newton on p·ζ = t·p·ζ and the marginals: p + Δp = p t − h Δζ with h = p/ζ.
    w = p * zeta
    # The target is q, but for now no lower than `level` times the even spread: all the products
    # still above q come down together, by the factor `cut` a step.
    t = w - q
    t -= q
    t *= per_even
    level = np.minimum(np.maximum(t.max((-2, -1), keepdims=True), 0.0), 1.0)
    np.multiply(even, cut * level, out=t)
    np.maximum(t, q, out=t)
    if live is None:
        t /= w
    else:
        t = np.where(live, t / np.where(live, w, 1.0), 1.0)
    np.minimum(t, 1e3, out=t)
    system = _System(p, inverse, lam, r, c, live)
    move = system.solve(t)
    step = np.ones_like(cut)
    if move.worst.max() > 0.9:
        # Far away: add to the target the product ΔpΔζ that the linear step leaves out, stay
        # inside p > 0 and ζ > 0, and let no product fall far below its target, where the two
        # would jam each other.
        fixed = move.log_zeta * move.log_p
        np.minimum(np.maximum(fixed, -0.9, out=fixed), 0.9, out=fixed)
        np.subtract(t, fixed, out=fixed)
        move = system.solve(np.maximum(fixed, 0.1 * t, out=fixed))
        step = 0.99 / np.maximum(move.worst, 0.99)
        least = np.minimum(0.05 * t, 1.0)
        for _ in range(20):
            ratio = 1.0 + step * move.log_zeta
            ratio *= 1.0 + step * move.log_p
            falls = (ratio < least).any((-2, -1), keepdims=True)
            if not falls.any():
                break
            step = np.where(falls, 0.7 * step, step)
    cut = np.where(step > 0.9, np.maximum(cut * cut, 1e-2), np.where(step > 0.5, 0.1, 0.5))
    grow = step * move.log_p
    grow += 1.0
    grow *= p
    return grow, lam + step[..., 0] * move.lam, omega + step[..., 0] * move.omega, cut


class _Move(NamedTuple):
    lam: Array
    omega: Array
    log_zeta: Array  # Δζ/ζ
    log_p: Array  # Δp/p
    worst: Array  # (B, 1, 1) the largest relative fall of the two


class _System:
    """The linear equations of one Newton step, in the columns."""

    def __init__(
        self, p: Array, inverse: Array, lam: Array, r: Array, c: Array,
        live: NDArray[np.bool_] | None,
    ) -> None:  # fmt: skip
        self.p, self.inverse, self.r, self.c, self.live = p, inverse, r, c, live
        self.h = p * inverse
        self.spring = 1.0 / np.maximum(self.h.sum(-2), _TINY)  # (B, R)
        self.share = self.h * self.spring[:, None, :]
        edges = self.h @ self.share.swapaxes(-1, -2)  # (B, C, R) @ (B, R, C)
        self.graph = Laplacian(edges, lam.argmin(-1), c.argmax(-1))

    def solve(self, t: Array) -> _Move:
        """The step towards the products t·p·ζ."""
        a = self.p * t
        lack = (a.sum(-2) - self.r) * self.spring  # (B, R)
        b = a.sum(-1) - self.c - np.matmul(self.h, lack[..., None])[..., 0]  # (B, C, R) @ (B, R, 1)
        d_lam = self.graph.solve(b)
        d_omega = lack - np.matmul(d_lam[:, None, :], self.share)[:, 0]  # (B, 1, C) @ (B, C, R)
        d_log_zeta = d_lam[:, :, None] + d_omega[:, None, :]
        d_log_zeta *= self.inverse
        if self.live is not None:
            d_log_zeta = np.where(self.live, d_log_zeta, 0.0)
        d_log_p = t - 1.0
        d_log_p -= d_log_zeta
        worst = -np.minimum(
            d_log_zeta.min((-2, -1), keepdims=True), d_log_p.min((-2, -1), keepdims=True)
        )
        return _Move(d_lam, d_omega, d_log_zeta, d_log_p, worst)


class Laplacian:
    """Solve Σ_j edges_ij (x_i − x_j) = b_i with x = 0 at the node `ground`.

    edges (B, n, n) symmetric, non-negative, diagonal ignored; ground (B,). A solution needs
    Σ b = 0; what rounding left over is put on the node `sink` (B,), the one that feels it least.

    Cholesky where that is safe. Where weights differ by many decades it loses the small ones: there
    eliminate node by node (the star-mesh transform), which adds and divides positive numbers alone
    and keeps their relative precision.
    """

    def __init__(self, edges: Array, ground: NDArray[Any], sink: NDArray[Any]) -> None:
        n = edges.shape[-1]
        problems, nodes = np.arange(len(edges)), np.arange(n)
        self.sink = (problems, sink)
        edges[:, nodes, nodes] = 0.0  # summed without it: subtracting would cancel
        degree = edges.sum(-1)
        degree[~(degree > 0)] = 1.0  # a node alone stays where it is
        strong = 1e20 * np.maximum(degree.max(-1), 1e-280)
        wire = np.zeros_like(degree)
        wire[problems, ground] = strong
        self.matrix = -edges
        self.matrix[:, nodes, nodes] = degree + wire
        self.safe = False
        try:
            factor = np.linalg.cholesky(self.matrix)
            # The share of each diagonal entry that elimination leaves: what cancels is lost.
            kept = factor[:, nodes, nodes] ** 2 > 1e-6 * (degree + wire)
            self.safe = bool(kept.all())
        except np.linalg.LinAlgError:
            pass
        if not self.safe:
            m = np.concatenate([wire[..., None], edges], -1)  # (B, n, 1 + n)
            self.degree = [m[:, 0, 0]] * n
            for k in range(n - 1, -1, -1):
                self.degree[k] = np.maximum(m[:, k, : k + 1].sum(-1), _TINY)
                if k:
                    pull = m[:, :k, k + 1] / self.degree[k][:, None]
                    m[:, :k, : k + 1] += pull[..., None] * m[:, k, None, : k + 1]
            self.edges = m

    def solve(self, b: Array) -> Array:
        """Return x (B, n) for b (B, n)."""
        b = b.copy()
        b[self.sink] -= b.sum(-1)
        if self.safe:
            return np.asarray(np.linalg.solve(self.matrix, b[..., None])[..., 0])
        n = b.shape[-1]
        for k in range(n - 1, 0, -1):
            b[:, :k] += self.edges[:, k, 1 : k + 1] * (b[:, k] / self.degree[k])[:, None]
        x = np.zeros((len(b), n + 1))  # the wire's far end first
        for k in range(n):
            pull = (self.edges[:, k, : k + 1] * x[:, : k + 1]).sum(-1)
            x[:, k + 1] = (b[:, k] + pull) / self.degree[k]
        return x[:, 1:]


def _error(p: Array, r: Array, c: Array) -> Array:
    tiny = np.finfo(np.float64).tiny  # a zero marginal has a zero sum and no error
    row = (np.abs(p.sum(-2) - r) / np.maximum(r, tiny)).max(-1)
    col = (np.abs(p.sum(-1) - c) / np.maximum(c, tiny)).max(-1)
    return np.asarray(np.maximum(row, col))
