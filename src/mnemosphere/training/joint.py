"""The joint likelihood: where its parameters start, and how they are trained.

Memories start by spherical k-means within the classes, ς and β follow from how many memories share a row.
Then fixed-point steps, which have no learning rate and never increase the loss; a few are enough, and more
would overfit. With growth, memories that are saddles split until there are as many as asked for. Rows without
label take part after the memories have settled on all rows (`few_labels`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.initialize import Start
from mnemosphere.model.m_step import fit_class_weights_free_prior, with_labels
from mnemosphere.model.memory_graph import sharing_temperature
from mnemosphere.model.mixture import Mixture, from_memories
from mnemosphere.model.objectives import LabelRule
from mnemosphere.numerics.bessel import mean_resultant
from mnemosphere.training import few_labels
from mnemosphere.training.callbacks import Callback, PassRecord, Run
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.sgd import SGD

EXACT_STEPS = 10  # on all rows at once: further ones would overfit
EXACT_ROWS = 10_000  # up to so many, steps are exact
START_ROWS = 50_000  # rows that memories start on
_PASSES = 6  # of incremental steps
_SGD_PASSES = 300
_LEAST_HELD = 20  # rows for early stopping of SGD: fewer tell nothing
# With P memories, P to this power share a row at the ς that fits most data, in every geometry.
_SHARING = 0.18
_PROBED = 500  # rows on which that is measured
_LEAST_VARSIGMA = 0.05
_NO_VARSIGMA = 1e-9  # below, no β makes up for it


def fit_joint(
    dataset: ArrayDataset,
    n_memories: int,
    *,
    solver: FixedPoint | SGD | None = None,
    rule: LabelRule = objectives.joint,
    growth: int | None = None,
    unlabeled: bool = False,
    varsigma: float | None = None,
    beta: float | None = None,
    uniform_weight: float | None = None,
    max_iter: int | None = None,
    start: tuple[Start, Batch] | None = None,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> tuple[Run, Tensor | None]:
    """(the result, label weights (P+1, C+1) of the rows that each component answers for, in rows).

    The second is None if the solver does not know. solver None: exact fixed-point steps on few rows,
    incremental ones on many. growth: memories to begin with. unlabeled: rows without label take part.
    varsigma, beta, uniform_weight None: as they suit the memories; β is learned then. start: the memories to
    begin with and some rows; else they start on a sample of the rows.
    """
    learn_beta, learned = beta is None, False
    solver = solver or FixedPoint(None if dataset.n_rows <= EXACT_ROWS else "auto")
    steps = solver.resolve(dataset.n_rows, learn_beta=learn_beta, device=dataset.device)
    exact = steps.rows_per_step is None
    labeled = rule is not objectives.marginal
    own_labels = labeled and growth is None and isinstance(steps, FixedPoint) and not unlabeled
    if isinstance(steps, FixedPoint):
        learned = own_labels and exact if steps.learn_weights is None else steps.learn_weights
        steps = replace(steps, learn_weights=learned, by_pass=own_labels and not learned)

    first = n_memories if growth is None else min(growth, n_memories)
    uniform = usual_uniform_weight(n_memories) if uniform_weight is None else uniform_weight
    if start is None:
        rows = dataset.sample(START_ROWS, generator=generator)
        start = start_memories(rows, first, own_labels=own_labels, generator=generator), rows
    params = start_joint(
        *start, varsigma=varsigma, beta=beta,
        uniform_weight=uniform * first / n_memories,  # splitting leaves it alone: right at the end
        learned_weights=learned, mass=dataset.label_mass(),
    )  # fmt: skip
    history: list[PassRecord] = []
    if unlabeled and dataset.has_unlabeled():
        settled = few_labels.fit_unlabeled_start(
            params, dataset, learn_beta=learn_beta, generator=generator, callbacks=callbacks
        )
        params, history = settled.params, settled.history
        if settled.status == "interrupted":
            return settled, params.p * dataset.n_rows

    passes, phase_iter, validation = (EXACT_STEPS if exact else _PASSES), 2, None
    if isinstance(steps, SGD):
        passes, phase_iter = _SGD_PASSES, 100 if labeled else 10
        if labeled and steps.validation_fraction * dataset.n_rows >= _LEAST_HELD:
            dataset, validation = dataset.split(steps.validation_fraction, generator=generator)
    options: dict[str, Any] = {
        "rule": rule, "max_iter": max_iter or passes, "validation": validation,
        "generator": generator, "callbacks": callbacks,
    }  # fmt: skip
    if growth is None:
        run = fit(params, dataset, steps, **options)
        if exact and max_iter is None and run.status == "max_iter":
            run = replace(run, status="stopped early")  # as is meant
    else:
        run = grow(
            params, dataset, steps, max_memories=n_memories, phase_iter=phase_iter, **options
        )
    counts = steps.label_counts(run.state, dataset.n_rows)
    return replace(run, history=[*history, *run.history], learns_weights=learned), counts


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
