"""The conditional likelihood, trained directly: where it starts, and the density afterwards.

Given the classes, log P(y|x) depends on the slope β_eff and the class weights alone: ς, Ω_N(β) and
the uniform component belong to the density of the rows. So a conditional model is trained with
ς = 1 and without a uniform component, from memories that start inside their classes, and gets its
density from a few fixed-point steps of β and the weights, memories held.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import label_shares
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.m_step import share_out, solve_beta
from mnemosphere.model.parameters import Parameters, from_memories

__all__ = ["class_targets", "fit_density", "start_conditional"]

START_BETA = 20.0  # moderately soft votes on the unit sphere, whatever its dimension
SMOOTHING = 0.02  # of labels among the C classes: keeps weights of separable rows finite
_DENSITY_STEPS = 10
_LEAST_ROWS = 1e-6  # that every memory answers for: none loses all of its weight


def start_conditional(w: Tensor, labels: Tensor, *, beta: float | None) -> Parameters:
    """Memories w (P, N) with labels (P, C+1), each its commonest class alone.

    With fewer memories than classes each keeps the labels that it has.
    """
    labels = torch.cat([labels[:, :-1], torch.zeros_like(labels[:, -1:])], 1)
    if len(w) >= labels.shape[1] - 1:
        labels = torch.nn.functional.one_hot(labels.argmax(1), labels.shape[1]).to(w)
    p = torch.cat([torch.zeros_like(labels[:1]), labels / labels.sum()])
    start = torch.as_tensor(START_BETA if beta is None else beta).to(w)
    return Parameters(w=w, p=p, beta=start, varsigma=1.0, p_h=p.sum(1), p_q=p.sum(0))


def class_targets(targets: Tensor) -> Tensor:
    """Label weights for the conditional objective: among the C classes, lightly smoothed.

    targets (..., C+1) may have any smoothing of their own, which is taken off.
    """
    share = label_shares(targets)
    smooth = (1 - SMOOTHING) * share + SMOOTHING / share.shape[-1]
    total = targets.sum(-1, keepdim=True)
    return torch.cat([total * smooth, torch.zeros_like(total)], -1)


def fit_density(
    params: Parameters, rows: Batch, *, uniform_weight: float, learn_beta: bool
) -> Parameters:
    """The same memories with the β, weights and soft labels of highest joint likelihood, ς = 1.

    Fixed-point steps with memories held: the loss never increases.
    """
    mass = accumulate(params, rows, objectives.joint).p_bar[1:]
    mass = mass.sum(1, keepdim=True).clamp_min(1e-12)
    weight = rows.sample_weight
    prior = rows.targets.sum(0) if weight is None else weight @ rows.targets
    found = from_memories(
        params.w, prior / prior.sum(), beta=params.beta, uniform_weight=uniform_weight
    )
    found = share_out(found, torch.cat([found.p[:1], mass * found.p_q]), hold_classes=True)
    for _ in range(_DENSITY_STEPS):
        stats = accumulate(found, rows, objectives.joint)
        if learn_beta:
            found = solve_beta(found, stats.overlap.double().sum() / stats.mass[1:].double().sum())
        mass = stats.p_bar + _LEAST_ROWS * found.p_q
        found = share_out(found, mass, hold_classes=True)
    return found
