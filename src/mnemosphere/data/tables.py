"""Read a user's own table: .npz, .npy, .csv or .parquet."""

import csv
import itertools
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

_X_KEYS = ("x", "X", "data", "x_train", "X_train")
_Y_KEYS = ("y", "Y", "label", "labels", "target", "targets", "y_train", "Y_train")
_LABEL_COLUMNS = ("label", "labels", "class", "target", "y")


class Table(NamedTuple):
    """Numeric rows `x` (n, d), labels `y` (n,) or None, and the names of the d columns or None."""

    x: NDArray[Any]
    y: NDArray[Any] | None
    feature_names: tuple[str, ...] | None


def read_table(path: str | Path, *, label: str | int | None = None) -> Table:
    """Read rows, and labels where there are any, from a file; its suffix gives the format.

    `.csv` and `.parquet`: `label` is the name or the index of the label column (negative counts
    from the end). Without it, the label column is the one called label, labels, class, target or
    y (in any case); else the last column if it is not numeric; else there are no labels. A CSV
    file may start with a header, which is told by text in its first row; the separator is a
    comma, a semicolon or a tab.

    `.npz`: the rows are the array called x, X, data, x_train or X_train, the labels the one called
    y, Y, label(s), target(s), y_train or Y_train; `label` names another array, or gives the index
    of a column of the rows. `.npy`: only an index makes sense as `label`. Images (n, H, W) are
    flattened. Nothing is unpickled.

    `.parquet` needs pyarrow or polars.

    Labels that are whole numbers come back as int64, text as strings. Missing labels stay as they
    are: NaN among numbers, "" among text. Missing or infinite numbers in the rows are an error.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: pass one of the files in it")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(
            f"{path}: cannot read files of type {path.suffix!r}, try one of {', '.join(_READERS)}"
        )
    if isinstance(label, bool) or not isinstance(label, str | int | None):
        raise TypeError(f"label must be a column's name or index, got {label!r}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return _checked(path, reader(path, label))


def _checked(path: Path, table: Table) -> Table:
    x, y, names = table
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{path}: the rows must be numbers, got values of type {x.dtype}")
    if x.ndim < 2:
        raise ValueError(f"{path}: the rows must form a table (n, d), got shape {x.shape}")
    if len(x) == 0:
        raise ValueError(f"{path} has no rows")
    if x.size == 0:
        raise ValueError(f"{path} has no columns besides the label")
    x = x.reshape(len(x), -1)
    if x.dtype.kind == "f" and not (finite := np.isfinite(x)).all():
        i, j = np.argwhere(~finite)[0]
        column = repr(names[j]) if names else str(j)
        raise ValueError(
            f"{path}: row {i}, column {column} is {x[i, j]} (rows counted from 0): "
            "fill in missing values or drop the row"
        )
    if y is not None:
        if y.ndim == 0 or len(y) != len(x):
            raise ValueError(f"{path}: {len(x)} rows, but labels of shape {y.shape}")
        y = _tidy_labels(path, y)
    return Table(x, y, names)


def _tidy_labels(path: Path, y: NDArray[Any]) -> NDArray[Any]:
    if y.dtype.kind in "OT":
        values = ["" if value is None else value for value in y.tolist()]
        if not all(isinstance(value, str) for value in values):
            raise ValueError(f"{path}: labels must be numbers or text, got a mixture or objects")
        return np.array(values, dtype=np.str_)
    if y.dtype.kind not in "biufU":
        raise ValueError(f"{path}: labels must be numbers or text, got type {y.dtype}")
    # A matrix (n, C) holds soft labels, which stay as they are even if all are 0 or 1.
    if y.dtype.kind == "f" and y.ndim == 1 and np.isfinite(y).all() and (y == np.rint(y)).all():
        return y.astype(np.int64)
    return y


def _split_column(path: Path, x: NDArray[Any], index: int) -> Table:
    """Take column `index` of x out as the labels."""
    if x.ndim != 2:
        raise ValueError(f"{path}: label={index} needs rows (n, d), got shape {x.shape}")
    column = _column_index(path, index, None, x.shape[1])
    return Table(np.delete(x, column, axis=1), x[:, column], None)


def _column_index(path: Path, label: str | int, names: Sequence[str] | None, n_columns: int) -> int:
    if isinstance(label, int):
        if not -n_columns <= label < n_columns:
            raise ValueError(f"{path}: no column {label}, there are {n_columns}")
        return label % n_columns
    if names is None:
        raise ValueError(f"{path} has no column names: pass label as an index, got {label!r}")
    if label not in names:
        raise ValueError(f"{path}: no column {label!r}, there are {_shorten(names)}")
    return names.index(label)


def _guess_label(names: Sequence[str] | None, last_is_numeric: bool, n_columns: int) -> int | None:
    lowered = [name.strip().lower() for name in names or ()]
    for candidate in _LABEL_COLUMNS:
        if candidate in lowered:
            return lowered.index(candidate)
    return None if last_is_numeric else n_columns - 1


def _shorten(names: Sequence[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(repr, names[:limit])) + more


# --- NumPy -----------------------------------------------------------------------------------


def _read_npy(path: Path, label: str | int | None) -> Table:
    if isinstance(label, str):
        raise ValueError(f"{path} has no column names: pass label as an index, got {label!r}")
    with path.open("rb") as stream:
        x = _load_numpy(path, stream, b"\x93NUMPY")
    return Table(x, None, None) if label is None else _split_column(path, x, label)


def _read_npz(path: Path, label: str | int | None) -> Table:
    with path.open("rb") as stream, _load_numpy(path, stream, b"PK") as stored:
        names = tuple(stored.files)
        x_key = next((key for key in _X_KEYS if key in names), None)
        if x_key is None:
            raise ValueError(
                f"{path}: no array called {', '.join(_X_KEYS)}, "
                f"there is {_shorten(names) or 'none at all'}"
            )
        if isinstance(label, str) and label not in names:
            raise ValueError(f"{path}: no array {label!r}, there are {_shorten(names)}")
        x = _load_member(path, stored, x_key)
        if isinstance(label, int):
            return _split_column(path, x, label)
        y_key = label or next((key for key in _Y_KEYS if key in names), None)
        return Table(x, None if y_key is None else _load_member(path, stored, y_key), None)


def _load_numpy(path: Path, stream: BinaryIO, magic: bytes) -> Any:
    # np.load takes anything unknown for a pickle, and its message then misleads.
    if stream.read(len(magic)) != magic:
        raise ValueError(f"{path} is not a {path.suffix} file")
    stream.seek(0)
    with _numpy_errors(path):
        return np.load(stream, allow_pickle=False)


def _load_member(path: Path, stored: Any, key: str) -> NDArray[Any]:
    with _numpy_errors(path):
        member = stored[key]
    if not isinstance(member, np.ndarray):
        raise ValueError(f"{path}: {key!r} is not an array: save the file with np.savez")
    return member


@contextmanager
def _numpy_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read ({_one_line(error)}): save plain arrays of numbers or text"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


# --- CSV -------------------------------------------------------------------------------------


def _read_csv(path: Path, label: str | int | None) -> Table:
    # utf-8-sig: spreadsheets put a byte order mark in front.
    with path.open(encoding="utf-8-sig", newline="") as stream:
        try:
            return _parse_csv(path, stream, label)
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path} is not a CSV file in UTF-8 ({_one_line(error)})") from error


def _parse_csv(path: Path, stream: TextIO, label: str | int | None) -> Table:
    rows = _csv_rows(stream)
    head = list(itertools.islice(rows, 2))
    if not head:
        raise ValueError(f"{path} is empty")
    first = head[0][1]
    n_columns = len(first)
    names = tuple(name.strip() for name in first) if _is_header([row for _, row in head]) else None
    body = head[1:] if names else head
    if not body:
        raise ValueError(f"{path} has a header but no rows")
    if label is None:
        target = _guess_label(names, not _is_text(body[0][1][-1]), n_columns)
    else:
        target = _column_index(path, label, names, n_columns)

    values, labels = array("d"), []
    for line, row in itertools.chain(body, rows):
        if len(row) != n_columns:
            raise ValueError(f"{path}, line {line}: {len(row)} cells, expected {n_columns}")
        if target is not None:
            labels.append(row.pop(target).strip())
        try:
            values.extend(map(float, row))
        except ValueError as error:
            j = next(j for j, cell in enumerate(row) if not _is_number(cell))
            column = j if target is None or j < target else j + 1
            where = repr(names[column]) if names else str(column)
            what = f"{row[j]!r} is not a number" if row[j].strip() else "the cell is empty"
            raise ValueError(
                f"{path}, line {line}, column {where}: {what}; give numbers there, drop the "
                "column, or pass label= if it holds the labels"
            ) from error
    n_features = n_columns - (target is not None)
    if n_features == 0:
        raise ValueError(f"{path} has no columns besides the label")
    x = np.array(values).reshape(-1, n_features)
    y = None if target is None else _parse_labels(labels)
    features = names and tuple(name for j, name in enumerate(names) if j != target)
    return Table(x, y, features)


def _csv_rows(stream: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each line that is not blank."""
    first = stream.readline()
    reader = csv.reader(
        itertools.chain([first], stream), delimiter=max(",;\t", key=first.count), strict=True
    )
    for row in reader:
        if any(cell.strip() for cell in row):
            yield reader.line_num, row


def _is_header(head: Sequence[Sequence[str]]) -> bool:
    """Whether the first row of a file is a header.

    It is if all its cells are text, if one is text above a number, or if its text cells are usual
    names of a label column and the others count 0, 1, 2, … (what data frames write for columns
    without names). Text alone does not tell: rows without a header may end in a text label.
    """
    first, below = head[0], head[1] if len(head) > 1 else ()
    text = [cell.strip().lower() for cell in first if _is_text(cell)]
    numbers = [cell.strip() for cell in first if _is_number(cell)]
    counts = numbers == [str(i) for i in range(len(numbers))]
    return (
        len(text) == len(first)
        or any(_is_text(a) and _is_number(b) for a, b in zip(first, below, strict=False))
        or (bool(text) and set(text) <= set(_LABEL_COLUMNS) and counts)
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_text(cell: str) -> bool:
    return bool(cell.strip()) and not _is_number(cell)


def _parse_labels(cells: list[str]) -> NDArray[Any]:
    """Numbers if every cell that is not empty is one, else text."""
    if any(map(_is_text, cells)) or not any(cells):
        return np.array(cells, dtype=np.str_)
    return np.array([float(cell) if cell else np.nan for cell in cells])


# --- Parquet ---------------------------------------------------------------------------------


def _read_parquet(path: Path, label: str | int | None) -> Table:
    columns = _parquet_columns(path)
    names = tuple(columns)
    if not names:
        raise ValueError(f"{path} has no columns")
    if label is None:
        last = columns[names[-1]]
        target = _guess_label(names, last.dtype.kind in "biuf", len(names))
    else:
        target = _column_index(path, label, names, len(names))
    features = tuple(name for j, name in enumerate(names) if j != target)
    if not features:
        raise ValueError(f"{path} has no columns besides the label")
    for name in features:
        if columns[name].dtype.kind not in "biuf":
            raise ValueError(
                f"{path}: column {name!r} is not numeric; give numbers there, drop the column, "
                "or pass label= if it holds the labels"
            )
    x = np.column_stack([columns[name] for name in features])
    return Table(x, None if target is None else columns[names[target]], features)


def _parquet_columns(path: Path) -> dict[str, NDArray[Any]]:
    for read in (_parquet_by_pyarrow, _parquet_by_polars):
        try:
            columns = read(path)
        except ImportError:
            continue
        except Exception as error:  # each library raises classes of its own
            raise ValueError(f"{path} cannot be read as Parquet ({_one_line(error)})") from error
        # pandas stores an index that is not a plain range as a column of this name.
        return {k: v for k, v in columns.items() if not k.startswith("__index_level_")}
    raise ValueError(f"{path}: reading Parquet files needs pyarrow: pip install pyarrow")


def _parquet_by_pyarrow(path: Path) -> dict[str, NDArray[Any]]:
    from pyarrow import parquet

    table = parquet.read_table(path)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _parquet_by_polars(path: Path) -> dict[str, NDArray[Any]]:
    import polars

    return {series.name: series.to_numpy() for series in polars.read_parquet(path)}


_READERS: dict[str, Callable[[Path, str | int | None], Table]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
