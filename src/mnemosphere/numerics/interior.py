"""Maximize Σ q log p over a transportation polytope: p = q/(λ + ω), by an interior-point method.

It takes about a dozen steps, whatever q is, and two from the multipliers λ and ω of a problem like it.

Arrays are (B, C, R), a batch of problems with the columns of the polytope first: there are few of
them, so that sums over either axis run along contiguous memory. On problems of this size NumPy is
several times faster than torch, on a GPU too, where a step would be sixty launches of kernels.
"""

from __future__ import annotations

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
        error = marginal_error(x, r, c)
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
                ratio = np.divide(w, q, out=np.ones_like(w), where=some)
                fall = np.log(np.maximum(ratio, TINY))
                excess = np.where(some, w - q - q * fall, 0.0).sum((-2, -1)) / total[todo, 0]
                gap = np.where(left, excess, 0.0)
                error = np.where(left, marginal_error(p, r, c), error)
            for out, value in zip(ended[:5], (lam, omega, x, error, gap), strict=True):
                out[todo] = value
            if n_left == 0 or iterations >= max_iter:
                return ended._replace(iterations=iterations)
            if n_left < len(left):  # most problems of the batch are done: go on with the rest
                todo, dead = todo[left], None if dead is None else dead[left]
                q, r, c, p, goal, per_even = (z[left] for z in (q, r, c, p, goal, per_even))
                lam, omega, zeta, inverse, cut = (z[left] for z in (lam, omega, zeta, inverse, cut))
        iterations += 1
        w = p * zeta * per_even
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

    The inverse matrix where that is safe. Where weights differ by many decades it loses the small
    ones: there eliminate node by node (the star-mesh transform), which adds and divides positive
    numbers alone and keeps their relative precision.
    """

    def __init__(self, edges: Array, ground: NDArray[Any], sink: NDArray[Any]) -> None:
        n = edges.shape[-1]
        problems = np.arange(len(edges))
        self.sink = problems * n + sink
        matrix = np.negative(edges, order="C")
        diagonal = matrix.reshape(-1, n * n)[:, :: n + 1]  # a view
        diagonal[...] = 0.0  # summed without it: subtracting would cancel
        degree = -matrix.sum(-1)
        degree[~(degree > 0)] = 1.0  # a node alone stays where it is
        diagonal[...] = degree
        # A strong wire to zero holds the ground.
        strong = 1e20 * np.maximum(degree.max(-1), 1e-280)
        diagonal[problems, ground] = strong
        self.inverse = None
        try:
            inverse = np.linalg.inv(matrix)
            # Its diagonal times the matrix's: one over the share of an entry that eliminating all
            # the other nodes leaves. What cancels is lost.
            lost = inverse.reshape(-1, n * n)[:, :: n + 1] * diagonal
            if lost.min() > 0 and lost.max() < 1e6:
                self.inverse = inverse
                return
        except np.linalg.LinAlgError:
            pass
        diagonal[...] = 0.0
        wire = np.zeros_like(degree)
        wire[problems, ground] = strong
        m = np.concatenate([wire[..., None], -matrix], -1)  # (B, n, 1 + n)
        self.degree = [m[:, 0, 0]] * n
        for k in range(n - 1, -1, -1):
            self.degree[k] = np.maximum(m[:, k, : k + 1].sum(-1), TINY)
            if k:
                pull = m[:, :k, k + 1] / self.degree[k][:, None]
                m[:, :k, : k + 1] += pull[..., None] * m[:, k, None, : k + 1]
        self.edges = m

    def solve(self, b: Array) -> Array:
        """Return x (B, n) for b (B, n)."""
        b = b.copy()
        b.reshape(-1)[self.sink] -= b.sum(-1)
        if self.inverse is not None:
            return np.asarray(np.matmul(self.inverse, b[..., None])[..., 0])
        n = b.shape[-1]
        for k in range(n - 1, 0, -1):
            b[:, :k] += self.edges[:, k, 1 : k + 1] * (b[:, k] / self.degree[k])[:, None]
        x = np.zeros((len(b), n + 1))  # the wire's far end first
        for k in range(n):
            pull = (self.edges[:, k, : k + 1] * x[:, : k + 1]).sum(-1)
            x[:, k + 1] = (b[:, k] + pull) / self.degree[k]
        return x[:, 1:]
