"""A pass over one batch and the solver's step, taken plainly or replayed from a CUDA graph."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import torch
from torch import Tensor

from mnemosphere.model.kernel import accumulate
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.streams import overlapping
from mnemosphere.training.batches import Batch, Data, Solver, State
from mnemosphere.training.fixed_point import FixedPoint, residual
from mnemosphere.training.noise import SphereNoise

_WARM_UP = 3  # steps before the capture: libraries allocate what they need at their first calls
_CHANGING = ("w", "p", "beta")


class Steps:
    """Parameters and state as they go from batch to batch, and the loss met on the way."""

    def __init__(
        self,
        params: Parameters,
        state: State,
        data: Data,
        solver: Solver,
        rule: LabelRule,
        noise: SphereNoise | None = None,
    ) -> None:
        self._params, self._state = params, state
        self._data, self._solver, self._rule, self._noise = data, solver, rule, noise
        self._loss = torch.zeros((), dtype=torch.float64, device=data.x.device)
        self._count = torch.zeros_like(self._loss)
        self.moved: Tensor | None = None  # by an exact fixed-point step: its residual

    def __call__(self, rows: Tensor | None, generator: torch.Generator) -> float:
        """One step on these rows of the data (None: all); returns their share of it."""
        part = self._data if rows is None else self._data.take(rows)
        if self._noise is not None:
            part = replace(part, x=self._noise(part.x, generator))
        return self._step(part)

    def _step(self, part: Data) -> float:
        share = part.n_rows / self._data.n_rows
        batch = Batch(part.x, part.targets, part.sample_weight, share)
        before = self._params
        stats = accumulate(
            before, batch.x, batch.targets, self._rule, sample_weight=batch.sample_weight
        )
        self._params, self._state = self._solver.step(before, self._state, stats, batch)
        self._loss += stats.loss
        self._count += stats.count
        if isinstance(self._solver, FixedPoint) and share == 1.0:
            self.moved = residual(before, self._params)
        return share

    def read(self) -> tuple[Parameters, State]:
        """The parameters and the state as they are now."""
        return self._params, self._state

    def mean_loss(self) -> float:
        """Loss per unit of sample weight since the last time."""
        mean = float(self._loss / self._count)
        self._loss.zero_()
        self._count.zero_()
        return mean


class CapturedSteps(Steps):
    """The same, recorded once and replayed: a plain step is bound by launching its kernels.

    The graph reads and writes parameters, state and loss in place.
    """

    def __init__(
        self,
        params: Parameters,
        state: State,
        data: Data,
        solver: Solver,
        rule: LabelRule,
        noise: SphereNoise | None = None,
    ) -> None:
        super().__init__(_copy(params), _copy_state(state), data, solver, rule, noise)
        device = data.x.device
        self._own = self.read()
        self._rows = torch.zeros(solver.batch_size or 1, dtype=torch.long, device=device)
        # Noise is drawn outside the graph and handed in.
        self._x = None if noise is None else data.x[self._rows]
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._step_in_place()
        torch.cuda.current_stream(device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step_in_place()
        self._write(params, state)
        self._loss.zero_()
        self._count.zero_()

    def __call__(self, rows: Tensor | None, generator: torch.Generator) -> float:
        """One step on these rows of the data (None: all); returns their share of it."""
        if rows is None or rows.shape != self._rows.shape:  # the last rows of a pass
            share = super().__call__(rows, generator)
            self._write(self._params, self._state)
            return share
        self._rows.copy_(rows)
        if self._x is not None and self._noise is not None:
            self._x.copy_(self._noise(self._data.x[rows], generator))
        self._graph.replay()
        return rows.shape[0] / self._data.n_rows

    def read(self) -> tuple[Parameters, State]:
        """Copies of the parameters and the state as they are now."""
        return _copy(self._params), _copy_state(self._state)

    def _step_in_place(self) -> None:
        with overlapping(self._rows.device):
            part = self._data.take(self._rows)
            self._step(part if self._x is None else replace(part, x=self._x))
        self._write(self._params, self._state)

    def _write(self, params: Parameters, state: State) -> None:
        self._params, self._state = self._own
        ours = [getattr(self._params, name) for name in _CHANGING] + list(self._state.values())
        new = [getattr(params, name) for name in _CHANGING] + [state[name] for name in self._state]
        torch._foreach_copy_(ours, new)  # one kernel for all


def steps_for(
    params: Parameters,
    state: State,
    data: Data,
    solver: Solver,
    rule: LabelRule,
    noise: SphereNoise | None = None,
) -> Steps:
    """Replayed steps where all is on a GPU and no step asks the device for a number."""
    size = solver.batch_size or data.n_rows
    if data.x.is_cuda and solver.capturable and size < data.n_rows:
        return CapturedSteps(params, state, data, solver, rule, noise)
    return Steps(params, state, data, solver, rule, noise)


def _copy(params: Parameters) -> Parameters:
    tensors = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    return params.replace(**{k: t.clone() for k, t in tensors.items() if isinstance(t, Tensor)})


def _copy_state(state: State) -> State:
    return {name: t.clone() for name, t in state.items()}
