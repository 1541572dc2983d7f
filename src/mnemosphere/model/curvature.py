"""Curvature of the loss along a split of each memory: the splitting matrices of App. splitting.

Let memory μ be two copies of itself, moved apart to w^μ ± u with u ⊥ w^μ. The loss changes by
½ uᵀ S_μ u + O(u⁴) with

    S_μ = β_eff·o_μ·(I − w wᵀ) − β_eff²·T_μ,   o_μ = Σ_b r[b,μ]⟨w^μ, x_b⟩ / n,
    T_μ = Σ_b r[b,μ] x_⊥ x_⊥ᵀ / n,             x_⊥ = x − ⟨w^μ, x⟩w^μ

so λ_min(S_μ) on the tangent space is β_eff·o_μ − β_eff²·λ_max(T_μ), negative exactly when

    β_eff > β_split(μ) = o_μ / λ_max(T_μ)

At a fixed point n·o_μ = ‖w_bar^μ‖. This holds for every label rule, with r of either sign.

S_μ is never formed. λ_max(T_μ) is found for all memories at once by Rayleigh–Ritz from products T_μ u^μ:
`nearest` takes a few rows of each memory (cheap, for growth), `krylov` all rows, to a tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import memory_shares
from mnemosphere.numerics import sphere
from mnemosphere.numerics.rayleigh_ritz import rayleigh_ritz

# Elements of one block of gathered rows (memories × rows × N): in cache on a CPU.
_BLOCK_ELEMENTS, _BLOCK_ON_GPU = 1 << 22, 1 << 28


@dataclass(frozen=True)
class Curvature:
    """The most negative curvature along a split, for every memory.

    Each number is the exact value for the direction returned, on the rows that were used; so
    `lambda_min` is never below the true λ_min of those rows.
    """

    lambda_min: Tensor  # (P,) uᵀ S_μ u
    direction: Tensor  # (P, N) u: unit rows, each orthogonal to its memory
    beta_split: Tensor  # (P,) β_eff above which it is a saddle at fixed class weights; inf: never
    residual: Tensor  # (P,) ‖T u − (uᵀTu)u‖ / uᵀTu: 0 for an eigenvector
    passes: float  # arithmetic spent, in training passes over all rows at this width


def nearest(
    params: Mixture, batch: Batch, rule: LabelRule = objectives.joint, *,
    generator: torch.Generator | None = None, strongest: int = 192, steps: int = 8,
) -> Curvature:  # fmt: skip
    """Curvature on the rows that matter to each memory.

    Few memories answer for each row, so few rows make up T_μ. In half a pass each memory keeps the
    `strongest` ones by |r|, and `steps` products with those alone build its Krylov space. They are the
    rows used, in T_μ and in o_μ alike.

    With few rows per memory the direction is fitted to their noise, and λ_min comes out too low:
    give more rows, or use `krylov`, where its sign decides.
    """
    x, shares = batch.x, params.w.new_zeros(params.n_memories, 0)
    rows = torch.zeros_like(shares, dtype=torch.long)
    for part, r in memory_shares(params, batch, rule):
        new = torch.arange(part.start, part.stop, device=r.device).expand(params.n_memories, -1)
        shares, rows = torch.cat([shares, r.T], 1), torch.cat([rows, new], 1)
        keep = shares.abs().topk(min(strongest, shares.shape[1]), dim=1, sorted=False).indices
        shares, rows = shares.gather(1, keep), rows.gather(1, keep)
    m = shares.shape[1]
    n_block = max(1, (_BLOCK_ON_GPU if on_gpu(x) else _BLOCK_ELEMENTS) // (m * x.shape[1]))
    start, found = random_tangent(params.w, generator), []
    for first in range(0, params.n_memories, n_block):
        block = slice(first, first + n_block)
        near, r, w = x[rows[block]], shares[block, :, None], params.w[block]  # (M, m, N), (M, m, 1)

        def product(u: Tensor, near: Tensor = near, r: Tensor = r) -> Tensor:
            return torch.bmm(near.mT, r * torch.bmm(near, u[:, :, None]))[:, :, 0]  # (M, N)

        ritz = rayleigh_ritz(product, partial(sphere.to_tangent, w), start[block], steps)
        found.append((*ritz, (r * torch.bmm(near, w[:, :, None])).sum((1, 2))))
    direction, spread, residual, overlap = map(torch.cat, zip(*found, strict=True))
    # Forward half of a pass over the rows; two products per step with the strongest.
    passes = 0.5 + m * (steps + 0.5) / batch.n_rows
    n = batch.total_weight
    return curvature_along(params, direction, spread / n, overlap / n, residual, passes)


def krylov(
    params: Mixture, batch: Batch, rule: LabelRule = objectives.joint, *,
    generator: torch.Generator | None = None, steps: int = 6, tol: float = 1e-3,
    max_cycles: int = 20,
) -> Curvature:  # fmt: skip
    """Curvature on all rows, restarted until every residual is below `tol` relative.

    Starts from the directions of `nearest`. One product is three matrix products over all rows,
    one and a half training passes.
    """
    first = nearest(params, batch, rule, generator=generator)
    direction, passes, n = first.direction, first.passes, batch.total_weight

    def product(u: Tensor) -> Tensor:
        """n·T_μ u^μ for every memory; three matrix products, (P, N)."""
        out = torch.zeros_like(u)
        for rows, r in memory_shares(params, batch, rule):
            out.addmm_(r.mul_(batch.x[rows] @ u.T).T, batch.x[rows])  # (P, B) (B, N)
        return out

    for _ in range(max_cycles):
        tangent = partial(sphere.to_tangent, params.w)
        direction, spread, residual = rayleigh_ritz(product, tangent, direction, steps)
        passes += 1.5 * steps
        if bool((residual <= tol).all()):
            break
    overlap = torch.zeros_like(spread)  # n·o_μ
    for rows, r in memory_shares(params, batch, rule):
        overlap += r.mul_(batch.x[rows] @ params.w.T).sum(0)
    return curvature_along(params, direction, spread / n, overlap / n, residual, passes + 1.5)


def curvature_along(
    params: Mixture,
    direction: Tensor,
    spread: Tensor,
    overlap: Tensor,
    residual: Tensor,
    passes: float,
) -> Curvature:
    """What uᵀT_μu and o_μ say, for the direction u."""
    beta = params.slope
    # A memory without spread can never be a saddle, one without pull always is.
    never = torch.where(overlap < 0, 0.0, math.inf)
    beta_split = torch.where(spread > 0, (overlap / spread).clamp_min(0.0), never)
    return Curvature(beta * overlap - beta**2 * spread, direction, beta_split, residual, passes)


def random_tangent(w: Tensor, generator: torch.Generator | None) -> Tensor:
    """Unit rows, each orthogonal to its memory."""
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    u = sphere.sample_uniform(*w.shape, generator=generator, dtype=w.dtype, device=w.device)
    return sphere.project(sphere.to_tangent(w, u))
