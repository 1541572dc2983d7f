"""`Dataset`: what users open and what training takes, with rows in memory or in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import joblib
import numpy as np
import torch
from torch import Tensor

from mnemosphere.base.files import checksum
from mnemosphere.base.warnings import warn_user
from mnemosphere.geometry import Geometry, Unit
from mnemosphere.geometry.base import on_sphere
from mnemosphere.gpu import on_gpu
from mnemosphere.model.batch import Batch
from mnemosphere.rows.encoding import is_frame
from mnemosphere.rows.stored import ALONE, Sums
from mnemosphere.rows.streams import (
    BatchReader,
    FileRows,
    Piece,
    RawRows,
    Streamed,
    ahead,
    open_files,
)
from mnemosphere.rows.tables import MEMORY, Paths

SAMPLED = 1 << 15  # rows at most that starts and "auto" choices look at
_CPU = torch.device("cpu")
_TAKEN_NUMBERS = 1 << 26  # that are copied at a time, of rows that are a part of others
# From rows with their labels, which may be none, to label weights (n, C+1) and weights (n,).
LabelWeights = Callable[[RawRows], tuple[Tensor, Tensor | None]]


class Dataset(ABC):
    """Rows in files or batches, which may be larger than memory.

    Make one with `Dataset.open` or `Dataset.from_batches` and pass it to `fit`, `predict` or `score` in
    place of X. Iterating over it gives batches (x, y, weight) as they are stored.

    Examples
    --------
    >>> np.save("rows.npy", X_train), np.save("labels.npy", y_train)
    (None, None)
    >>> rows = mn.Dataset.open("rows.npy", label="labels.npy")
    >>> clf.fit(rows).classes_
    array([0, 1, 2])
    """

    # label weights (C+1,) of rows without direction, if they are left out of `label_mass`
    mass_set_aside: Tensor | float = 0.0

    @staticmethod
    def open(
        paths: Paths,
        *,
        label: str | Sequence[str] | None = None,
        weight: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        memory: int = MEMORY,
    ) -> FileDataset:
        """Open files of one kind: Parquet, CSV, .npy or .npz.

        Folders of images and data sets by their names are opened too. Columns of any kind are encoded
        as those of a frame; if rows do not fit in `memory`, a random sample sets the categories.

        Parameters
        ----------
        paths : str, path or list of these
            The files, or a pattern such as "rows/*.parquet".
        label : str or list of str, default None
            Column of the labels; for arrays, their file, files or pattern.
        weight : str or list of str, default None
            Column of the sample weights; for arrays, their file, files or pattern.
        features : list of str, default None
            Columns to use; None: all others.
        memory : int, default 256 MiB
            Bytes of rows to hold at a time. Smaller data are read once and treated as arrays.

        Returns
        -------
        Dataset
            The rows.

        Examples
        --------
        >>> X_train.assign(wine=y_train).to_csv("wines.csv", index=False)
        >>> rows = mn.Dataset.open("wines.csv", label="wine")
        >>> rows
        Dataset of 118 rows x 4 in 1 file
        >>> clf.fit(rows).score(rows) > 0.9
        True
        """
        readers = open_files(paths, label, weight, features)
        return FileDataset(FileRows(readers, memory))

    @staticmethod
    def from_batches(
        batches: Callable[[], Iterable[Any]] | Iterable[Any],
        *,
        memory: int = MEMORY,
    ) -> FileDataset:
        """Read rows from anything that can be iterated more than once.

        Parameters
        ----------
        batches : function that returns an iterator, or an iterable such as a torch DataLoader
            Each batch is x, (x, y) or (x, y, weight): arrays or tensors. Rows are shuffled
            within what `memory` holds, so data in order, such as by class, should come shuffled.
        memory : int, default 256 MiB
            Bytes of rows to hold at a time.

        Returns
        -------
        Dataset
            The rows.

        Examples
        --------
        >>> parts = [(X_train.to_numpy()[k::2], y_train.to_numpy()[k::2]) for k in (0, 1)]
        >>> mn.Dataset.from_batches(parts).n_rows
        118
        """
        return FileDataset(FileRows([BatchReader(batches)], memory))

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows, int."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where batches come out."""

    @property
    def n_bytes(self) -> int:
        """Bytes that a pass reads from files, int."""
        return 0

    @abstractmethod
    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        group: Sums = ALONE,
    ) -> Iterator[Batch]:
        """One pass in batches of `size` rows (None: as few as memory allows).

        In random order, drawn from `generator`; in the stored order where that is None. Each process
        of a `group` has a `Part` of each batch, which may have no rows.
        """

    def set_aside(self, n_rows: int) -> None:  # noqa: B027 (rows in memory were counted before)
        """So many rows of a pass had no direction: warn of them, once."""

    @abstractmethod
    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """Random rows, n of them or all: for starts, pilots and curvature."""

    @abstractmethod
    def split(
        self, fraction: float, *, generator: torch.Generator
    ) -> tuple[Dataset, Dataset | None]:
        """(rows to learn from, held-out rows): see `held_out`; None if it holds none."""

    @abstractmethod
    def with_targets(self, change: Callable[[Tensor], Tensor]) -> Dataset:
        """The same rows with other label weights: `change` of those that they have, (B, C+1)."""

    def without_labels(self, n_columns: int) -> Dataset:
        """The same rows with label weights of zero in so many columns."""
        return self.with_targets(lambda q: q.new_zeros(1, n_columns).expand(len(q), -1))

    @abstractmethod
    def has_unlabeled(self) -> bool:
        """Whether some rows have no label at all."""

    @abstractmethod
    def label_mass(self) -> Tensor:
        """Label weights summed over all rows, by class, (C+1,) float64."""


@dataclass(frozen=True)
class Part(Batch):
    """What one process takes of a batch of many."""

    first: int = 0  # the place of its first row in the batch
    lost: int = 0  # rows without direction, which are left out
    n_together: int | None = None  # rows of all processes, if they were divided


@dataclass(frozen=True)
class ArrayDataset(Dataset):
    """Rows on the sphere, held on one device; every process has all of them."""

    whole: Batch
    index: Tensor | None = None  # (n,) the rows that it has of these, in order; None: all
    mass_set_aside: Tensor | float = 0.0

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
        return self.whole.n_rows if self.index is None else len(self.index)

    @property
    def rows(self) -> Batch:
        """All rows, copied if they are a part of others."""
        return self.take(slice(0, self.n_rows))

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.whole.targets.device

    def take(self, rows: Tensor | slice, into: Batch | None = None) -> Batch:
        """Some of the rows, by their places; into: a batch that gets them, if it has the size."""
        if self.index is None and rows == slice(0, self.n_rows):
            return self.whole
        rows = rows if self.index is None else self.index[rows]
        if into is None or isinstance(rows, slice) or len(rows) != into.n_rows:
            return self.whole.take(rows)
        for name in ("x", "targets", "sample_weight"):
            if (values := getattr(self.whole, name)) is not None:
                torch.index_select(values, self.whole.x.ndim - 2, rows, out=getattr(into, name))
        return into

    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        group: Sums = ALONE,
        fill: bool = False,
        into: Callable[[], Batch | None] = lambda: None,
    ) -> Iterator[Batch]:
        """One pass; with `size` None all rows as one batch, but large parts of others in a few.

        fill: in random order, a last batch of at least half the size is filled up with rows of the
        one before. into: what a batch of that size is taken into, asked for each time.
        """
        if size is None or size >= self.n_rows:
            size, generator = max(1, self.n_rows), None
            if self.index is not None:
                size = max(1, _TAKEN_NUMBERS // self.whole.x.shape[1])
        order = None
        if generator is not None:
            order = random_order(self.n_rows, self.device, generator)
        for start in range(0, max(1, self.n_rows), size):
            left = self.n_rows - start
            if fill and order is not None and size > left >= size / 2:
                start, left = self.n_rows - size, size
            n_together = min(size, left)
            own = group.part(n_together)
            part = slice(start + own.start, start + own.stop)
            rows = self.take(part if order is None else order[part], into())
            if group.size > 1:
                rows = Part(
                    rows.x, rows.targets, rows.sample_weight, own.start, n_together=n_together
                )
            yield rows

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """Random rows, n of them or all."""
        if n >= self.n_rows:
            return self.rows
        return self.take(random_order(self.n_rows, self.device, generator)[:n])

    def split(self, fraction: float, *, generator: torch.Generator) -> tuple[Self, Self | None]:
        """(rows to learn from, held-out rows), no row copied."""
        held = held_out(self._targets, fraction, generator=generator)
        if not bool(held.any()):
            return self, None
        parts = (own.nonzero()[:, 0] for own in (~held, held))
        learned, apart = (
            replace(self, index=own if self.index is None else self.index[own]) for own in parts
        )
        return learned, apart

    def with_targets(self, change: Callable[[Tensor], Tensor]) -> ArrayDataset:
        """The same rows with other label weights."""
        return replace(self, whole=replace(self.whole, targets=change(self.whole.targets)))

    def has_unlabeled(self) -> bool:
        """Whether some rows have no label at all."""
        return bool((self._targets.sum(1) == 0).any())

    def label_mass(self) -> Tensor:
        """Label weights summed over all rows, by class, (C+1,) float64."""
        q, weight = self._targets, self.whole.sample_weight
        if weight is None:
            return q.sum(0, dtype=torch.float64)
        weight = weight if self.index is None else weight[self.index]
        return weight.double() @ q.double()

    @property
    def _targets(self) -> Tensor:
        return self.whole.targets if self.index is None else self.whole.targets[self.index]


@dataclass(frozen=True)
class StreamedBatch(ArrayDataset):
    """One batch of a stream, which counts as a set share of a pass over rows without end."""

    share: float = field(default=0.05, kw_only=True)

    @property
    def n_rows(self) -> int:
        """As many rows as a pass would have."""
        return round(self.whole.n_rows / self.share)

    def batches(self, size: int | None, **how: Any) -> Iterator[Batch]:
        """The batch, whatever `size`."""
        return ArrayDataset(self.whole).batches(None, **how)


@dataclass(frozen=True, eq=False)
class FileDataset(Dataset, Streamed):
    """Rows in files, made unit rows with label weights batch by batch.

    As it is opened, rows count as unit rows without labels. `sampled` are random rows on the
    sphere: samples are drawn and rows are held out among those, without another look at the files.
    """

    files: FileRows
    geometry: Geometry = field(default_factory=Unit)
    label: LabelWeights = field(default_factory=lambda: no_labels(1))
    mass: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    partly: bool = True  # whether some rows have no label
    device: torch.device = _CPU
    dtype: torch.dtype = torch.float64
    sampled: ArrayDataset | None = None
    numbers: Tensor | None = None  # (n_sampled,) numbers of the rows that were sampled
    _told: list[int] = field(default_factory=list)  # rows without direction met in the first pass

    def on_sphere(
        self, raw: RawRows, geometry: Geometry, label: LabelWeights, mass: Tensor, *,
        partly: bool, device: torch.device, dtype: torch.dtype,
    ) -> FileDataset:  # fmt: skip
        """The same files, rows put on the sphere in this way; raw: a sample of the rows."""
        found = replace(
            self, geometry=geometry, label=label, mass=mass.to(device), partly=partly,
            device=device, dtype=dtype, _told=[],
        )  # fmt: skip
        return found._with_sample(raw)

    def __repr__(self) -> str:
        n = len(self.files.readers)
        return f"Dataset of {self.n_rows} rows x {self.n_features} in {n} file{'s' * (n > 1)}"

    def __iter__(self) -> Iterator[Piece]:
        """(x, y, weight) of batches in the stored order, as they are stored."""
        yield from map(self.files.given, ahead(self.files.pieces()))

    def read(self) -> Piece:
        """All rows as stored (a frame if columns have names), labels and weights."""
        return self.files.read()

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.files.n_rows

    @property
    def n_features(self) -> int:
        """How many features."""
        return self.files.n_features

    @property
    def fits(self) -> bool:
        """Whether all rows together fit in `memory`."""
        return self.files.fits

    @property
    def n_bytes(self) -> int:
        """Size of the files."""
        return self.files.n_bytes

    def parts(self) -> dict[str, Tensor]:
        """What a checkpoint compares: columns, a checksum of every piece with its labels."""
        about: list[Any] = [self.files.names]
        for raw in ahead(self.files.pieces()):
            told = [None if v is None else v.tolist() for v in (raw.y, raw.weight)]
            frame = joblib.hash(raw.x) if is_frame(raw.x) else None
            parts = raw.rows.parts() if frame is None else {}
            about.append(checksum(parts, {"": repr([*told, frame])}))
        return {"files": torch.frombuffer(bytearray(repr(about).encode()), dtype=torch.uint8)}

    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        group: Sums = ALONE,
    ) -> Iterator[Batch]:
        """One pass, in batches of at most `size` rows and of what memory holds.

        A process has rows of its own, which no other one reads.
        """
        lost = 0
        if group.size > 1:
            own = replace(self, files=self.files.shard(group.rank, group.size))
            each = None if size is None else -(-size // group.size)
            for part in own._placed(each, generator):
                yield replace(part, first=group.rank << 30)
            return
        for part in self._placed(size, generator):
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
            warn_user(
                f"{n_rows} of {self.n_rows} rows are {self.geometry.no_direction}, so they have "
                f"no direction and were set aside{self.geometry.hint}",
            )

    def _placed(self, size: int | None, generator: torch.Generator | None) -> Iterator[Part]:
        """One pass in the batches that are stored, whatever is left of each."""
        seed = None
        if generator is not None:
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        raw = self.files.batches(size, seed)
        batches: Iterator[tuple[Batch, Tensor, int]]
        if on_gpu(self.device):
            batches = map(self._unit_rows, ahead(map(_pinned, raw)))
        else:
            batches = ahead(map(self._unit_rows, raw))
        for batch, _, lost in batches:
            yield Part(batch.x, batch.targets, batch.sample_weight, lost=lost)

    def _unit_rows(self, raw: RawRows) -> tuple[Batch, Tensor, int]:
        """(rows with direction and weight, on the device; which these are; how many had none)."""
        x, lost = on_sphere(raw.rows.on(self.device), self.geometry, self.dtype)
        targets, weight = self.label(raw)
        batch = Batch(x, targets.to(x), None if weight is None else weight.to(x))
        keep = ~lost
        if batch.sample_weight is not None:
            keep = keep & (batch.sample_weight > 0)
        batch = batch if bool(keep.all()) else batch.take(keep)
        return batch, keep, int(lost.sum())

    def _with_sample(self, raw: RawRows) -> FileDataset:
        batch, keep, _ = self._unit_rows(raw)
        return replace(self, sampled=ArrayDataset(batch), numbers=raw.number[keep.cpu()])

    def _sampled(self) -> tuple[FileDataset, ArrayDataset, Tensor]:
        """With a sample of the rows, drawn now if there is none; the sample, their numbers."""
        whole = self
        if self.sampled is None:
            whole = self._with_sample(self.files.sample(SAMPLED, 0))
        assert whole.sampled is not None
        assert whole.numbers is not None
        return whole, whole.sampled, whole.numbers

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """Random rows, n of them or as many as were sampled."""
        return self._sampled()[1].sample(n, generator=generator)

    def split(
        self, fraction: float, *, generator: torch.Generator
    ) -> tuple[FileDataset, ArrayDataset | None]:
        """(rows to learn from, held-out rows): half of those sampled at most."""
        whole, some, numbers = self._sampled()
        share = min(0.5, fraction * self.n_rows / some.n_rows)
        kept, apart = some.split(share, generator=generator)
        if apart is None or apart.index is None:
            return self, None
        files = self.files.without(numbers[apart.index.cpu()])
        mass = self.mass - apart.label_mass()
        return replace(whole, files=files, sampled=kept, mass=mass), apart

    def with_targets(self, change: Callable[[Tensor], Tensor]) -> FileDataset:
        """The same rows with other label weights."""

        def label(raw: RawRows) -> tuple[Tensor, Tensor | None]:
            targets, weight = self.label(raw)
            return change(targets), weight

        whole, some, _ = self._sampled()
        mass = change(self.mass[None])[0]
        return replace(whole, label=label, mass=mass, sampled=some.with_targets(change))

    def label_mass(self) -> Tensor:
        """Label weights summed over all rows, by class, (C+1,) float64."""
        return self.mass

    def has_unlabeled(self) -> bool:
        """Whether some rows have no label at all."""
        return self.partly


def no_labels(n_columns: int) -> LabelWeights:
    """Label weights of zero in so many columns, and the sample weights as they are stored."""

    def label(raw: RawRows) -> tuple[Tensor, Tensor | None]:
        none = torch.zeros(1, n_columns, dtype=torch.float64).expand(len(raw.number), -1)
        return none, stored_weights(raw)

    return label


def stored_weights(raw: RawRows) -> Tensor | None:
    """Sample weights (n,) float64, if the files have them."""
    return None if raw.weight is None else torch.from_numpy(np.array(raw.weight, dtype=np.float64))


def _pinned(raw: RawRows) -> RawRows:
    """In memory that a GPU copies from without waiting."""
    values = raw.rows.values
    return raw._replace(x=values.pin_memory() if values.layout == torch.strided else values)


def held_out(targets: Tensor, fraction: float, *, generator: torch.Generator) -> Tensor:
    """Which rows are held out, (n,) bool: the one hold-out.

    A `fraction` of the labeled rows of each class, in random order, and none of a class with fewer
    than 1/fraction. Where no row has a label, that fraction of all rows.
    """
    n_rows = targets.shape[0]
    order = torch.randperm(n_rows, generator=generator, device=generator.device).to(targets.device)
    labeled = targets.sum(1) > 0
    label = torch.where(labeled, targets.argmax(1), -1)[order]
    if not bool(labeled.any()):
        label = torch.zeros_like(label)
    label, by_class = label.sort(stable=True)
    # Row r of its class, r = 1, 2, …, is held where r·fraction passes a whole number.
    first = torch.searchsorted(label, label)
    rank = (torch.arange(n_rows, device=label.device) - first).double()
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
