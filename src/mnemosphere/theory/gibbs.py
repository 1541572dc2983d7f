"""Exact Gibbs sampling of the student's posterior, Eq. (posterior), many chains at once.

Given hidden assignments z, memories and class weights are independent, so a sweep is

    z_c | w, p   categorical ∝ p[γ, y_c] exp(h[γ, c]), the terms of Eq. (direct_distribution)
    w^μ | z      von Mises–Fisher of natural parameter β Σ_{c: z_c = μ} x_c
    p   | z      ∝ Π p[γ, y]^n[γ, y] on {p ≥ 0: row sums p_h, column sums p_q}

with uniform priors on w and p, and n[γ, y] rows of class y in component γ. The last law has no
closed form; `move_class_weights` leaves it invariant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mnemosphere.numerics import bessel, vmf

__all__ = ["Likelihood", "State", "move_class_weights", "sweep"]


@dataclass(frozen=True)
class Likelihood:
    """What the posterior conditions on: x (M, N) unit rows, y (M,) columns of p, and β."""

    x: Tensor
    y: Tensor
    beta: float

    @cached_property
    def log_ratio(self) -> float:
        """Log of Ω_N(β)/Ω_N(0)."""
        return float(bessel.log_omega_ratio(self.beta, self.x.shape[1]))


@dataclass(frozen=True)
class State:
    """The chains' parameters: w (chains, P, N) unit rows, p (chains, P+1, C+1), row 0 uniform."""

    w: Tensor
    p: Tensor


def sweep(
    state: State, data: Likelihood, *, class_weight_moves: int, generator: torch.Generator
) -> State:
    """One pass through all conditionals; pure but for the generator."""
    member = _sample_assignments(state, data, generator)  # (chains, P+1, M) one-hot
    w = _sample_memories(member, data, generator)
    p = state.p
    if p.shape[2] > 1:
        label = torch.nn.functional.one_hot(data.y, p.shape[2]).to(data.x.dtype)  # (M, C+1)
        counts = member @ label  # (chains, P+1, C+1)
        for _ in range(class_weight_moves):
            p = move_class_weights(p, counts, generator=generator)
    return State(w, p)


def _sample_assignments(state: State, data: Likelihood, generator: torch.Generator) -> Tensor:
    """One-hot z (chains, P+1, M) by inversion of the cumulative responsibilities."""
    n_chains, n_memories, n = state.w.shape
    scores = state.w.reshape(-1, n) @ data.x.T  # (chains*P, N) @ (N, M)
    h = (data.beta * scores - data.log_ratio).reshape(n_chains, n_memories, -1)
    h = torch.cat([torch.zeros_like(h[:, :1]), h], 1)  # the uniform component
    share = torch.softmax(state.p.log()[:, :, data.y] + h, 1)  # (chains, P+1, M)
    below = share.cumsum(1)[:, :-1]  # (chains, P, M)
    u = torch.rand(below[:, :1].shape, generator=generator, dtype=h.dtype, device=h.device)
    z = (u >= below).sum(
        1, keepdim=True
    )  # (chains, 1, M); >= so that an empty row 0 is never drawn
    components = torch.arange(n_memories + 1, device=h.device)[:, None]
    return (z == components).to(h.dtype)


def _sample_memories(member: Tensor, data: Likelihood, generator: torch.Generator) -> Tensor:
    """Draw w (chains, P, N) from its von Mises–Fisher conditionals."""
    n_chains, n_components, n_rows = member.shape
    total = member[:, 1:].reshape(-1, n_rows) @ data.x  # (chains*P, M) @ (M, N)
    total = total.reshape(n_chains, n_components - 1, -1)
    norm = total.norm(dim=-1)  # (chains, P)
    # A memory without data is uniform on the sphere: concentration 0, any mean direction.
    pole = torch.zeros_like(total)
    pole[..., 0] = 1.0
    mean = torch.where(norm[..., None] > 0, total / norm[..., None], pole)
    return vmf.sample(mean, data.beta * norm, generator=generator)


def move_class_weights(p: Tensor, counts: Tensor, *, generator: torch.Generator) -> Tensor:
    """One Markov step on p (chains, P+1, C+1) that leaves Π p^counts on its polytope invariant.

    A random matching of rows times one of columns gives disjoint 2×2 blocks. Adding
    t(+1, −1; −1, +1) to a block keeps all row and column sums, and the blocks' t are independent
    given the rest. Each t is drawn by slice sampling on its segment: an Exp(1) drop below the
    present log density, then uniform draws from the segment, which shrinks towards the present
    point until one lies above that level.
    """
    rows = _pairs(p.shape[0], p.shape[1], p.device, generator)[:, :, None, :, None]
    cols = _pairs(p.shape[0], p.shape[2], p.device, generator)[:, None, :, None, :]
    chain = torch.arange(p.shape[0], device=p.device)[:, None, None, None, None]
    block, n = p[chain, rows, cols], counts[chain, rows, cols]  # (chains, R, S, 2, 2)
    sign = p.new_tensor([[1.0, -1.0], [-1.0, 1.0]])

    def moved(t: Tensor) -> Tensor:
        return (block + t[..., None, None] * sign).clamp_min(
            0
        )  # rounding may pass the end by an ulp

    def log_density(t: Tensor) -> Tensor:
        return torch.xlogy(n, moved(t)).sum((-2, -1))

    def uniform() -> Tensor:
        return torch.rand(lower.shape, generator=generator, dtype=p.dtype, device=p.device)

    lower = -torch.minimum(block[..., 0, 0], block[..., 1, 1])  # (chains, R, S)
    upper = torch.minimum(block[..., 0, 1], block[..., 1, 0])
    t = torch.zeros_like(lower)
    level = log_density(t) + uniform().log()
    done = torch.zeros_like(lower, dtype=torch.bool)
    while not bool(done.all()):
        proposal = lower + (upper - lower) * uniform()
        accepted = ~done & (log_density(proposal) >= level)
        t = torch.where(accepted, proposal, t)
        done = done | accepted
        lower = torch.where(proposal < 0, proposal, lower)
        upper = torch.where(proposal < 0, upper, proposal)
    result = p.clone()
    result[chain, rows, cols] = moved(t)
    return result


def _pairs(n_chains: int, n: int, device: torch.device, generator: torch.Generator) -> Tensor:
    """A random matching of 0..n-1 for each chain: (chains, n//2, 2)."""
    order = torch.rand(n_chains, n, generator=generator, device=device).argsort(1)
    return order[:, : n - n % 2].reshape(n_chains, n // 2, 2)
