"""The paper's way to the curvature of splits: stochastic descent of Rayleigh quotients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.curvature import Curvature, curvature_along, random_tangent
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import memory_shares
from mnemosphere.numerics import sphere
from mnemosphere.numerics.rayleigh_ritz import relative_residual


@dataclass(frozen=True)
class Descent:
    """Stochastic descent of the Rayleigh quotients (App. splitting).

    Each gradient is divided by a running mean of its own norm, for the quotients span orders of
    magnitude. One epoch of three matrix products per batch, and one product with all rows for the
    values reported.
    """

    epochs: int = 1
    batch_size: int = 1000
    learning_rate: float = 0.1
    decay: float = 0.9

    def __call__(
        self, params: Mixture, batch: Batch, rule: LabelRule = objectives.joint, *,
        generator: torch.Generator | None = None,
    ) -> Curvature:  # fmt: skip
        """Curvature at `params`: directions from batches, values on all rows."""
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        w, beta = params.w, params.slope
        u = random_tangent(w, generator)
        scale = torch.zeros_like(w[:, :1])  # (P, 1) running mean of the gradients' norms
        step = 0
        for _ in range(self.epochs):
            order = torch.randperm(batch.n_rows, generator=generator, device=generator.device)
            for some in order.to(batch.x.device).split(self.batch_size):
                t_u, w_bar = _products(params, batch.take(some), rule, u)
                overlap = (w_bar * w).sum(1, keepdim=True)
                gradient = 2 * (beta * overlap * u - beta**2 * sphere.to_tangent(w, t_u))
                gradient = sphere.to_tangent(u, gradient)
                step += 1
                scale = torch.lerp(gradient.norm(dim=1, keepdim=True), scale, self.decay)
                mean = (scale / (1 - self.decay**step)).clamp_min(torch.finfo(u.dtype).tiny)
                u = sphere.retract(u, -self.learning_rate * gradient / mean)
                u = sphere.project(sphere.to_tangent(w, u))
        t_u, w_bar = _products(params, batch, rule, u)
        t_u, n = sphere.to_tangent(w, t_u), batch.total_weight
        spread, overlap = (u * t_u).sum(1), (w_bar * w).sum(1)
        residual = relative_residual(u, t_u, spread)
        return curvature_along(params, u, spread / n, overlap / n, residual, 2.0 * self.epochs + 2)


def _products(params: Mixture, batch: Batch, rule: LabelRule, u: Tensor) -> tuple[Tensor, Tensor]:
    """n·T_μ u^μ up to its part along w^μ, and w_bar, each (P, N); four matrix products."""
    out, w_bar = torch.zeros_like(u), torch.zeros_like(u)
    for rows, r in memory_shares(params, batch, rule):
        x = batch.x[rows]
        w_bar.addmm_(r.T, x)  # (P, N)
        out.addmm_(r.mul_(x @ u.T).T, x)
    return out, w_bar
