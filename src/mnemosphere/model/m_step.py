"""The fixed-point step, read from the statistics of a pass: Eq. (stationarity), (saddle-point).

    w ← w̄/‖w̄‖,   p ← p̄/ζ in the polytope,   β ← A_N⁻¹(ς Σ‖w̄‖ / Σ mass)

It maximizes a lower bound of the likelihood exactly, so with statistics of all rows the loss never
increases for ς ≤ 1. How far it moves the parameters is their stationarity residual.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import polytope, sphere
from mnemosphere.numerics.bessel import inverse_mean_resultant, mean_resultant

# β stays finite where every row lies on its memory (ς = 1), and positive where none pulls.
_LEAST_RESULTANT = 1e-9
_LEAST_SHARE = 1e-12  # of all weight, that the uniform component counts as
_SURE = 0.95  # of own labels: every memory has a little of every class, and can learn it
_LIGHT = 0.01
_SHORT, _LONG = 1e-12, 1e12  # lengths whose squares are far from the ends of single precision
_LEAST_SLOPE = 1e-18  # of A_N: rounding hides a smaller one


@dataclass(frozen=True)
class Residual:
    """How far one fixed-point step moves the parameters: zero where Eq. (stationarity) holds."""

    w: Tensor  # (P,) ‖Δw^μ‖
    p: Tensor  # (P+1,) Σ_y |Δp^γ_y| / p_h(γ)
    beta: Tensor  # () |Δβ|/β, or 0 if β is held

    @property
    def largest(self) -> Tensor:
        """The largest of all, ()."""
        return torch.stack([self.w.amax(), self.p.amax(), self.beta]).amax()


def maximize_bound(
    params: Mixture,
    w_bar: Tensor,
    p_bar: Tensor,
    *,
    learn_beta: bool = True,
    hold_weights: bool = True,
) -> Mixture:
    """One exact step from w̄ (P, N) and p̄ (P+1, C+1), both up to one common factor.

    With statistics of all rows, taken at `params` with non-negative label weights, the loss does
    not increase for any ς in (0, 1]. hold_weights=False learns the weights p_h of memories, the
    uniform component's and the class prior held: see `fit_class_weights_free_prior`.
    """
    params = move_memories(params, w_bar, p_bar, learn_beta=learn_beta)
    if hold_weights:
        return class_weights(params, p_bar)[0]
    return fit_class_weights_free_prior(params, p_bar)


def move_memories(
    params: Mixture, w_bar: Tensor, p_bar: Tensor, *, learn_beta: bool, exact: bool = True
) -> Mixture:
    """Memories and β of that step; a memory with no pull at all stays where it is.

    exact False: one Newton step of β, and no device-to-host synchronization.
    """
    norms = sphere.norms(w_bar)
    if exact and bool((norms.amin() > _SHORT) & (norms.amax() < _LONG)):
        w = w_bar * norms.reciprocal()[..., None]  # a sweep; where squares are safe
    else:
        w = sphere.project(torch.where(norms[..., None] > 0, w_bar, params.w))
    if not learn_beta:
        return params.replace(w=w)
    mass = p_bar[..., 1:, :].double().sum((-2, -1)).clamp_min(torch.finfo(torch.float64).tiny)
    goal = params.varsigma * norms.double().sum(-1) / mass
    goal = goal.clamp(_LEAST_RESULTANT, 1 - _LEAST_RESULTANT)
    if exact:
        beta = inverse_mean_resultant(goal, params.n_features).to(params.beta)
    else:
        beta = approach_beta(params.beta, goal, params.n_features)
    return params.replace(w=w, beta=beta)


def class_weights(
    params: Mixture, p_bar: Tensor, multipliers: tuple[Tensor, Tensor] | None = None
) -> tuple[Mixture, tuple[Tensor, Tensor]]:
    """Class weights of that step, both marginals held; its multipliers (ω, λ).

    multipliers: those of a step before, to start from.
    """
    tol = 1e-12 if p_bar.dtype == torch.float64 else 1e-8
    found = polytope.maximize(p_bar, params.p_h, params.p_q, tol=tol, start=multipliers)
    return params.replace(p=found.p), (found.row_multipliers, found.col_multipliers)


def fit_class_weights_free_prior(params: Mixture, p_bar: Tensor) -> Mixture:
    """Class weights that maximize Σ p̄ log p, the class prior and the uniform component's weight held.

    The memories are one row beside the uniform component's in the polytope, and share what each
    class has there. p_h becomes the row sums of p.
    """
    first, rest = p_bar[..., :1, :], p_bar[..., 1:, :]
    uniform, apart = params.p_h[..., :1], first.sum(-1)  # (1,)
    # Where no row is left to it, the uniform component keeps its classes.
    own = uniform[..., None] * (first / apart[..., None])
    first = torch.where(apart[..., None] > 0, own, params.p[..., :1, :])
    total = rest.sum(-2, keepdim=True)
    # Hardly any row left to the uniform component is as good as none, and safer to divide by.
    least = _LEAST_SHARE * total.sum(-1)
    classes = first / first.sum(-1, keepdim=True).clamp_min(torch.finfo(p_bar.dtype).tiny)
    weight = (classes * torch.maximum(apart, least)[..., None])[..., 0, :]
    rows = torch.cat([uniform, 1 - uniform], -1)
    both = polytope.maximize(torch.stack([weight, total[..., 0, :]], -2), rows, params.p_q).p
    # A class that no memory answers for is shared by all, by their weights.
    share = torch.where(total > 0, rest, params.p_h[..., 1:, None])
    p = torch.cat([both[..., :1, :], both[..., 1:, :] * share / share.sum(-2, keepdim=True)], -2)
    return params.replace(p=p, p_h=torch.cat([uniform, p[..., 1:, :].sum(-1)], -1))


def with_labels(params: Mixture, labels: Tensor) -> Mixture:
    """Components with soft labels (P+1, C+1) of their own, rows of sum 1, both marginals held.

    p = p_h ⊗ (p_q + s·(labels − their mean)): both marginals are right for every s, the largest of
    which, up to nearly 1, leaves no p negative.
    """
    mean = (params.p_h[:, None] * labels).sum(0)
    most = (params.p_q / mean).masked_fill_(mean == 0, 1.0).amin().clamp_max(_SURE)
    soft = (params.p_q + most * (labels - mean)).clamp_min(0.0)
    return params.replace(p=params.p_h[:, None] * soft)


def approach_beta(beta: Tensor, resultant: Tensor, n: int) -> Tensor:
    """One Newton step from β towards A_N⁻¹(resultant), by a factor of at most 4.

    Exact where β is near already; unlike the inverse itself it never asks a GPU for a number.
    """
    r, old = resultant.double().clamp(_LEAST_RESULTANT, 1 - _LEAST_RESULTANT), beta.double()
    a = mean_resultant(old, n)
    slope = (1 - a * a - (n - 1) * a / old).clamp_min(_LEAST_SLOPE)  # A_N' > 0
    return torch.clamp(old - (a - r) / slope, old / 4, old * 4).to(beta.dtype)


def bound(params: Mixture, w_bar: Tensor, p_bar: Tensor) -> Tensor:
    """The lower bound that `maximize_bound` maximizes, up to a constant, in float64.

    Σ p̄ log p + ςβ Σ_μ⟨w̄^μ, w^μ⟩ − log(Ω_N(β)/Ω_N(0)) Σ_μ mass. Where it is no lower than at the
    parameters at which the statistics of all rows were taken, the loss is no higher.
    """
    params, w_bar, p_bar = params.to(dtype=torch.float64), w_bar.double(), p_bar.double()
    pull = params.slope * (w_bar * params.w).sum() - params.offset * p_bar[1:].sum()
    return torch.xlogy(p_bar, params.p).sum() + pull


def displacement(old: Mixture, new: Mixture) -> Residual:
    """How far apart two sets of parameters are, memory by memory.

    A memory of less than a hundredth of the mean weight, which learned weights can come to, counts
    as much less: it may fade away for ever.
    """
    prior = old.p_h.clamp_min(_LIGHT / len(old.p_h))
    return Residual(
        w=(new.w - old.w).norm(dim=1) * (old.p_h / prior)[1:],
        p=(new.p - old.p).abs().sum(1) / prior,
        beta=(new.beta - old.beta).abs() / old.beta,
    )
