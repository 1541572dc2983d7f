"""One training loop for every solver."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mnemosphere.model import objectives
from mnemosphere.model.kernel import check_data, log_joint
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.batches import Data, Solver, State, row_batches
from mnemosphere.training.callbacks import Callback, Record
from mnemosphere.training.checkpoint import (
    Progress,
    checksum,
    fingerprint,
    load_checkpoint,
    save_checkpoint,
)
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.steps import steps_for


@dataclass(frozen=True)
class Result:
    """What training returns."""

    params: Parameters  # the best by validation loss where there is validation, else the last
    state: State  # the solver's, after the last step
    history: tuple[Record, ...]
    status: str  # 'converged', 'stopped early', 'max_epochs' or 'interrupted'

    @property
    def message(self) -> str:
        """The status in a sentence, with what to try."""
        passes = f"{len(self.history)} passes"
        return {
            "converged": f"converged after {passes}",
            "stopped early": f"validation loss stopped improving after {passes}",
            "max_epochs": f"not converged in {passes}: raise max_epochs or loosen tol",
            "interrupted": f"interrupted after {passes}: the model is usable as it is",
        }[self.status]


def train(
    params: Parameters,
    data: Data,
    solver: Solver,
    *,
    rule: LabelRule = objectives.joint,
    max_epochs: int = 100,
    tol: float = 0.0,
    validation: Data | None = None,
    patience: int | None = None,
    generator: torch.Generator | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
    phase: int = 0,
    state: State | None = None,
    noise: SphereNoise | None = None,
) -> Result:
    """Train until convergence, early stopping, max_epochs or Ctrl-C.

    Convergence: the pass changed the mean loss by less than `tol` relative, or a full fixed-point
    step moved the parameters by less than `tol` (0 switches both off). With `validation`, its
    loss is taken after every pass, the best state is kept, and `patience` passes without
    improvement stop the run. With `checkpoint`, the run is saved there after every pass, and goes
    on from there, with the same bits, if the file exists. `state` is the solver's to start with,
    where it goes on from an earlier run. `noise` is laid anew on the rows of every batch, never on
    those of validation.
    """
    solver.check_rule(rule)
    params.check()
    check_data(data.x, data.targets, data.sample_weight, params)
    if validation is not None:
        check_data(validation.x, validation.targets, validation.sample_weight, params)
    if patience is not None and validation is None:
        raise ValueError("patience needs validation rows: pass validation=")
    if patience is not None and patience < 1:
        raise ValueError(f"patience must be >= 1 or None, got {patience}")
    if max_epochs < 1:
        raise ValueError(f"max_epochs must be >= 1, got {max_epochs}")
    if checkpoint is not None and not checkpoint.parent.is_dir():
        raise ValueError(f"no folder {checkpoint.parent} for the checkpoint: create it first")
    if data.sample_weight is not None and not bool((data.sample_weight > 0).all()):
        data = data.take(data.sample_weight > 0)  # a batch of such rows alone would have no mean
    generator = torch.Generator().manual_seed(0) if generator is None else generator

    run = Progress(
        epoch=0,
        params=params,
        state=solver.start(params) if state is None else state,
        best=params,
        best_loss=math.inf,
        waited=0,
        history=(),
        generator_state=generator.get_state(),
    )
    mark = ""
    if checkpoint is not None:
        mark = fingerprint(
            data,
            validation,
            solver=solver,
            rule=rule,
            phase=phase,
            tol=tol,
            memories=checksum(params.w),
            varsigma=params.varsigma,
            beta=f"{float(params.beta):.6g}",
            **({} if noise is None else {"noise": noise}),
        )
        if checkpoint.exists():
            run = load_checkpoint(checkpoint, mark, params.w.device)
            generator.set_state(run.generator_state)

    for callback in callbacks:
        callback.on_start(run.params, max_epochs)
    status = _stopped(run, tol, patience) or "max_epochs"
    params, state = run.params, run.state
    steps = steps_for(params, state, data, solver, rule, noise)
    try:
        while run.epoch < max_epochs and status == "max_epochs":
            began = time.perf_counter()
            epoch = run.epoch + 1
            done = 0.0
            for rows in row_batches(data.n_rows, solver.batch_size, generator, data.x.device):
                done += steps(rows, generator)
                for callback in callbacks:
                    callback.on_batch(epoch, done)
            params, state = steps.read()
            check_loss, accuracy = (
                (None, None) if validation is None else judge(params, validation, rule)
            )
            record = Record(
                epoch=epoch,
                loss=steps.mean_loss(),
                validation_loss=check_loss,
                validation_accuracy=accuracy,
                beta=float(params.beta),
                residual=None if steps.moved is None else float(steps.moved),
                n_memories=params.n_memories,
                seconds=time.perf_counter() - began,
                phase=phase,
            )
            if not math.isfinite(record.loss):
                raise FloatingPointError(
                    f"the loss became {record.loss} in pass {epoch}: lower the learning rate"
                )
            judged = record.loss if check_loss is None else check_loss
            improved = check_loss is None or judged < run.best_loss
            run = Progress(
                epoch=epoch,
                params=params,
                state=state,
                best=params if improved else run.best,
                best_loss=judged if improved else run.best_loss,
                waited=0 if improved else run.waited + 1,
                history=(*run.history, record),
                generator_state=generator.get_state(),
            )
            if checkpoint is not None:
                save_checkpoint(checkpoint, run, mark)
            for callback in callbacks:
                callback.on_epoch(record, params)
            status = _stopped(run, tol, patience) or "max_epochs"
        final = run.best
    except KeyboardInterrupt:
        status = "interrupted"
        params, state = steps.read()
        final = params if validation is None or not run.history else run.best
    for callback in callbacks:
        callback.on_end(status)
    return Result(params=final, state=state, history=run.history, status=status)


def judge(params: Parameters, data: Data, rule: LabelRule) -> tuple[float, float | None]:
    """(mean loss, accuracy on the labelled rows or None) from one forward pass."""
    scores = log_joint(params, data.x)
    loss, _ = rule(scores, data.targets)
    weight = torch.ones_like(loss) if data.sample_weight is None else data.sample_weight
    mean = float((loss.double() * weight).sum() / weight.double().sum())
    # The class "none of the C" is never predicted: rows that are mostly that do not count.
    of_a_class = data.targets.argmax(1) < params.n_columns - 1
    labelled = (data.targets.sum(1) > 0) & of_a_class & (weight > 0)
    if params.n_columns < 2 or not bool(labelled.any()):
        return mean, None
    right = scores[:, :-1].argmax(1) == data.targets[:, :-1].argmax(1)
    return mean, float((right & labelled).sum() / labelled.sum())


def _stopped(run: Progress, tol: float, patience: int | None) -> str | None:
    """The reason to stop after the last pass of `run`, if there is one."""
    if patience is not None and run.waited >= patience:
        return "stopped early"
    if tol > 0 and len(run.history) >= 2:
        last, before = run.history[-1], run.history[-2]
        small_step = last.residual is not None and last.residual < tol
        if small_step or abs(before.loss - last.loss) < tol * abs(last.loss):
            return "converged"
    return None
