"""Small linear systems: the Laplacian of a weighted graph, and Newton steps on a transport problem.

Arrays are (B, C, R), a batch of problems with the columns of the polytope first: there are few of
them, so that sums over either axis run along contiguous memory. On problems of this size NumPy is
several times faster than torch, on a GPU too, where a step would be sixty launches of kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TINY = 1e-300  # keeps a division by zero finite


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
