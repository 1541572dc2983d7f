"""What the loop hands to a solver: rows in batches, and the solver protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mnemosphere.model.kernel import Statistics
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.streams import aside

# A solver's memory between steps: named tensors, so that a checkpoint can hold it.
State = dict[str, Tensor]


class Batch(NamedTuple):
    """Some rows of the data."""

    x: Tensor  # (B, N)
    targets: Tensor  # (B, C+1)
    sample_weight: Tensor | None  # (B,)
    share: float  # B / rows of the whole data


@dataclass(frozen=True)
class Data:
    """Unit rows, label weights and optional sample weights."""

    x: Tensor  # (n, N)
    targets: Tensor  # (n, C+1)
    sample_weight: Tensor | None = None  # (n,)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.x.shape[0]

    def take(self, rows: Tensor | slice) -> Data:
        """A subset of the rows."""
        with aside(lane=2):  # needed only after the first product with x
            targets = self.targets[rows]
            weight = None if self.sample_weight is None else self.sample_weight[rows]
        return Data(self.x[rows], targets, weight)

    def split_tail(self, fraction: float) -> tuple[Data, Data]:
        """(all but the tail, the last `fraction` of the rows): the paper's validation split."""
        n_tail = round(fraction * self.n_rows)
        if not 0 < n_tail < self.n_rows:
            raise ValueError(
                f"validation fraction {fraction} of {self.n_rows} rows leaves one side empty: "
                "pass more rows or another fraction"
            )
        cut = self.n_rows - n_tail
        return self.take(slice(0, cut)), self.take(slice(cut, None))


def row_batches(
    n_rows: int, batch_size: int | None, generator: torch.Generator, device: torch.device
) -> Iterator[Tensor | None]:
    """One pass over the rows in random order; None, for all at once, where batch_size is None."""
    if batch_size is None or batch_size >= n_rows:
        yield None
        return
    order = torch.randperm(n_rows, generator=generator, device=generator.device).to(device)
    for start in range(0, n_rows, batch_size):
        yield order[start : start + batch_size]


class Solver(Protocol):
    """A pure step: parameters and state in, parameters and state out."""

    @property
    def batch_size(self) -> int | None:
        """Rows a step; None for all of them."""
        ...

    @property
    def capturable(self) -> bool:
        """Whether a step never asks the device for a number, so that a GPU can replay it."""
        ...

    def check_rule(self, rule: LabelRule) -> None:
        """Raise ValueError where the objective is not for this solver."""
        ...

    def start(self, params: Parameters) -> State:
        """The state before the first step."""
        ...

    def step(
        self, params: Parameters, state: State, stats: Statistics, batch: Batch
    ) -> tuple[Parameters, State]:
        """One step from the statistics of `batch` at `params`."""
        ...

    def follow(self, state: State, params: Parameters, source: Tensor) -> State:
        """The state after growth: memory μ of `params` descends from memory source[μ], (P,)."""
        ...
