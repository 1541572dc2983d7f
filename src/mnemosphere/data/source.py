"""`Dataset`: rows that need not fit in memory, in files or from anything that can be iterated."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mnemosphere.data.ahead import ahead
from mnemosphere.data.iterated import BatchReader
from mnemosphere.data.paths import expand
from mnemosphere.data.readers import Piece, Reader, open_reader
from mnemosphere.data.rows import StoredRows
from mnemosphere.files import checksum
from mnemosphere.model.sparse_rows import SparseRows

MEMORY = 256 << 20
_UNEVEN = 1.25  # the largest shard of whole blocks, in units of the mean
SAMPLED = 1 << 15  # rows at most that starts and "auto" choices look at
_CPU = torch.device("cpu")


class RawRows(NamedTuple):
    """Rows as stored, with what is known of them."""

    rows: StoredRows  # they are called by their place in the whole data set
    y: NDArray[Any] | None
    weight: NDArray[Any] | None

    def take(self, at: Tensor) -> RawRows:
        """Some of the rows."""
        places = at.numpy()
        y, weight = (None if v is None else v[places] for v in (self.y, self.weight))
        return RawRows(self.rows.take(at), y, weight)

    def part(self, first: int, last: int) -> RawRows:
        """Rows that follow each other."""
        whole = first == 0 and last == self.rows.n_rows
        return self if whole else self.take(torch.arange(first, last))

    def without(self, numbers: Tensor) -> RawRows:
        """Those that are not called by these numbers."""
        if len(numbers) == 0 or self.rows.number is None:
            return self
        return self.take((~torch.isin(self.rows.number, numbers)).nonzero()[:, 0])


class Dataset:
    """Rows with labels and weights that are read as they are needed, pass after pass.

    Never more than `memory` bytes of rows are held, give or take what a file calls a block;
    data smaller than that are read once, and treated as if they had been given as arrays.
    """

    def __init__(
        self, readers: Sequence[Reader], *, classes: ArrayLike | None = None, memory: int = MEMORY
    ) -> None:
        self.readers, self.memory = list(readers), int(memory)
        self.classes = None if classes is None else np.unique(np.asarray(classes))
        self.n_features, self.names = self.readers[0].n_features, self.readers[0].names
        self._range = 0, sum(reader.n_rows for reader in self.readers)
        self._left_out = torch.zeros(0, dtype=torch.long)  # in order
        self.noted: dict[str, Any] = {}  # what looks at all rows have told
        self.watch: Callable[[int], None] | None = None  # is told how many rows went by

    def shard(self, rank: int, size: int) -> Self:
        """The rows that process `rank` of `size` reads, which follow each other.

        Whole blocks, so that none is read twice, where they can be shared out evenly; else rows.
        """
        n_rows, ends = self._range[1], [0, *(hi for *_, hi in self._blocks())]
        even = [n_rows * k / size for k in range(size + 1)]
        cuts = [min(ends, key=lambda end, cut=cut: abs(end - cut)) for cut in even]  # type: ignore[misc]
        if max(b - a for a, b in itertools.pairwise(cuts)) > _UNEVEN * n_rows / size:
            cuts = [n_rows * k // size for k in range(size + 1)]
        part = copy.copy(self)
        part.noted = {}
        part._range = cuts[rank], cuts[rank + 1]
        return part

    @classmethod
    def open(
        cls,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        label: str | Sequence[str] | None = None,
        weight: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        classes: ArrayLike | None = None,
        memory: int = MEMORY,
    ) -> Self:
        """Files of one kind: a path, a list of them, or a pattern such as 'rows/*.parquet'.

        Parquet, Arrow (.feather, .arrow), CSV, .npy and IDX, not compressed as a whole. label,
        weight: the column, or for .npy and IDX the file (or files, or pattern) that has them.
        features: the columns to use, numbers or lists of numbers; None: all others. classes: all
        labels there are, which saves a first look at the label column.
        """
        files = expand(paths)
        beside = [_beside(name, files) for name in (label, weight)]
        readers = [
            open_reader(path, one, other, features)
            for path, one, other in zip(files, *beside, strict=True)
        ]
        first = readers[0]
        for reader in readers:
            if reader.n_rows == 0:
                raise ValueError(f"{reader.path} has no rows: leave it out")
            if reader.names != first.names:
                odd = sorted(set(reader.names or []) ^ set(first.names or []))
                what = f"column {odd[0]!r} is in one alone" if odd else "their order differs"
                raise ValueError(
                    f"{reader.path} and {first.path} have other columns ({what}): pass features="
                )
            if reader.n_features != first.n_features:
                raise ValueError(
                    f"{reader.path} has {reader.n_features} features, {first.path} has "
                    f"{first.n_features}: rows must be of one length"
                )
        return cls(readers, classes=classes, memory=memory)

    @classmethod
    def from_batches(
        cls,
        batches: Callable[[], Iterable[Any]] | Iterable[Any],
        *,
        classes: ArrayLike | None = None,
        memory: int = MEMORY,
    ) -> Self:
        """Anything that can be gone through more than once: a function that starts anew each time.

        Or an object like a torch DataLoader. Each batch is x, (x, y) or (x, y, weight), arrays,
        sparse matrices or tensors. Rows are shuffled within what `memory` holds; a data set in
        order, such as by class, should come shuffled.
        """
        return cls([BatchReader(batches)], classes=classes, memory=memory)

    def __repr__(self) -> str:
        return f"Dataset of {self.n_rows} rows x {self.n_features} in {len(self.readers)} files"

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self._range[1] - self._range[0] - len(self._gone(*self._range))

    def without(self, numbers: Tensor) -> Self:
        """The same rows but for those with these numbers, counted over all files."""
        rest = copy.copy(self)
        rest._left_out, rest.noted = torch.cat([self._left_out, numbers]).sort().values, {}
        return rest

    def _gone(self, low: int, high: int) -> Tensor:
        """The numbers of the rows that are left out, of those from low to high."""
        first, last = torch.searchsorted(self._left_out, torch.tensor([low, high])).tolist()
        return self._left_out[first:last]

    def numbers(self) -> Tensor:
        """What the rows of all files are called that are not left out, in order."""
        every = torch.ones(sum(reader.n_rows for reader in self.readers), dtype=torch.bool)
        every[self._left_out] = False
        return every.nonzero()[:, 0]

    @property
    def n_bytes(self) -> int:
        """Size of the files."""
        return sum(reader.n_bytes for reader in self.readers)

    def parts(self) -> dict[str, Tensor]:
        """What tells this data set from others: a checksum of every piece, its labels, weights."""
        about = [[self.names, None if self.classes is None else self.classes.tolist()]]
        for raw in ahead(self.pieces()):
            told = [None if v is None else v.tolist() for v in (raw.y, raw.weight)]
            about.append([checksum(raw.rows.parts(), {"": repr(told)})])
        return {"files": torch.frombuffer(bytearray(repr(about).encode()), dtype=torch.uint8)}

    @property
    def fits(self) -> bool:
        """Whether all rows together fit in `memory`, as float64."""
        return 8 * self.n_rows * self.n_features <= self.memory

    @property
    def batch_rows(self) -> int:
        """Rows of one batch at most: several are held at a time, some of them in float64."""
        return max(64, self.memory // (8 * 16 * max(1, self.n_features)))

    def __iter__(self) -> Iterator[tuple[Any, NDArray[Any] | None, NDArray[Any] | None]]:
        """(x, y, weight) of batches in the stored order."""
        for piece in ahead(self.pieces()):
            x = piece.rows.values
            yield (x if isinstance(x, SparseRows) else x.numpy()), piece.y, piece.weight

    def pieces(
        self, order: Tensor | None = None, *, skip: int = 0, labels_only: bool = False
    ) -> Iterator[RawRows]:
        """The rows piece by piece, checked; blocks of files in that order, or as stored.

        skip: rows to leave out at the beginning; of blocks they fill nothing is read.
        """
        blocks = self._blocks()
        for k in range(len(blocks)) if order is None else order.tolist():
            reader, block, first, number, low, high = blocks[k]
            n_rows = high - low - len(self._gone(low, high))
            if skip >= n_rows:
                skip -= n_rows
                continue
            for piece in reader.read(block, self.batch_rows, labels_only=labels_only):
                raw = _stored(piece, number)
                begin, end = max(low - number, 0), min(high - number, raw.rows.n_rows)
                number += raw.rows.n_rows
                if begin >= end:
                    continue
                gone = self._gone(number - raw.rows.n_rows + begin, number - raw.rows.n_rows + end)
                raw = raw.part(begin, end).without(gone)
                begin, skip = min(skip, raw.rows.n_rows), max(skip - raw.rows.n_rows, 0)
                if begin < raw.rows.n_rows:
                    raw = raw.part(begin, raw.rows.n_rows)
                    _check(raw, reader.path, first, self.names)
                    if self.watch is not None:
                        self.watch(raw.rows.n_rows)
                    yield raw

    def where(self, number: int) -> tuple[Path, int]:
        """The file that has this row, and which of its rows it is."""
        for reader in self.readers:
            if number < reader.n_rows:
                break
            number -= reader.n_rows
        return reader.path, number

    @property
    def n_blocks(self) -> int:
        """How many blocks of rows that follow each other."""
        return len(self._blocks())

    def _blocks(self) -> list[tuple[Reader, int, int, int, int, int]]:
        """(file, block, first rows of file, block and what is wanted of it, end of that)."""
        found, number = [], 0
        for reader in self.readers:
            first = number
            for block, n in enumerate(reader.blocks):
                low, high = max(number, self._range[0]), min(number + n, self._range[1])
                if low < high:
                    found.append((reader, block, first, number, low, high))
                number += n
        return found

    def batches(self, size: int | None, seed: int | None, start: int = 0) -> Iterator[RawRows]:
        """One pass in batches of at most `size` rows; seed None: in the stored order.

        Else blocks in random order fill a window of memory, out of which batches are drawn. The
        first `start` batches are left out.
        """
        size = min(size or self.batch_rows, self.batch_rows)
        if seed is None:
            yield from _gather(self.pieces(skip=start * size), size)
            return
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.n_blocks, generator=generator)
        window = 4 * self.batch_rows
        n_before, start = divmod(start, -(-window // size))
        for _ in range(n_before):  # what was drawn for the windows that are left out
            torch.randperm(window, generator=generator)
        for held in _gather(self.pieces(order, skip=n_before * window), window):
            mixed = torch.randperm(held.rows.n_rows, generator=generator)
            for at in mixed.tensor_split(-(-len(mixed) // size))[start:]:
                yield held.take(at)
            start = 0

    def sample(self, n: int, seed: int, look: Callable[[RawRows], None] | None = None) -> RawRows:
        """Random rows, n of them or all, in their order; one look at all rows, which `look` sees.

        Of a shard: those of the whole that are its own.
        """
        kept = self.numbers()
        at = kept[torch.randperm(len(kept), generator=torch.Generator().manual_seed(seed))[:n]]
        at = at.sort().values
        found: list[RawRows] = []
        for raw in ahead(self.pieces()):
            if look is not None:
                look(raw)
            number = raw.rows.number
            assert number is not None
            here = torch.searchsorted(number, at[(at >= number[0]) & (at <= number[-1])])
            if len(here) or not found:
                found.append(raw.take(here))
        return join_rows(found)

    def read(self) -> tuple[Any, NDArray[Any] | None, NDArray[Any] | None]:
        """All rows (a frame where features have names), labels and weights."""
        raw = next(_gather(self.pieces(), self.n_rows + 1))
        x: Any = raw.rows.values
        if isinstance(x, SparseRows):
            return x.to_scipy(), raw.y, raw.weight
        x = x.numpy()
        if self.names is not None and len(self.names) == x.shape[1]:
            import pandas as pd

            x = pd.DataFrame(x, columns=self.names)
        return x, raw.y, raw.weight

    def chunks_on(self, device: torch.device) -> _Chunks:
        """The rows as `Normalizer.fit` looks at them."""
        return _Chunks(self, device)


class _Chunks:
    """The part of `StoredRows` that a look at all rows needs: `normalize.Chunks`."""

    def __init__(self, source: Dataset, device: torch.device) -> None:
        self.device, self._source = device, source
        self.n_rows, self.n_features = source.n_rows, source.n_features

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        first = 0
        for raw in ahead(self._source.pieces()):
            last = first + raw.rows.n_rows
            yield slice(first, last), raw.rows.values.to(self.device).double()
            first = last


def _stored(piece: Piece, number: int) -> RawRows:
    x = piece.x if len(piece.x.shape) == 2 else piece.x.reshape(piece.x.shape[0], -1)
    rows = StoredRows.of(x, _CPU)
    called = torch.arange(number, number + rows.n_rows)
    return RawRows(StoredRows(rows.values.cpu(), _CPU, called), piece.y, piece.weight)


def _check(raw: RawRows, path: Path, first: int, names: Sequence[str] | None) -> None:
    """ValueError names the file and the row of a number that is none, or of a bad weight."""
    assert raw.rows.number is not None
    place = raw.rows.number - first
    here = StoredRows(raw.rows.values, _CPU, place)
    try:
        here.check_finite(names if names and len(names) == raw.rows.n_features else None)
    except ValueError as error:
        raise ValueError(f"{path}: {error}".replace(" of X ", " ")) from error
    if raw.weight is not None:
        weight = np.asarray(raw.weight, dtype=np.float64)
        bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
        if bad.size:
            raise ValueError(f"{path}: row {int(place[bad[0]])} has the weight {weight[bad[0]]}")


def _gather(pieces: Iterator[RawRows], n_rows: int) -> Iterator[RawRows]:
    """The same rows in pieces of n_rows; the last one may have fewer."""
    held: list[RawRows] = []
    n = 0  # rows held
    for piece in pieces:
        first, last = 0, piece.rows.n_rows
        while n + last - first >= n_rows:
            stop = first + n_rows - n
            yield join_rows([*held, piece.part(first, stop)])
            held, n, first = [], 0, stop
        if first < last:
            held.append(piece.part(first, last))
            n += last - first
    if held:
        yield join_rows(held)


def join_rows(parts: Sequence[RawRows]) -> RawRows:
    """All rows of the parts, in their order."""
    if len(parts) == 1:
        return parts[0]
    tables = [p.rows.values for p in parts]
    sparse = [t for t in tables if isinstance(t, SparseRows)]
    values = SparseRows.cat(sparse) if sparse else torch.cat(tables)
    number = torch.cat([p.rows.number for p in parts if p.rows.number is not None])
    y, weight = (
        None if getattr(parts[0], name) is None
        else np.concatenate([getattr(p, name) for p in parts])
        for name in ("y", "weight")
    )  # fmt: skip
    return RawRows(StoredRows(values, _CPU, number), y, weight)


def _beside(name: str | Sequence[str] | None, files: list[Path]) -> list[str | None]:
    """One column name, or one file of labels, for each file."""
    if name is None:
        return [None] * len(files)
    if isinstance(name, str) and not files[0].name.lower().endswith(".npy") and (
        "ubyte" not in files[0].name.lower()
    ):  # fmt: skip
        return [name] * len(files)
    found = [str(path) for path in expand(name)]
    if len(found) != len(files):
        raise ValueError(f"{len(found)} files of labels or weights for {len(files)} files of rows")
    return [*found]
