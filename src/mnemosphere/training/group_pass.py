"""A pass of several processes: each adds up its own rows, rank 0 takes the step for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import torch

from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import Statistics, accumulate
from mnemosphere.training import distributed
from mnemosphere.training.callbacks import Run
from mnemosphere.training.dataset import Dataset, Part
from mnemosphere.training.distributed import Group
from mnemosphere.training.steps import CHANGING, Steps

_ROUND = 64  # batches of a pass for one exact step, between two sums over the processes


def share_run(group: Group, run: Run) -> None:
    """Give every process the run of rank 0: its start, or that of a checkpoint."""
    names = ("params", "best", "state", "best_loss", "waited", "history")
    found, drawn = group.broadcast(
        ({name: getattr(run, name) for name in names}, run.generator.get_state())
    )
    for name, value in found.items():
        setattr(run, name, value)
    run.generator.set_state(drawn)


class GroupSteps(Steps):
    """Parameters on every process; the solver's state, the sums and the loss on rank 0."""

    def one_pass(self, dataset: Dataset, generator: torch.Generator) -> Iterator[tuple[int, bool]]:
        """As for one process, in rounds of one batch each, or of many for one step per pass.

        A process that has no batch left takes part with none, until nobody has.
        """
        group, size = distributed.current(), self._rows_per_step(dataset)
        batches = dataset.batches(size, generator=None if size is None else generator, group=group)
        batch = next(batches, None)
        seeds: Batch | None = None  # rows to which a step on some rows may move dead memories
        start: Batch | None = None  # those of a process that has none
        every: Statistics | None = None  # for one step
        lost, more, length = 0, True, _ROUND if size is None else 1
        while more:
            # Drawn by all, those without a batch too: their generators stay in step.
            seed = 0 if self._noise is None else self._noise.seed(generator)
            if group.first and size is not None:
                # Nothing of the batches before: after a restart they are not known.
                seeds = batch
                if seeds is None or seeds.n_rows == 0:
                    seeds = start = start or next(dataset.batches(None))
            own, taken = Statistics.none(self._params), torch.zeros(3, dtype=torch.float64)
            for place in range(length):
                if batch is None:
                    break
                own += self._part(batch, seed + (place << 40))
                taken += torch.tensor([batch.n_rows, getattr(batch, "lost", 0), 0])
                batch = next(batches, None)
            taken[2] = batch is not None
            *sums, taken = group.sum(*(getattr(own, f.name) for f in fields(own)), taken)
            rows, n_lost, left = map(round, taken.tolist())
            if size is None:
                stats = Statistics(*sums)
                every = stats if every is None else every + stats
            elif rows:
                if seeds is not None:
                    self._take_step(Statistics(*sums), seeds, rows / dataset.n_rows)
                self._broadcast_parameters()
            lost, more = lost + n_lost, left > 0
            yield rows, more
        if group.first:
            if every is not None:
                self.step_on_all(every, next(dataset.batches(None)))
            elif seeds is not None:
                self.end_pass(seeds, dataset.n_rows)
            dataset.set_aside(lost)
        self._broadcast_parameters()

    def _part(self, batch: Batch, seed: int) -> Statistics:
        """The statistics of rows of this process."""
        if self._noise is not None:
            first, total = (batch.first, batch.n_together) if isinstance(batch, Part) else (0, None)
            drawn = self._noise.generators(batch.x, seed, first)
            batch = replace(batch, x=self._noise.apply(batch.x, drawn, first, total))
        return accumulate(self._params, batch, self._rule)

    def _broadcast_parameters(self) -> None:
        mine = (getattr(self._params, name) for name in CHANGING)
        found = distributed.current().broadcast_tensors(*mine)
        self._params = self._params.replace(**dict(zip(CHANGING, found, strict=True)))
