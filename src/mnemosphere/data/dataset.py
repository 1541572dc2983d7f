"""Where rows lie: the one thing that training knows of data, and rows held in memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.sparse_rows import SparseRows


@dataclass
class Cursor:
    """How far a pass has come, in batches as they are stored; a pass can start from there."""

    batches: int = 0

    def starts(self, n_rows: int, size: int) -> Iterator[int]:
        """First rows of the batches to come, each counted before it is handed out."""
        while (start := self.batches * size) < n_rows:
            self.batches += 1
            yield start


class Batches(Protocol):
    """Something to go through in passes."""

    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        cursor: Cursor | None = None,
    ) -> Iterator[Batch]:
        """One pass in batches of `size` rows (None: as few as memory allows).

        In random order, drawn from `generator`; in the stored order where that is None. The batches
        that `cursor` has are left out, and it counts those to come.
        """
        ...


class Dataset(Batches, Protocol):
    """Unit rows with label weights and sample weights, wherever they lie."""

    @property
    def n_rows(self) -> int:
        """How many rows."""
        ...

    @property
    def device(self) -> torch.device:
        """Where batches come out."""
        ...

    @property
    def n_bytes(self) -> int:
        """What a pass reads from files."""
        ...

    def shard(self, rank: int, size: int) -> Batches:
        """What process `rank` of `size` goes through, together all rows: batches may be empty.

        `size` of a batch is that of all processes together.
        """
        ...

    def set_aside(self, n_rows: int) -> None:
        """So many rows of a pass had no direction: warn of them, once."""
        ...

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """Random rows, n of them or all: for starts, pilots and curvature."""
        ...

    def split(
        self, fraction: float, *, generator: torch.Generator
    ) -> tuple[Dataset, Dataset | None]:
        """(rows to learn from, rows to judge by): see `held_out`; None where it holds none."""
        ...

    def with_targets(self, change: Callable[[Tensor], Tensor]) -> Dataset:
        """The same rows with other label weights: `change` of those that they have, (B, C+1)."""
        ...

    def has_unlabeled(self) -> bool:
        """Whether some rows have no label at all."""
        ...

    def label_mass(self) -> Tensor:
        """Label weights summed over all rows, by class, (C+1,) float64."""
        ...

    def checksum(self) -> str:
        """The same for the same rows, on every device: what a checkpoint knows its data by."""
        ...


@dataclass(frozen=True)
class Part(Batch):
    """What one process takes of a batch of many."""

    first: int = 0  # the place of its first row in the batch
    lost: int = 0  # rows without direction, which are left out
    whole: Batch | None = None  # the batch, where this process has it


class Picked(Batch):
    """Rows of a batch that are taken out of it when they are first looked at."""

    _source: Batch
    _rows: Tensor

    def __init__(self, source: Batch, rows: Tensor) -> None:
        self.__dict__.update(_source=source, _rows=rows)

    @cached_property
    def taken(self) -> Batch:
        """The rows, taken out."""
        return self._source.take(self._rows)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return len(self._rows)

    @property
    def kind(self) -> type[Tensor]:
        """Of tensor, dense or sparse."""
        return self._source.kind

    @property
    def x(self) -> Tensor:
        """Unit rows."""
        return self.taken.x

    @property
    def targets(self) -> Tensor:
        """Their label weights."""
        return self.taken.targets

    @property
    def sample_weight(self) -> Tensor | None:
        """Their sample weights, where they differ."""
        return None if self._source.sample_weight is None else self.taken.sample_weight

    def copy_to(self, there: Batch) -> None:
        """Take the rows out into a batch of their size."""
        source, rows = self._source, self._rows
        pairs = [(source.x, there.x), (source.targets, there.targets)]
        if source.sample_weight is not None and there.sample_weight is not None:
            pairs.append((source.sample_weight, there.sample_weight))
        for whole, own in pairs:
            torch.index_select(whole, 0, rows, out=own)

    def part(self, rows: slice) -> Batch:
        """Some of the rows, without looking at the others."""
        return self._source.take(self._rows[rows])


@dataclass(frozen=True)
class Shard:
    """Of data that every process holds, its part of each batch."""

    dataset: InMemory
    rank: int
    size: int

    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        cursor: Cursor | None = None,
    ) -> Iterator[Batch]:
        """The same batches for all processes, in parts."""
        for batch in self.dataset.picked(size, generator=generator, cursor=cursor):
            part = slice(*(batch.n_rows * k // self.size for k in (self.rank, self.rank + 1)))
            rows = batch.part(part) if isinstance(batch, Picked) else batch.take(part)
            yield Part(rows.x, rows.targets, rows.sample_weight, part.start, whole=batch)


class InMemory(Batches):
    """What data that every process holds have in common."""

    @property
    def n_bytes(self) -> int:
        """No file is read in a pass."""
        return 0

    def shard(self, rank: int, size: int) -> Shard:
        """What process `rank` of `size` goes through: a part of each batch."""
        return Shard(self, rank, size)

    def picked(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None,
        cursor: Cursor | None,
        fill: bool = False,
    ) -> Iterator[Batch]:
        """`batches`, whose rows are taken out only when they are looked at.

        fill: in random order, a last batch of at least half the size is filled up with rows of the
        one before.
        """
        return self.batches(size, generator=generator, cursor=cursor)

    def set_aside(self, n_rows: int) -> None:
        """None is met in a pass."""


@dataclass(frozen=True)
class ArrayDataset(InMemory):
    """Rows on the sphere, held on one device."""

    rows: Batch

    @classmethod
    def of(cls, x: Tensor, targets: Tensor, sample_weight: Tensor | None = None) -> Self:
        """From unit rows; those of no weight are left out, a batch of them would have no mean."""
        rows = Batch(x, targets, sample_weight)
        if sample_weight is not None and not bool((sample_weight > 0).all()):
            rows = rows.take(sample_weight > 0)
        return cls(rows)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.rows.n_rows

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.rows.x.device

    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        cursor: Cursor | None = None,
    ) -> Iterator[Batch]:
        """One pass; all rows as one batch where `size` is None."""
        for batch in self.picked(size, generator=generator, cursor=cursor):
            yield batch.taken if isinstance(batch, Picked) else batch

    def picked(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None,
        cursor: Cursor | None,
        fill: bool = False,
    ) -> Iterator[Batch]:
        """`batches`, whose rows are taken out only when they are looked at."""
        cursor = cursor or Cursor()
        if size is None or size >= self.n_rows:
            yield from (self.rows for _ in cursor.starts(1, 1))
            return
        order = None if generator is None else self._order(generator)
        for start in cursor.starts(self.n_rows, size):
            left = self.n_rows - start
            if fill and order is not None and size > left >= size / 2:
                start = self.n_rows - size
            part = slice(start, start + size)
            yield self.rows.take(part) if order is None else Picked(self.rows, order[part])

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """Random rows, n of them or all."""
        return self.rows if n >= self.n_rows else self.rows.take(self._order(generator)[:n])

    def split(
        self, fraction: float, *, generator: torch.Generator, turn: int = 0
    ) -> tuple[Self, Self | None]:
        """(rows to learn from, rows to judge by); turns: see `held_out`."""
        held = held_out(self.rows.targets, fraction, generator=generator, turn=turn)
        if not bool(held.any()):
            return self, None
        return type(self)(self.rows.take(~held)), type(self)(self.rows.take(held))

    def with_targets(self, change: Callable[[Tensor], Tensor]) -> ArrayDataset:
        """The same rows with other label weights."""
        return ArrayDataset(replace(self.rows, targets=change(self.rows.targets)))

    def without_labels(self, n_columns: int) -> ArrayDataset:
        """The same rows with label weights of zero in so many columns."""
        none = self.rows.targets.new_zeros(1, n_columns).expand(self.rows.n_rows, -1)
        return ArrayDataset(Batch(self.rows.x, none, self.rows.sample_weight))

    def has_unlabeled(self) -> bool:
        """Whether some rows have no label at all."""
        return bool((self.rows.targets.sum(1) == 0).any())

    def label_mass(self) -> Tensor:
        """Label weights summed over all rows, by class, (C+1,) float64."""
        q, weight = self.rows.targets, self.rows.sample_weight
        if weight is None:
            return q.sum(0, dtype=torch.float64)
        return weight.double() @ q.double()

    def checksum(self) -> str:
        """CRC of the bytes of everything."""
        x = self.rows.x
        parts = [*(x.parts if isinstance(x, SparseRows) else [x]), self.rows.targets,
                 self.rows.sample_weight]  # fmt: skip
        sums = [zlib.crc32(t.cpu().contiguous().numpy().data) for t in parts if t is not None]
        return f"{tuple(self.rows.x.shape)} {sums}"

    def _order(self, generator: torch.Generator) -> Tensor:
        return random_order(self.rows.n_rows, self.device, generator)


def is_dense_array(dataset: Dataset) -> bool:
    """Whether rows are there as one dense array."""
    return isinstance(dataset, ArrayDataset) and not isinstance(dataset.rows.x, SparseRows)


@dataclass(frozen=True)
class StreamedBatch(ArrayDataset):
    """One batch of a stream, which counts as a set share of a pass over rows without end."""

    share: float = 0.05

    @property
    def n_rows(self) -> int:
        """As many rows as a pass would have."""
        return round(self.rows.n_rows / self.share)

    def picked(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None,
        cursor: Cursor | None,
        fill: bool = False,
    ) -> Iterator[Batch]:
        """The batch, whatever `size`."""
        return super().picked(None, generator=None, cursor=cursor)


def held_out(
    targets: Tensor, fraction: float, *, generator: torch.Generator, turn: int = 0
) -> Tensor:
    """Which rows to judge by, (n,) bool: the one hold-out.

    A `fraction` of the labeled rows of each class, in random order, and none of a class with fewer
    than 1/fraction. Where no row has a label, that fraction of all rows. With the generator in the
    same state, turns 0 to ⌊1/fraction⌋ − 1 hold different rows, as many each.
    """
    n_rows = targets.shape[0]
    order = torch.randperm(n_rows, generator=generator, device=generator.device).to(targets.device)
    labeled = targets.sum(1) > 0
    label = torch.where(labeled, targets.argmax(1), -1)[order]
    if not bool(labeled.any()):
        label = torch.zeros_like(label)
    label, by_class = label.sort(stable=True)
    # Row r of its class, r = 1, 2, …, is held where r·fraction passes a whole number.
    first, end = (torch.searchsorted(label, label, right=right) for right in (False, True))
    rank = (torch.arange(n_rows, device=label.device) - first - turn) % (end - first)
    rank = rank.double()
    chosen = (((rank + 1) * fraction).floor() > (rank * fraction).floor()) & (label >= 0)
    held = torch.zeros_like(chosen)
    held[order[by_class[chosen]]] = True
    return held


def random_order(n: int, device: torch.device, generator: torch.Generator) -> Tensor:
    """A permutation of n rows, (n,), drawn on the device that they are on."""
    if device.type == "cpu":
        return torch.randperm(n, generator=generator)
    # One number from the run's generator seeds another there.
    seed = torch.randint(2**62, (), generator=generator, device=generator.device)
    there = torch.Generator(device).manual_seed(int(seed))
    return torch.randperm(n, generator=there, device=device)
