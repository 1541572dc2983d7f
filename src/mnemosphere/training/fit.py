"""The training loop: start, pass, step, check, callbacks. Every solver and every data set."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mnemosphere.model import objectives
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import log_joint
from mnemosphere.training.callbacks import (
    Callback,
    PassRecord,
    Run,
    SplitRecord,
)
from mnemosphere.training.dataset import TrainingSet
from mnemosphere.training.distributed import current, process_group
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.solver import Solver, SolverState
from mnemosphere.training.steps import Steps, steps_for

_VALIDATION_ROWS = 1 << 16  # per batch of validation


@dataclass(frozen=True)
class FitResult:
    """The result of training, by `fit` or by `grow`."""

    params: Mixture  # the best by validation loss if there is validation, else the last
    state: SolverState  # the solver's, after the last step
    history: tuple[PassRecord, ...]
    status: str  # 'converged', 'stopped early', 'max_iter', 'interrupted' or a callback's reason;
    # of growth 'grown' or 'stable'
    lineage: Lineage | None = None  # the tree of splits
    splits: tuple[SplitRecord, ...] = ()
    learns_weights: bool = False  # whether the weights of memories were learned, or held

    @property
    def message(self) -> str:
        """The status in a sentence, with what to try."""
        passes, width = f"{len(self.history)} passes", f"{self.params.n_memories} memories"
        return {
            "grown": f"grown to {width} after {passes}",
            "stable": f"stopped at {width}: no memory is a saddle any more",
            "converged": f"converged after {passes}",
            "stopped early": f"validation loss stopped improving after {passes}",
            "max_iter": f"not converged in {passes}: raise max_iter or loosen tol",
            "interrupted": f"interrupted after {passes}: the model is usable as it is",
        }.get(self.status, f"{self.status} after {passes}")


@process_group()
def fit(
    params: Mixture,
    dataset: TrainingSet,
    solver: Solver,
    *,
    rule: LabelRule = objectives.joint,
    max_iter: int = 100,
    tol: float = 0.0,
    validation: TrainingSet | None = None,
    patience: int | None = None,
    generator: torch.Generator | None = None,
    callbacks: Sequence[Callback] = (),
    stage: str = "",
    phase: int = 0,
    state: SolverState | None = None,
    noise: SphereNoise | None = None,
) -> FitResult:
    """Train until convergence, early stopping, max_iter passes or Ctrl-C.

    tol: as `Run.converged` has it; patience: passes without a lower validation loss; 0 and None switch
    them off. With `validation`, its loss is taken after every pass and the best parameters are
    returned. `stage` names this part of a longer training to a `Checkpoint` among the callbacks.
    `state` is the solver's to start with, where it goes on from an earlier run. `noise` is laid
    anew on the rows of every batch, never on those of validation.
    """
    group = current()
    _check(params, dataset, solver, rule, max_iter, validation, patience)
    watchers = callbacks if group.first else ()  # one process watches, stops and stores
    run = Run(
        params=params,
        state=solver.start(params) if state is None else state,
        generator=torch.Generator().manual_seed(0) if generator is None else generator,
        max_iter=max_iter,
        stage=stage,
    )
    for callback in watchers:
        callback.on_start(run)
    if group.many:  # a checkpoint is read by one
        nothing: Any = None
        found, drawn = group.broadcast((replace(run, generator=nothing), run.generator.get_state()))
        run.generator.set_state(drawn)
        run = replace(found, generator=run.generator)
    steps = steps_for(run.params, dataset, solver)(run.params, run.state, solver, rule, noise)
    try:
        while (stop := group.broadcast(_stop_reason(run, tol, patience, watchers))) is None:
            began, done = time.perf_counter(), 0
            for rows, more in steps.one_pass(dataset, run.generator):
                done += rows
                for callback in watchers:
                    callback.on_batch(run, done / dataset.n_rows if more else 1.0)
            read = steps.read()
            run.add(_record(read[0], steps, run, validation, rule, phase, began), *read)
            for callback in watchers:
                callback.on_pass(run)
        run.status = stop
        if group.many:  # rank 0 has the state
            own = group.broadcast_tensors(*run.state.values())
            run.state = dict(zip(run.state, own, strict=True))
    except KeyboardInterrupt:
        if group.many:
            raise
        run.status = "interrupted"
        if run.best is None:  # in the middle of a pass
            run.params, run.state = steps.read()
    for callback in watchers:
        callback.on_end(run)
    final = run.params if run.best is None else run.best
    return FitResult(final, run.state, tuple(run.history), run.status)


def _check(
    params: Mixture,
    dataset: TrainingSet,
    solver: Solver,
    rule: LabelRule,
    max_iter: int,
    validation: TrainingSet | None,
    patience: int | None,
) -> None:
    """Raise ValueError if something does not fit; of rows, the first batch is looked at."""
    if solver.exact and not rule.supports_fixed_point:
        raise ValueError(
            f"the fixed point needs non-negative label weights, which {rule} has not: "
            "train it with the SGD solver"
        )
    params.check()
    group = current()
    first = next((b for b in dataset.batches(None, group=group) if b.n_rows), None)
    if not group.sum(torch.tensor(first is not None, dtype=torch.float64))[0]:
        raise ValueError("no row has a direction: there is nothing to learn from")
    if first is not None:
        first.check(params)
    if validation is not None:
        next(validation.batches(None)).check(params)
    if max_iter < 1:
        raise ValueError(f"max_iter must be >= 1, got {max_iter}")
    if patience is not None and patience < 1:
        raise ValueError(f"patience must be >= 1, got {patience}")
    if patience is not None and validation is None:
        raise ValueError("patience needs validation rows: pass validation=")


def _stop_reason(
    run: Run, tol: float, patience: int | None, watchers: Sequence[Callback]
) -> str | None:
    reasons = [
        "converged" if run.converged(tol) else None,
        "stopped early" if patience is not None and run.waited >= patience else None,
        *(callback.stop_reason(run) for callback in watchers),
        "max_iter" if run.n_iter >= run.max_iter else None,
    ]
    return next((reason for reason in reasons if reason is not None), None)


def _record(
    params: Mixture,
    steps: Steps,
    run: Run,
    validation: TrainingSet | None,
    rule: LabelRule,
    phase: int,
    began: float,
) -> PassRecord:
    loss, accuracy = (None, None) if validation is None else validate(params, validation, rule)
    record = PassRecord(
        n_iter=run.n_iter + 1,
        loss=steps.mean_loss(),
        validation_loss=loss,
        validation_accuracy=accuracy,
        beta=float(params.beta),
        residual=None if steps.residual is None else float(steps.residual),
        n_memories=params.n_memories,
        seconds=time.perf_counter() - began,
        phase=phase,
    )
    record = current().broadcast(record)
    if not math.isfinite(record.loss):
        raise FloatingPointError(
            f"the loss became {record.loss} in pass {record.n_iter}: lower the learning rate"
        )
    return record


def validate(params: Mixture, dataset: TrainingSet, rule: LabelRule) -> tuple[float, float | None]:
    """(mean loss, accuracy on the labeled rows or None) from one forward pass."""
    group = current()
    loss, total, right, n_labeled = 0.0, 0.0, 0, 0
    for batch in dataset.batches(_VALIDATION_ROWS, group=group):
        if batch.n_rows == 0:
            continue
        scores = log_joint(params, batch.x)
        loss += batch.mean(rule(scores.mT, batch.targets.mT)[0]) * batch.total_weight
        total += batch.total_weight
        # The class "none of the C" is never predicted: rows that are mostly that do not count.
        of_a_class = batch.targets.argmax(1) < params.n_columns - 1
        labeled = (batch.targets.sum(1) > 0) & of_a_class
        n_labeled += int(labeled.sum())
        if params.n_columns > 1:
            hit = scores[:, :-1].argmax(1) == batch.targets[:, :-1].argmax(1)
            right += int((hit & labeled).sum())
    counted = torch.tensor([loss, total, right, n_labeled], dtype=torch.float64)
    loss, total, right, n_labeled = group.sum(counted)[0].tolist()
    return loss / total, right / n_labeled if n_labeled else None
