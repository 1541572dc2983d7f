"""What the loop asks of a solver."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import Statistics

# A solver's memory between steps: named tensors, so that a checkpoint can hold it.
SolverState = dict[str, Tensor]


def check_tol(tol: float) -> None:
    """ValueError unless a change of the loss can be compared with it."""
    if not 0 <= tol < math.inf:
        raise ValueError(f"tol must be finite and >= 0, got {tol}")


class Solver(ABC):
    """A pure step: parameters and state in, parameters and state out. Solvers are dataclasses."""

    # A step on all rows is the fixed-point step, whose length is the residual. It needs label
    # weights that are not negative.
    exact: ClassVar[bool] = False
    batch_size: Any  # a field of every solver
    tol: float = 0.0  # a smaller relative change of the loss ends training
    patience: int | None = None  # passes without a lower validation loss that end it
    noise: float | str = 0.0  # on the rows of every batch; "auto": none, unless a search chooses

    @property
    def rows_per_step(self) -> int | None:
        """Rows per step; None for all of them."""
        found: int | None = self.batch_size
        return found

    def resolve(self, n_rows: int, *, learn_beta: bool, device: torch.device) -> Self:
        """The solver for so many rows on that device, with nothing left "auto"."""
        size = min(self.batch_size, n_rows)
        return replace(self, batch_size=size, learn_beta=learn_beta)  # type: ignore[type-var]

    def can_capture(self, params: Mixture) -> bool:
        """Whether no step needs a device-to-host synchronization, so that a GPU can replay it."""
        return False

    @abstractmethod
    def start(self, params: Mixture) -> SolverState:
        """The state before the first step."""

    @abstractmethod
    def step(
        self, params: Mixture, state: SolverState, stats: Statistics, batch: Batch, share: float
    ) -> tuple[Mixture, SolverState]:
        """One step from the statistics of `batch`, a `share` of all rows, taken at `params`."""

    def end_pass(
        self, params: Mixture, state: SolverState, batch: Batch, n_rows: int
    ) -> tuple[Mixture, SolverState]:
        """What is left to do after the last `batch` of a pass over n_rows."""
        return params, state

    def label_counts(self, state: SolverState, n_rows: float) -> Tensor | None:
        """Label weights of the rows that each component answers for, where the state has them."""
        return None

    def expand_state(self, state: SolverState, params: Mixture, source: Tensor) -> SolverState:
        """The state after growth: memory μ of `params` descends from memory source[μ], (P,)."""
        raise NotImplementedError(f"{type(self).__name__} does not grow")
