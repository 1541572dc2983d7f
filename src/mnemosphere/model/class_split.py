"""Splits in which the two copies of a memory share out its classes.

Copies at w ± u, u ⊥ w, with class weights p/2 ± v, Σ_y v_y = 0, change the loss under any label
rule by

    ½ uᵀ S u − uᵀ C a,    S = β_eff·o·(I − w wᵀ) − β_eff² T          as in model.curvature,
    C[:, y] = β_eff Σ_b r[b,y] x_⊥ / (n √g_y),    v = (p_h/2) √g ∘ a,    g = p/p_h(μ)

with r[b,y] the part of row b and class y that μ answers for, and a ⊥ √g. So the Hessian is
[[S, −C], [−Cᵀ, 0]]: docs/theory-derivations.md has the proof, theory.joint_split the exact search
on all rows. Here it is taken on the strongest rows of each memory, for growth.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sums import ALONE, Sums
from mnemosphere.numerics import sphere

_NEWTON, _SATURATED = 60, 15.0


def label_ratios(params: Parameters, batch: Batch, rule: LabelRule) -> Tensor:
    """Label weight over density of each row and class, (B, C+1), up to a factor per row."""
    found = log_joint(params, batch.x)
    _, weights = rule(found, batch.targets)
    return weights * torch.exp(found.amin(1, keepdim=True) - found)


class JointForm:
    """−n times the Hessian of M memories over z = (u, a), (M, N + C+1), on m rows of each.

    w (M, N), p (M, C+1), near (M, m, N) rows, share (M, m) their responsibilities r, ratios
    (M, m, C+1) of `label_ratios`; `sums`: the processes that share the rows.
    """

    def __init__(
        self,
        w: Tensor,
        p: Tensor,
        beta: Tensor,
        near: Tensor,
        share: Tensor,
        ratios: Tensor,
        sums: Sums = ALONE,
    ) -> None:
        self.w, self.beta, self.near, self.share, self._sums = w, beta, near, share, sums
        self.prior = p.sum(1, keepdim=True)
        self.root = (p / self.prior).sqrt()
        by_class = p[:, None, :] * ratios
        total = by_class.sum(2, keepdim=True)
        by_class = torch.where(total != 0, by_class / torch.where(total != 0, total, 1.0), 0.0)
        # A class without weight here cannot move.
        inverse = torch.where(self.root > 0, 1 / self.root.clamp_min(1e-18), 0.0)
        pull = torch.bmm(near.mT, share[:, :, None] * by_class) * inverse[:, None, :]  # (M, N, C+1)
        overlap = (share * torch.bmm(near, w[:, :, None])[:, :, 0]).sum(1, keepdim=True)
        pull, overlap = sums.sum(pull, overlap)
        pull = pull - w[:, :, None] * torch.einsum("mny,mn->my", pull, w)[:, None, :]
        self.coupling = beta * (pull - (pull @ self.root[:, :, None]) * self.root[:, None, :])
        self.hold = beta * overlap  # (M, 1)

    def start(self, u: Tensor) -> Tensor:
        """Where the classes pull apart most, and the direction u (M, N) of a plain split."""
        a = torch.linalg.eigh(self.coupling.mT @ self.coupling).eigenvectors[:, :, -1]
        sides = a @ torch.arange(1, a.shape[1] + 1).to(a)  # of the two signs, always the same one
        a = torch.where(sides[:, None] < 0, -a, a)
        across = (self.coupling @ a[:, :, None])[:, :, 0]
        across = across / across.norm(dim=1, keepdim=True).clamp_min(1e-30)
        return sphere.project(self.tangent(torch.cat([u + across, a], dim=1)))

    def tangent(self, z: Tensor) -> Tensor:
        """The part of z across w, and across √g on the classes that can move."""
        u, a = z[:, : self.w.shape[1]], z[:, self.w.shape[1] :]
        a = torch.where(self.root > 0, sphere.to_tangent(self.root, a), 0.0)
        return torch.cat([sphere.to_tangent(self.w, u), a], dim=1)

    def product(self, z: Tensor) -> Tensor:
        """−n H z."""
        u, a = z[:, : self.w.shape[1], None], z[:, self.w.shape[1] :, None]
        spread = torch.bmm(self.near.mT, self.share[:, :, None] * torch.bmm(self.near, u))
        (spread,) = self._sums.sum(spread)
        top = self.beta**2 * spread - self.hold[:, :, None] * u + self.coupling @ a
        return torch.cat([top, self.coupling.mT @ u], dim=1)[:, :, 0]

    def parts(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(u (M, N), v (M, C+1)) of z."""
        n = self.w.shape[1]
        return z[:, :n], 0.5 * self.prior * self.root * z[:, n:]


def share_out(p: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Class weights p (R, C+1) for two copies, p/2 ± v to first order in v, sums of both exact.

    p(1 ± tanh(t + s))/2 with t = 2v/p is positive and adds up to p; s is what makes the copies
    weigh the same, found by Newton's method on a monotone function, kept in its bracket.
    """
    t = (2 * v / p.clamp_min(torch.finfo(p.dtype).tiny)).double()
    t, weight = t.clamp(-_SATURATED, _SATURATED), p.double()
    low, high = -t.amax(1, keepdim=True), -t.amin(1, keepdim=True)
    s = (low + high) / 2
    for _ in range(_NEWTON):
        side = torch.tanh(t + s)
        value = (weight * side).sum(1, keepdim=True)
        low, high = torch.where(value < 0, s, low), torch.where(value > 0, s, high)
        slope = (weight * (1 - side * side)).sum(1, keepdim=True)
        newton = s - value / slope.clamp_min(1e-300)
        s = torch.where((newton > low) & (newton < high), newton, (low + high) / 2)
    half = 0.5 * (weight * torch.tanh(t + s)).to(p.dtype)
    return p / 2 + half, p / 2 - half
