"""Curvature of the loss along a split of each memory: the splitting matrices of App. splitting.

Let memory μ be two copies of itself, moved apart to w^μ ± u with u ⊥ w^μ. The loss changes by
½ uᵀ S_μ u + O(u⁴) with

    S_μ = β_eff·o_μ·(I − w wᵀ) − β_eff²·T_μ,   o_μ = Σ_b r[b,μ]⟨w^μ, x_b⟩ / n,
    T_μ = Σ_b r[b,μ] x_⊥ x_⊥ᵀ / n,             x_⊥ = x − ⟨w^μ, x⟩w^μ

so λ_min(S_μ) on the tangent space is β_eff·o_μ − β_eff²·λ_max(T_μ), negative exactly when

    β_eff > β_split(μ) = o_μ / λ_max(T_μ)

At a fixed point n·o_μ = ‖w_bar^μ‖. This holds for every label rule, with r of either sign.

S_μ is never formed. λ_max(T_μ) is found for all memories at once from products T_μ u^μ, in one
of two ways: `Nearest` (cheap, the default of growth) and `Krylov` (all rows, to a tolerance).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import memory_shares
from mnemosphere.numerics import sphere
from mnemosphere.numerics.rayleigh_ritz import rayleigh_ritz, restarted

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


class CurvatureMethod(Protocol):
    """A way to find the curvature of every memory."""

    def rows_wanted(self, n_memories: int) -> int | None:
        """How many random rows are enough for so many memories; None: all there are."""
        ...

    def __call__(
        self,
        params: Mixture,
        batch: Batch,
        rule: LabelRule = objectives.joint,
        *,
        generator: torch.Generator | None = None,
    ) -> Curvature:
        """Curvature at `params` on these rows."""
        ...


@dataclass(frozen=True)
class Nearest:
    """Rayleigh–Ritz on the rows that matter to each memory.

    Few memories answer for each row, so few rows make up T_μ. `rows_per_memory`·P rows are drawn
    at random (all, if there are no more); in half a pass over them each memory keeps the
    `strongest` ones by |r|, and `steps` products with those alone build its Krylov space. The
    rows used, in T_μ and in o_μ alike, are these strongest ones.

    With few rows per memory the direction is fitted to their noise, and λ_min comes out too low:
    raise `rows_per_memory`, or use `Krylov`, where its sign decides.
    """

    rows_per_memory: int = 64
    strongest: int = 192
    steps: int = 8

    def rows_wanted(self, n_memories: int) -> int:
        """`rows_per_memory` for each."""
        return self.rows_per_memory * n_memories

    def __call__(
        self,
        params: Mixture,
        batch: Batch,
        rule: LabelRule = objectives.joint,
        *,
        generator: torch.Generator | None = None,
    ) -> Curvature:
        """Curvature at `params` on the strongest rows of each memory."""
        n_rows, n_memories = batch.n_rows, params.n_memories
        n_drawn = min(n_rows, self.rows_wanted(n_memories))
        if n_drawn < n_rows:
            batch = batch.take(_permutation(n_rows, generator, batch.x.device)[:n_drawn])
        n, x = batch.total_weight, batch.x
        shares, rows = self._select(params, batch, rule)  # (P, m)
        start = random_tangent(params.w, generator)

        direction = torch.empty_like(params.w)
        spread, overlap, residual = (torch.empty_like(params.w[:, 0]) for _ in range(3))
        m = min(self.strongest, n_drawn)
        elements = _BLOCK_ON_GPU if on_gpu(x) else _BLOCK_ELEMENTS
        n_block = max(1, elements // (m * x.shape[1]))
        for first in range(0, n_memories, n_block):
            block = slice(first, first + n_block)
            near = x[rows[block]]  # (M, m, N)
            share = shares[block]  # (M, m)
            w = params.w[block]

            def product(u: Tensor, near: Tensor = near, share: Tensor = share) -> Tensor:
                a = share[:, :, None] * torch.bmm(near, u[:, :, None])  # (M, m, 1)
                return torch.bmm(near.transpose(1, 2), a)[:, :, 0]  # (M, N)

            tangent = partial(sphere.to_tangent, w)
            ritz = rayleigh_ritz(product, tangent, start[block], self.steps)
            direction[block], spread[block], residual[block] = ritz
            overlap[block] = (share * torch.bmm(near, w[:, :, None])[:, :, 0]).sum(1)
        # Forward half of a pass over the rows drawn; two products per step with the strongest.
        passes = 0.5 * n_drawn / n_rows + m * (self.steps + 0.5) / n_rows
        return curvature_along(params, direction, spread / n, overlap / n, residual, passes)

    def _select(self, params: Mixture, batch: Batch, rule: LabelRule) -> tuple[Tensor, Tensor]:
        """The largest responsibilities by modulus of each memory, (P, m), and their rows."""
        shares = params.w.new_zeros(params.n_memories, 0)
        rows = torch.zeros_like(shares, dtype=torch.long)
        for part, r in memory_shares(params, batch, rule):
            new = torch.arange(part.start, part.stop, device=r.device)
            shares = torch.cat([shares, r.T], dim=1)
            rows = torch.cat([rows, new.expand(params.n_memories, -1)], dim=1)
            if shares.shape[1] > self.strongest:
                keep = shares.abs().topk(self.strongest, dim=1, sorted=False).indices
                shares, rows = shares.gather(1, keep), rows.gather(1, keep)
        return shares, rows


@dataclass(frozen=True)
class Krylov:
    """Rayleigh–Ritz on all rows, restarted until every residual is below `tol` relative.

    Starts from the directions of `Nearest`. One product is three matrix products over all rows,
    one and a half training passes.
    """

    steps: int = 6
    tol: float = 1e-3
    max_cycles: int = 20

    def rows_wanted(self, n_memories: int) -> None:
        """All there are."""

    def __call__(
        self,
        params: Mixture,
        batch: Batch,
        rule: LabelRule = objectives.joint,
        *,
        generator: torch.Generator | None = None,
    ) -> Curvature:
        """Curvature at `params` on all rows."""
        start = Nearest()(params, batch, rule, generator=generator)
        n = batch.total_weight
        product = partial(_split_products, params, batch, rule)
        tangent = partial(sphere.to_tangent, params.w)
        direction, spread, residual, taken = restarted(
            product, tangent, start.direction, steps=self.steps, cycles=self.max_cycles,
            enough=lambda _, residual: residual <= self.tol,
        )  # fmt: skip
        passes = start.passes + 1.5 * self.steps * taken
        overlap = torch.zeros_like(spread)  # n·o_μ
        for rows, r in memory_shares(params, batch, rule):
            overlap += r.mul_(batch.x[rows] @ params.w.T).sum(0)
        return curvature_along(params, direction, spread / n, overlap / n, residual, passes + 1.5)


def _split_products(params: Mixture, batch: Batch, rule: LabelRule, u: Tensor) -> Tensor:
    """n·T_μ u^μ for every memory and tangent vectors u (P, N); three matrix products, (P, N)."""
    out = torch.zeros_like(u)
    for rows, r in memory_shares(params, batch, rule):
        x = batch.x[rows]
        out.addmm_(r.mul_(x @ u.T).T, x)  # (P, B) (B, N)
    return sphere.to_tangent(params.w, out)


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


def _permutation(n: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    return torch.randperm(n, generator=generator, device=generator.device).to(device)


def random_tangent(w: Tensor, generator: torch.Generator | None) -> Tensor:
    """Unit rows, each orthogonal to its memory."""
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    u = sphere.sample_uniform(*w.shape, generator=generator, dtype=w.dtype, device=w.device)
    return sphere.project(sphere.to_tangent(w, u))
