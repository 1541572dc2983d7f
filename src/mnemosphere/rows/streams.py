"""Rows in files, read a piece at a time: the kind of rows that memory need not hold.

Parquet and CSV files are read by pyarrow, arrays by NumPy, and anything else that can be
iterated more than once comes as batches. A file has blocks of rows (row groups, slices of an
array), which are read in any order. A CSV file, and batches, are one block.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.machine import need
from mnemosphere.model.batch import take_rows
from mnemosphere.rows.encoding import Encoding, check_names, is_frame, listed
from mnemosphere.rows.odds import in_folds
from mnemosphere.rows.stored import StoredRows
from mnemosphere.rows.tables import (
    TABLES,
    Dialect,
    Paths,
    check_alike,
    check_rows,
    expand,
    read_labels,
    read_table,
    readable,
    suffix_of,
)

_BLOCK_BYTES = 1 << 20  # of a file, read at once
_UNEVEN = 1.25  # the largest shard of whole blocks, in units of the mean
_CPU = torch.device("cpu")
_T = TypeVar("_T")
_END: Any = object()


def ahead(items: Iterator[_T]) -> Iterator[_T]:
    """The same items; another thread makes the next one while one is worked on."""
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = other.submit(next, items, _END)
            yield item


# Readers: one for each file.


class Piece(NamedTuple):
    """Rows that follow each other."""

    x: Any  # (n, N): a frame, an array, a sparse matrix or a tensor
    y: NDArray[Any] | None = None
    weight: NDArray[Any] | None = None


Apart = tuple[str | None, str | None]  # labels and weights: columns, or files beside an array


class Reader(ABC):
    """One file, read a block at a time."""

    names: list[str] | None = None  # of the columns
    n_features: int
    blocks: list[int]  # rows of each

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stat = self._look()

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return sum(self.blocks)

    @property
    def n_bytes(self) -> int:
        """What a pass reads."""
        return self._stat[0]

    def _look(self) -> tuple[int, int]:
        if not self.path.is_file():
            return 1, 0  # a folder, or a name
        stat = self.path.stat()
        return stat.st_size, stat.st_mtime_ns

    def read(self, block: int, piece_rows: int, *, labels_only: bool = False) -> Iterator[Piece]:
        """The rows of a block in pieces; ValueError if the file is gone, changed or damaged."""
        with readable(self.path):
            if self._look() != self._stat:
                known = self.path.exists()
                raise ValueError("it has changed since it was opened" if known else "it is gone")
            yield from self._read(block, piece_rows, labels_only)

    @abstractmethod
    def _read(self, block: int, piece_rows: int, labels_only: bool) -> Iterator[Piece]:
        """The rows of a block, in pieces as large as they come."""


class _ArrayReader(Reader):
    """An array (n, …), labels and weights beside it: a .npy file, of which any rows are read.

    Or all that is held: .npz, folders of images, data sets by their names.
    """

    def __init__(self, path: Path, apart: Apart, features: list[str] | None) -> None:
        super().__init__(path)
        if features is not None:
            raise ValueError("it has no names of columns: leave features away")
        self._held, labels = None, None
        if suffix_of(path) != ".npy":
            table = read_table(str(path))
            self._held, labels, self.names = table.x, table.y, table.columns or None
        x = self._values()
        n, self.n_features = len(x), int(np.prod(x.shape[1:]))
        given = zip(apart, (labels, None), strict=True)
        self._beside = [own if name is None else read_labels(Path(name), n) for name, own in given]
        n_bytes = 8 if is_frame(x) else x.dtype.itemsize  # of a number
        self._step = max(1, _BLOCK_BYTES // max(1, self.n_features * n_bytes))
        self.blocks = [min(self._step, n - first) for first in range(0, n, self._step)]

    def _values(self) -> Any:
        """Mapped for a block at a time, since its pages count as memory in use."""
        if self._held is not None:
            return self._held
        return check_rows(np.load(self.path, mmap_mode="r", allow_pickle=False))

    def _read(self, block: int, piece_rows: int, labels_only: bool) -> Iterator[Piece]:
        first = block * self._step
        rows = slice(first, first + self.blocks[block])
        x = np.empty((self.blocks[block], 0)) if labels_only else self._values()[rows].copy()
        yield Piece(x, *(None if values is None else values[rows] for values in self._beside))


class _ArrowReader(Reader):
    """A file with named columns: Parquet by row groups, CSV as a whole.

    By the readers of pyarrow for each format: a scanner of `pyarrow.dataset` holds whole row
    groups.
    """

    names: list[str]

    def __init__(self, path: Path, apart: Apart, features: list[str] | None) -> None:
        super().__init__(path)
        self._apart, beside = apart, [name for name in apart if name is not None]
        self._types: dict[str, Any] = {}  # of CSV
        file = self._open()
        schema = _schema(file)
        given = [str(name) for name in schema.names]
        check_names(given, str(path))
        own = [n for n in _names(schema) if n not in beside]
        self.names = own if features is None else features
        missing = sorted({*self.names, *beside} - {*given})
        if missing:
            raise ValueError(f"no column {listed(missing)}: it has {', '.join(given[:20])}")
        self._columns = beside, [*self.names, *beside]  # of labels alone, and all
        if hasattr(file, "num_row_groups"):
            about = file.metadata
            self.blocks = [about.row_group(k).num_rows for k in range(file.num_row_groups)]
        else:
            pa = need("pyarrow")
            # Whole numbers may turn out to be fractions further down.
            self._types = {
                f.name: pa.float64() if f.name in self.names and pa.types.is_integer(f.type)
                else f.type for f in schema
            }  # fmt: skip
            self.blocks = [sum(batch.num_rows for batch in self._open())]
        self.n_features = len(self.names)
        if self.n_rows:
            full = next(k for k, n in enumerate(self.blocks) if n)
            self.n_features = next(self._read(full, 1, False)).x.shape[1]

    def _open(self) -> Any:
        return _open_arrow(self.path, self._types)

    def _read(self, block: int, piece_rows: int, labels_only: bool) -> Iterator[Piece]:
        wanted = self._columns[not labels_only]
        with self._open() as file:
            if hasattr(file, "num_row_groups"):
                batches = file.iter_batches(piece_rows, row_groups=[block], columns=wanted)
            else:
                batches = iter(file)
            for batch in batches:
                x = np.empty((len(batch), 0)) if labels_only else _columns(batch.select(self.names))
                beside = (None if n is None else _values(batch.column(n)) for n in self._apart)
                yield Piece(x, *beside)


def _open_arrow(path: Path, types: dict[str, Any] | None = None) -> Any:
    """A file as pyarrow reads it; types: of the columns of a text file."""
    if path.suffix.lower() == ".parquet":
        return need("pyarrow.parquet").ParquetFile(path)
    csv, how = need("pyarrow.csv"), Dialect.of(path)
    encoding = "utf8" if how.encoding.startswith("utf-8") else how.encoding
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(
            block_size=_BLOCK_BYTES, encoding=encoding, skip_rows=how.skipped,
            autogenerate_column_names=how.names is None,
        ),
        parse_options=csv.ParseOptions(
            delimiter=how.separator, newlines_in_values=how.quoted, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, decimal_point=how.decimal
        ),
    )  # fmt: skip


def _schema(file: Any) -> Any:
    return file.schema_arrow if hasattr(file, "schema_arrow") else file.schema


def _names(schema: Any) -> list[str]:
    """Names of the columns, without those of the index that pandas wrote."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [str(name) for name in schema.names if name not in index]


def column_names(path: Path) -> list[str]:
    """Names of all columns of a file, in order; none of an array."""
    if suffix_of(path) not in TABLES:
        return []
    with readable(path):
        return _names(_schema(_open_arrow(path)))


def _values(column: Any) -> NDArray[Any]:
    """A column as NumPy; None or NaN if there is no value."""
    if need("pyarrow").types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _columns(batch: Any) -> Any:
    """An array if all columns are numbers, or lists of them; else a frame."""
    try:
        return np.concatenate([_matrix(column) for column in batch.columns], axis=1)
    except TypeError:
        return batch.to_pandas(ignore_metadata=True)  # an index is a column too


def _matrix(column: Any) -> NDArray[Any]:
    """A column of numbers (n, 1), or of lists of one length (n, L); TypeError for another one."""
    pa, kind = need("pyarrow"), column.type
    if pa.types.is_nested(kind) and hasattr(kind, "value_type"):
        alike = column.cast(pa.list_(kind.value_type, len(column[0])))
        return _matrix(alike.flatten()).reshape(len(column), -1)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise TypeError(f"{kind} is no number")
    return _values(column)[:, None]


class BatchReader(Reader):
    """Anything that can be iterated more than once, as one block."""

    def __init__(self, batches: Callable[[], Iterable[Any]] | Iterable[Any]) -> None:
        super().__init__(Path("batches"))
        self._again = batches if callable(batches) else lambda: batches
        first = next(iter(self._again()), None)
        if first is None:
            raise ValueError("there are no batches: pass a function that starts anew each time")
        x = _raw(_batch(first), 0).x
        self.names = [str(name) for name in x.columns] if is_frame(x) else None
        self.n_features = x.shape[1]
        self.blocks = [sum(_batch(b).x.shape[0] for b in self._again())]

    def _look(self) -> tuple[int, int]:
        return 0, 0

    @property
    def n_bytes(self) -> int:
        """As if they were float64."""
        return 8 * self.n_rows * self.n_features

    def _read(self, block: int, piece_rows: int, labels_only: bool) -> Iterator[Piece]:
        n = 0
        for batch in self._again():
            piece = _batch(batch)
            n += piece.x.shape[0]
            if n > self.n_rows:
                break
            yield piece
        if n != self.n_rows:
            raise ValueError(
                f"the batches had {self.n_rows} rows and now {n}: they must be the same every time"
            )


def _batch(given: Any) -> Piece:
    x, *beside = given if isinstance(given, (tuple, list)) and given else [given]
    if len(beside) > 2:
        raise ValueError(f"a batch must be x, (x, y) or (x, y, weight), got {len(given)} parts")
    labels = (None if v is None else np.asarray(v) for v in beside)
    return Piece(x if hasattr(x, "shape") else np.asarray(x), *labels)


def open_files(
    paths: Paths, label: str | Sequence[str] | None, weight: str | Sequence[str] | None,
    features: Sequence[str] | None,
) -> list[Reader]:  # fmt: skip
    """Readers of files of one kind: see `Dataset.open`."""
    files, readers = expand(paths), []
    used = None if features is None else list(features)
    beside = [_beside(name, files) for name in (label, weight)]
    for path, *apart in zip(files, *beside, strict=True):
        with readable(path):
            kind: Any = _ArrowReader if suffix_of(path) in TABLES else _ArrayReader
            readers.append(kind(path, tuple(apart), used))
    return readers


# Rows of all files together.


class RawRows(NamedTuple):
    """Rows as stored, with what is known of them."""

    x: Any  # (n, N): a tensor, or a frame of columns that are not encoded yet
    number: Tensor  # (n,) the place of each row in the whole data set
    y: NDArray[Any] | None = None
    weight: NDArray[Any] | None = None

    @property
    def rows(self) -> StoredRows:
        """The rows as numbers; ValueError if columns must be encoded first."""
        x = self.x
        if is_frame(x):
            x = torch.from_numpy(np.asarray(x, dtype=np.float64))
        return StoredRows(x, _CPU, self.number)

    def take(self, at: Tensor | slice) -> RawRows:
        """Some of the rows."""
        places = at if isinstance(at, slice) else at.numpy()
        if is_frame(self.x):
            x = self.x.iloc[places]
        else:
            x = self.x[at] if isinstance(at, slice) else take_rows(self.x, at)
        y, weight = (None if v is None else v[places] for v in (self.y, self.weight))
        return RawRows(x, self.number[at], y, weight)


@dataclass(eq=False)
class FileRows:
    """The rows of files, of which never more than `memory` bytes are held.

    Give or take what a file calls a block; a row is called by its number over all files.
    """

    readers: Sequence[Reader]
    memory: int
    kept: Tensor = field(
        default_factory=lambda: torch.empty(0, dtype=torch.bool)
    )  # (n,); empty: all
    encoding: Encoding | None = None  # of columns that are not numbers
    # Log-odds (folds, levels + 1, K) of levels of categories, for training rows.
    odds: Sequence[NDArray[np.float64]] = ()
    gaps: bool = False  # whether values may be missing
    device: torch.device = _CPU  # where `chunks` come out
    watch: Callable[[int], None] | None = None  # is told how many rows went by
    noted: dict[str, Any] = field(default_factory=dict, init=False)  # what looks at labels told

    def __post_init__(self) -> None:
        first = self.readers[0]
        for reader in self.readers:
            if reader.n_rows == 0:
                raise ValueError(f"{reader.path} has no rows: leave it out")
            check_alike(first.path, first.names or (), reader.path, reader.names or ())
            reader.names = first.names  # in their order
            if reader.n_features != first.n_features:
                raise ValueError(
                    f"{reader.path} has {reader.n_features} features, {first.path} has "
                    f"{first.n_features}: rows must be of one length"
                )
        if not len(self.kept):
            n_rows = sum(reader.n_rows for reader in self.readers)
            self.kept = torch.ones(n_rows, dtype=torch.bool)

    @property
    def names(self) -> list[str] | None:
        """Names of the columns; a list of numbers has one for all of them, which is none."""
        names = self.readers[0].names or []
        return names if len(names) == self.readers[0].n_features else None

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        if self.encoding is None:
            return self.readers[0].n_features
        return len(self.encoding.names) + sum(int(table.shape[2]) - 1 for table in self.odds)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return int(self.kept.sum())

    @property
    def n_bytes(self) -> int:
        """Size of the files."""
        return sum(reader.n_bytes for reader in self.readers)

    @property
    def fits(self) -> bool:
        """Whether all rows together fit in `memory`, as float64."""
        return 8 * self.n_rows * self.n_features <= self.memory

    @property
    def batch_rows(self) -> int:
        """Rows of one batch at most: several are held at a time, some of them in float64."""
        return max(64, self.memory // (8 * 16 * max(1, self.n_features)))

    def shard(self, rank: int, size: int) -> Self:
        """The rows that process `rank` of `size` reads, which follow each other.

        Whole blocks, so that none is read twice, if they can be shared out evenly; else rows.
        """
        blocks = (n for reader in self.readers for n in reader.blocks)
        n_rows, ends = len(self.kept), [0, *itertools.accumulate(blocks)]
        even = [n_rows * k / size for k in range(size + 1)]
        cuts = [min(ends, key=lambda end, cut=cut: abs(end - cut)) for cut in even]  # type: ignore[misc]
        if max(b - a for a, b in itertools.pairwise(cuts)) > _UNEVEN * n_rows / size:
            cuts = [n_rows * k // size for k in range(size + 1)]
        own = torch.zeros_like(self.kept)
        own[cuts[rank] : cuts[rank + 1]] = True
        return replace(self, kept=self.kept & own)

    def without(self, numbers: Tensor) -> Self:
        """The same rows but for those with these numbers."""
        return replace(self, kept=self.kept.index_fill(0, numbers, False))

    def numbers(self) -> Tensor:
        """The numbers of all rows that are not left out, in order."""
        return self.kept.nonzero()[:, 0]

    def where(self, number: int) -> tuple[Path, int]:
        """The file that has this row, and which of its rows it is."""
        for reader in self.readers:
            if number < reader.n_rows:
                break
            number -= reader.n_rows
        return reader.path, number

    def pieces(
        self, generator: torch.Generator | None = None, *, labels_only: bool = False
    ) -> Iterator[RawRows]:
        """The rows piece by piece, checked; blocks in random order, or as stored."""
        blocks, last = [], 0  # with the numbers of their rows
        for reader in self.readers:
            for block, n in enumerate(reader.blocks):
                first, last = last, last + n
                if self.kept[first:last].any():
                    blocks.append((reader, block, first, last))
        if generator is not None:
            order = torch.randperm(len(blocks), generator=generator)
            blocks = [blocks[k] for k in order.tolist()]
        for reader, block, number, last in blocks:
            for piece in reader.read(block, self.batch_rows, labels_only=labels_only):
                raw = _raw(piece, number)
                own = self.kept[raw.number].nonzero()[:, 0]
                raw = raw if len(own) == len(raw.number) else raw.take(own)
                for start in range(0, len(own), self.batch_rows):
                    part = self._checked(raw.take(slice(start, start + self.batch_rows)))
                    if self.watch is not None:
                        self.watch(len(part.number))
                    yield part
                number += piece.x.shape[0]
                if number < last and not self.kept[number:last].any():
                    break

    def numbers_of(self, raw: RawRows) -> RawRows:
        """The same rows, encoded if these are."""
        if self.encoding is None or not is_frame(raw.x):
            return raw
        raw = raw._replace(x=torch.from_numpy(self.encoding.numbers(raw.x)[0]))
        rows = replace(raw.rows, levels=self.encoding.coded)
        return raw._replace(x=in_folds(rows, raw.number, self.odds).values) if self.odds else raw

    def _checked(self, raw: RawRows) -> RawRows:
        """The rows, encoded; ValueError names the file and the row of a bad number or weight."""
        path, place = self.where(int(raw.number[0]))
        try:
            found = known = self.numbers_of(raw)
        except ValueError as error:
            raise ValueError(f"{path}, rows from {place} on: {error}") from error
        names = self.names if self.encoding is None else self.encoding.names
        if is_frame(found.x):
            rest = found.x.select_dtypes(exclude="number")
            there = rest.notna().astype("float64").replace(0.0, np.nan)
            known = raw._replace(x=found.x.assign(**there))
        here = StoredRows(known.rows.values, _CPU, raw.number - raw.number[0] + place)
        try:
            here.check_finite(names, gaps=self.gaps)
        except ValueError as error:
            raise ValueError(f"{path}: {error}".replace(" of X ", " ")) from error
        if raw.weight is not None:
            weight = np.asarray(raw.weight, dtype=np.float64)
            bad = torch.from_numpy(~(np.isfinite(weight) & (weight >= 0))).nonzero()[:1, 0]
            for row in here.call(bad):
                raise ValueError(f"{path}: row {row} has the weight {weight[int(bad)]}")
        return found

    def batches(self, size: int | None, seed: int | None) -> Iterator[RawRows]:
        """One pass in batches of at most `size` rows; seed None: in the stored order.

        Else blocks in random order fill a window of memory, out of which batches are drawn.
        """
        size = min(size or self.batch_rows, self.batch_rows)
        if seed is None:
            yield from _gather(self.pieces(), size)
            return
        generator = torch.Generator().manual_seed(seed)
        for held in _gather(self.pieces(generator), 4 * self.batch_rows):
            mixed = torch.randperm(len(held.number), generator=generator)
            for at in mixed.tensor_split(-(-len(mixed) // size)):
                yield held.take(at)

    def sample(self, n: int, seed: int) -> RawRows:
        """Random rows, n of them or all, in their order."""
        return join_rows(self.rows(self.draw(n, seed)))

    def draw(self, n: int, seed: int) -> Tensor:
        """Numbers of random rows, n of them or all."""
        numbers = self.numbers()
        order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
        return numbers[order[:n]]

    def rows(self, numbers: Tensor) -> list[RawRows]:
        """Those of the rows with these numbers that are here, in their order, in parts."""
        wanted = torch.zeros_like(self.kept).index_fill(0, numbers, True)
        parts = (raw.take(wanted[raw.number].nonzero()[:, 0]) for raw in ahead(self.pieces()))
        return [part for part in parts if len(part.number)]

    def read(self) -> Piece:
        """All rows as a user passes them, labels and weights; values may be missing."""
        return self.given(next(_gather(replace(self, gaps=True).pieces(), self.n_rows + 1)))

    def given(self, raw: RawRows) -> Piece:
        """Rows as a user passes them: a frame if columns have names, or an array."""
        x = raw.x
        if is_frame(x):  # columns were asked for by name: no ids
            x = x.astype(dict.fromkeys(x.select_dtypes(["integer", "bool"]), "float64"))
        elif self.names is None:
            x = x.numpy()
        else:
            x = need("pandas").DataFrame(x.numpy(), columns=self.names, dtype="float64")
        return Piece(x, raw.y, raw.weight)

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """(places, values in float64 on the device) of all rows, as `Geometry.fit` takes them."""
        first = 0
        for raw in ahead(self.pieces()):
            last = first + len(raw.number)
            yield slice(first, last), raw.rows.values.to(self.device).double()
            first = last


class Streamed:
    """Marks rows that come in batches: functions of rows in memory do not take them."""


Chunks = StoredRows | FileRows  # rows that can be looked at in chunks, more than once


def _raw(piece: Piece, number: int) -> RawRows:
    x = piece.x
    if is_frame(x):
        x = x.to_pandas() if hasattr(x, "to_pandas") else x
        if all(getattr(kind, "kind", "O") in "buif" for kind in x.dtypes):
            x = np.asarray(x, dtype=np.float64)
    if not is_frame(x):
        x = StoredRows.of(x.reshape(len(x), -1) if len(x.shape) > 2 else x, _CPU).values.cpu()
    return RawRows(x, torch.arange(number, number + x.shape[0]), piece.y, piece.weight)


def _gather(pieces: Iterator[RawRows], n_rows: int) -> Iterator[RawRows]:
    """The same rows in pieces of n_rows; the last one may have fewer."""
    held: list[RawRows] = []
    n = 0  # rows held
    for piece in pieces:
        first, last = 0, len(piece.number)
        while n + last - first >= n_rows:
            stop = first + n_rows - n
            yield join_rows([*held, piece.take(slice(first, stop))])
            held, n, first = [], 0, stop
        if first < last:
            held.append(piece.take(slice(first, last)))
            n += last - first
    if held:
        yield join_rows(held)


def join_rows(parts: Sequence[RawRows]) -> RawRows:
    """All rows of the parts, in their order."""
    if len(parts) == 1:
        return parts[0]
    tables = [p.x for p in parts]
    if is_frame(tables[0]):
        x = need("pandas").concat(tables, ignore_index=True)
    else:
        x = torch.cat(tables)
    number = torch.cat([p.number for p in parts])
    y, weight = (
        None if getattr(parts[0], name) is None
        else np.concatenate([getattr(p, name) for p in parts])
        for name in ("y", "weight")
    )  # fmt: skip
    return RawRows(x, number, y, weight)


def _beside(name: str | Sequence[str] | None, files: list[Path]) -> list[str | None]:
    """One column name, or one file of labels, for each file."""
    if name is None:
        return [None] * len(files)
    if isinstance(name, str) and (suffix_of(files[0]) in TABLES or files[0].is_dir()):
        return [name] * len(files)
    found = [str(path) for path in expand(name)]
    if len(found) != len(files):
        raise ValueError(f"{len(found)} files of labels or weights for {len(files)} files of rows")
    return [*found]
