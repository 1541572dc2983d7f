"""A pass of many processes: each adds up its own rows, rank 0 takes the step for all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from mnemosphere.data.dataset import Cursor, Dataset, Part
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import Statistics, accumulate
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.distributed import Group
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.solver import Solver, SolverState
from mnemosphere.training.steps import CHANGING, Steps

__all__ = ["GroupSteps", "share_run"]

_ROUND = 64  # batches of a pass for one exact step, between two sums over the processes


def share_run(group: Group, run: Run) -> None:
    """Give every process the run of rank 0: its start, or what a checkpoint has of it."""
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


class GroupSteps(Steps):
    """Parameters on every process; the solver's state, the sums and the loss on rank 0."""

    def __init__(
        self,
        group: Group,
        params: Parameters,
        state: SolverState,
        solver: Solver,
        rule: LabelRule,
        noise: SphereNoise | None = None,
    ) -> None:
        super().__init__(params, state, solver, rule, noise)
        self._group = group
        self._part: Statistics | None = None  # of this process, since the last sum over all

    def one_pass(self, dataset: Dataset, run: Run, watchers: Sequence[Callback]) -> float:
        """As for one process, in rounds of one batch each, or of many for one step per pass.

        A process that has no batch left takes part with none, until nobody has.
        """
        group, size = self._group, self._rows_per_step(dataset)
        current, order, began = self._enter(run)
        batches = group.shard(dataset).batches(
            size, generator=None if size is None else order, cursor=Cursor(current.batches)
        )
        batch = next(batches, None)
        seeds: Batch | None = None  # of a step on some rows: where dead memories may go
        start: Batch | None = None  # those for a process that has none
        lost, more, length = 0, True, _ROUND if size is None else 1
        while more:
            taken = torch.zeros(3, dtype=torch.float64)  # rows, rows lost, batches left
            # Drawn by all, those without a batch too: their generators stay in step.
            seed = 0 if self._noise is None else self._noise.seed(run.generator)
            if group.first and size is not None:
                # Nothing of the batches before: after a restart they are not known.
                seeds = getattr(batch, "whole", None) or batch
                if seeds is None or seeds.n_rows == 0:
                    seeds = start = start or next(dataset.batches(None))
            for place in range(length):
                if batch is None:
                    break
                self._add_part(batch, seed + (place << 40))
                taken[0] += batch.n_rows
                if isinstance(batch, Part):
                    taken[1] += batch.lost
                batch = next(batches, None)
            taken[2] = batch is not None
            rows, n_lost, left = self._meet(taken, seeds, None if size is None else dataset.n_rows)
            lost, more = lost + n_lost, left > 0
            current.rows += rows
            current.batches += length
            current.seconds = time.perf_counter() - began
            for callback in watchers:
                callback.on_batch(run, current.rows / dataset.n_rows if more else 1.0)
        if group.first:
            if seeds is None:
                self.step_on_all(next(dataset.batches(None)))
            else:
                self.end_pass(seeds, dataset.n_rows)
            dataset.set_aside(lost)
        self._send()
        run.current = None
        return began

    def _add_part(self, batch: Batch, seed: int) -> None:
        """Take in rows of this process."""
        if self._noise is not None:
            whole = batch.whole if isinstance(batch, Part) else None
            first = batch.first if isinstance(batch, Part) else 0
            total = None if whole is None else whole.n_rows
            drawn = self._noise.generators(batch.x, seed, first)
            batch = replace(batch, x=self._noise.lay(batch.x, drawn, first, total))
        stats = accumulate(self._params, batch, self._rule)
        self._part = stats if self._part is None else self._part + stats

    def _meet(self, taken: Tensor, seeds: Batch | None, n_rows: int | None) -> tuple[int, int, int]:
        """Sum over the processes; with n_rows, the step on that share. What was taken by all."""
        own, self._part = self._part or Statistics.none(self._params), None
        mine = (getattr(own, f.name) for f in fields(own))
        *sums, taken = self._group.sum_on_first(*mine, taken)
        if self._group.first:
            stats = Statistics(*sums)
            if n_rows is None:
                self._sums = stats if self._sums is None else self._sums + stats
            elif taken[0] > 0:
                assert seeds is not None
                self._take_step(stats, seeds, float(taken[0]) / n_rows)
        (taken,) = self._group.from_first(taken) if n_rows is None else self._send(taken)
        rows, lost, left = map(round, taken.tolist())
        return rows, lost, left

    def _send(self, *more: Tensor) -> list[Tensor]:
        """The parameters of rank 0 to all, and what else there is."""
        mine = (getattr(self._params, name) for name in CHANGING)
        found = self._group.from_first(*mine, *more)
        self._params = self._params.replace(**dict(zip(CHANGING, found, strict=False)))
        return found[len(CHANGING) :]

    def final_state(self) -> SolverState:
        """The state of rank 0, on every process."""
        found = self._group.from_first(*self._state.values())
        return dict(zip(self._state, found, strict=True))
