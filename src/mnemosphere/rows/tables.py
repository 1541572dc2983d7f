"""All that a file holds as one table, whatever its kind, and what its rows are called.

`Dataset.open` and the command line read files by the same functions. A text file tells its
separator, its decimal mark and its encoding by its first lines. No torch is needed here.
"""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import hashlib
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mnemosphere.base.machine import check_memory, need
from mnemosphere.base.warnings import warn_user
from mnemosphere.rows.encoding import check_names, is_float, listed
from mnemosphere.rows.named import NAMES, load_data

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

MEMORY = 256 << 20  # bytes of rows that are held at a time
TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLES = (*TEXT, ".parquet")
IN_PIECES = (*TABLES, ".npy")  # what is read in pieces if it is large
SUFFIXES = (*IN_PIECES, ".npz", ".xlsx")
_HELD = 3  # times the size of a file, at least, is what reading it takes
_PACKED = 5  # times the size of a compressed text file is its text, say
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
_LOOKED_AT = 1 << 20  # bytes of a text
_NAMED = 5  # rows in a message
X_KEYS, Y_KEYS = ("x", "X", "data", "x_train", "X_train"), ("y", "Y", "labels", "y_train")


def expand(paths: Paths) -> list[Path]:
    """The files that paths and patterns name, and data sets by their names; all are there."""
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    files: list[Path] = []
    for path in map(str, given):
        pattern = glob.has_magic(path) and not Path(path).exists()
        found = sorted(glob.glob(path, recursive=True)) if pattern else [path]
        if not found:
            raise ValueError(f"no file matches {path!r}: check the pattern")
        for name in found:
            _check_exists(name)
        files += map(Path, found)
    if not files:
        raise ValueError("no files: pass a path, a list of paths or a pattern")
    return files


def _check_exists(source: str) -> None:
    if source not in NAMES and not Path(source).exists():
        raise ValueError(
            f"no file {source}, and no data set of that name: check the path, or try one of "
            f"{', '.join(NAMES)}"
        )


@dataclass(frozen=True, eq=False)
class Table:
    """All that a file holds, or a data set by its name."""

    name: str  # of what was read
    x: Any  # (n, N) a frame with named columns, or an array
    names: NDArray[Any]  # (n,) strings: lines of a text file, else rows counted from 0
    kind: str  # what these are: "line", "row", or the name of an index
    checksum: str
    y: NDArray[Any] | None = None  # (n,) labels where they are stored beside the rows
    is_test: NDArray[np.bool_] | None = None  # (n,) where the data have a split of their own
    image_shape: tuple[int, ...] | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns; none of an array."""
        return [str(name) for name in getattr(self.x, "columns", ())]

    def take(self, at: NDArray[Any] | slice) -> Self:
        """Some of the rows, by their places or a mask."""
        x = self.x.iloc[at] if self.columns else self.x[at]
        y, is_test = (None if v is None else v[at] for v in (self.y, self.is_test))
        return replace(self, x=x, names=self.names[at], y=y, is_test=is_test)

    def finite(self, names: Sequence[str]) -> Any:
        """Some columns of a frame; ValueError names the rows of infinite numbers in them."""
        frame = self.x[list(names)]
        numbers = frame.select_dtypes("float")
        bad = np.isinf(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
        if bad.any():
            k = int(bad.any(axis=0).argmax())
            at = np.flatnonzero(bad[:, k])
            where = ", ".join(map(str, self.names[at[:_NAMED]]))
            raise ValueError(
                f"{self.name}: infinite numbers in {numbers.columns[k]!r}, {self.kind} {where}"
                f"{', …' if len(at) > _NAMED else ''}: leave them empty, or leave the column out"
            )
        return frame


def suffix_of(path: Path) -> str:
    """The suffix by which a file is read, in small letters."""
    known = sorted(SUFFIXES, key=len, reverse=True)
    return next((suffix for suffix in known if path.name.lower().endswith(suffix)), "")


def read_table(source: str, max_rows: int | None = None, *, header: bool = True) -> Table:
    """Read a file by its suffix, or a data set by its name.

    max_rows: the first rows alone; a text file is then read no further. header: a text file may
    have one. What would not fit into the memory that is free is refused before it is read.
    """
    path = Path(source)
    if source in NAMES:
        return _named(source).take(slice(max_rows))
    if path.is_dir():
        return _from_folder(path).take(slice(max_rows))
    _check_exists(source)
    suffix = suffix_of(path)
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the path of one")
    if not suffix:
        raise ValueError(
            f"{path}: cannot read files of type {path.suffix!r}, try one of {', '.join(SUFFIXES)}"
        )
    with readable(path, f" as {suffix}"):
        if suffix not in TEXT or max_rows is None:
            _check_size(path, held_bytes(path))
        if suffix in TEXT:
            return _from_text(path, max_rows, header)
        if suffix == ".xlsx":
            table = _from_sheet(path, header)
        else:
            table = _from_parquet(path) if suffix == ".parquet" else _from_arrays(path, suffix)
        return table.take(slice(max_rows))


@contextmanager
def readable(path: Path, kind: str = "") -> Iterator[None]:
    """Whatever goes wrong with a file becomes a ValueError of one line that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise ValueError(f"no file {error.filename or path}: check the path") from error
    except (
        ValueError, KeyError, EOFError, OSError, zlib.error, zipfile.BadZipFile, csv.Error, Warning
    ) as error:  # fmt: skip
        text = " ".join(str(error).split())
        if not text.startswith(str(path)):
            text = f"{path} cannot be read{kind} ({text}): write it again, or rename it"
        raise ValueError(text) from error


def read_labels(path: Path, n_rows: int) -> NDArray[Any]:
    """Labels or weights (n,) from a .npy file."""
    with readable(path, " as labels"):
        found = np.load(path, allow_pickle=False)
        if found.shape != (n_rows,):
            raise ValueError(f"shape {found.shape} for {n_rows} rows")
        return np.asarray(found)


def read_tables(
    paths: Sequence[Path], max_rows: int | None = None, *, header: bool = True
) -> Table:
    """One file or data set, or files below each other that have the same columns."""
    if len(paths) == 1:
        return read_table(str(paths[0]), max_rows, header=header)
    pd = need("pandas")
    tables: list[Table] = []
    for path in paths:
        left = None if max_rows is None else max_rows - sum(len(t.names) for t in tables)
        if left == 0:
            break
        tables.append(read_table(str(path), left, header=header))
        first, last = tables[0], tables[-1]
        check_alike(first.name, first.columns, last.name, last.columns)
        if not first.columns:
            raise ValueError(f"{first.name} has no names of columns: give one file")
    names = [f"{Path(t.name).name}:{name}" for t in tables for name in t.names]
    digest = hashlib.sha256("".join(t.checksum for t in tables).encode()).hexdigest()
    values = pd.concat([t.x for t in tables], ignore_index=True)
    called = f"{paths[0]} and {len(tables) - 1} more"
    return Table(called, values, np.array(names), tables[0].kind, f"sha256:{digest}")


def check_alike(first: object, names: Sequence[str], other: object, own: Sequence[str]) -> None:
    """ValueError if two files have other columns, in any order."""
    odd = sorted({*names} ^ {*own})
    if odd:
        raise ValueError(
            f"{other} and {first} have other columns (column {odd[0]!r} is in one alone): name those "
            "to use, with features= or --features"
        )


def check_rows(x: NDArray[Any]) -> NDArray[Any]:
    """An array whose rows are numbers; ValueError for another one."""
    if x.ndim < 2 or 0 in x.shape or x.dtype.kind not in "biuf":
        raise ValueError(f"its rows must be numbers (n, features), got {x.dtype} {x.shape}")
    return x


def held_bytes(path: Path) -> int:
    """About what reading a file takes of memory."""
    return _HELD * path.stat().st_size * (_PACKED if path.suffix.lower() in (".gz", ".xlsx") else 1)


def _check_size(path: Path, n_bytes: int) -> None:
    """ValueError if memory does not hold so many bytes."""
    check_memory(n_bytes, "cpu", f"reading {path}", "take a part of it, with --max-rows")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


# Text files.


class Dialect(NamedTuple):
    """How a text file is written."""

    encoding: str
    separator: str
    decimal: str
    skipped: int  # blank lines before all others
    names: list[str] | None  # in the first line; None: there are none, it is a row
    quoted: bool  # whether cells may hold the ends of lines

    @classmethod
    def of(cls, path: Path, *, header: bool = True) -> Dialect:
        """By the first lines of a file; header: they may have names of columns."""
        opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
        with opened(path, "rb") as stream:
            start = stream.read(_LOOKED_AT)
        encoding = _encoding(path, start)
        text = start.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        body = text.lstrip("\n")
        first = body.partition("\n")[0]
        mark = "\t" if ".tsv" in path.name.lower() else max(",;\t", key=first.count)
        names = [cell.strip() for cell in next(csv.reader([first], delimiter=mark), [])]
        numbers = [name for name in names if is_float(name)]
        if names == [str(k) for k in range(len(names))]:  # as data frames without names have
            numbers = []
        has_names = header and numbers != names
        if has_names and numbers:
            warn_user(
                f"the first line of {path} is taken for names of columns, though {numbers[0]!r} is a "
                "number: if it is a row, pass --no-header"
            )
        skipped, known = len(text) - len(body), names if has_names else None
        return cls(encoding, mark, _decimal(body, mark), skipped, known, '"' in text)


def _encoding(path: Path, start: bytes) -> str:
    """UTF-8, UTF-16 with its mark, or else Windows-1252, of which Latin-1 is a part."""
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if b"\0" in start:
        raise ValueError("it holds bytes that are no text")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        warn_user(
            f"{path} is not UTF-8, so it is read as Windows-1252 (Latin-1): if letters are wrong, "
            "save it as UTF-8",
        )
        return "cp1252"
    return "utf-8-sig" if start.startswith(codecs.BOM_UTF8) else "utf-8"


def _decimal(text: str, mark: str) -> str:
    """The decimal mark: a comma if cells are separated by something else and have it."""
    ends = rf"(?:^|{mark})\s*[+-]?\d+{{}}\d+\s*(?:{mark}|$)"
    has = {sign: re.search(ends.format(sign), text, re.MULTILINE) for sign in (",", r"\.")}
    return "," if mark != "," and has[","] and not has[r"\."] else "."


def _from_text(path: Path, max_rows: int | None, header: bool) -> Table:
    pd = need("pandas")
    how = Dialect.of(path, header=header)
    has_names = how.names is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # of cells that would be lost
        # From pandas 3.1 on it is the default.
        warnings.filterwarnings("ignore", "The 'float_precision' argument", DeprecationWarning)
        frame = pd.read_csv(
            path, sep=how.separator, header=0 if has_names else None, index_col=False,
            skip_blank_lines=False, skipinitialspace=True, low_memory=False, nrows=max_rows,
            decimal=how.decimal, encoding=how.encoding, skiprows=how.skipped,
            float_precision="round_trip",
        )  # fmt: skip
    kept = frame.notna().any(axis=1).to_numpy()
    lines = how.skipped + has_names + _lines(frame if how.quoted else frame.iloc[:, :0])
    lines += sum(str(name).count("\n") for name in frame.columns)
    frame = frame[kept].reset_index(drop=True)
    known = set(how.names or [])
    twice = [c for c in frame.columns if re.sub(r"\.\d+$", "", str(c)) in known and c not in known]
    if twice:
        warn_user(
            f"{path} has more than one column of the same name: the later ones are called "
            f"{listed(twice)}",
        )
    frame.columns = [str(name).strip() for name in frame.columns]
    # What pandas writes in front of a table unless it is told not to.
    frame = frame.drop(columns=[c for c in frame.columns[:1] if c == "Unnamed: 0"])
    return _frame(path, frame, lines[kept].astype(str), "line")


def _lines(frame: Any) -> NDArray[np.int64]:
    """The line at which each row begins, from 1: cells in quotes may hold the ends of some."""
    ends = np.zeros(len(frame) + 1, dtype=np.int64)
    for _, cells in frame.select_dtypes(exclude="number").items():
        ends[1:] += [cell.count("\n") if isinstance(cell, str) else 0 for cell in cells]
    found: NDArray[np.int64] = 1 + np.arange(len(frame)) + ends.cumsum()[:-1]
    return found


# Other files.


def _from_parquet(path: Path) -> Table:
    pd = need("pandas")
    need("pyarrow")
    frame = pd.read_parquet(path)
    names, kind = np.arange(len(frame)).astype(str), "row"
    if not isinstance(frame.index, pd.RangeIndex):
        names, kind = np.array([str(v) for v in frame.index]), str(frame.index.name or "row")
    frame.columns = [str(name) for name in frame.columns]
    return _frame(path, frame.reset_index(drop=True), names, kind)


def _from_sheet(path: Path, header: bool) -> Table:
    """The first sheet; pandas says what it needs for that."""
    frame = need("pandas").read_excel(path, header=0 if header else None, engine="openpyxl")
    kept = frame.notna().any(axis=1).to_numpy()
    lines = (1 + header + np.flatnonzero(kept)).astype(str)
    frame.columns = [str(name).strip() for name in frame.columns]
    return _frame(path, frame[kept].reset_index(drop=True), lines, "line")


def _frame(path: Path, frame: Any, names: NDArray[Any], kind: str) -> Table:
    if 0 in frame.shape:
        raise ValueError("it has a header but no rows" if frame.shape[1] else "it has no columns")
    check_names(frame.columns, "it")
    return Table(str(path), frame, names, kind, _digest(path))


def _from_arrays(path: Path, suffix: str) -> Table:
    labels, is_test = None, None
    if suffix == ".npz":
        with zipfile.ZipFile(path) as packed:
            _check_size(path, _HELD * sum(part.file_size for part in packed.infolist()))
        with np.load(path, allow_pickle=False) as stored:
            found = {name: np.asarray(stored[name]) for name in stored.files}
        x_key = next((k for k in X_KEYS if k in found), None)
        if x_key is None:
            raise ValueError(f"it has no array called {', '.join(X_KEYS)} but {list(found)}")
        x, labels = found[x_key], next((found[k] for k in Y_KEYS if k in found), None)
        x_test = found.get(x_key.replace("train", "test")) if "train" in x_key else None
        if x_test is not None and labels is not None and "y_test" in found:
            is_test = np.repeat([False, True], [len(x), len(x_test)])
            x, labels = np.concatenate([x, x_test]), np.concatenate([labels, found["y_test"]])
    else:
        x = np.load(path, allow_pickle=False)
    check_rows(x)
    if labels is not None and labels.shape != x.shape[:1]:
        raise ValueError(f"it has {len(x)} rows but labels of shape {labels.shape}")
    names, shape = np.arange(len(x)).astype(str), x.shape[1:] if x.ndim > 2 else None
    values = x.reshape(len(x), -1)
    return Table(str(path), values, names, "row", _digest(path), labels, is_test, shape)


def _named(name: str) -> Table:
    d = load_data(name)
    parts = {"train": (d.x_train, d.y_train), "test": (d.x_test, d.y_test)}
    labels = np.concatenate([y for _, y in parts.values()])
    if labels.dtype.kind in "iu" and d.class_names != tuple(map(str, range(len(d.class_names)))):
        labels = np.array(d.class_names)[labels]
    x = np.concatenate([x for x, _ in parts.values()])
    names = [f"{part}-{k}" for part, (x, _) in parts.items() for k in range(len(x))]
    content = x.tobytes() if d.image_shape else "\0".join(x).encode()
    digest = hashlib.sha256(content + labels.tobytes()).hexdigest()
    is_test = np.repeat([False, True], [len(d.x_train), len(d.x_test)])
    values: Any = x
    if not d.image_shape:
        pd = need("pandas")
        values = pd.DataFrame({"text": x})
    return Table(
        name, values, np.array(names), "row", f"sha256:{digest}", labels, is_test, d.image_shape
    )


def _from_folder(folder: Path) -> Table:
    """Images of one size: one folder per class, or a folder of images without labels."""
    paths = [p for p in sorted(folder.rglob("*")) if p.suffix.lower() in _PICTURES]
    names = [p.relative_to(folder) for p in paths]
    if not paths:
        raise ValueError(
            f"{folder} is a folder without images: give a file in it, or a folder with one folder "
            "of images per class"
        )
    lone = [path for path, name in zip(paths, names, strict=True) if len(name.parts) == 1]
    if 0 < len(lone) < len(paths):
        raise ValueError(f"{lone[0]} is in no folder of a class: move it to one, or away")
    pictures = [_picture(path) for path in paths]
    if any(picture.ndim == 3 for picture in pictures):
        pictures = [p if p.ndim == 3 else np.stack([p] * 3, axis=2) for p in pictures]
    shape = pictures[0].shape
    for path, picture in zip(paths, pictures, strict=True):
        if picture.shape != shape:
            sizes = [f"{p.shape[1]}x{p.shape[0]}" for p in (picture, pictures[0])]
            raise ValueError(
                f"{path} is {sizes[0]} but {paths[0]} {sizes[1]}: make them of one size"
            )
    x = np.stack(pictures).reshape(len(pictures), -1)
    labels = None if lone else np.array([name.parts[0] for name in names])
    digest = hashlib.sha256(x.tobytes() + "\0".join(map(str, names)).encode()).hexdigest()
    called = np.array([name.as_posix() for name in names])
    return Table(str(folder), x, called, "file", f"sha256:{digest}", labels, image_shape=shape)


def _picture(path: Path) -> NDArray[Any]:
    from PIL import Image

    with readable(path, " as an image"), Image.open(path) as image:
        gray = image.mode in ("1", "L", "I", "F", "I;16", "LA")
        return np.asarray(image.convert("L" if gray else "RGB"))
