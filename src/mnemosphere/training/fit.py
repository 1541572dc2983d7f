"""The training loop: start, pass, step, check, callbacks. Every solver and every data set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mnemosphere.data.dataset import Batches, Cursor, Dataset
from mnemosphere.files import checksum
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import inference
from mnemosphere.model.streams import beside
from mnemosphere.model.workspace import reused
from mnemosphere.training.callbacks import (
    Callback,
    Convergence,
    EarlyStopping,
    Pass,
    PassRecord,
    Run,
)
from mnemosphere.training.distributed import Group, current, together
from mnemosphere.training.group_pass import GroupSteps
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.solver import Solver, SolverState
from mnemosphere.training.steps import Steps, keep, steps_for

__all__ = ["FitResult", "fit", "judge"]

_JUDGED_ROWS = 1 << 16  # per batch of validation
_NOT_OF_A_RUN = {"callbacks", "max_iter"}  # a run may be watched by others, and go on for longer


@dataclass(frozen=True)
class FitResult:
    """What training returns."""

    params: Parameters  # the best by validation loss where there is validation, else the last
    state: SolverState  # the solver's, after the last step
    history: tuple[PassRecord, ...]
    status: str  # 'converged', 'stopped early', 'max_iter', 'interrupted' or a callback's reason

    @property
    def message(self) -> str:
        """The status in a sentence, with what to try."""
        passes = f"{len(self.history)} passes"
        return {
            "converged": f"converged after {passes}",
            "stopped early": f"validation loss stopped improving after {passes}",
            "max_iter": f"not converged in {passes}: raise max_iter or loosen tol",
            "interrupted": f"interrupted after {passes}: the model is usable as it is",
        }.get(self.status, f"{self.status} after {passes}")


@together()
@reused()
def fit(
    params: Parameters,
    dataset: Dataset,
    solver: Solver,
    *,
    rule: LabelRule = objectives.joint,
    max_iter: int = 100,
    tol: float = 0.0,
    validation: Dataset | None = None,
    patience: int | None = None,
    generator: torch.Generator | None = None,
    callbacks: Sequence[Callback] = (),
    stage: str = "",
    phase: int = 0,
    state: SolverState | None = None,
    noise: SphereNoise | None = None,
) -> FitResult:
    """Train until convergence, early stopping, max_iter passes or Ctrl-C.

    tol and patience are `Convergence` and `EarlyStopping` among the callbacks; 0 and None switch
    them off. With `validation`, its loss is taken after every pass and the best parameters are
    returned. `stage` names this part of a longer training to a `Checkpoint` among the callbacks.
    `state` is the solver's to start with, where it goes on from an earlier run. `noise` is laid
    anew on the rows of every batch, never on those of validation.
    """
    given, group = dict(locals()), current()
    params = _of_first(group, params)
    solver.check_rule(rule)
    shard: Batches = dataset.shard(group.rank, group.size) if group.many else dataset
    first = next((b for b in shard.batches(None) if b.n_rows or not group.many), None)
    if not any(group.gather(first is not None)):
        raise ValueError("no row has a direction: there is nothing to learn from")
    params.check_form()
    if first is not None:
        first.check_form(params)

    def check() -> None:
        params.check()
        if first is not None:
            first.check(params)

    # To look at numbers is to wait for a GPU: there it is done while the first pass goes on.
    later = beside(check, params.w.device) if params.w.is_cuda and not group.many else None
    if later is None:
        check()
    if validation is not None:
        next(validation.batches(None)).check(params)
    if max_iter < 1:
        raise ValueError(f"max_iter must be >= 1, got {max_iter}")
    if patience is not None and validation is None:
        raise ValueError("patience needs validation rows: pass validation=")
    watchers = [
        *([Convergence(tol)] if tol > 0 else []),
        *([EarlyStopping(patience)] if patience is not None else []),
        *callbacks,
    ]
    run = Run(
        params=params,
        state=solver.start(params) if state is None else state,
        generator=torch.Generator().manual_seed(0) if generator is None else generator,
        max_iter=max_iter,
        n_rows=dataset.n_rows,
        n_bytes=dataset.n_bytes,
        stage=stage,
    )
    if not group.first:
        watchers = callbacks = []  # one process watches, stops and stores
    if any(callback.needs_fingerprint for callback in callbacks):
        given |= {"params": params, "processes": group.size}
        given = {name: value for name, value in given.items() if name not in _NOT_OF_A_RUN}
        run.fingerprint = repr({name: _identity(value) for name, value in given.items()})
    for callback in watchers:
        callback.on_start(run)
    _share(group, run)
    if group.many:
        steps: Steps = GroupSteps(group, run.params, run.state, solver, rule, noise)
    else:
        steps = steps_for(run.params, run.state, dataset, solver, rule, noise)
    interrupted = None
    try:
        while (stop := group.same(_stop_reason(run, watchers))) is None:
            if isinstance(steps, GroupSteps):
                began = steps.one_pass(dataset, shard, run, watchers)
            else:
                began = _one_pass(steps, dataset, solver, run, watchers, later)
                later = None
            found = steps.read()
            run.add(_record(found[0], steps, run, validation, rule, phase, began), *found)
            for callback in watchers:
                callback.on_pass(run)
        run.status = stop
        if isinstance(steps, GroupSteps):
            run.state = steps.finish()
        keep(steps)
    except KeyboardInterrupt:
        if group.many:
            raise
        run.status = "interrupted"
        interrupted = steps.read()  # in the middle of a pass
    if interrupted is not None and run.best is None:
        run.params, run.state = interrupted
    for callback in watchers:
        callback.on_end(run)
    final = run.params if run.best is None else run.best
    return FitResult(final, run.state, tuple(run.history), run.status)


def _identity(value: object) -> object:
    """What tells an argument of `fit` from another."""
    if isinstance(value, Parameters):
        return checksum(value.to_tensors(), {})
    if isinstance(value, torch.Generator):
        return checksum({"": value.get_state()}, {})
    if isinstance(value, dict):
        return checksum(value, {})
    return value.checksum() if hasattr(value, "checksum") else value


def _of_first(group: Group, params: Parameters) -> Parameters:
    """The parameters of rank 0 where this process has its rows."""
    if not group.many:
        return params
    return group.same(params.to(device="cpu")).to(device=params.w.device)


def _share(group: Group, run: Run) -> None:
    """What rank 0 has read back from a checkpoint, on every process."""
    if not group.many:
        return
    device = run.params.w.device
    best = None if run.best is None else run.best.to(device="cpu")
    params, best, state, drawn, rest, now = group.same((
        run.params.to(device="cpu"), best, {k: t.cpu() for k, t in run.state.items()},
        run.generator.get_state(), (run.best_loss, run.waited, run.history), run.current,
    ))  # fmt: skip
    run.params, run.best = params.to(device=device), best and best.to(device=device)
    run.state = {name: t.to(device) for name, t in state.items()}
    run.generator.set_state(drawn)
    (run.best_loss, run.waited, run.history), run.current = rest, now


def _stop_reason(run: Run, watchers: Sequence[Callback]) -> str | None:
    reasons = [callback.stop_reason(run) for callback in watchers]
    found = next((reason for reason in reasons if reason is not None), None)
    return "max_iter" if found is None and run.n_iter >= run.max_iter else found


def _one_pass(
    steps: Steps,
    dataset: Dataset,
    solver: Solver,
    run: Run,
    watchers: Sequence[Callback],
    later: Callable[[], None] | None,
) -> float:
    """A pass, or the rest of one; when it began by the clock, time between runs left out.

    later: what is still to be looked at, once a GPU has all steps to do.
    """
    size = solver.rows_per_step
    on_all = size is None or size >= dataset.n_rows  # one step, from the sums over all batches
    current, order = run.current, run.generator
    if current is None:
        current = run.current = Pass(order.get_state())
    else:
        order = torch.Generator(order.device).set_state(current.begun)
        steps.resume(current.partial)
    current.read = lambda: (*steps.read(), steps.partial())
    began, cursor = time.perf_counter() - current.seconds, Cursor(current.batches)
    batches = steps.batches(dataset, None if on_all else size, None if on_all else order, cursor)
    batch: Batch | None = next(batches)
    while batch is not None:
        with inference(batch.kind):
            if on_all:
                steps.add(batch, run.generator)
            else:
                steps(batch, batch.n_rows / dataset.n_rows, run.generator)
        done, current.rows = current.rows / dataset.n_rows, current.rows + batch.n_rows
        steps.look_ahead(done, current.rows / dataset.n_rows)
        # The next one is asked for first: a checkpoint always leaves a batch to go on with.
        last, batch = batch, next(batches, None)
        current.batches, current.seconds = cursor.batches - 1, time.perf_counter() - began
        for callback in watchers:
            callback.on_batch(run, 1.0 if batch is None else current.rows / dataset.n_rows)
    if later is not None:
        later()
    with inference(last.kind):
        if on_all:
            steps.step_on_all(next(dataset.batches(None)))
        else:
            steps.end_pass(last, dataset.n_rows)
    run.current = None
    return began


def _record(
    params: Parameters,
    steps: Steps,
    run: Run,
    validation: Dataset | None,
    rule: LabelRule,
    phase: int,
    began: float,
) -> PassRecord:
    loss, accuracy = (None, None) if validation is None else judge(params, validation, rule)
    group = current()
    record = PassRecord(
        n_iter=run.n_iter + 1,
        loss=steps.mean_loss() if group.first else 0.0,
        validation_loss=loss,
        validation_accuracy=accuracy,
        beta=float(params.beta),
        residual=None if steps.residual is None else float(steps.residual),
        n_memories=params.n_memories,
        seconds=time.perf_counter() - began,
        phase=phase,
    )
    record = group.same(record)
    if not math.isfinite(record.loss):
        raise FloatingPointError(
            f"the loss became {record.loss} in pass {record.n_iter}: lower the learning rate"
        )
    return record


def judge(params: Parameters, dataset: Dataset, rule: LabelRule) -> tuple[float, float | None]:
    """(mean loss, accuracy on the labeled rows or None) from one forward pass."""
    group = current()
    rows: Batches = dataset.shard(group.rank, group.size) if group.many else dataset
    loss, total, right, n_labeled = 0.0, 0.0, 0, 0
    for batch in rows.batches(_JUDGED_ROWS):
        if batch.n_rows == 0:
            continue
        scores = log_joint(params, batch.x)
        loss += batch.mean(rule(scores, batch.targets)[0]) * batch.total_weight
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
