"""Spherical k-means: where memories start, and what cuts the graph of memories into groups."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.numerics import sphere


class Partition(NamedTuple):
    """Rows dealt out to centers."""

    label: Tensor  # (n,) the center of highest overlap
    centers: Tensor  # (k, N) unit vectors


def step(x: Tensor, w: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """One step of Lloyd's: (directions of the rows nearest to each center w (k, N), these weights (n, k)).

    x: (n, N); weight: (n, 1). A center without rows stays.
    """
    overlap = x @ w.T.contiguous()  # else slow
    nearest = overlap.max(1, keepdim=True).indices  # quicker than argmax
    dealt = torch.zeros_like(overlap).scatter_(1, nearest, weight)
    return directions(dealt.T @ x, w), dealt


def directions(x: Tensor, otherwise: Tensor) -> Tensor:
    """Rows x (k, N) over their norms; the other ones where opposite rows have left nothing."""
    norm = sphere.norms(x, keepdim=True)
    some = norm > 8 * torch.finfo(x.dtype).eps
    return torch.where(some, x / torch.where(some, norm, 1.0), otherwise)


def spherical_kmeans(
    x: Tensor, k: int, *, generator: torch.Generator | None = None, weight: Tensor | None = None,
    restarts: int = 10, max_iter: int = 50, start: Tensor | None = None,
) -> Partition:  # fmt: skip
    """The best of several local maxima of Σ_b weight_b max_c ⟨x_b, c⟩ over k unit vectors.

    x: (n, N) unit rows, n ≥ k. Starts are spread out, as k-means++ draws them. No center is left without
    rows, unless rows that coincide leave no other way; those are dealt out. start: the only start, centers (k, N).
    """
    mass = (x.new_ones(len(x)) if weight is None else weight.to(x))[:, None]
    best, highest = Partition(torch.arange(len(x), device=x.device) % k, x[:k]), -math.inf
    for _ in range(restarts if start is None else 1):
        centers = _spread_out(x, k, mass[:, 0], generator) if start is None else start
        before = dealt = x.new_empty(0)
        for _ in range(max_iter):
            before, (centers, dealt) = dealt, step(x, centers, mass)
            if torch.equal(before, dealt):
                break
        overlap, label = (x @ centers.T).max(1)
        score, full = float(overlap @ mass), int(label.bincount().count_nonzero()) == k
        if start is not None or (full and score > highest):
            best, highest = Partition(label, centers), score
    return best


def _spread_out(x: Tensor, k: int, mass: Tensor, generator: torch.Generator | None) -> Tensor:
    """Rows x[some] (k, N), each the best of a few drawn by their distance to those before it."""
    mass, n_draws = mass.double().cpu(), 2 + int(math.log(k))  # as scikit-learn has it
    distance, chosen = torch.full_like(mass, 2.0), []  # none is further
    for _ in range(k):
        drawn = torch.multinomial(distance * mass, n_draws, True, generator=generator)
        left = 1 - (x[drawn.to(x.device)] @ x.T).double().cpu()  # (draws, n)
        left = torch.minimum(left.clamp_min(1e-12), distance)
        best = int((left @ mass).argmin())
        distance = left[best]
        chosen.append(int(drawn[best]))
    return x[chosen]
