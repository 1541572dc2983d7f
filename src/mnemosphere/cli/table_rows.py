"""The rows that a command works on: which columns of a table are features, label and names."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mnemosphere.cli.tables import Table, one_line
from mnemosphere.data.encoding import listed
from mnemosphere.data.idx import read_idx
from mnemosphere.schema import warn_user

_LABEL_NAMES = ("label", "target", "class", "y")
_SHOWN = 5  # rows or columns that a message names
_MOSTLY = 0.5  # share of missing values from which on the last column is hardly the label
_MOST_HELD_OUT = 20_000

if TYPE_CHECKING:
    from mnemosphere.data.dataset import FileDataset
    from mnemosphere.data.files import RawRows


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that an estimator takes, with their labels and what the user calls them."""

    table: Table
    x: Any  # (n, N) a frame of numbers, or an array as stored
    y: NDArray[Any] | None  # (n,); an array of objects with None where some labels are missing
    names: NDArray[Any]  # (n,) strings
    kind: str  # what the names are: "line", "row", or the column they come from
    label: str | None  # the label column
    is_test: NDArray[np.bool_] | None = None
    images: Any = None  # (n, pixels) what x was encoded from, where it was
    text: str | None = None  # the column, if x holds texts alone
    in_memory: Literal[True] = True

    def __len__(self) -> int:
        return len(self.names)

    @property
    def texts(self) -> list[str]:
        """The texts, empty if there is none; empty if these rows are others."""
        if self.text is None:
            return []
        return [value if isinstance(value, str) else "" for value in self.x.iloc[:, 0]]

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """Which rows have a label, (n,)."""
        if self.y is None:
            return np.zeros(len(self), dtype=bool)
        return np.array([value is not None for value in self.y], dtype=bool)

    def names_of(self, rows: NDArray[Any]) -> dict[int, str]:
        """Names of some rows, by their places."""
        return {int(k): str(self.names[k]) for k in rows.reshape(-1) if k >= 0}

    def batches(self) -> Iterator[Self]:
        """All rows in one part: see `LargeRows`."""
        yield self

    def take(self, at: NDArray[Any]) -> Self:
        """Some of the rows, by their places or a mask."""
        x = self.x.iloc[at] if isinstance(self.x, pd.DataFrame) else self.x[at]
        y = None if self.y is None else self.y[at]
        if y is not None and y.dtype == object and all(value is not None for value in y):
            y = np.array(y.tolist())
        is_test = None if self.is_test is None else self.is_test[at]
        images = None if self.images is None else self.images[at]
        return replace(self, x=x, y=y, names=self.names[at], is_test=is_test, images=images)

    def encoded(self, encoder: Any) -> Self:
        """The same as an encoder of images gives them to a model; as they are without one."""
        if encoder is None:
            return self
        return replace(self, x=encoder.transform(self.x), images=np.asarray(self.x))

    def part(self, split: str | None, default: str = "test") -> Self:
        """The rows of a split: 'train', 'test' or 'all'; all rows where there is no split."""
        if split not in (None, "train", "test", "all"):
            raise ValueError(f"--split must be train, test or all, got {split!r}")
        if self.is_test is None or not self.is_test.any():
            if split in ("train", "test"):
                raise ValueError(f"{self.table.name} has no {split} rows of its own: drop --split")
            return self
        chosen = split or default
        return self if chosen == "all" else self.take(self.is_test == (chosen == "test"))

    def called(self, names: Sequence[str]) -> Self:
        """The rows that the user calls by these names."""
        found = [np.flatnonzero(self.names == name) for name in names]
        for name, at in zip(names, found, strict=True):
            if len(at) == 0:
                raise ValueError(
                    f"no {self.kind} {name!r} in {self.table.name}: there are {self.names[0]} to "
                    f"{self.names[-1]}"
                )
        return self.take(np.concatenate(found))

    def hold_out(self, fraction: float, seed: int) -> Self:
        """The same rows, with that share of each class marked as test rows."""
        if not 0 <= fraction < 1:
            raise ValueError(f"--test-fraction must lie in [0, 1), got {fraction}")
        import torch

        from mnemosphere.data.dataset import held_out

        labeled = torch.from_numpy(self.labeled)
        targets = torch.zeros(len(self), 1)
        if self.y is not None and bool(labeled.any()) and fraction > 0:
            _, index = np.unique(self.y[self.labeled].astype(str), return_inverse=True)
            targets = torch.zeros(len(self), int(index.max()) + 1)
            targets[labeled.nonzero()[:, 0], torch.from_numpy(index)] = 1.0
        held = held_out(targets, fraction, generator=torch.Generator().manual_seed(seed))
        return replace(self, is_test=held.numpy())


def choose(
    table: Table, *, label: str | None = None, guess_label: str = "last", id: str | None = None,
    drop: Sequence[str] = (), features: Sequence[str] = (), text: str | None = None,
) -> Rows:  # fmt: skip
    """Say which columns are what.

    label: a column, or a file with the labels. Without it, guess_label decides: "last" takes a
    column called label, target, class or y, else the last one; "named" only the former; "no" none.
    features: these columns alone, in this order. text: the one of them that holds texts.
    """
    columns, values, y = table.columns, table.values, table.labels
    names, kind = table.row_names, table.row_kind
    if not columns:  # the columns of an array are called by their numbers
        columns = [str(k) for k in range(values.shape[1])]
        guess_label = "no"
    if label is not None and label not in columns and Path(label).is_file():
        other = _read_labels(Path(label))
        if len(other) != len(names):
            raise ValueError(f"{label} has {len(other)} labels, {table.name} {len(names)} rows")
        y, label = other, None
    elif label is not None or y is None:
        missing = _mostly_missing(values) if label is None else set()
        label = find_label(columns, table.name, label, guess_label, id, drop, features, missing)
    used = used_columns(columns, table.name, label, id, drop, features)
    if isinstance(values, pd.DataFrame):
        x: Any = _check_finite(table, values[used])
        if features and text is None:  # asked for by name: an id is as good as any number then
            whole = [c for c in x if pd.api.types.is_integer_dtype(x[c].dtype)]
            x = x.astype(dict.fromkeys(whole, "float64"))
        column = values.get(label) if label is not None else None
        names, kind = (names, kind) if id is None else (values[id].astype(str).to_numpy(), id)
    else:
        place = columns.index
        x = values if len(used) == len(columns) else values[:, [place(c) for c in used]]
        column = None if label is None else pd.Series(values[:, place(label)])
        names, kind = (names, kind) if id is None else (values[:, place(id)].astype(str), id)
    y = labels_of(pd.Series(y) if column is None else column) if (y is not None or label) else None
    named = np.asarray(names, dtype=str)
    return Rows(table, x, y, named, kind, label, table.is_test, text=text)


def find_label(
    columns: Sequence[str], where: str, label: str | None, guess_label: str, id: str | None,
    drop: Sequence[str], features: Sequence[str], missing: set[str] | None = None,
) -> str | None:  # fmt: skip
    """The label column: see `choose`; missing: columns that the last one is not looked for in."""
    if label is not None:
        return _find(label, columns, where)
    left = [c for c in columns if c not in {id, *drop, *features}]
    called = next((c for word in _LABEL_NAMES for c in left if c.lower() == word), None)
    if guess_label == "no" or called is not None or guess_label != "last" or not left:
        return None if guess_label == "no" else called
    full = [c for c in left if c not in (missing or ())] or left
    if full[-1] != left[-1]:
        warn_user(
            f"the last column {left[-1]!r} is mostly missing values, so {full[-1]!r} is taken for the "
            "label: name another one with --label",
        )
    return full[-1]


def _mostly_missing(values: Any) -> set[str]:
    """Columns of a frame in which most values are missing."""
    if not isinstance(values, pd.DataFrame):
        return set()
    return {name for name in values if values[name].isna().mean() > _MOSTLY}


def used_columns(
    columns: Sequence[str], where: str, label: str | None, id: str | None, drop: Sequence[str],
    features: Sequence[str],
) -> list[str]:  # fmt: skip
    """The columns that are features."""
    for name in (*drop, *features, *([] if id is None else [id])):
        _find(name, columns, where)
    used = list(features) or [c for c in columns if c not in {label, id, *drop}]
    if not used or label in used:
        raise ValueError(f"{where}: no feature is left besides the label {label!r}")
    return used


def _read_labels(path: Path) -> NDArray[Any]:
    """Labels from a .npy or an IDX file."""
    try:
        found = np.load(path, allow_pickle=False) if path.suffix == ".npy" else read_idx(path)
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read as labels ({one_line(error)}): use .npy or IDX"
        ) from error
    if found.ndim != 1:
        raise ValueError(f"{path} has labels of shape {found.shape}: one per row is wanted")
    return np.asarray(found)


def _find(name: str, columns: Sequence[str], where: str) -> str:
    if name in columns:
        return name
    if re.fullmatch(r"-\d+", name) and int(name) >= -len(columns):
        return columns[int(name)]
    near = get_close_matches(name, columns, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {listed(columns)}"
    raise ValueError(f"{where} has no column {name!r}: {hint}")


def _check_finite(table: Table, frame: Any) -> Any:
    """The frame; ValueError names infinite numbers by what the user calls their rows."""
    for name in frame:
        column = frame[name]
        if not pd.api.types.is_float_dtype(column.dtype):
            continue
        at = np.flatnonzero(np.isinf(column.to_numpy(dtype=np.float64, na_value=np.nan)))
        if len(at):
            where = ", ".join(map(str, table.row_names[at[:_SHOWN]]))
            raise ValueError(
                f"{table.name}: infinite numbers in {name!r}, {table.row_kind} {where}"
                f"{', …' if len(at) > _SHOWN else ''}: leave them empty, or leave the column out "
                f"with --drop {name}"
            )
    return frame


def labels_of(column: Any) -> NDArray[Any]:
    """Labels as whole numbers, truth values or text; None where there is none."""
    missing = column.isna().to_numpy() | (column == "").fillna(False).to_numpy(dtype=bool)
    known = column[~missing]
    if pd.api.types.is_bool_dtype(known.dtype):
        found = known.to_numpy(dtype=bool)
    elif pd.api.types.is_numeric_dtype(known.dtype):
        found = known.to_numpy(dtype=None if isinstance(known.dtype, np.dtype) else np.float64)
        if found.dtype.kind in "uif" and (found == np.rint(found)).all():
            found = found.astype(np.int64)
    else:
        found = np.array([str(value) for value in known], dtype=np.str_)
    if not missing.any():
        return np.asarray(found)
    out: NDArray[Any] = np.full(len(column), None, dtype=object)
    out[~missing] = found.tolist()
    return out


@dataclass(frozen=True, eq=False)
class LargeRows:
    """Rows of files that memory does not hold, part by part: see `Rows`."""

    table: Table  # all but its values
    x: FileDataset
    label: str | None
    id: str | None = None  # the column that names rows, which then have no labels
    kind: str = "row"
    y: None = None  # they are in the files
    images: None = None
    in_memory: Literal[False] = False
    encoder: Any = None  # of the images that a model is given
    order: tuple[str, ...] = ()  # columns that a model was given, with those it does not use

    @classmethod
    def open(
        cls, files: Sequence[Path], *, label: str | None = None, guess_label: str = "last",
        id: str | None = None, drop: Sequence[str] = (), features: Sequence[str] = (),
        named: bool = False, wanted: Sequence[str] = (), memory: int,
    ) -> LargeRows:  # fmt: skip
        """Say which columns are what: see `choose`.

        named: rows are called by their `id` and have no labels. wanted: the columns that a model
        takes, where the files have names of columns.
        """
        from mnemosphere.data.dataset import Dataset
        from mnemosphere.data.files import column_names

        first = files[0]
        names, source = column_names(first), str(first)
        used = None
        if names:
            features = wanted or features
            label = find_label(names, source, label, guess_label, id, drop, features)
            used = used_columns(names, source, label, id, drop, features)
        elif drop or features or id:
            raise ValueError(f"{first} has no names of columns: leave --id, --drop, --features out")
        named &= id is not None
        opened = Dataset.open(
            list(files), label=id if named else label, features=used, memory=memory
        )
        about = [[r.path.name, r.n_bytes, r.n_rows] for r in opened.files.readers]
        told = hashlib.sha256(repr(about).encode())
        called = source if len(files) == 1 else f"{source} and {len(files) - 1} more"
        table = Table(called, None, np.empty(0), "row", f"files:{told.hexdigest()}")
        return cls(table, opened, label, id if named else None, str(id) if named else "row")

    def __len__(self) -> int:
        return self.x.n_rows

    def batches(self) -> Iterator[Rows]:
        """The rows in parts that memory holds, in the order of the files."""
        from mnemosphere.data.files import ahead

        for raw in ahead(self.x.files.pieces()):
            yield self.part_of(raw)

    def hold_out(self, fraction: float, seed: int) -> tuple[LargeRows, Rows | None]:
        """(the others, that share of the rows as far as memory holds them)."""
        if not 0 <= fraction < 1:
            raise ValueError(f"--test-fraction must lie in [0, 1), got {fraction}")
        n = min(round(fraction * len(self)), _MOST_HELD_OUT)
        if n == 0:
            return self, None
        raw = self.x.files.sample(n, seed)
        rest = replace(self.x, files=self.x.files.without(raw.number))
        return replace(self, x=rest), self.part_of(raw)

    def names_of(self, rows: NDArray[Any]) -> dict[int, str]:
        """Names of rows as a model calls them that was fitted to all of these."""
        numbers = {int(k): int(k) for k in rows.reshape(-1) if k >= 0}
        if self.x.fits:  # then it was given as an array, without those left out
            kept = self.x.files.numbers()
            numbers = {k: int(kept[k]) for k in numbers}
        return {k: self.name(number) for k, number in numbers.items()}

    def name(self, number: int) -> str:
        """What a row is called, by its number over all files."""
        path, row = self.x.files.where(number)
        return str(row) if len(self.x.files.readers) == 1 else f"{path.name}:{row}"

    def part_of(self, raw: RawRows) -> Rows:
        """Some of the rows, held in memory."""
        x, y = self.x.files.framed(raw.rows.values.numpy()), raw.y
        if self.order and isinstance(x, pd.DataFrame):
            x = x.reindex(columns=list(self.order))
        if self.id is not None and y is not None:
            names = np.array([str(name) for name in y.tolist()])
            return Rows(self.table, x, None, names, self.kind, None).encoded(self.encoder)
        names = np.array([self.name(k) for k in raw.number.tolist()])
        labels = None if y is None else labels_of(pd.Series(y))
        return Rows(self.table, x, labels, names, self.kind, self.label).encoded(self.encoder)


def parse_shape(text: str | None, n_features: int) -> tuple[int, ...] | None:
    """28x28 → (28, 28); ValueError where it does not fit the features."""
    if text is None:
        return None
    parts = text.split("x")
    shape = tuple(int(size) for size in parts if size.isdigit())
    if len(shape) != len(parts) or len(shape) not in (2, 3):
        raise ValueError(f"--image-shape must look like 28x28, got {text!r}")
    if math.prod(shape) != n_features:
        raise ValueError(
            f"--image-shape {text} has {math.prod(shape)} pixels, rows have {n_features} features"
        )
    return shape
