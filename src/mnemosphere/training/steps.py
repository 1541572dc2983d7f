"""The steps of a pass: plain ones, and on a GPU ones that are recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from mnemosphere.gpu import Captured
from mnemosphere.model.batch import Batch
from mnemosphere.model.m_step import displacement
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import Statistics, accumulate
from mnemosphere.training.dataset import ArrayDataset, TrainingSet
from mnemosphere.training.distributed import current
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.solver import Solver, SolverState

CHANGING = ("w", "p", "beta", "p_h", "p_q")  # of the parameters


class Steps:
    """Mixture and state as they go from batch to batch, and the loss met on the way."""

    def __init__(
        self,
        params: Mixture,
        state: SolverState,
        solver: Solver,
        rule: LabelRule,
        noise: SphereNoise | None = None,
    ) -> None:
        self._params, self._state = params, state
        self._solver, self._rule, self._noise = solver, rule, noise
        self._group = current()
        self._last: Batch  # with rows, that this process had
        self._loss = torch.zeros_like(params.beta, dtype=torch.float64)
        self._count = torch.zeros_like(self._loss)
        self.residual: Tensor | None = None  # of stationarity, if a step was exact

    # A pass

    def one_pass(
        self, dataset: TrainingSet, generator: torch.Generator
    ) -> Iterator[tuple[int, bool]]:
        """The steps of a pass: (rows taken, whether more come) of each.

        Several processes sum over rows of their own. Rank 0 takes the step, with its rows as `batch`.
        """
        size = self._rows_per_step(dataset)
        batches = self._batches(dataset, size, None if size is None else generator)
        batch: Batch | None = (first := next(batches))
        self._last = first if first.n_rows else next(dataset.batches(None))
        sums: Statistics | None = None  # for one step
        while batch is not None:
            self._last = batch if batch.n_rows else self._last
            with torch.inference_mode():
                if size is None:
                    stats = accumulate(self._params, self._noisy(batch, generator), self._rule)
                    sums = stats if sums is None else sums + stats
                else:
                    self(batch, batch.n_rows / dataset.n_rows, generator)
            n_rows, batch = batch.n_rows, next(batches, None)
            yield n_rows * self._group.size, batch is not None
        with torch.inference_mode():
            if sums is not None:
                self.step_on_all(sums, next(dataset.batches(None)))
            else:
                self.end_pass(self._last, dataset.n_rows)

    def _rows_per_step(self, dataset: TrainingSet) -> int | None:
        """None for one step, from the sums over all batches."""
        size = self._solver.rows_per_step
        return None if size is None or size >= dataset.n_rows else size

    def _batches(
        self, dataset: TrainingSet, size: int | None, order: torch.Generator | None
    ) -> Iterator[Batch]:
        return dataset.batches(size, generator=order, group=self._group)

    # Steps

    def __call__(self, batch: Batch, share: float, generator: torch.Generator) -> None:
        """One step on a batch that is this share of all rows."""
        self._step(self._noisy(batch, generator), share)

    def step_on_all(self, stats: Statistics, first: Batch) -> None:
        """One step from the statistics of all rows; `first`: some of them."""
        before = self._params
        self._take_step(stats, first, float(self._group.first))  # the shares of all sum to 1
        if self._solver.exact:
            self.residual = displacement(before, self._params).largest

    def end_pass(self, batch: Batch, n_rows: int) -> None:
        """What the solver has left to do after the last batch of a pass."""
        self._act(lambda: self._solver.end_pass(self._params, self._state, batch, n_rows))

    def _noisy(self, batch: Batch, generator: torch.Generator) -> Batch:
        if self._noise is None:
            return batch
        seed = self._noise.seed(generator) + (self._group.rank << 40)
        drawn = self._noise.generators(batch.x, seed)
        return replace(batch, x=self._noise.apply(batch.x, drawn))

    def _step(self, batch: Batch, share: float) -> None:
        self._take_step(accumulate(self._params, batch, self._rule), batch, share)

    def _take_step(self, stats: Statistics, batch: Batch, share: float) -> None:
        """A step from the sums over all processes, by one all-reduce."""
        batch = batch if batch.n_rows else self._last
        if self._group.many:
            own = (getattr(stats, field.name) for field in fields(stats))
            *sums, part = self._group.sum(*own, torch.tensor(share, dtype=torch.float64))
            stats, share = Statistics(*sums), float(part)
        self._act(lambda: self._solver.step(self._params, self._state, stats, batch, share))
        self._loss += stats.loss
        self._count += stats.count

    def _act(self, step: Callable[[], tuple[Mixture, SolverState]]) -> None:
        """Rank 0 takes the step, and the others its parameters; the state stays there."""
        if self._group.first:
            self._params, self._state = step()
        if self._group.many:
            found = self._group.broadcast_tensors(*(getattr(self._params, k) for k in CHANGING))
            self._params = self._params.replace(**dict(zip(CHANGING, found, strict=True)))

    # Results

    def read(self) -> tuple[Mixture, SolverState]:
        """Copies of the parameters and the state as they are now."""
        return self._params.clone(), _copy_state(self._state)

    def mean_loss(self) -> float:
        """Loss per unit of sample weight since the last time."""
        mean = float((self._loss / self._count).mean())
        self._loss.zero_()
        self._count.zero_()
        return mean


class CapturedSteps(Steps):
    """The same on a GPU, recorded once and replayed: a plain step is bound by launching kernels.

    What is recorded reads a batch from a place of its own, and reads and writes parameters, state
    and loss in place.
    """

    def __init__(self, params: Mixture, state: SolverState, *how: Any) -> None:
        super().__init__(params.clone(), _copy_state(state), *how)
        self._own = self._params, self._state
        self._generators: list[torch.Generator] = []  # of the noise
        self._batch: Batch | None = None
        self._replay: Captured | None = None

    def __call__(self, batch: Batch, share: float, generator: torch.Generator) -> None:
        """One step on a batch that is this share of all rows."""
        seed = 0 if self._noise is None else self._noise.seed(generator)
        if self._batch is None or self._replay is None:
            self._batch, self._replay = self._record(batch, share)
        if batch.n_rows != self._batch.n_rows:  # the last rows of a pass
            if self._noise is not None:
                x = self._noise.apply(batch.x, self._noise.generators(batch.x, seed))
                batch = replace(batch, x=x)
            self._step(batch, share)
            self._write()
            return
        for block, there in enumerate(self._generators):
            there.manual_seed(seed + block)
        if batch is not self._batch:
            torch._foreach_copy_(_tensors(self._batch), _tensors(batch))
        self._replay()

    def _batches(
        self, dataset: TrainingSet, size: int | None, order: torch.Generator | None
    ) -> Iterator[Batch]:
        """Batches that are taken to where they are read; the last is filled up, if it can be."""
        assert isinstance(dataset, ArrayDataset)
        return dataset.batches(size, generator=order, fill=True, into=lambda: self._batch)

    def end_pass(self, batch: Batch, n_rows: int) -> None:
        """What the solver has left to do after the last batch of a pass."""
        super().end_pass(batch, n_rows)
        self._write()

    def _record(self, batch: Batch, share: float) -> tuple[Batch, Captured]:
        with torch.inference_mode(False):  # batches are taken to it outside of steps
            # Targets made dense: a copy into an expanded view would go wrong.
            here = Batch(*(t.clone(memory_format=torch.contiguous_format) for t in _tensors(batch)))
        if self._noise is not None:
            self._generators = self._noise.generators(here.x, 0)

        def act() -> None:
            rows = here
            if self._noise is not None:
                rows = replace(here, x=self._noise.apply(here.x, self._generators))
            self._step(rows, share)
            self._write()

        changed = [*_changing(*self._own), self._loss, self._count]
        return here, Captured(act, changed, self._generators)

    def _write(self) -> None:
        """Put what a step has made where the next one reads it."""
        made, (self._params, self._state) = (self._params, self._state), self._own
        pairs = zip(_changing(*self._own), _changing(*made), strict=True)
        others = [(own, new) for own, new in pairs if own is not new]
        if others:
            torch._foreach_copy_([own for own, _ in others], [new for _, new in others])


def steps_for(params: Mixture, dataset: TrainingSet, solver: Solver) -> type[Steps]:
    """Replayed steps if all is on a GPU and no step needs a device-to-host synchronization.

    Gaps are found on the host. A pass over files takes as long as reading them.
    """
    size = solver.rows_per_step
    if size is None or size >= dataset.n_rows or not solver.can_capture(params):
        return Steps
    if current().many or not isinstance(dataset, ArrayDataset) or dataset.whole.has_gaps:
        return Steps
    return CapturedSteps


def _tensors(batch: Batch) -> list[Tensor]:
    found = (batch.x, batch.targets, batch.sample_weight)
    return [t for t in found if t is not None]


def _changing(params: Mixture, state: SolverState) -> list[Tensor]:
    """All that a step changes, in one order."""
    return [getattr(params, name) for name in CHANGING] + [state[name] for name in sorted(state)]


def _copy_state(state: SolverState) -> SolverState:
    return {name: t.clone() for name, t in state.items()}
