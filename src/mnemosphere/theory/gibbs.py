"""Exact Gibbs sampling of the student's posterior, Eq. (posterior), many chains at once.

With uniform priors on memories w and class weights p, hidden assignments z and the fields
h[γ, c] = β⟨w^γ, x_c⟩ − log Ω_N(β)/Ω_N(0), h[0, c] = 0 of Eq. (direct_distribution), a sweep is

    p   | w      ∝ Π_c Σ_γ p[γ, y_c] exp(h[γ, c]) on {p ≥ 0: row sums p_h, column sums p_q}
    z_c | w, p   categorical ∝ p[γ, y_c] exp(h[γ, c])
    w^μ | z      von Mises–Fisher of natural parameter β Σ_{c: z_c = μ} x_c
    p   | z      ∝ Π p[γ, y]^n[γ, y] on the same polytope, n[γ, y] rows of class y in component γ

The laws of p have no closed form: Markov steps leave them invariant. Those given z move all of p at
once but only by 1/√M; those given w alone take far steps, one 2×2 block at a time, where data say
little about p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mnemosphere.numerics import bessel, vmf


@dataclass(frozen=True)
class Likelihood:
    """What the posterior conditions on: x (M, N) unit rows, y (M,) columns of p, and β.

    beta: (chains,), one number for each chain.
    """

    x: Tensor
    y: Tensor
    beta: Tensor

    @property
    def slope(self) -> Tensor:
        """β in the shape (chains, 1, 1)."""
        return self.beta[:, None, None]

    @cached_property
    def log_ratio(self) -> Tensor:
        """Log of Ω_N(β)/Ω_N(0), in the shape of `slope`."""
        return bessel.log_omega_ratio(self.slope, self.x.shape[1])


@dataclass(frozen=True)
class GibbsState:
    """The chains' parameters: w (chains, P, N) unit rows, p (chains, P+1, C+1), row 0 uniform."""

    w: Tensor
    p: Tensor


def sweep(
    state: GibbsState, data: Likelihood, *, class_weight_moves: int, generator: torch.Generator
) -> GibbsState:
    """One pass through all conditionals; pure but for the generator."""
    h, p = _fields(state.w, data), state.p
    labeled = p.shape[2] > 1
    if labeled:
        for _ in range(class_weight_moves):
            p = move_given_memories(p, h, data.y, generator=generator)
    member = _sample_assignments(p, h, data.y, generator)  # (chains, P+1, M) one-hot
    w = _sample_memories(member, data, generator)
    if labeled:
        label = torch.nn.functional.one_hot(data.y, p.shape[2]).to(data.x.dtype)  # (M, C+1)
        counts = member @ label  # (chains, P+1, C+1)
        for _ in range(class_weight_moves):
            p = move_given_assignments(p, counts, generator=generator)
    return GibbsState(w, p)


def _fields(w: Tensor, data: Likelihood) -> Tensor:
    """Fields h (chains, P+1, M) of memories w (chains, P, N) on the rows."""
    overlaps = (w.reshape(-1, w.shape[2]) @ data.x.T).reshape(*w.shape[:2], -1)
    h = data.slope * overlaps - data.log_ratio
    return torch.cat([torch.zeros_like(h[:, :1]), h], 1)  # the uniform component


def _sample_assignments(p: Tensor, h: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """One-hot z (chains, P+1, M) by inversion of the cumulative responsibilities."""
    share = torch.softmax(p.log()[:, :, y] + h, 1)  # (chains, P+1, M)
    below = share.cumsum(1)[:, :-1]  # (chains, P, M)
    u = torch.rand(below[:, :1].shape, generator=generator, dtype=h.dtype, device=h.device)
    # (chains, 1, M); >= and not >, so that a component without share is never drawn.
    z = (u >= below).sum(1, keepdim=True)
    components = torch.arange(h.shape[1], device=h.device)[:, None]
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
    return vmf.sample(mean, data.slope[..., 0] * norm, generator=generator)


def move_given_assignments(p: Tensor, counts: Tensor, *, generator: torch.Generator) -> Tensor:
    """One Markov step on p (chains, P+1, C+1) that leaves Π p^counts on its polytope invariant.

    A random matching of rows times one of columns gives disjoint 2×2 blocks. Adding
    t(+1, −1; −1, +1) to a block keeps all row and column sums, and the blocks' t are independent
    given the rest: all are drawn at once.
    """
    rows = _pairs(p.shape[0], p.shape[1], p.device, generator)[:, :, None, :, None]
    cols = _pairs(p.shape[0], p.shape[2], p.device, generator)[:, None, :, None, :]
    chain = torch.arange(p.shape[0], device=p.device)[:, None, None, None, None]
    block, n = p[chain, rows, cols], counts[chain, rows, cols]  # (chains, R, S, 2, 2)

    def log_density(t: Tensor) -> Tensor:
        return torch.xlogy(n, _shift(block, t)).sum((-2, -1))

    result = p.clone()
    result[chain, rows, cols] = _shift(block, _slice(log_density, block, generator))
    return result


def move_given_memories(p: Tensor, h: Tensor, y: Tensor, *, generator: torch.Generator) -> Tensor:
    """One Markov step on p that leaves Π_c Σ_γ p[γ, y_c] exp(h[γ, c]) on its polytope invariant.

    p (chains, P+1, C+1) with two columns or more, h (chains, P+1, M), y (M,). Each chain moves one
    random 2×2 block: row c changes by the factor 1 ± t(e^h[γ, c] − e^h[γ', c])/Σ, its sign set by
    its class.
    """
    n_chains, n_rows, n_cols = p.shape
    rows = _pairs(n_chains, n_rows, p.device, generator)[:, 0]  # (chains, 2)
    cols = _pairs(n_chains, n_cols, p.device, generator)[:, 0]
    chain = torch.arange(n_chains, device=p.device)[:, None]
    block = p[chain[..., None], rows[:, :, None], cols[:, None, :]]  # (chains, 2, 2)
    total = torch.logsumexp(p.log()[:, :, y] + h, 1)  # (chains, M)
    # exp(h − total) ≤ 1/p overflows for a component without share alone, which cannot move.
    ratio = (h[chain, rows] - total[:, None]).clamp_max(700).exp()  # (chains, 2, M)
    sign = (y == cols[:, :1]).to(h.dtype) - (y == cols[:, 1:]).to(h.dtype)  # (chains, M)
    slope = sign * (ratio[:, 0] - ratio[:, 1])

    def log_density(t: Tensor) -> Tensor:
        return (t[:, None] * slope).clamp_min(-1).log1p().sum(1)

    result = p.clone()
    result[chain[..., None], rows[:, :, None], cols[:, None, :]] = _shift(
        block, _slice(log_density, block, generator)
    )
    return result


def _shift(block: Tensor, t: Tensor) -> Tensor:
    """Add t (...) times (+1, −1; −1, +1) to blocks (..., 2, 2), whose sums stay as they are."""
    sign = block.new_tensor([[1.0, -1.0], [-1.0, 1.0]])
    return (block + t[..., None, None] * sign).clamp_min(0)  # rounding may pass 0 by an ulp


def _slice(
    log_density: Callable[[Tensor], Tensor], block: Tensor, generator: torch.Generator
) -> Tensor:
    """Slice sampling of the shift t (...) of blocks (..., 2, 2), from t = 0.

    A level lies an Exp(1) drop below the present log density. Uniform draws from the segment of
    non-negative blocks, which shrinks towards the present point, until one lies above the level.
    """

    def uniform() -> Tensor:
        return torch.rand(t.shape, generator=generator, dtype=t.dtype, device=t.device)

    lower = -torch.minimum(block[..., 0, 0], block[..., 1, 1])
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
    return t


def _pairs(n_chains: int, n: int, device: torch.device, generator: torch.Generator) -> Tensor:
    """A random matching of 0..n-1 for each chain: (chains, n//2, 2)."""
    order = torch.rand(n_chains, n, generator=generator, device=device).argsort(1)
    return order[:, : n - n % 2].reshape(n_chains, n // 2, 2)
