"""The joint likelihood: where its parameters start.

Memories start by spherical k-means within the classes, ς and β follow from how many memories share a row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnemosphere.model import initialize
from mnemosphere.model.batch import Batch
from mnemosphere.model.initialize import Start
from mnemosphere.model.m_step import fit_class_weights_free_prior, with_labels
from mnemosphere.model.memory_graph import sharing_temperature
from mnemosphere.model.mixture import Mixture, from_memories
from mnemosphere.numerics.bessel import mean_resultant

EXACT_STEPS = 10  # on all rows at once: further ones would overfit
# With P memories, P to this power share a row at the ς that fits most data, in every geometry.
_SHARING = 0.18
_PROBED = 500  # rows on which that is measured
_LEAST_VARSIGMA = 0.05
_NO_VARSIGMA = 1e-9  # below, no β makes up for it


def usual_uniform_weight(n_memories: int) -> float:
    """That of a memory, as in the paper, but at most a hundredth of all."""
    return min(1.0, n_memories / 99)


def start_memories(
    rows: Batch, n_memories: int, *, own_labels: bool, generator: torch.Generator
) -> Start:
    """K-means within the classes, or random rows without labels."""
    x = rows.filled().x
    if own_labels:
        return initialize.within_classes(x, rows.targets, n_memories, generator=generator)
    return Start(initialize.from_data(x, n_memories, generator=generator))


def start_joint(
    start: Start,
    rows: Batch,
    *,
    varsigma: float | None,
    beta: float | None = None,
    uniform_weight: float | None = None,
    learned_weights: bool = True,
    mass: Tensor | None = None,
) -> Mixture:
    """Mixture of a joint model to train from.

    Without labels class weights are uninformative. varsigma None:
    that of `shared_varsigma`. beta None: the one that fits the memories.
    learned_weights: those of memories follow the labels; else they are equal. rows: all of them,
    or a sample; mass: label weights (C+1,) of all rows.
    """
    if varsigma is not None and varsigma < _NO_VARSIGMA:
        raise ValueError(f"varsigma must lie in [{_NO_VARSIGMA}, 1], got {varsigma}")
    w, labels, _ = start
    x = rows.filled().x
    if varsigma is None:
        varsigma = shared_varsigma(w, x[:_PROBED], beta)
    slope: float | Tensor
    probe = x[: initialize.PROBE_ROWS]
    slope = initialize.estimate_beta(w, probe, varsigma) if beta is None else beta
    if mass is None:
        mass = rows.label_mass()
    mass = mass.to(w) + (mass.sum() == 0)  # without labels, every class is as good as any
    uniform = usual_uniform_weight(len(w)) if uniform_weight is None else uniform_weight
    params = from_memories(
        w, mass / mass.sum(), beta=slope, varsigma=varsigma, uniform_weight=uniform
    )
    if labels is None:
        return params
    missing = (1 - labels.sum(1, keepdim=True)).clamp_min(0.0)
    soft = torch.cat([params.p_q[None], labels + missing * params.p_q])
    if learned_weights:
        return fit_class_weights_free_prior(params, params.p_h[:, None] * soft)
    return with_labels(params, soft)


def shared_varsigma(w: Tensor, x: Tensor, beta: float | None) -> float:
    """The ς at which P^0.18 of the memories w (P, N) share a row of x; the exponent is a fit."""
    overlap = x @ w.T
    beta_eff = sharing_temperature(overlap, float(len(w) ** _SHARING))
    mean = float(((beta_eff * overlap).softmax(1) * overlap).sum(1).mean())
    if beta is not None:
        # A smaller ς than the one with which memories would learn this β leaves them less likely
        # than the uniform component, whatever the row.
        learned = float(mean_resultant(beta, w.shape[1])) / max(mean, _LEAST_VARSIGMA)
        return min(1.0, max(_LEAST_VARSIGMA, beta_eff / beta, learned))
    return min(1.0, max(_LEAST_VARSIGMA, _varsigma_for(beta_eff, mean, w.shape[1])))


def _varsigma_for(beta_eff: float, overlap: float, n: int) -> float:
    """The ς with ς·A_N⁻¹(ς·m̄) = β_eff: the one whose fixed point has that slope.

    In β that is β·A_N(β) = m̄·β_eff with ς = A_N(β)/m̄. With Amos' lower bound on A_N the root is
    known in closed form, and a few Newton steps from there are exact to rounding.
    """
    m = min(max(overlap, 1e-3), 1 - 1e-6)
    target = m * beta_eff
    beta = torch.tensor(math.sqrt(target * (target + n)), dtype=torch.float64)
    for _ in range(4):
        a = mean_resultant(beta, n)
        slope = a + beta * (1 - a * a) - (n - 1) * a  # A_N' = 1 − A_N² − (N−1)A_N/β
        beta = beta - (beta * a - target) / slope
    return float(mean_resultant(beta, n)) / m
