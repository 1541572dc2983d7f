"""Files of rows, read a piece at a time: Parquet, Arrow, CSV, NumPy and IDX.

A reader knows how many rows its file has and where blocks of them begin, and reads one block after
another in any order. A piece is never larger than asked for, whatever the file calls a block.
"""

from __future__ import annotations

import csv
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemosphere.data.idx import IDX_TYPES

_BLOCK_BYTES = 1 << 20
_ARROW = (".feather", ".arrow", ".ipc")


class Piece(NamedTuple):
    """Some rows in a row."""

    x: Any  # (n, N): an array, a sparse matrix or a tensor
    y: NDArray[Any] | None = None
    weight: NDArray[Any] | None = None


class Reader(ABC):
    """Rows in blocks, read a piece at a time."""

    path: Path  # what messages call it
    n_features: int
    names: list[str] | None = None  # of the features
    blocks: list[int]  # rows of each

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return sum(self.blocks)

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """What a pass reads."""

    @abstractmethod
    def read(self, block: int, piece_rows: int, *, labels_only: bool = False) -> Iterator[Piece]:
        """The rows of a block in pieces."""


class _FileReader(Reader):
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stat = self._look()

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self._stat[0]

    def _look(self) -> tuple[int, int]:
        stat = self.path.stat()
        return stat.st_size, stat.st_mtime_ns

    def read(self, block: int, piece_rows: int, *, labels_only: bool = False) -> Iterator[Piece]:
        """The rows of a block in pieces; ValueError where the file is gone, changed or damaged."""
        try:
            if self._look() != self._stat:
                raise ValueError("it has changed since it was opened")
            yield from self._read(block, piece_rows, labels_only)
        except FileNotFoundError as error:
            raise ValueError(f"{self.path} is gone: it was there when it was opened") from error
        except (OSError, ValueError) as error:
            raise _unreadable(self.path, error) from error

    @abstractmethod
    def _read(self, block: int, piece_rows: int, labels_only: bool) -> Iterator[Piece]: ...


def open_reader(
    path: Path, label: str | None, weight: str | None, features: Sequence[str] | None
) -> Reader:
    """The reader for a file, by its suffix; columns by name, or files beside a file of numbers."""
    name = path.name.lower()
    try:
        if name.endswith(".npy") or "ubyte" in name:
            if features is not None:
                raise ValueError("it has no names of columns: leave features away")
            return _NumberReader(path, label, weight)
        if name.endswith((".parquet", *_ARROW)):
            return _ArrowReader(path, label, weight, features)
        if name.endswith((".csv", ".tsv")):
            return _TextReader(path, label, weight, features)
    except FileNotFoundError as error:
        raise ValueError(f"no file {error.filename or path}: check the path") from error
    except (OSError, ValueError, StopIteration) as error:
        raise _unreadable(path, error) from error
    raise ValueError(
        f"{path}: cannot stream files of type {path.suffix!r}, try .parquet, .feather, .arrow, "
        ".csv, .tsv, .npy or IDX (…-ubyte), not compressed"
    )


def column_names(path: Path) -> list[str]:
    """Names of all columns of a file; none of an array."""
    name = path.name.lower()
    try:
        if name.endswith(".parquet"):
            return [str(n) for n in _pyarrow("parquet").read_schema(path).names]
        if name.endswith(_ARROW):
            with _pyarrow("ipc").open_file(_pyarrow().OSFile(str(path))) as file:
                return [str(n) for n in file.schema.names]
        if name.endswith((".csv", ".tsv")):
            with path.open(encoding="utf-8", newline="") as text:
                return next(csv.reader(text, delimiter="\t" if name.endswith(".tsv") else ","), [])
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return []


def _unreadable(path: Path, error: Exception) -> ValueError:
    text = " ".join(str(error).split())
    return ValueError(text if str(path) in text else f"{path} cannot be read ({text})")


class _Numbers:
    """An array in a file, .npy or IDX: where its rows begin, of what type."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if path.name.lower().endswith(".npy"):
                version = np.lib.format.read_magic(file)
                read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
                    version, np.lib.format.read_array_header_2_0
                )
                self.shape, in_columns, self.dtype = read(file)
                if in_columns and len(self.shape) > 1:
                    raise ValueError("it is stored by columns: save np.ascontiguousarray(X)")
            else:
                head = file.read(4)
                if head[:2] != b"\0\0" or head[2] not in IDX_TYPES:
                    raise ValueError("it is no plain IDX file: unpack it")
                self.dtype = np.dtype(IDX_TYPES[head[2]])
                self.shape = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
            self.start = file.tell()
        if self.dtype.kind not in "buif" and len(self.shape) > 1:
            raise ValueError(f"its rows must be numbers, got {self.dtype}")
        self.row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        wanted = self.start + self.shape[0] * self.row_bytes
        if path.stat().st_size < wanted:
            raise ValueError(f"truncated: {wanted} bytes expected, {path.stat().st_size} found")

    def rows(self, first: int, last: int) -> NDArray[Any]:
        # Plain reads: the pages of a mapped file would count as memory of this process.
        count = (last - first) * self.row_bytes // self.dtype.itemsize
        offset = self.start + first * self.row_bytes
        flat = np.fromfile(self.path, self.dtype, count, offset=offset)
        return flat.astype(self.dtype.newbyteorder("="), copy=False).reshape(last - first, -1)


class _NumberReader(_FileReader):
    """An array (n, …), its labels and weights in files of their own."""

    def __init__(self, path: Path, label: str | None, weight: str | None) -> None:
        super().__init__(path)
        self._x = _Numbers(path)
        n, self.n_features = self._x.shape[0], math.prod(self._x.shape[1:])
        self._columns: list[_Numbers | None] = []
        for beside in (label, weight):
            found = None if beside is None else _Numbers(Path(beside))
            if found is not None and found.shape != (n,):
                raise ValueError(f"{beside} has shape {found.shape} for {n} rows of {path}")
            self._columns.append(found)
        step = max(1, _BLOCK_BYTES // max(1, self._x.row_bytes))
        self.blocks = [min(step, n - first) for first in range(0, n, step)]
        self._step = step

    def _read(self, block: int, piece_rows: int, labels_only: bool) -> Iterator[Piece]:
        first = block * self._step
        for start in range(first, first + self.blocks[block], piece_rows):
            stop = min(start + piece_rows, first + self.blocks[block])
            y, weight = (None if c is None else c.rows(start, stop)[:, 0] for c in self._columns)
            x = np.empty((stop - start, 0)) if labels_only else self._x.rows(start, stop)
            yield Piece(x, y, weight)


class _ColumnReader(_FileReader):
    """A file with named columns: which of them are features."""

    def _choose(
        self, schema: Any, label: str | None, weight: str | None, features: Sequence[str] | None
    ) -> None:
        given = [str(name) for name in schema.names]
        apart = [name for name in (label, weight) if name is not None]
        self.names = [n for n in given if n not in apart] if features is None else list(features)
        missing = [name for name in (*self.names, *apart) if name not in given]
        if missing:
            raise ValueError(f"no column {missing[0]!r}: it has {', '.join(given[:20])}")
        self._label, self._weight = label, weight

    @property
    def _apart(self) -> list[str]:
        return [name for name in (self._label, self._weight) if name is not None]

    def _piece(self, table: Any, labels_only: bool) -> Piece:
        y, weight = (
            None if name is None else _values(table.column(name)) for name in
            (self._label, self._weight)
        )  # fmt: skip
        if labels_only:
            return Piece(np.empty((table.num_rows, 0)), y, weight)
        columns = [_matrix(table.column(name), name) for name in self.names or []]
        x = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        return Piece(x, y, weight)


class _ArrowReader(_ColumnReader):
    """Parquet by row groups, Arrow files by record batches."""

    def __init__(
        self, path: Path, label: str | None, weight: str | None, features: Sequence[str] | None
    ) -> None:
        super().__init__(path)
        self._parquet = path.name.lower().endswith(".parquet")
        with self._open() as file:
            self._choose(file.schema_arrow if self._parquet else file.schema, label, weight,
                         features)  # fmt: skip
            if self._parquet:
                about = file.metadata
                self.blocks = [about.row_group(k).num_rows for k in range(file.num_row_groups)]
            else:
                n = file.num_record_batches
                self.blocks = [file.get_batch(k).num_rows for k in range(n)]
        first = next(iter(self._read(0, 1, False)), None) if self.blocks else None
        self.n_features = 0 if first is None else first.x.shape[1]

    def _open(self) -> Any:
        pq, ipc, pa = _pyarrow("parquet"), _pyarrow("ipc"), _pyarrow()
        self.path.stat()
        return (
            pq.ParquetFile(self.path) if self._parquet else ipc.open_file(pa.OSFile(str(self.path)))
        )

    def _read(self, block: int, piece_rows: int, labels_only: bool) -> Iterator[Piece]:
        wanted = self._apart if labels_only else [*(self.names or []), *self._apart]
        with self._open() as file:
            if self._parquet:
                # Column by name alone would take the parts of a list column for other columns.
                for batch in file.iter_batches(piece_rows, row_groups=[block], columns=wanted):
                    yield self._piece(batch, labels_only)
                return
            batch = file.get_batch(block).select(wanted)
            for start in range(0, batch.num_rows, piece_rows):
                yield self._piece(batch.slice(start, piece_rows), labels_only)


class _TextReader(_ColumnReader):
    """A CSV file; where its blocks begin is found in one look at the bytes."""

    def __init__(
        self, path: Path, label: str | None, weight: str | None, features: Sequence[str] | None
    ) -> None:
        super().__init__(path)
        self._comma = "\t" if path.name.lower().endswith(".tsv") else ","
        self._places: list[tuple[int, int]] = []  # (offset, bytes) of each block
        self.blocks, self._types = [], None
        with path.open("rb") as file:
            self._head = file.readline()
            first = file.tell()
            rest = b""
            while chunk := file.read(_BLOCK_BYTES):
                rest += chunk
                end = _last_line_end(rest)
                if end > 0:
                    self._add(first, rest[:end])
                    first, rest = first + end, rest[end:]
            if rest.strip():
                self._add(first, rest)
        if not self.blocks:
            raise ValueError("it has no rows")
        look = self._parse(self._head + self._block(0))
        self._types = {f.name: f.type for f in look.schema}
        self._choose(look.schema, label, weight, features)
        # A column of whole numbers may have others further down.
        self._types |= {name: _pyarrow().float64() for name in self.names or []
                        if _pyarrow().types.is_integer(self._types[name])}  # fmt: skip
        self.n_features = self._piece(look.slice(0, 1), False).x.shape[1]

    def _add(self, offset: int, content: bytes) -> None:
        lines = content.count(b"\n") + (not content.endswith(b"\n"))
        if b'"' in content:  # a cell in quotes may hold the end of a line
            lines = self._parse(self._head + content).num_rows
        self._places.append((offset, len(content)))
        self.blocks.append(lines)

    def _block(self, block: int) -> bytes:
        offset, size = self._places[block]
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def _parse(self, content: bytes) -> Any:
        csv, pa = _pyarrow("csv"), _pyarrow()
        return csv.read_csv(
            pa.BufferReader(content),
            read_options=csv.ReadOptions(use_threads=False, block_size=len(content) + 1),
            parse_options=csv.ParseOptions(
                delimiter=self._comma, newlines_in_values=b'"' in content, ignore_empty_lines=False
            ),
            convert_options=csv.ConvertOptions(column_types=self._types, strings_can_be_null=True),
        )

    def _read(self, block: int, piece_rows: int, labels_only: bool) -> Iterator[Piece]:
        table = self._parse(self._head + self._block(block))
        if table.num_rows != self.blocks[block]:
            raise ValueError("it has changed since it was opened")
        for start in range(0, table.num_rows, piece_rows):
            yield self._piece(table.slice(start, piece_rows), labels_only)


def _last_line_end(content: bytes) -> int:
    """Where the last whole line ends; ends of lines inside quotes do not count."""
    end = content.rfind(b"\n") + 1
    while end > 0 and content.count(b'"', 0, end) % 2:
        end = content.rfind(b"\n", 0, end - 1) + 1
    return end


def _values(column: Any) -> NDArray[Any]:
    """A column as NumPy; None or NaN where there is no value."""
    if _pyarrow().types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    found: NDArray[Any] = np.asarray(column.to_numpy(zero_copy_only=False) if hasattr(
        column, "offset") else column.to_numpy())  # fmt: skip
    return found


def _matrix(column: Any, name: str) -> NDArray[Any]:
    """A column of numbers (n, 1), or of lists of one length (n, L)."""
    types = _pyarrow().types
    n = len(column)
    if types.is_list(column.type) or types.is_large_list(column.type) or (
        types.is_fixed_size_list(column.type)
    ):  # fmt: skip
        column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        flat = column.flatten()
        if column.null_count or len(flat) % n or (
            not types.is_fixed_size_list(column.type)
            and len(set(column.value_lengths().to_pylist())) > 1
        ):  # fmt: skip
            raise ValueError(f"column {name!r} holds lists of unlike lengths: fill them up")
        return _numeric(flat, name).reshape(n, -1)
    return _numeric(column, name)[:, None]


def _numeric(column: Any, name: str) -> NDArray[Any]:
    types = _pyarrow().types
    kind = column.type
    if types.is_boolean(kind):
        column = column.cast(_pyarrow().uint8())
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        raise ValueError(f"column {name!r} holds {kind}, not numbers: leave it out of features=")
    return _values(column)


def _pyarrow(part: str = "") -> Any:
    from importlib import import_module

    try:
        return import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError as error:
        raise ValueError("needs pyarrow: pip install 'mnemosphere[parquet]'") from error
