"""Limits of the saddle-point equations, and what they say about ς.

ϱ → ∞ turns Eq. (saddle-point) into the stationarity conditions of the effective loss,
Eq. (effective_loss), with ς = ς(2υ); υ → ∞ as well gives those of the plain likelihood,
Eq. (stationarity). So a trained model is a saddle-point problem, and an estimate of the noise in
data is a suggestion for ς.
"""

import math

import torch
from scipy.optimize import brentq
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import bessel
from mnemosphere.theory.problem import SaddlePointProblem, varsigma
from mnemosphere.theory.saddle_point import OrderParameters

# Rows of a block of overlaps: 1,000 x 60,000 doubles are half a gigabyte.
_BLOCK = 512


def varsigma_of_noise(upsilon: float) -> float:
    """Compute ς(2υ) = 2υ/(√(4υ² + 1) + 1), the ς that teacher noise 1/υ turns into.

    Parameters
    ----------
    upsilon : float
        υ = β*/N; may be infinite.

    Returns
    -------
    float
        ς in [0, 1].

    Examples
    --------
    >>> mn.theory.varsigma_of_noise(float("inf"))
    1.0
    """
    if math.isnan(upsilon) or upsilon <= 0.0:
        raise ValueError(f"upsilon must be positive, got {upsilon}")
    return varsigma(2.0 * upsilon)


def noise_of_varsigma(value: float) -> float:
    """υ = ς/(1 − ς²), the inverse of `varsigma_of_noise`; infinite at ς = 1."""
    if not 0.0 < value <= 1.0:
        raise ValueError(f"varsigma must lie in (0, 1], got {value}")
    return math.inf if value == 1.0 else value / ((1.0 - value) * (1.0 + value))


def from_parameters(params: Parameters, batch: Batch) -> tuple[SaddlePointProblem, OrderParameters]:
    """Write the stationary points of a model's loss as a saddle-point problem.

    The patterns and soft labels are the rows of the batch, which all weigh the same; ϱ = ∞ and
    ς(2υ) = ς. A trained model is a solution, so `spectrum` and `split_temperature` apply to it.

    Parameters
    ----------
    params : Parameters
        The model, such as `clf.model_.density`.
    batch : Batch
        Unit rows x (n, N) with targets (n, C+1).

    Returns
    -------
    problem : SaddlePointProblem
        The equations.
    state : OrderParameters
        The model's overlaps m = x wᵀ and class weights.

    Examples
    --------
    >>> mine, overlaps = mn.theory.from_parameters(params, batch)
    >>> mine.n_teacher, mine.n_student, overlaps.m.shape
    (40, 2, torch.Size([40, 2]))
    """
    problem = SaddlePointProblem(
        patterns=batch.x,
        targets=batch.targets,
        p_h=params.p_h,
        p_q=params.p_q,
        beta=float(params.beta),
        rho=math.inf,
        upsilon=noise_of_varsigma(params.varsigma),
        n_features=params.n_features,
        uniform_teacher=False,
    )
    w = params.w.to(torch.float64)
    return problem, OrderParameters(problem.patterns @ w.T, params.p.to(torch.float64))


def merging_varsigma(x: Tensor, group: Tensor | None = None) -> Tensor:
    """Compute the ς below which the memories of a group of rows merge, with β learned.

    Let one memory hold each group: it is the direction of the rows' mean, and a mean overlap m̄ over all
    rows makes β = A_N⁻¹(ς m̄). Copies of the memory part if β_eff = ςβ exceeds its

        β_split = ‖Σ x‖/λ_max(Σ x_⊥ x_⊥ᵀ),

    so they merge below the ς with ς A_N⁻¹(ς m̄) = β_split. With one group for all rows that is where a
    whole network collapses into one memory. Exact for rows that belong to one memory each.

    Parameters
    ----------
    x : tensor of shape (n, N)
        Unit rows.
    group : tensor of int of shape (n,), default None
        Number of the group of each row, from 0; None: one group.

    Returns
    -------
    tensor of shape (G,)
        ς of each group; infinite if no rows leave the memory's direction. Above 1 if they merge at every ς.

    Examples
    --------
    >>> mn.theory.merging_varsigma(data.x, data.cluster).shape
    torch.Size([2])
    """
    x = x.to(torch.float64)
    group = torch.zeros(len(x), dtype=torch.long) if group is None else group
    total = x.new_zeros(int(group.max()) + 1, x.shape[1]).index_add(0, group, x)  # (G, N)
    length = total.norm(dim=1)
    overlap = float(length.sum()) / len(x)  # m̄
    found = []
    for k, w in enumerate(total / length[:, None]):
        own = x[group == k]
        across = own - (own @ w)[:, None] * w
        widest = float(torch.linalg.matrix_norm(across, 2)) ** 2
        target = overlap * float(length[k]) / widest if widest > 1e-12 * len(own) else math.inf
        found.append(_resultant_at(target, x.shape[1]) / overlap)
    return torch.tensor(found, dtype=torch.float64)


def _resultant_at(target: float, n: int) -> float:
    """A_N(β) at the β with β A_N(β) = target."""
    if math.isinf(target):
        return math.inf
    # β²/(N + β) < β A_N(β) < β brackets the root.
    high = target + math.sqrt(target * (target + n)) + 1.0
    beta = brentq(lambda b: b * float(bessel.mean_resultant(b, n)) - target, 0.0, high, xtol=1e-12)
    return float(bessel.mean_resultant(beta, n))
