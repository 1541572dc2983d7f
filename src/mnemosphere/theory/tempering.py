"""Replica exchange: chains at several temperatures trade places, so that none stays where it began.

At the student's β the posterior may have several modes, solutions of the saddle-point equations
whose free entropies differ by little, with barriers that grow with N. At smaller β there is one.
Each chain holds a state for every β of a ladder; neighbors i, j on the ladder are exchanged with
probability min(1, e^Δ),

    Δ = L(s_i; β_j) + L(s_j; β_i) − L(s_i; β_i) − L(s_j; β_j),      L the log-likelihood,

which leaves the product of their posteriors as it is. How often the last β is visited by each mode
is then the mode's weight. Memories are exchanged as well: modes that differ by a permutation are
distinguished by p_h alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mnemosphere.theory.gibbs import (
    GibbsState,
    Likelihood,
    log_likelihood,
    overlaps_with_rows,
    sweep,
)


@dataclass(frozen=True)
class Replicas:
    """States (chains·K, ...) in the order of chains, then of the ladder, and the exchange counts.

    betas (K,): increasing inverse temperatures, the last one the student's. tried and accepted (K−1,):
    exchanges between neighbors on the ladder, over all chains.
    """

    state: GibbsState
    betas: Tensor
    tried: Tensor
    accepted: Tensor

    def last(self) -> GibbsState:
        """The states (chains, ...) at the student's β."""
        k = len(self.betas)
        return GibbsState(self.state.w[k - 1 :: k], self.state.p[k - 1 :: k])

    def acceptance(self) -> Tensor:
        """Share of exchanges accepted (K−1,): all should be well above 0."""
        return self.accepted / self.tried.clamp_min(1.0)


def start_replicas(state: GibbsState, betas: Tensor) -> Replicas:
    """Replicas that all start from the states (chains, ...)."""
    if not bool((betas > 0).all()) or not bool((betas[1:] > betas[:-1]).all()):
        raise ValueError(f"betas must be positive and increase, got {betas.tolist()}")
    k = len(betas)
    many = GibbsState(state.w.repeat_interleave(k, 0), state.p.repeat_interleave(k, 0))
    zero = betas.new_zeros(k - 1)
    return Replicas(many, betas, zero, zero)


def tempered_sweep(
    replicas: Replicas,
    x: Tensor,
    y: Tensor,
    *,
    parity: int,
    class_weight_moves: int,
    generator: torch.Generator,
) -> Replicas:
    """One sweep of every replica; on a ladder, one exchange of memories, and one of neighbors.

    parity: 0 or 1, which neighbors; alternate it from sweep to sweep.
    """
    betas = replicas.betas
    n_chains = replicas.state.w.shape[0] // len(betas)
    data = Likelihood(x, y, betas.repeat(n_chains))
    state = sweep(replicas.state, data, class_weight_moves=class_weight_moves, generator=generator)
    if len(betas) == 1:
        return replace(replicas, state=state)
    state = exchange_memories(state, data, generator=generator)
    return _exchange_neighbors(replace(replicas, state=state), data, parity, generator)


def exchange_memories(
    state: GibbsState, data: Likelihood, *, generator: torch.Generator
) -> GibbsState:
    """Exchange two random memories in every chain, by Metropolis' rule.

    Memories of equal p_h trade their class weights too, which changes nothing and is always
    accepted; others trade their directions alone.
    """
    n_chains, n_memories = state.w.shape[:2]
    if n_memories < 2:
        return state
    device = state.w.device
    order = torch.rand(n_chains, n_memories, generator=generator, device=device).argsort(1)[:, :2]
    chain = torch.arange(n_chains, device=device)[:, None]
    w, p = state.w.clone(), state.p.clone()
    w[chain, order] = w[chain, order.flip(1)]
    share = state.p.sum(2)[chain, order + 1]  # (chains, 2) p_h of both
    alike = (share[:, 0] - share[:, 1]).abs() <= 1e-12
    traded = p.clone()
    traded[chain, order + 1] = traded[chain, order.flip(1) + 1]
    proposal = GibbsState(w, torch.where(alike[:, None, None], traded, p))
    if bool(alike.all()):
        return proposal
    before = overlaps_with_rows(state.w, data.x)
    after = before.clone()
    after[chain, order] = before[chain, order.flip(1)]
    gain = log_likelihood(proposal.p, after, data) - log_likelihood(state.p, before, data)
    u = torch.rand(n_chains, generator=generator, dtype=gain.dtype, device=device)
    keep = (u.log() < gain)[:, None, None]
    return GibbsState(
        torch.where(keep, proposal.w, state.w), torch.where(keep, proposal.p, state.p)
    )


def _exchange_neighbors(
    replicas: Replicas, data: Likelihood, parity: int, generator: torch.Generator
) -> Replicas:
    betas, state = replicas.betas, replicas.state
    k = len(betas)
    n_chains = state.w.shape[0] // k
    low = torch.arange(parity % 2, k - 1, 2, device=state.w.device)
    high = low + 1
    if not len(low):
        return replicas
    partner = torch.arange(k, device=low.device)  # the ends may be without
    partner[low], partner[high] = high, low
    first = k * torch.arange(n_chains, device=low.device)[:, None]  # (chains, 1)
    crossed = replace(data, beta=betas[partner].repeat(n_chains))
    overlaps = overlaps_with_rows(state.w, data.x)
    gain = log_likelihood(state.p, overlaps, crossed) - log_likelihood(state.p, overlaps, data)
    gain = gain.reshape(n_chains, k)
    delta = gain[:, low] + gain[:, high]  # (chains, pairs)
    u = torch.rand(delta.shape, generator=generator, dtype=delta.dtype, device=delta.device)
    swapped = u.log() < delta
    source = torch.arange(k, device=delta.device).repeat(n_chains, 1)  # (chains, K)
    source[:, low] = torch.where(swapped, high, low)
    source[:, high] = torch.where(swapped, low, high)
    index = (first + source).flatten()
    tried, accepted = replicas.tried.clone(), replicas.accepted.clone()
    tried[low] += n_chains
    accepted[low] += swapped.sum(0).to(accepted.dtype)
    moved = GibbsState(state.w[index], state.p[index])
    return replace(replicas, state=moved, tried=tried, accepted=accepted)
