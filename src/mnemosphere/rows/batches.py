"""Rows in files, read a batch at a time: tables by pyarrow, arrays by NumPy."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemosphere.base.machine import import_extra
from mnemosphere.rows.containers import is_frame

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
MEMORY = 256 << 20  # bytes of rows that are held at a time
TABLES = (".parquet", ".csv", ".arrow", ".feather")
_BLOCK_BYTES = 1 << 20  # of an array, read at once
_BUFFER = 1 << 16  # bytes of each column of a Parquet file that are read ahead
_SHARE = 16  # a batch is that part of the memory: several are held at a time, some of them twice
_MIXED = 4  # batches of memory that rows are mixed among
_LOOKED_AT = 1000  # rows that tell how large a row is
_DECODED = 8192  # rows of a Parquet file at a time
_T = TypeVar("_T")


def prefetch(items: Iterator[_T]) -> Iterator[_T]:
    """The same items; another thread makes the next one while one is worked on."""
    end: Any = object()
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = other.submit(next, items, end)
            yield item


def expand(paths: Paths) -> list[Path]:
    """The files that paths and patterns name."""
    files: list[Path] = []
    for path in [paths] if isinstance(paths, (str, PathLike)) else paths:
        found = sorted(map(Path, glob.glob(str(path), recursive=True)))
        found = found or [Path(path)] * Path(path).exists()  # brackets in its name
        if not found:
            raise ValueError(f"no file matches '{path}': check the path")
        files += found
    if not files:
        raise ValueError("no files: pass a path, a list of paths or a pattern")
    return files


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Whatever goes wrong with a file becomes a ValueError of one line that names it."""
    try:
        yield
    except Exception as error:  # readers have many kinds
        text = " ".join(str(error).split())[:300] or type(error).__name__
        if not text.startswith(str(path)):
            text = f"{path} cannot be read ({text}): check the file, or write it again"
        raise ValueError(text) from error


def read_npy(path: Path) -> NDArray[Any]:
    """An array as its file has it, mapped: a header that claims too much takes no memory."""
    with readable(path):
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return found


class Piece(NamedTuple):
    """Some rows as stored."""

    x: Any  # (n, N) a frame or an array
    y: NDArray[Any] | None
    weight: NDArray[Any] | None
    number: NDArray[np.int64]  # of each row, counted over all files

    def take(self, at: NDArray[Any] | slice) -> Piece:
        """Some of them, by their places."""
        x = self.x.iloc[at] if is_frame(self.x) else self.x[at]
        y, weight = (None if v is None else v[at] for v in (self.y, self.weight))
        return Piece(x, y, weight, self.number[at])

    @classmethod
    def join(cls, parts: Sequence[Piece]) -> Piece:
        """The rows of all parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        join = np.concatenate
        if is_frame(parts[0].x):
            join = partial(import_extra("pandas").concat, ignore_index=True)
        x, *beside, number = zip(*parts, strict=True)
        y, weight = (None if v[0] is None else np.concatenate(v) for v in beside)
        return cls(join(x), y, weight, np.concatenate(number))


class Block(NamedTuple):
    """Rows that are read together."""

    path: str
    n_rows: int
    read: Callable[[int], Iterator[tuple[Any, Any, Any]]]  # x, y, weight of so many rows at a time


class Dataset:
    """Rows in files, which may be larger than memory.

    Make one with `Dataset.open` and pass it to `fit`, `predict` or `score` in place of X. Iterating over it
    gives batches (x, y, weight) as they are stored.

    Parameters
    ----------
    blocks : sequence of Block
        Parts of the files, each of which is read by itself.
    names : list of str or None
        Names of the columns.
    memory : int
        Bytes of rows to hold at a time.

    Examples
    --------
    >>> np.save("rows.npy", X_train), np.save("labels.npy", y_train)
    (None, None)
    >>> rows = mn.Dataset.open("rows.npy", label="labels.npy")
    >>> clf.fit(rows).classes_
    array([0, 1, 2])
    """

    def __init__(self, blocks: Sequence[Block], names: list[str] | None, memory: int) -> None:
        self.blocks, self.names = [block for block in blocks if block.n_rows], names
        self.n_rows = sum(block.n_rows for block in self.blocks)
        if not self.n_rows:
            raise ValueError("the files have no rows")
        some = next(self.pieces(_LOOKED_AT)).x
        n_bytes = int(some.memory_usage(deep=True).sum()) if is_frame(some) else 0
        row_bytes = max(8 * some.size, n_bytes, 1) // len(some) or 1
        self.n_features = int(some.shape[1])
        self.fits = row_bytes * self.n_rows <= memory  # whether all rows can be held
        self.batch_rows = max(64, memory // (_SHARE * row_bytes))

    @staticmethod
    def open(
        paths: Paths | Any,
        *,
        label: str | Sequence[str] | None = None,
        weight: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        memory: int = MEMORY,
    ) -> Dataset:
        """Open files of one kind: Parquet, Arrow, CSV or .npy.

        Columns of any kind are encoded as those of a frame.

        Parameters
        ----------
        paths : str, path, list of these, pyarrow.dataset.Dataset, or a stream of Arrow
            The files, or a pattern such as "rows/*.parquet"; or what a stream of Arrow gives, in memory.
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
        Dataset of 118 rows x 4
        >>> clf.fit(rows).score(rows) > 0.9
        True
        """
        if hasattr(paths, "__arrow_c_stream__"):
            arrow = import_extra("pyarrow")
            paths = import_extra("pyarrow.dataset").dataset(arrow.table(paths))
        if hasattr(paths, "get_fragments"):
            return _open_table(paths, label, weight, features, memory)
        files = expand(paths)
        kinds = {path.suffix.lower() for path in files}
        if kinds == {".npy"} and features is None:
            beside = (None if own is None else expand(own) for own in (label, weight))
            return Dataset([*_array_blocks(files, *beside)], None, memory)
        if len(kinds) > 1 or not kinds <= {*TABLES}:
            raise ValueError(
                f"files must be of one kind, {', '.join(TABLES)}, or .npy without features=, got "
                f"{', '.join(sorted(kinds)) or files[0]}: read others with pandas, and pass the frame"
            )
        arrow, kind = import_extra("pyarrow.dataset"), kinds.pop()[1:]
        with readable(files[0]):
            table = arrow.dataset(
                [str(path) for path in files], format=_csv() if kind == "csv" else kind
            )
        return _open_table(table, label, weight, features, memory)

    def __repr__(self) -> str:
        return f"Dataset of {self.n_rows} rows x {self.n_features}"

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        """(x, y, weight) of batches in the stored order, as they are stored."""
        for piece in prefetch(self.pieces()):
            yield piece.x, piece.y, piece.weight

    def read(self) -> Piece:
        """All rows."""
        return Piece.join([*self.pieces()])

    def sample(self, n: int, seed: int) -> Piece:
        """Random rows, n of them or all, in their order."""
        return Piece.join([some for _, some in self.sampling(n, seed) if len(some.number)])

    def sampling(self, n: int, seed: int) -> Iterator[tuple[Piece, Piece]]:
        """(some rows, those of them that are in a sample of n) of all rows, in order."""
        chosen = np.zeros(self.n_rows, dtype=bool)
        rng, n = np.random.default_rng(seed), min(n, self.n_rows)
        chosen[rng.choice(self.n_rows, n, replace=False)] = True
        for piece in prefetch(self.pieces()):
            yield piece, piece.take(np.flatnonzero(chosen[piece.number]))

    def pieces(
        self, size: int | None = None, seed: int | None = None, part: slice | None = None
    ) -> Iterator[Piece]:
        """The rows in batches of one size (None: what memory holds), the last of which may be smaller.

        seed: blocks come in random order, and rows are mixed within a part of the memory. part: of the
        rows, those that are read.
        """
        size = self.batch_rows if size is None else size
        part = slice(0, self.n_rows) if part is None else part
        if seed is None:
            yield from _gather(self._read(range(len(self.blocks)), size, part), size)
            return
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.blocks)).tolist()
        window = size * max(1, _MIXED * self.batch_rows // size)
        for held in _gather(self._read(order, size, part), window):
            mixed = rng.permutation(len(held.number))
            for first in range(0, len(mixed), size):
                yield held.take(mixed[first : first + size])
            del held  # before the next ones are read

    def _read(self, order: Sequence[int], size: int, part: slice) -> Iterator[Piece]:
        """The rows of blocks in this order, checked."""
        ends = np.cumsum([0, *(block.n_rows for block in self.blocks)])
        for k in order:
            first, last = (int(end) for end in ends[k : k + 2])
            if last <= part.start or first >= part.stop:
                continue
            path, at = self.blocks[k].path, first
            with readable(path):
                for x, y, weight in self.blocks[k].read(min(size, self.blocks[k].n_rows)):
                    piece = Piece(x, y, weight, np.arange(at, at + len(x)))
                    at += len(x)
                    inside = slice(
                        *(min(max(n - at + len(x), 0), len(x)) for n in (part.start, part.stop))
                    )
                    yield _checked(piece.take(inside), path)
                    if at >= part.stop:
                        break
                if at != last and at < part.stop:
                    raise ValueError("it has changed since it was opened")


def _gather(pieces: Iterator[Piece], n_rows: int) -> Iterator[Piece]:
    """The same rows in pieces of n_rows; the last one may have fewer."""
    held: list[Piece] = []
    missing = n_rows
    for piece in pieces:
        while len(piece.number) >= missing:
            joined = Piece.join([*held, piece.take(slice(missing))])
            held, piece, missing = [], piece.take(slice(missing, None)), n_rows
            yield joined
            del joined
        if len(piece.number):
            held.append(piece)
            missing -= len(piece.number)
    if held:
        yield Piece.join(held)


def _checked(piece: Piece, path: str) -> Piece:
    """The rows; ValueError names one that holds an infinite number, or has no usable weight.

    Rows are counted over all files.
    """
    x = piece.x.select_dtypes("float") if is_frame(piece.x) else piece.x
    names, x = list(getattr(x, "columns", range(x.shape[1]))), np.asarray(x)
    if x.dtype.kind == "f" and x.size and not np.isfinite(x.sum()) and (bad := np.isinf(x)).any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{path}: row {piece.number[row]} is infinite (inf) in column {names[column]!r}: drop the "
            "row or fill it in"
        )
    if piece.weight is not None:
        wrong = np.flatnonzero(~(np.isfinite(piece.weight) & (piece.weight >= 0)))
        if len(wrong):
            row = wrong[0]
            raise ValueError(f"{path}: row {piece.number[row]} has the weight {piece.weight[row]}")
    return piece


# Arrays.


def _array_blocks(
    files: Sequence[Path], labels: Sequence[Path] | None, weights: Sequence[Path] | None
) -> Iterator[Block]:
    """Slices of arrays, with labels and weights beside them."""
    for k, path in enumerate(files):
        x = read_npy(path)
        if x.ndim < 2 or 0 in x.shape or x.dtype.kind not in "biuf":
            raise ValueError(f"{path}: rows must be numbers (n, features), got {x.dtype} {x.shape}")
        if x.shape[1:] != (first := read_npy(files[0])).shape[1:]:
            raise ValueError(f"{path} has rows {x.shape[1:]}, {files[0]} {first.shape[1:]}")
        for own in (labels, weights):
            if own is not None and len(own) != len(files):
                raise ValueError(f"{len(own)} files of labels or weights for {len(files)} of rows")
            if own is not None and read_npy(own[k]).shape != x.shape[:1]:
                raise ValueError(f"{own[k]} has not one number for each row of {path}")
        paths = [None if own is None else own[k] for own in (files, labels, weights)]
        step = max(1, _BLOCK_BYTES * len(x) // x.nbytes)
        for start in range(0, len(x), step):
            rows = slice(start, min(start + step, len(x)))
            yield Block(str(path), rows.stop - start, partial(_read_arrays, paths, rows))


def _read_arrays(paths: Sequence[Path | None], rows: slice, _: int) -> Iterator[Any]:
    """(x, y, weight), mapped anew, since pages count as memory in use."""
    x, *beside = (None if path is None else np.array(read_npy(path)[rows]) for path in paths)
    assert x is not None
    yield x.reshape(len(x), -1), *beside


# Tables.


def _csv() -> Any:
    """One answer for each line, and no text for an empty cell."""
    csv = import_extra("pyarrow.csv")
    return import_extra("pyarrow.dataset").CsvFileFormat(
        parse_options=csv.ParseOptions(ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(strings_can_be_null=True),
    )


def _open_table(
    table: Any, label: Any, weight: Any, features: Sequence[str] | None, memory: int
) -> Dataset:
    """Row groups of Parquet, else whole files."""
    pa = import_extra("pyarrow")
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    given = [name for name in table.schema.names if name not in (label, weight, *index)]
    names = given if features is None else list(features)
    wanted = [*names, *(name for name in (label, weight) if name is not None)]
    # Whole numbers of a text may turn out to be fractions further down.
    schema = pa.schema([
        pa.field(f.name, pa.float64()) if f.name in names and pa.types.is_integer(f.type) else f
        for f in table.schema
    ])  # fmt: skip

    def read(batches: Callable[[int], Iterator[Any]], size: int) -> Iterator[Any]:
        for batch in batches(size):
            frame = batch.to_pandas(ignore_metadata=True)  # an index is a column too
            numbers = frame[names].select_dtypes(["integer", "bool"])
            x = frame[names].astype(dict.fromkeys(numbers, "float64"))
            yield x, *(None if own is None else frame[own].to_numpy() for own in (label, weight))

    blocks = []
    for part in table.get_fragments():
        path = getattr(part, "path", "the stream")
        with readable(path):
            own = part.physical_schema.names
            lost = [name for name in wanted if name not in own]
            lost += [n for n in own if features is None and n not in table.schema.names]
            if lost:
                raise ValueError(f"{path}: column {lost[0]!r} is not in every file")
            for k, group in enumerate(getattr(part, "row_groups", [None])):
                n_rows = part.count_rows() if group is None else group.num_rows
                batches = partial(
                    _table_batches, part, None if group is None else k, schema, wanted
                )
                blocks.append(Block(path, n_rows, partial(read, batches)))
    return Dataset(blocks, names, memory)


def _table_batches(
    part: Any, group: int | None, schema: Any, columns: list[str], size: int
) -> Iterator[Any]:
    """The record batches of a file, or of a row group of Parquet, of at most so many rows."""
    if group is None:
        yield from part.to_batches(
            schema=schema, columns=columns, batch_size=size, batch_readahead=1
        )
    else:  # not by the scanner of pyarrow.dataset, which holds whole row groups
        file = import_extra("pyarrow.parquet").ParquetFile(
            part.open(), pre_buffer=False, buffer_size=_BUFFER
        )
        yield from file.iter_batches(min(size, _DECODED), row_groups=[group], columns=columns)
