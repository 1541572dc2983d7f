"""Limits of the saddle-point equations, and what they say about ς.

ϱ → ∞ turns Eq. (saddle-point) into the stationarity conditions of the effective loss,
Eq. (effective_loss), with ς = ς(2υ); υ → ∞ as well gives those of the plain likelihood,
Eq. (stationarity). So a trained model is a saddle-point problem.
"""

import math

import torch

from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.theory.problem import SaddlePointProblem, varsigma
from mnemosphere.theory.saddle_point import OrderParameters


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


def from_parameters(params: Mixture, batch: Batch) -> tuple[SaddlePointProblem, OrderParameters]:
    """Write the stationary points of a model's loss as a saddle-point problem.

    The patterns and soft labels are the rows of the batch, which all weigh the same; ϱ = ∞ and
    ς(2υ) = ς. A trained model is a solution, so `spectrum` and `split_temperature` apply to it.

    Parameters
    ----------
    params : Mixture
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
