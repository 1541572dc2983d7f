"""Tables as pandas frames: all that a file holds, and what its rows are called."""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import hashlib
import io
import itertools
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mnemosphere.data.encoding import check_names, listed
from mnemosphere.data.idx import read_idx
from mnemosphere.data.named import NAMES, load
from mnemosphere.data.paths import expand
from mnemosphere.machine import check_memory
from mnemosphere.schema import warn_user

_TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".npy", ".npz")
HELD = 3  # times the size of a file, at least, is what reading it takes
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
_LOOKED_AT = 1 << 20  # letters of a text
_X_KEYS, _Y_KEYS = ("x", "X", "data", "x_train", "X_train"), ("y", "Y", "labels", "y_train")


@dataclass(frozen=True, eq=False)
class Table:
    """All that a file holds, or a data set by its name."""

    name: str
    values: Any  # a frame with named columns, or an array (n, N)
    row_names: NDArray[Any]  # (n,) strings: lines of a text file, else rows counted from 0
    row_kind: str  # what these are: "line", "row", or the name of an index
    checksum: str
    labels: NDArray[Any] | None = None  # (n,) where they are stored beside the rows
    is_test: NDArray[np.bool_] | None = None  # (n,) where the data have a split of their own
    image_shape: tuple[int, ...] | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns; none of an array."""
        return list(self.values.columns) if isinstance(self.values, pd.DataFrame) else []


def read_table(source: str, max_rows: int | None = None) -> Table:
    """Read a file by its suffix (an IDX file by its content), or a data set by its name.

    max_rows: the first rows alone; a text file is then read no further. What would not fit into
    the memory that is free is refused before it is read.
    """
    table = _read(source, max_rows)
    if max_rows is None or len(table.row_names) <= max_rows:
        return table
    first = slice(0, max_rows)
    parts = {name: getattr(table, name) for name in ("row_names", "labels", "is_test")}
    parts = {name: None if part is None else part[first] for name, part in parts.items()}
    return replace(table, values=table.values[first], **parts)


def read_tables(sources: Sequence[str], max_rows: int | None = None) -> Table:
    """One file or data set, or files below each other that have the same columns."""
    alone = len(sources) == 1 and not glob.has_magic(sources[0])
    paths = list(sources) if alone else [str(path) for path in expand(sources)]
    if len(paths) == 1:
        return read_table(paths[0], max_rows)
    tables: list[Table] = []
    for path in paths:
        left = None if max_rows is None else max_rows - sum(len(t.row_names) for t in tables)
        if left == 0:
            break
        tables.append(read_table(path, left))
        first, last = tables[0], tables[-1]
        odd = sorted({*first.columns} ^ {*last.columns})
        if odd or not first.columns:
            what = f"column {odd[0]!r} is in one alone" if odd else "they are no tables"
            raise ValueError(f"{last.name} and {first.name} have other columns ({what})")
    names = [f"{Path(t.name).name}:{name}" for t in tables for name in t.row_names]
    digest = hashlib.sha256("".join(t.checksum for t in tables).encode()).hexdigest()
    values = pd.concat([t.values for t in tables], ignore_index=True)
    called = f"{paths[0]} and {len(tables) - 1} more"
    return Table(called, values, np.array(names), tables[0].row_kind, f"sha256:{digest}")


def _read(source: str, max_rows: int | None) -> Table:
    path = Path(source)
    if source in NAMES:
        return _named(source)
    if path.is_dir():
        return _from_folder(path)
    if not path.exists():
        raise FileNotFoundError(
            f"no file {path}, and no data set of that name: check the path, or try one of "
            f"{', '.join(NAMES)}"
        )
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the path of one")
    name = path.name.lower()
    suffix = next((s for s in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(s)), "")
    if not suffix and "ubyte" not in name:
        raise ValueError(
            f"{path}: cannot read files of type {path.suffix!r}, try one of {', '.join(SUFFIXES)}, "
            "or an IDX file (…-ubyte)"
        )
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty: give a file with rows")
    try:
        if suffix in _TEXT:
            return _from_text(path, suffix, max_rows)
        check_size(path, path.stat().st_size)
        digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        if suffix in (".parquet", ".feather"):
            return _from_columns(path, suffix, digest)
        return _from_arrays(path, suffix, digest)
    except (
        ValueError, EOFError, OSError, zlib.error, zipfile.BadZipFile, csv.Error,
        pd.errors.ParserWarning,
    ) as error:  # fmt: skip
        raise ValueError(
            f"{path} cannot be read as {suffix or 'IDX'} ({one_line(error)}): write it again, or "
            "give it the suffix of what it is"
        ) from error


def check_size(path: Path, n_bytes: int) -> None:
    """ValueError if memory does not hold what reading so many bytes takes."""
    check_memory(HELD * n_bytes, "cpu", f"reading {path}", "take a part of it, with --max-rows")


def _read_text(path: Path, suffix: str, max_rows: int | None) -> str:
    """The text, with plain ends of lines; no further than max_rows need it."""
    opened = gzip.open if suffix.endswith(".gz") else open
    encoding = _text_encoding(path, opened, whole=max_rows is None)
    with opened(path, "rt", encoding=encoding, newline=None) as stream:
        if max_rows is None:
            parts, size = [], 0
            while part := stream.read(1 << 24):
                size += len(part)
                check_size(path, size)
                parts.append(part)
            return "".join(parts)
        read: list[str] = []

        def lines() -> Iterator[str]:
            for line in stream:
                read.append(line)
                yield line

        # Rows of a table and of a `csv.reader` end at the same lines: cells may hold several.
        first = next(iter(lines()), "")
        rows = csv.reader(itertools.chain([first], lines()), delimiter=_separator(suffix, first))
        for _ in itertools.islice(rows, max_rows + 1):
            pass
        return "".join(read)


def _text_encoding(path: Path, opened: Any, *, whole: bool) -> str:
    """UTF-8, UTF-16 with its mark, or else Windows-1252, of which Latin-1 is a part."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(path, "rb") as stream:
        start = stream.read(4)
        if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        try:
            decoder.decode(start)
            while part := stream.read(_LOOKED_AT):
                decoder.decode(part)
                if not whole:
                    break
            decoder.decode(b"", final=whole)
        except UnicodeDecodeError as error:
            if b"\0" in start + error.object:
                raise ValueError("it holds bytes that are no text") from error
        else:
            return "utf-8-sig"
    warn_user(
        f"{path} is not UTF-8, so it is read as Windows-1252 (Latin-1): if letters are wrong, save "
        "it as UTF-8",
    )
    return "cp1252"


def _separator(suffix: str, first: str) -> str:
    return "\t" if suffix.startswith(".tsv") else max(",;\t", key=first.count)


def _decimal(text: str, comma: str) -> str:
    """The decimal mark: a comma if cells are separated by something else and have it."""
    ends = rf"(?:^|{comma})\s*[+-]?\d+{{}}\d+\s*(?:{comma}|$)"
    has = {mark: re.search(ends.format(mark), text, re.MULTILINE) for mark in (",", r"\.")}
    return "," if comma != "," and has[","] and not has[r"\."] else "."


def _named(name: str) -> Table:
    d = load(name)
    parts = {"train": (d.x_train, d.y_train), "test": (d.x_test, d.y_test)}
    labels = np.concatenate([y for _, y in parts.values()])
    if labels.dtype.kind in "iu" and d.class_names != tuple(map(str, range(len(d.class_names)))):
        labels = np.array(d.class_names)[labels]
    x = np.concatenate([x for x, _ in parts.values()])
    names = [f"{part}-{k}" for part, (x, _) in parts.items() for k in range(len(x))]
    content = x.tobytes() if d.image_shape else "\0".join(x).encode()
    digest = hashlib.sha256(content + labels.tobytes()).hexdigest()
    is_test = np.repeat([False, True], [len(d.x_train), len(d.x_test)])
    values = x if d.image_shape else pd.DataFrame({"text": x})
    return Table(
        name, values, np.array(names), "row", f"sha256:{digest}", labels, is_test, d.image_shape
    )


def _from_folder(folder: Path) -> Table:
    """Images of one size: one folder per class, or a folder of images without labels."""
    from PIL import Image

    paths = [p for p in sorted(folder.rglob("*")) if p.suffix.lower() in _PICTURES]
    names = [p.relative_to(folder) for p in paths]
    if not paths:
        raise ValueError(
            f"{folder} is a folder without images: give a file in it, or a folder with one folder "
            "of images per class"
        )
    of_class = [len(name.parts) > 1 for name in names]
    if any(of_class) and not all(of_class):
        lone = names[of_class.index(False)]
        raise ValueError(f"{folder / lone} is in no folder of a class: move it to one, or away")
    pictures = []
    for path in paths:
        try:
            with Image.open(path) as image:
                gray = image.mode in ("1", "L", "I", "F", "I;16", "LA")
                pictures.append(np.asarray(image.convert("L" if gray else "RGB")))
        except OSError as error:
            raise ValueError(f"{path} cannot be read as an image ({one_line(error)})") from error
    if any(picture.ndim == 3 for picture in pictures):
        pictures = [p if p.ndim == 3 else np.stack([p] * 3, axis=2) for p in pictures]
    shape = pictures[0].shape
    odd = next((k for k, picture in enumerate(pictures) if picture.shape != shape), None)
    if odd is not None:
        sizes = [f"{p.shape[1]}x{p.shape[0]}" for p in (pictures[odd], pictures[0])]
        raise ValueError(
            f"{paths[odd]} is {sizes[0]} but {paths[0]} {sizes[1]}: make them of one size"
        )
    x = np.stack(pictures).reshape(len(pictures), -1)
    labels = np.array([name.parts[0] for name in names]) if all(of_class) else None
    digest = hashlib.sha256(x.tobytes() + "\0".join(map(str, names)).encode()).hexdigest()
    called = np.array([name.as_posix() for name in names])
    return Table(str(folder), x, called, "file", f"sha256:{digest}", labels, image_shape=shape)


def _from_text(path: Path, suffix: str, max_rows: int | None) -> Table:
    text = _read_text(path, suffix, max_rows)
    body = text.lstrip("\n")
    skipped = len(text) - len(body)
    first = body.partition("\n")[0]
    comma = _separator(suffix, first)
    head = next(csv.reader([first], delimiter=comma), [])
    has_header = not all(_is_number(cell) for cell in head) or head == [
        str(k) for k in range(len(head))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # of cells that would be lost
        frame = pd.read_csv(
            io.StringIO(body), sep=comma, header=0 if has_header else None, index_col=False,
            skip_blank_lines=False, skipinitialspace=True, low_memory=False,
            decimal=_decimal(body[:_LOOKED_AT], comma),
        )  # fmt: skip
    # Blank lines are read, so that the place of a row tells its line.
    lines = np.arange(len(frame)) + 1 + has_header
    if '"' in body:  # a cell in quotes may hold the end of a line
        reader = csv.reader(io.StringIO(body), delimiter=comma)
        starts, end = [], 0
        for _ in reader:
            starts.append(end + 1)
            end = reader.line_num
        lines = np.array(starts[has_header:][: len(frame)])
    kept = frame.notna().any(axis=1).to_numpy()
    frame = frame[kept].reset_index(drop=True)
    twice = [c for c in frame.columns if re.sub(r"\.\d+$", "", str(c)) in head and c not in head]
    if has_header and twice:
        warn_user(
            f"{path} has more than one column of the same name: the later ones are called "
            f"{listed(twice)}",
        )
    frame.columns = [str(name).strip() for name in frame.columns]
    # What pandas writes in front of a table unless it is told not to.
    frame = frame.drop(columns=[c for c in frame.columns[:1] if c == "Unnamed: 0"])
    digest = hashlib.sha256(text.encode()).hexdigest()
    return _frame(path, frame, (lines[kept] + skipped).astype(str), "line", f"sha256:{digest}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _from_columns(path: Path, suffix: str, checksum: str) -> Table:
    read = pd.read_parquet if suffix == ".parquet" else pd.read_feather
    try:
        frame = read(path)
    except ImportError as error:
        raise ValueError("needs pyarrow: pip install 'mnemosphere[parquet]'") from error
    names, kind = np.arange(len(frame)).astype(str), "row"
    if not isinstance(frame.index, pd.RangeIndex):
        names, kind = np.array([str(v) for v in frame.index]), str(frame.index.name or "row")
    frame.columns = [str(name) for name in frame.columns]
    return _frame(path, frame.reset_index(drop=True), names, kind, checksum)


def _frame(path: Path, frame: Any, names: NDArray[Any], kind: str, checksum: str) -> Table:
    if 0 in frame.shape:
        raise ValueError("it has a header but no rows" if frame.shape[1] else "it has no columns")
    check_names(frame.columns, "it")
    return Table(str(path), frame, names, kind, checksum)


def _from_arrays(path: Path, suffix: str, checksum: str) -> Table:
    labels, is_test = None, None
    if suffix == ".npz":
        with zipfile.ZipFile(path) as packed:
            check_size(path, sum(part.file_size for part in packed.infolist()))
        with np.load(path, allow_pickle=False) as stored:
            found = {name: np.asarray(stored[name]) for name in stored.files}
        x_key = next((k for k in _X_KEYS if k in found), None)
        if x_key is None:
            raise ValueError(f"it has no array called {', '.join(_X_KEYS)} but {list(found)}")
        x, labels = found[x_key], next((found[k] for k in _Y_KEYS if k in found), None)
        x_test = found.get(x_key.replace("train", "test")) if "train" in x_key else None
        if x_test is not None and labels is not None and "y_test" in found:
            is_test = np.repeat([False, True], [len(x), len(x_test)])
            x, labels = np.concatenate([x, x_test]), np.concatenate([labels, found["y_test"]])
    elif suffix == ".npy":
        x = np.load(path, allow_pickle=False)
    else:
        x = read_idx(path)
        beside = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
        labels = read_idx(beside) if beside != path and beside.is_file() else None
    if x.ndim < 2 or 0 in x.shape or x.dtype.kind not in "biuf":
        raise ValueError(f"its rows must be numbers (n, features), got {x.dtype} {x.shape}")
    if labels is not None and labels.shape != x.shape[:1]:
        raise ValueError(f"it has {len(x)} rows but labels of shape {labels.shape}")
    names, shape = np.arange(len(x)).astype(str), x.shape[1:] if x.ndim > 2 else None
    x = x.reshape(len(x), -1)
    return Table(str(path), x, names, "row", checksum, labels, is_test, shape)


def one_line(error: BaseException) -> str:
    """What an exception says, without line breaks."""
    return " ".join(str(error).split())
