"""The training loop: start, pass, step, record, check, callbacks. Every solver and every data set."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from mnemosphere.model import objectives
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import evaluate
from mnemosphere.training.callbacks import Callback, PassRecord, Run
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.distributed import current
from mnemosphere.training.solver import Solver
from mnemosphere.training.steps import steps_for

_VALIDATION_ROWS = 1 << 16  # per batch of validation


def fit(
    start: Mixture | Run,
    dataset: ArrayDataset,
    solver: Solver,
    *,
    rule: LabelRule = objectives.joint,
    max_iter: int = 100,
    validation: ArrayDataset | None = None,
    generator: torch.Generator | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train until convergence, early stopping, max_iter passes or Ctrl-C.

    start: parameters, or a run whose parameters and state the solver goes on from. The solver knows when a
    change is small (`tol`) and how many passes to wait for a lower loss of `validation` (`patience`), which is
    taken after every pass; the best parameters are returned then. In several processes rank 0 watches, stops
    and stores.
    """
    group, own = current(), start if isinstance(start, Run) else Run(start, solver.start(start))
    if own.params.w.ndim == 2:  # a stack is of rows that were checked
        _check(own.params, dataset, solver, rule, max_iter, validation)
    watchers = callbacks if group.first else ()
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    run = Run(own.params, own.state, generator, max_iter)
    for callback in watchers:
        callback.on_start(run)
    if group.many:  # a checkpoint is read by one
        found, drawn = group.broadcast((replace(run, generator=None), generator.get_state()))
        generator.set_state(drawn)
        run = replace(found, generator=generator)
    steps = steps_for(run.params, dataset, solver)(run.params, run.state, solver, rule)
    try:
        while (stop := group.broadcast(_stop_reason(run, solver, watchers))) is None:
            began = time.perf_counter()
            for share_done in steps.one_pass(dataset, generator):
                for callback in watchers:
                    callback.on_batch(run, share_done)
            run.params, run.state = steps.read()
            loss = None
            if validation is not None and group.first:
                loss = validate(run.params, validation, rule)
            record = PassRecord(
                run.n_iter + 1, steps.mean_loss(), loss, float(run.params.beta.mean()), steps.residual,
                run.params.n_memories, time.perf_counter() - began,
            )  # fmt: skip
            if not math.isfinite(record.loss):
                raise FloatingPointError(
                    f"the loss became {record.loss} in pass {record.n_iter}: lower the learning rate"
                )
            run.history.append(group.broadcast(record))
            if validation is not None and run.waited == 0:
                run.best = run.params
            for callback in watchers:
                callback.on_pass(run)
        run.status = stop
        if group.many:  # rank 0 has the state
            shared = group.broadcast_tensors(*run.state.values())
            run.state = dict(zip(run.state, shared, strict=True))
    except KeyboardInterrupt:
        if group.many:
            raise
        run.status = "interrupted"
        run.params, run.state = steps.read()  # in the middle of a pass
    return replace(run, params=run.params if run.best is None else run.best)


def _check(
    params: Mixture, dataset: ArrayDataset, solver: Solver, rule: LabelRule, max_iter: int,
    validation: ArrayDataset | None,
) -> None:  # fmt: skip
    """Raise ValueError if something does not fit; of rows, the first batch is looked at."""
    if solver.exact and not rule.supports_fixed_point:
        raise ValueError(
            f"the fixed point needs non-negative label weights, which {rule} has not: "
            "train it with the SGD solver"
        )
    if max_iter < 1:
        raise ValueError(f"max_iter must be >= 1, got {max_iter}")
    params.check()
    first = next((b for b in dataset.batches(None) if b.n_rows), None)
    if first is None:
        raise ValueError("no row has a direction: there is nothing to learn from")
    first.check(params)
    if validation is not None:
        next(validation.batches(None)).check(params)


def _stop_reason(run: Run, solver: Solver, watchers: Sequence[Callback]) -> str | None:
    reasons = [
        "converged" if run.converged(solver.tol) else None,
        "stopped early" if solver.patience is not None and run.waited >= solver.patience else None,
        *(callback.stop_reason(run) for callback in watchers),
        "max_iter" if run.n_iter >= run.max_iter else None,
    ]
    return next((reason for reason in reasons if reason is not None), None)


def validate(params: Mixture, dataset: ArrayDataset, rule: LabelRule) -> float:
    """The mean loss of all rows."""
    parts = [
        (evaluate(params, batch, rule), batch.total_weight)
        for batch in dataset.batches(_VALIDATION_ROWS)
    ]
    return sum(loss * weight for loss, weight in parts) / sum(weight for _, weight in parts)
