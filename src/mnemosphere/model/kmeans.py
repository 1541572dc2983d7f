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


def step(
    x: Tensor, w: Tensor, weight: Tensor, *, n_starts: int = 1, among: Tensor | None = None,
    inertia: float = 0.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One step of Lloyd's: (directions of the rows that are nearest to each center, these weights (n, P)).

    w (P, N): the centers of several starts, as many each, of which a row x (n, N) has one nearest in each. weight: (n, 1).
    among (n, P): the centers that a row may have. inertia: how many rows a center itself counts as.
    """
    overlap = x @ w.T.contiguous()  # else slow
    if among is not None:
        overlap.masked_fill_(~among, -torch.inf)
    overlap = overlap.reshape(len(x), n_starts, -1)
    nearest = overlap.max(2, keepdim=True).indices  # quicker than argmax
    dealt = torch.zeros_like(overlap).scatter_(2, nearest, weight[:, None].expand_as(nearest))
    dealt = dealt.reshape(len(x), -1)
    return directions(dealt.T @ x + inertia * w, w), dealt


def directions(x: Tensor, otherwise: Tensor) -> Tensor:
    """Rows x (k, N) over their norms; the other ones where opposite rows have left nothing."""
    norm = sphere.norms(x, keepdim=True)
    some = norm > 8 * torch.finfo(x.dtype).eps
    return torch.where(some, x / torch.where(some, norm, 1.0), otherwise)


def spherical_kmeans(
    x: Tensor,
    k: int,
    *,
    generator: torch.Generator | None = None,
    weight: Tensor | None = None,
    restarts: int = 10,
    max_iter: int = 50,
    start: Tensor | None = None,
) -> Partition:
    """The best of several local maxima of Σ_b weight_b max_c ⟨x_b, c⟩ over k unit vectors.

    x: (n, N) unit rows, n ≥ k. Starts are spread out, as k-means++ draws them, and all are improved
    at once: one product with x per round serves every start. No center is left without rows, unless
    rows that coincide leave no other way; those are dealt out. start: the only start, centers (k, N).
    """
    mass = x.new_ones(x.shape[0]) if weight is None else weight.to(x)
    is_given = start is not None
    if start is None:
        draws = 2 + int(math.log(k))  # as scikit-learn has it
        start = x[_spread_out(x, k, mass, restarts, draws, generator).reshape(-1)]
    restarts, centers = len(start) // k, start  # (restarts·k, N)
    before = dealt = x.new_empty(0)
    for _ in range(max_iter):
        before = dealt
        centers, dealt = step(x, centers, mass[:, None], n_starts=restarts)
        if torch.equal(before, dealt):
            break
    overlap, label = (x @ centers.T).reshape(-1, restarts, k).max(2)  # (n, restarts)
    score = (overlap * mass[:, None]).sum(0)  # (restarts,)
    full = torch.stack([torch.bincount(run, minlength=k).amin() > 0 for run in label.T])
    if not is_given and not bool(full.any()):
        return Partition(torch.arange(x.shape[0], device=x.device) % k, x[:k])
    best = int(torch.where(full, score, -torch.inf).argmax())
    return Partition(label[:, best], centers.reshape(restarts, k, -1)[best])


def _spread_out(
    x: Tensor,
    k: int,
    mass: Tensor,
    restarts: int,
    draws: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Rows (restarts, k), each the best of some drawn by their distance to those before it."""
    mass = mass.double().cpu()
    distance = torch.full((restarts, 1, x.shape[0]), 2.0, dtype=torch.float64)  # none is further
    chosen = []
    for _ in range(k):
        drawn = torch.multinomial(distance[:, 0] * mass, draws, True, generator=generator)
        overlap = x @ x[drawn.reshape(-1).to(x.device)].T  # (n, restarts·draws)
        left = (1 - overlap.T.double().cpu()).clamp_min(1e-12).reshape(restarts, draws, -1)
        left = torch.minimum(left, distance)
        best = (left @ mass).argmin(1, keepdim=True)  # (restarts, 1)
        chosen.append(drawn.gather(1, best)[:, 0])
        distance = left.take_along_dim(best[:, :, None], 1)
    return torch.stack(chosen, 1).to(x.device)
