"""How a model is trained: the same for a candidate of the search, for a stack of them, and for a fit.

The joint likelihood takes fixed-point steps, which have no learning rate and never increase the loss; a few are
enough, and more would overfit. With growth, memories that are saddles split until there are as many as asked for.
Rows without label take part after the memories have settled on all rows (`few_labels`).

The conditional likelihood takes steps of Adam in cycles that fade out: each is twice as long as the one before, goes
on from where that stands, and trusts labels more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from mnemosphere.model import objectives
from mnemosphere.model.mixture import Mixture
from mnemosphere.training import few_labels
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback, PassRecord, Run
from mnemosphere.training.conditional import class_targets, start_conditional
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.joint import (
    EXACT_STEPS,
    start_joint,
    start_memories,
    usual_uniform_weight,
)
from mnemosphere.training.sgd import SGD

EXACT_ROWS = 10_000  # up to so many, steps are exact
_START_ROWS = 50_000  # rows that memories start on
_PASSES = 6  # of incremental steps
_SGD_PASSES = 300
_LEAST_HELD = 20  # rows for early stopping of SGD: fewer tell nothing


@dataclass(frozen=True)
class Spec:
    """What is trained: a candidate of the search, and what was chosen."""

    geometry: str
    n_memories: int
    objective: str  # "joint", "conditional", or "marginal" without labels
    noise: float = 0.0  # on rows, relative to them, of the conditional objective
    cycles: int = 1  # of Adam, each twice as long as the one before
    unlabeled: bool = False  # whether rows without label take part


def train(
    dataset: ArrayDataset,
    spec: Spec,
    *,
    solver: FixedPoint | SGD | Adam | None = None,
    growth: int | None = None,
    varsigma: float | None = None,
    beta: float | None = None,
    uniform_weight: float | None = None,
    max_iter: int | None = None,
    start: Mixture | None = None,
    done: int = 0,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train what `spec` says on rows that a geometry has placed.

    solver None: Adam, or exact fixed-point steps on few rows and incremental ones on many. growth: memories to begin
    with. varsigma, beta, uniform_weight None: as they suit the memories; β is learned then. max_iter: passes in all, or
    of the first cycle. start: parameters to begin with, after so many cycles (`done`); else memories start on a sample
    of the rows.
    """
    n_rows, learn_beta, rule = dataset.n_rows, beta is None, objectives.BY_NAME[spec.objective]
    resolve: dict[str, Any] = {"learn_beta": learn_beta, "device": dataset.device}
    watch: dict[str, Any] = {"rule": rule, "generator": generator, "callbacks": callbacks}
    if spec.objective == "conditional" and not isinstance(solver, SGD):
        adam = solver if isinstance(solver, Adam) else Adam()
        adam = adam.resolve(n_rows, **resolve)
        if start is None:
            rows = dataset.sample(_START_ROWS, generator=generator)
            found = start_memories(rows, spec.n_memories, own_labels=True, generator=generator)
            start = start_conditional(found, dataset.label_mass().to(found.w), beta=beta)
        history: list[PassRecord] = []
        for cycle in range(done, spec.cycles):
            own, passes = adam.scheduled(n_rows, cycle, max_iter)
            targets = dataset.with_targets(partial(class_targets, cycle=cycle))
            run = fit(start, targets, replace(own, noise=spec.noise), max_iter=passes, **watch)
            start, history = run.params, [*history, *run.in_phase(cycle)]
            if run.status != "max_iter":
                return replace(run, history=history)
        return replace(run, history=history, status="converged")  # steps have faded out

    assert not isinstance(solver, Adam)
    labeled = spec.objective != "marginal"
    solver = solver or FixedPoint(None if n_rows <= EXACT_ROWS else "auto")
    steps, learned = solver.resolve(n_rows, **resolve), False
    exact = steps.rows_per_step is None
    own_labels = labeled and growth is None and isinstance(steps, FixedPoint) and not spec.unlabeled
    if isinstance(steps, FixedPoint):
        learned = own_labels and exact if steps.learn_weights is None else steps.learn_weights
        steps = replace(steps, learn_weights=learned, by_pass=own_labels and not learned)
    if start is None:
        n_memories = spec.n_memories
        first = n_memories if growth is None else min(growth, n_memories)
        uniform = usual_uniform_weight(n_memories) if uniform_weight is None else uniform_weight
        rows = dataset.sample(_START_ROWS, generator=generator)
        start = start_joint(
            start_memories(rows, first, own_labels=own_labels, generator=generator), rows,
            varsigma=varsigma, beta=beta,
            uniform_weight=uniform * first / n_memories,  # splitting leaves it alone: right at the end
            learned_weights=learned, mass=dataset.label_mass(),
        )  # fmt: skip
    history = []
    if spec.unlabeled and dataset.has_unlabeled():
        settled = few_labels.fit_unlabeled_start(
            start, dataset, learn_beta=learn_beta, generator=generator, callbacks=callbacks
        )
        start, history = settled.params, settled.history
        if settled.status == "interrupted":
            return replace(settled, counts=start.p * n_rows)

    passes, phase_iter = (EXACT_STEPS if exact else _PASSES), 2
    if isinstance(steps, SGD):
        passes, phase_iter = _SGD_PASSES, 100 if labeled else 10
        if labeled and steps.validation_fraction * n_rows >= _LEAST_HELD:
            dataset, watch["validation"] = dataset.split(
                steps.validation_fraction, generator=generator
            )
    watch["max_iter"] = max_iter or passes
    if growth is None:
        run = fit(start, dataset, steps, **watch)
        if exact and max_iter is None and run.status == "max_iter":
            run = replace(run, status="stopped early")  # as is meant
    else:
        run = grow(
            start, dataset, steps, max_memories=spec.n_memories, phase_iter=phase_iter, **watch
        )
    counts = steps.label_counts(run.state, dataset.n_rows)
    return replace(run, history=[*history, *run.history], learns_weights=learned, counts=counts)
