"""A pass over one batch and the solver's step, taken plainly or replayed from a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, Cursor, Dataset, InMemory, Picked
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import Statistics, accumulate
from mnemosphere.model.m_step import displacement
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.products import narrowed
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.model.streams import overlapping
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.solver import Solver, SolverState

_WARM_UP = 1  # steps before the capture: libraries allocate what they need at their first calls
_KEPT = 0.02  # of the memory of a GPU, at most, for graphs that nobody replays at present
# Parts of a pass: from afar the maximizer takes as long as four steps of ten, from near as one.
_LOOKS_AHEAD = 0.35, 0.75
CHANGING = ("w", "p", "beta", "p_h", "p_q")


class Steps:
    """Parameters and state as they go from batch to batch, and the loss met on the way."""

    def __init__(
        self,
        params: Parameters,
        state: SolverState,
        solver: Solver,
        rule: LabelRule,
        noise: SphereNoise | None = None,
    ) -> None:
        self._params, self._state = params, state
        self._solver, self._rule, self._noise = solver, rule, noise
        self._loss = torch.zeros((), dtype=torch.float64, device=params.w.device)
        self._count = torch.zeros_like(self._loss)
        self._sums: Statistics | None = None  # of the rows that `add` has taken in
        self.residual: Tensor | None = None  # of stationarity, where a step was exact

    def __call__(self, batch: Batch, share: float, generator: torch.Generator) -> None:
        """One step on a batch that is this share of all rows."""
        self._step(self._noisy(batch, generator), share)

    def add(self, batch: Batch, generator: torch.Generator) -> None:
        """Take in a part of all rows, for `step_on_all`."""
        stats = accumulate(self._params, self._noisy(batch, generator), self._rule)
        self._sums = stats if self._sums is None else self._sums + stats

    def step_on_all(self, first: Batch) -> None:
        """One step from the statistics of all rows; `first`: some of them."""
        assert self._sums is not None
        stats, self._sums, before = self._sums, None, self._params
        self._params, self._state = self._solver.step(before, self._state, stats, first, 1.0)
        self._loss += stats.loss
        self._count += stats.count
        if self._solver.exact:
            self.residual = displacement(before, self._params).largest

    def _noisy(self, batch: Batch, generator: torch.Generator) -> Batch:
        if self._noise is None:
            return batch
        return replace(batch, x=self._noise(batch.x, generator))

    def batches(
        self, dataset: Dataset, size: int | None, order: torch.Generator | None, cursor: Cursor
    ) -> Iterator[Batch]:
        """One pass over the rows."""
        return dataset.batches(size, generator=order, cursor=cursor)

    def look_ahead(self, before: float, now: float) -> None:
        """So much of the pass was done before the last batch, so much is now."""

    def end_pass(self, batch: Batch, n_rows: int) -> None:
        """What the solver has left to do after the last batch of a pass."""
        self._params, self._state = self._solver.end_pass(self._params, self._state, batch, n_rows)

    def _step(self, batch: Batch, share: float) -> None:
        self._take_step(accumulate(self._params, batch, self._rule), batch, share)

    def _take_step(self, stats: Statistics, batch: Batch, share: float) -> None:
        self._params, self._state = self._solver.step(
            self._params, self._state, stats, batch, share
        )
        self._loss += stats.loss
        self._count += stats.count

    def read(self) -> tuple[Parameters, SolverState]:
        """The parameters and the state as they are now; copies of what inference mode made."""
        made = (*self._params.to_tensors().values(), *self._state.values())
        if any(t.is_inference() for t in made):
            return self._params.clone(), _copy_state(self._state)
        return self._params, self._state

    def partial(self) -> dict[str, Tensor]:
        """What else a pass has come to so far, for a checkpoint."""
        found = {"loss": self._loss, "count": self._count}
        if self._sums is not None:
            found |= {f"sums.{f.name}": getattr(self._sums, f.name) for f in fields(Statistics)}
        return found

    def resume(self, partial: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        self._loss.copy_(partial["loss"])
        self._count.copy_(partial["count"])
        sums = {k.removeprefix("sums."): v for k, v in partial.items() if k.startswith("sums.")}
        self._sums = Statistics(**{k: v.to(self._loss.device) for k, v in sums.items()}) if (
            sums
        ) else None  # fmt: skip

    def mean_loss(self) -> float:
        """Loss per unit of sample weight since the last time."""
        mean = float(self._loss / self._count)
        self._loss.zero_()
        self._count.zero_()
        return mean


class CapturedSteps(Steps):
    """The same, recorded once and replayed: a plain step is bound by launching its kernels.

    The graph reads a batch from a place of its own, and reads and writes parameters, state and
    loss in place. It is recorded at the first batch of full size, which takes as long as fifty
    steps, and kept for the next run of the same shape: see `steps_for`.
    """

    key: tuple[object, ...] = ()  # all that was recorded as it was then
    n_bytes = 0  # of GPU memory that the graph holds

    def __init__(
        self,
        params: Parameters,
        state: SolverState,
        solver: Solver,
        rule: LabelRule,
        noise: SphereNoise | None = None,
    ) -> None:
        super().__init__(params.clone(), _copy_state(state), solver, rule, noise)
        self._own = self._params, self._state
        self._batch: Batch | None = None
        self._generators: list[torch.Generator] = []  # of the noise
        self._graph = torch.cuda.CUDAGraph()
        self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self._at_side: list[Callable[[], None]] = []  # with all that they read

    def __call__(self, batch: Batch, share: float, generator: torch.Generator) -> None:
        """One step on a batch that is this share of all rows."""
        seed = 0 if self._noise is None else self._noise.seed(generator)
        if self._batch is None:
            self._capture(batch, share)
        assert self._batch is not None
        if batch.n_rows != self._batch.n_rows:  # the last rows of a pass
            batch = _taken(batch)
            if self._noise is not None:
                x = self._noise.lay(batch.x, self._noise.generators(batch.x, seed))
                batch = replace(batch, x=x)
            self._step(batch, share)
            self._write(self._params, self._state)
            return
        for block, there in enumerate(self._generators):
            there.manual_seed(seed + block)
        if isinstance(batch, Picked):
            batch.copy_to(self._batch)
        else:
            self._batch.x.copy_(batch.x)
            self._batch.targets.copy_(batch.targets)
            if self._batch.sample_weight is not None and batch.sample_weight is not None:
                self._batch.sample_weight.copy_(batch.sample_weight)
        self._graph.replay()

    def batches(
        self, dataset: Dataset, size: int | None, order: torch.Generator | None, cursor: Cursor
    ) -> Iterator[Batch]:
        """One pass over the rows, each batch to be taken out where the graph reads it.

        The last one is filled up, so that it can be replayed too: a plain step takes many times as
        long.
        """
        if isinstance(dataset, InMemory):
            return dataset.picked(size, generator=order, cursor=cursor, fill=True)
        return super().batches(dataset, size, order, cursor)

    def look_ahead(self, before: float, now: float) -> None:
        """Near the end of a pass, let the solver prepare it beside the last steps."""
        if not any(before < look <= now for look in _LOOKS_AHEAD):
            return
        act = self._solver.look_ahead(*self._own)
        if act is not None:
            self._at_side.append(act)
            self._side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self._side):
                act()

    def _join(self) -> None:
        """Wait for it."""
        if self._at_side:
            torch.cuda.current_stream(self.device).wait_stream(self._side)
            self._at_side.clear()

    def end_pass(self, batch: Batch, n_rows: int) -> None:
        """What the solver has left to do after the last batch of a pass."""
        self._join()
        super().end_pass(_taken(batch), n_rows)
        self._write(self._params, self._state)

    def read(self) -> tuple[Parameters, SolverState]:
        """Copies of the parameters and the state as they are now."""
        self._join()
        params, state = self._own
        copies = (
            params.replace(**{name: torch.empty_like(t) for name, t in _changing(params)}),
            {name: torch.empty_like(t) for name, t in state.items()},
        )
        torch._foreach_copy_(_flat(*copies, state), _flat(params, state, state))  # in few kernels
        return copies

    @property
    def is_recorded(self) -> bool:
        """Whether there is a graph."""
        return self._batch is not None

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self._loss.device

    def begin(self, params: Parameters, state: SolverState) -> None:
        """Start anew, by the graph that is there."""
        self._write(params, state)
        self._loss.zero_()
        self._count.zero_()

    def _capture(self, batch: Batch, share: float) -> None:
        held = torch.cuda.memory_reserved(batch.x.device)
        weight = batch.sample_weight
        # Cloned, and targets made dense: a copy into an expanded view would go wrong.
        self._batch = Batch(
            batch.x.clone(),
            batch.targets.clone(memory_format=torch.contiguous_format),
            None if weight is None else weight.clone(),
        )
        if self._noise is not None:
            self._generators = self._noise.generators(batch.x, 0)
        begun = self.read()
        losses = self._loss.clone(), self._count.clone()
        device = batch.x.device
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._step_in_place(share)
            # Not by torch.cuda.graph: it collects garbage first, which takes longer than all else.
            torch.cuda.synchronize(device)
            for there in self._generators:
                self._graph.register_generator_state(there)
            self._graph.capture_begin()
            try:
                self._step_in_place(share)
            finally:
                self._graph.capture_end()
        torch.cuda.current_stream(device).wait_stream(side)
        self.n_bytes = torch.cuda.memory_reserved(batch.x.device) - held
        self._write(*begun)
        self._loss.copy_(losses[0])
        self._count.copy_(losses[1])

    def _step_in_place(self, share: float) -> None:
        assert self._batch is not None
        batch = self._batch
        if self._noise is not None:
            batch = replace(batch, x=self._noise.lay(batch.x, self._generators))
        with overlapping(batch.x.device):
            self._step(batch, share)
        self._write(self._params, self._state)

    def _write(self, params: Parameters, state: SolverState) -> None:
        self._params, self._state = self._own
        ours, new = (_flat(*pair, self._state) for pair in (self._own, (params, state)))
        others = [(a, b) for a, b in zip(ours, new, strict=True) if a is not b]
        if others:
            torch._foreach_copy_([a for a, _ in others], [b for _, b in others])  # one kernel


_kept: dict[tuple[object, ...], CapturedSteps] = {}


def steps_for(
    params: Parameters,
    state: SolverState,
    dataset: Dataset,
    solver: Solver,
    rule: LabelRule,
    noise: SphereNoise | None = None,
) -> Steps:
    """Replayed steps where all is on a GPU and no step asks the device for a number.

    By a graph that an earlier run of the same shape and settings left, where there is one.
    """
    size = solver.rows_per_step or dataset.n_rows
    if not (solver.can_capture(params) and size < dataset.n_rows):
        return Steps(params, state, solver, rule, noise)
    rows = dataset.rows if isinstance(dataset, ArrayDataset) else next(dataset.batches(size))
    # Sparse batches are each of another size; gaps are asked of the device.
    if isinstance(rows.x, SparseRows) or rows.has_gaps:
        return Steps(params, state, solver, rule, noise)
    key = (
        size, dataset.n_rows, rows.x.shape[1], rows.sample_weight is None, rows.x.device,
        params.w.dtype, params.p.shape, params.varsigma, solver, rule, noise,
        narrowed(params.w), torch.get_float32_matmul_precision(),
    )  # fmt: skip
    steps = _kept.pop(key, None)
    if steps is None:
        steps = CapturedSteps(params, state, solver, rule, noise)
        steps.key = key
    else:
        steps.begin(params, state)
    return steps


def keep(steps: Steps) -> None:
    """Leave a graph for a later run, those of longest ago being dropped for it."""
    if isinstance(steps, CapturedSteps) and steps.is_recorded:
        _kept[steps.key] = steps
        most = _KEPT * torch.cuda.get_device_properties(steps.device).total_memory
        while sum(each.n_bytes for each in _kept.values()) > most:
            del _kept[next(iter(_kept))]


def _taken(batch: Batch) -> Batch:
    return batch.taken if isinstance(batch, Picked) else batch


def _changing(params: Parameters) -> list[tuple[str, Tensor]]:
    return [(name, getattr(params, name)) for name in CHANGING]


def _flat(params: Parameters, state: SolverState, order: SolverState) -> list[Tensor]:
    """All that changes, the state in the order of another one."""
    return [t for _, t in _changing(params)] + [state[name] for name in order]


def _copy_state(state: SolverState) -> SolverState:
    return {name: t.clone() for name, t in state.items()}
