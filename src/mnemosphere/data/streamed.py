"""A `source.Dataset` as training sees it: unit rows with label weights, made batch by batch."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.ahead import ahead
from mnemosphere.data.dataset import ArrayDataset, Cursor, Part, held_out
from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from mnemosphere.data.source import Dataset, RawRows
from mnemosphere.model.batch import Batch

# From the labels of some rows, which may be none, to label weights (n, C+1) and weights (n,).
LabelWeights = Callable[[NDArray[Any] | None, RawRows], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class SourceDataset:
    """Rows that pass by: see `data.dataset.Dataset`.

    `sampled` are some of them on the sphere, random ones: samples are drawn and rows are held out
    among those, which takes no further look at the files.
    """

    source: Dataset
    normalizer: Normalizer
    label: LabelWeights
    mass: Tensor  # (C+1,) label weights summed over all rows
    partly: bool  # whether some rows have no label
    device: torch.device
    dtype: torch.dtype
    sampled: ArrayDataset
    numbers: Tensor  # (n_sampled,) what the sampled rows are called, in order
    n_rows: int
    left_out: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    _told: list[int] = field(default_factory=list)  # rows without direction met in the first pass

    @property
    def n_bytes(self) -> int:
        """Size of the files."""
        return self.source.n_bytes

    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        cursor: Cursor | None = None,
    ) -> Iterator[Batch]:
        """One pass, in batches of at most `size` rows and of what memory holds."""
        lost = 0
        for part in self.placed(size, generator, cursor or Cursor()):
            lost += part.lost
            if part.n_rows:
                yield part
        self.set_aside(lost)

    def set_aside(self, n_rows: int) -> None:
        """So many rows of a pass had no direction: warn of them, once."""
        if self._told:
            return
        self._told.append(n_rows)
        if n_rows:
            warnings.warn(
                f"{n_rows} of {self.source.n_rows} rows have no direction (all zeros, or "
                "constant where rows are centered) and were set aside; "
                "normalize='standard' would keep them",
                UserWarning,
                stacklevel=2,
            )

    def shard(self, rank: int, size: int) -> SourceShard:
        """What process `rank` of `size` reads: rows of its own."""
        own = replace(self, source=self.source.shard(rank, size))
        return SourceShard(own, rank, size)

    def placed(
        self, size: int | None, generator: torch.Generator | None, cursor: Cursor
    ) -> Iterator[Part]:
        """One pass in the batches that are stored, whatever is left of each."""
        seed = None
        if generator is not None:
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        raw = self.source.batches(size, seed, cursor.batches)
        batches: Iterator[Part]
        if self.device.type == "cuda":
            batches = (self._batch(part) for part in ahead(map(_pinned, raw)))
        else:
            batches = ahead(self._batch(part) for part in raw)
        for batch in batches:
            cursor.batches += 1
            yield batch

    def _batch(self, raw: RawRows) -> Part:
        """Unit rows with what is known of them."""
        found = put_on_sphere(raw, self.normalizer, self.label, self.device, self.dtype)
        keep = ~found.lost
        if found.batch.sample_weight is not None:
            keep &= found.batch.sample_weight > 0
        if len(self.left_out):
            keep &= ~torch.isin(found.number, self.left_out).to(keep.device)
        batch = found.batch if bool(keep.all()) else found.batch.take(keep)
        return Part(batch.x, batch.targets, batch.sample_weight, lost=int(found.lost.sum()))

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """Random rows, n of them or as many as were sampled."""
        return self.sampled.sample(n, generator=generator)

    def split(
        self, fraction: float, *, generator: torch.Generator
    ) -> tuple[SourceDataset, ArrayDataset | None]:
        """(rows to learn from, rows to judge by): half of those sampled at most."""
        share = min(0.5, fraction * self.n_rows / self.sampled.n_rows)
        held = held_out(self.sampled.rows.targets, share, generator=generator)
        if not bool(held.any()):
            return self, None
        rows = self.sampled.rows
        judged, kept = ArrayDataset(rows.take(held)), ArrayDataset(rows.take(~held))
        held = held.cpu()
        rest = replace(
            self,
            sampled=kept,
            numbers=self.numbers[~held],
            n_rows=self.n_rows - judged.n_rows,
            mass=self.mass - judged.label_mass(),
            left_out=torch.cat([self.left_out, self.numbers[held]]),
        )
        return rest, judged

    def with_targets(self, change: Callable[[Tensor], Tensor]) -> SourceDataset:
        """The same rows with other label weights."""

        def label(y: NDArray[Any] | None, raw: RawRows) -> tuple[Tensor, Tensor | None]:
            targets, weight = self.label(y, raw)
            return change(targets), weight

        return replace(self, label=label, sampled=self.sampled.with_targets(change))

    def without_labels(self, n_columns: int) -> SourceDataset:
        """The same rows with label weights of zero in so many columns."""

        def label(y: NDArray[Any] | None, raw: RawRows) -> tuple[Tensor, Tensor | None]:
            return _no_labels(raw.rows.n_rows, n_columns), self.label(y, raw)[1]

        mass = self.mass.new_zeros(n_columns)
        return replace(self, label=label, mass=mass, sampled=self.sampled.without_labels(n_columns))

    def label_mass(self) -> Tensor:
        """Label weights summed over all rows, by class, (C+1,) float64."""
        return self.mass

    def has_unlabeled(self) -> bool:
        """Whether some rows have no label at all."""
        return self.partly

    def checksum(self) -> str:
        """Sizes of the files, and the bytes of the sampled rows."""
        files = [reader.n_bytes for reader in self.source.readers]
        held = zlib.crc32(self.left_out.numpy().data)
        return f"{files} {held} {self.sampled.checksum()}"


@dataclass(frozen=True)
class SourceShard:
    """What one process reads, in as many batches as all of them have."""

    dataset: SourceDataset  # of its own rows
    rank: int
    size: int

    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        cursor: Cursor | None = None,
    ) -> Iterator[Part]:
        """One pass; `size` is that of all processes together."""
        own = None if size is None else -(-size // self.size)
        for part in self.dataset.placed(own, generator, cursor or Cursor()):
            yield replace(part, first=self.rank << 30)


@dataclass(frozen=True)
class _Placed:
    batch: Batch
    lost: Tensor
    number: Tensor


def put_on_sphere(
    raw: RawRows,
    normalizer: Normalizer,
    label: LabelWeights,
    device: torch.device,
    dtype: torch.dtype,
) -> _Placed:
    """Raw rows as a batch on the device; which of them have no direction; what they are called."""
    stored = StoredRows(raw.rows.values, device, raw.rows.number)
    x, lost = on_sphere(stored, normalizer, dtype)
    targets, weight = label(raw.y, raw)
    batch = Batch(x, targets.to(x), None if weight is None else weight.to(x))
    assert raw.rows.number is not None
    return _Placed(batch, lost, raw.rows.number)


def _no_labels(n_rows: int, n_columns: int) -> Tensor:
    return torch.zeros(1, n_columns, dtype=torch.float64).expand(n_rows, -1)


def _pinned(raw: RawRows) -> RawRows:
    """In memory that a GPU copies from without waiting."""
    values = raw.rows.values
    pinned = values.pin_memory() if values.layout == torch.strided else values
    return raw._replace(rows=StoredRows(pinned, raw.rows.device, raw.rows.number))
