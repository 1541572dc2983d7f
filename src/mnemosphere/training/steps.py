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
from mnemosphere.training.dataset import ArrayDataset, FileDataset, next_seed
from mnemosphere.training.distributed import current
from mnemosphere.training.noise import noisy
from mnemosphere.training.solver import Solver, SolverState

CHANGING = ("w", "p", "beta", "p_h", "p_q")  # of the parameters


class Steps:
    """Mixture and state as they go from batch to batch, and the loss met on the way.

    Several processes sum over rows of their own. Rank 0 takes the step, with its rows as `batch`.
    """

    def __init__(
        self, params: Mixture, state: SolverState, solver: Solver, rule: LabelRule
    ) -> None:
        self._params, self._state, self._solver, self._rule = params, state, solver, rule
        self._noise = 0.0 if isinstance(solver.noise, str) else solver.noise
        self._group = current()
        self._last: Batch  # with rows, that this process had
        self._loss = torch.zeros_like(params.beta, dtype=torch.float64)
        self._count = torch.zeros_like(self._loss)
        self.residual: float | None = None  # of stationarity, if a step was exact

    def one_pass(self, dataset: ArrayDataset, generator: torch.Generator) -> Iterator[float]:
        """The steps of a pass: the share of the rows that is taken, after each batch."""
        n_rows, size, done = dataset.n_rows, self._solver.rows_per_step, 0
        is_one = size is None or size >= n_rows  # one step, from the sums over all batches
        size, order = (None, None) if is_one else (size, generator)
        first, sums, self._last = None, None, dataset.take(slice(0, 1))
        for batch in self._batches(dataset, size, order):
            self._last = batch if batch.n_rows else self._last
            first = self._last if first is None else first
            with torch.inference_mode():
                if is_one:
                    stats = accumulate(self._params, self._noisy(batch, generator), self._rule)
                    sums = stats if sums is None else sums + stats
                else:
                    self(batch, batch.n_rows / n_rows, generator)
            done += batch.n_rows * self._group.size
            yield min(done / n_rows, 1.0)
        with torch.inference_mode():
            if sums is None or first is None:
                self.end_pass(self._last, n_rows)
                return
            before = self._params
            self._take_step(sums, first, float(self._group.first))  # the shares of all sum to 1
            if self._solver.exact:
                self.residual = float(displacement(before, self._params).largest)

    def _batches(
        self, dataset: ArrayDataset, size: int | None, order: torch.Generator | None
    ) -> Iterator[Batch]:
        return dataset.batches(size, generator=order, group=self._group)

    def __call__(self, batch: Batch, share: float, generator: torch.Generator) -> None:
        """One step on a batch that is this share of all rows."""
        self._step(self._noisy(batch, generator), share)

    def end_pass(self, batch: Batch, n_rows: int) -> None:
        """What the solver has left to do after the last batch of a pass."""
        self._act(lambda: self._solver.end_pass(self._params, self._state, batch, n_rows))

    def _noisy(self, batch: Batch, generator: torch.Generator) -> Batch:
        if not self._noise:
            return batch
        there, seed = torch.Generator(batch.x.device), next_seed(generator)
        there.manual_seed(seed + (self._group.rank << 40))
        return replace(batch, x=noisy(batch.x, self._noise, there))

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
        self._drawn = torch.Generator(params.w.device)  # of the noise
        self._batch: Batch | None = None
        self._replay: Captured | None = None

    def __call__(self, batch: Batch, share: float, generator: torch.Generator) -> None:
        """One step on a batch that is this share of all rows."""
        if self._batch is None or self._replay is None:
            self._batch, self._replay = self._record(batch, share)
        if batch.n_rows != self._batch.n_rows:  # the last rows of a pass
            super().__call__(batch, share, generator)
            self._write()
            return
        if self._noise:
            self._drawn.manual_seed(next_seed(generator))
        if batch is not self._batch:
            torch._foreach_copy_(_tensors(self._batch), _tensors(batch))
        self._replay()

    def _batches(
        self, dataset: ArrayDataset, size: int | None, order: torch.Generator | None
    ) -> Iterator[Batch]:
        """Batches that are taken to where they are read; the last is filled up, if it can be."""
        return dataset.batches(size, generator=order, fill=True, into=lambda: self._batch)

    def end_pass(self, batch: Batch, n_rows: int) -> None:
        """What the solver has left to do after the last batch of a pass."""
        super().end_pass(batch, n_rows)
        self._write()

    def _record(self, batch: Batch, share: float) -> tuple[Batch, Captured]:
        with torch.inference_mode(False):  # batches are taken to it outside of steps
            # Targets made dense: a copy into an expanded view would go wrong.
            here = Batch(*(t.clone(memory_format=torch.contiguous_format) for t in _tensors(batch)))

        def act() -> None:
            x = noisy(here.x, self._noise, self._drawn) if self._noise else here.x
            self._step(replace(here, x=x), share)
            self._write()

        changed = [*_changing(*self._own), self._loss, self._count]
        return here, Captured(act, changed, [self._drawn] if self._noise else [])

    def _write(self) -> None:
        """Put what a step has made where the next one reads it."""
        made, (self._params, self._state) = (self._params, self._state), self._own
        pairs = zip(_changing(*self._own), _changing(*made), strict=True)
        others = [(own, new) for own, new in pairs if own is not new]
        if others:
            torch._foreach_copy_([own for own, _ in others], [new for _, new in others])


def steps_for(params: Mixture, dataset: ArrayDataset, solver: Solver) -> type[Steps]:
    """Replayed steps if all is on a GPU and no step needs a device-to-host synchronization.

    Gaps are found on the host. A pass over files takes as long as reading them.
    """
    size = solver.rows_per_step
    if size is None or size >= dataset.n_rows or not solver.can_capture(params):
        return Steps
    if current().many or isinstance(dataset, FileDataset) or dataset.whole.has_gaps:
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
