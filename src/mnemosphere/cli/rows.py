"""The rows that a command works on, and the model it uses on them.

Rows are those of one table if memory holds it, else of a `Dataset`, part by part.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import mnemosphere
from mnemosphere.base.machine import available_memory
from mnemosphere.base.warnings import warn_user
from mnemosphere.cli.options import Columns, Selection
from mnemosphere.cli.output import MODEL, RESULTS
from mnemosphere.rows import tables
from mnemosphere.rows.encoding import listed as quoted
from mnemosphere.rows.streams import RawRows, ahead, column_names
from mnemosphere.training.dataset import Dataset, held_out

_LABEL_NAMES = ("label", "target", "class", "y")
_MOST_HELD_OUT = 20_000  # an accuracy is then known to a third of a percent


@dataclass(frozen=True, eq=False)
class Rows(tables.Table):
    """Rows that an estimator takes: x, y and names, or x a `Dataset` that memory does not hold.

    Labels are objects, None among them, if some are missing; names may come from a column.
    """

    label: str | None = None  # the label column
    text: str | None = None  # the column, if x holds texts alone
    # Of a `Dataset`: the rows by their part, its column of names, and columns of the model.
    parts: dict[str, Rows] = field(default_factory=dict)
    id: str | None = None
    order: list[str] | None = None

    @property
    def in_memory(self) -> bool:
        """Whether all rows are held."""
        return not hasattr(self.x, "files")

    def __len__(self) -> int:
        return len(self.names) if self.in_memory else int(self.x.n_rows)

    @property
    def n_features(self) -> int:
        """How many columns."""
        if not self.in_memory:
            return int(self.x.n_features)
        return int(self.x.shape[1])

    @property
    def columns(self) -> list[str]:
        """Names of the columns; none of an array."""
        return super().columns if self.in_memory else list(self.x.files.names or ())

    @property
    def texts(self) -> list[str]:
        """The texts, empty if there is none; no list if these rows are others."""
        if self.text is None:
            return []
        return [value if isinstance(value, str) else "" for value in self.x.iloc[:, 0]]

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """Which rows have a label, (n,)."""
        if self.y is None:
            return np.zeros(len(self), dtype=bool)
        return np.array([value is not None for value in self.y], dtype=bool)

    def batches(self) -> Iterator[Rows]:
        """The rows in parts that memory holds, in their order."""
        if self.in_memory:
            yield self
            return
        for raw in ahead(self.x.files.pieces()):
            yield self._held(raw)

    def take(self, at: NDArray[Any] | slice) -> Self:
        """Some of the rows, by their places or a mask."""
        found = super().take(at)
        y = None if found.y is None else labels_of(pd.Series(found.y))
        return replace(found, y=y)

    def part(self, split: str | None, default: str = "test") -> Rows:
        """The rows of a split: 'train', 'test' or 'all'; all rows where there is no split."""
        if split not in (None, "train", "test", "all"):
            raise ValueError(f"--split must be train, test or all, got {split!r}")
        has_test = self.is_test is not None and bool(self.is_test.any())
        if not has_test and not self.parts and split in ("train", "test"):
            raise ValueError(f"{self.name} has no {split} rows of its own: drop --split")
        chosen = split or default
        if chosen == "all" or not (has_test or self.parts):
            return self
        if self.parts:
            return self.parts[chosen]
        return self.take(np.asarray(self.is_test) == (chosen == "test"))

    def called(self, names: Sequence[str]) -> Self:
        """The rows that the user calls by these names."""
        found = [np.flatnonzero(self.names == name) for name in names]
        for name, at in zip(names, found, strict=True):
            if len(at) == 0:
                raise ValueError(
                    f"no {self.kind} {name!r} in {self.name}: there are {self.names[0]} to "
                    f"{self.names[-1]}"
                )
        return self.take(np.concatenate(found))

    def hold_out(self, fraction: float, seed: int) -> Rows:
        """The same rows, that share of each class as test rows; at most 20,000 of a `Dataset`."""
        if not 0 <= fraction < 1:
            raise ValueError(f"--test-fraction must lie in [0, 1), got {fraction}")
        if self.in_memory:
            targets = np.zeros((len(self), 1))
            if self.labeled.any():
                targets = pd.get_dummies(pd.Series(self.y), dtype=float).to_numpy()
            generator = torch.Generator().manual_seed(seed)
            held = held_out(torch.tensor(targets), fraction, generator=generator)
            return replace(self, is_test=held.numpy())
        n = min(round(fraction * len(self)), _MOST_HELD_OUT)
        if n == 0:
            return self
        raw = self.x.files.sample(n, seed)
        rest = replace(self.x, files=self.x.files.without(raw.number))
        return replace(self, parts={"train": replace(self, x=rest), "test": self._held(raw)})

    def names_of(self, rows: NDArray[Any]) -> dict[int, str]:
        """Names of rows as a model calls them that was fitted to all of these."""
        numbers = [int(k) for k in rows.reshape(-1) if k >= 0]
        if self.in_memory:
            return {k: str(self.names[k]) for k in numbers}
        # If they fit, they were given as an array, without those held out.
        places = self.x.files.numbers() if self.x.fits else range(len(self) + _MOST_HELD_OUT)
        return {k: self._name(int(places[k])) for k in numbers}

    def _name(self, number: int) -> str:
        """What a row of a `Dataset` is called, by its number over all files."""
        path, row = self.x.files.where(number)
        return str(row) if len(self.x.files.readers) == 1 else f"{path.name}:{row}"

    def _held(self, raw: RawRows) -> Rows:
        """Some of the rows of a `Dataset`, held in memory."""
        x = _ordered(self.x.files.given(raw).x, self.order)
        if self.id is not None and raw.y is not None:
            y, names = None, np.array([str(name) for name in raw.y.tolist()])
        else:
            y = None if raw.y is None else labels_of(pd.Series(raw.y))
            names = np.array([self._name(k) for k in raw.number.tolist()])
        label = None if self.id else self.label
        return replace(self, x=x, y=y, names=names, parts={}, label=label)


# Which columns are what.


def open_rows(
    data: str | Sequence[str], columns: Columns, memory: float | None = None, *,
    labels: bool = True, opened: Opened | None = None,
) -> Rows:  # fmt: skip
    """The rows of DATA, held if memory (in megabytes, None: what is free) does so.

    labels: they are needed. Then the last column has them if none is named, or called label, target,
    class or y; without need, rows of a `Dataset` have names by their `id` in place of labels. opened:
    a model, which takes the columns of its training.
    """
    files = tables.expand(data)
    if columns.text is not None and columns.text not in columns.features:
        columns = replace(columns, features=[*columns.features, columns.text])
    if _are_large(files, columns, memory):
        names = column_names(files[0])
        columns = columns if opened is None else opened.columns(columns, str(files[0]), names)
        return _streamed(files, names, columns, memory, labels)
    table = tables.read_tables(files, columns.max_rows, header=not columns.no_header)
    if opened is not None:
        columns = opened.columns(columns, table.name, table.columns)
    return choose(table, columns, labels)


def choose(table: tables.Table, columns: Columns, labels: bool = True) -> Rows:
    """The rows of a table: see `open_rows`."""
    y, label, is_frame = table.y, columns.label, bool(table.columns)
    if label is not None and label not in table.columns and Path(label).is_file():
        y, label = tables.read_labels(Path(label), len(table.names)), None
    if not is_frame:  # the columns of an array are called by their numbers
        table = replace(table, x=pd.DataFrame(table.x).rename(columns=str))
    if label is not None or (y is None and is_frame):
        label = _find_label(table.columns, table.name, columns, labels)
    x = table.finite(_used(table.columns, table.name, label, columns))
    texts_alone = [*columns.features] == [columns.text]
    if is_frame and columns.features and not texts_alone:  # asked for by name: no ids
        x = x.astype(dict.fromkeys(x.select_dtypes("integer"), "float64"))
    if label is not None:
        y = table.x[label]
    names, kind = table.names, table.kind
    if columns.id is not None:
        names, kind = table.x[columns.id].astype(str).to_numpy(), columns.id
    return Rows(
        table.name, x if is_frame else x.to_numpy(), np.asarray(names, dtype=str), kind,
        table.checksum, None if y is None else labels_of(pd.Series(y)), table.is_test,
        table.image_shape, label=label, text=columns.text if texts_alone else None,
    )  # fmt: skip


def _are_large(files: list[Path], columns: Columns, memory: float | None) -> bool:
    """Whether memory does not hold the files; several arrays are always read in parts."""
    suffixes = [tables.suffix_of(path) for path in files if path.is_file()]
    in_pieces = len(suffixes) == len(files) and {*suffixes} <= {*tables.IN_PIECES}
    if columns.max_rows is not None or not in_pieces:
        return False
    budget = available_memory("cpu") if memory is None else memory * 2**20
    arrays = suffixes[0] == ".npy" and len(files) > 1
    return arrays or sum(map(tables.held_bytes, files)) > budget


def _streamed(
    files: list[Path], names: list[str], columns: Columns, memory: float | None, labels: bool
) -> Rows:
    if columns.text is not None:
        raise ValueError("memory does not hold these texts: take a part of them, with --max-rows")
    if columns.no_header:
        raise ValueError("memory does not hold these rows: they need names of columns in a header")
    source, label, used = str(files[0]), columns.label, None
    if names:
        label = _find_label(names, source, columns, labels)
        used = _used(names, source, label, columns)
    elif columns.drop or columns.features or columns.id:
        raise ValueError(f"{source} has no names of columns: leave --id, --drop, --features out")
    held = tables.MEMORY if memory is None else min(round(memory * 2**20), tables.MEMORY)
    own = None if labels else columns.id
    opened = Dataset.open(list(files), label=own or label, features=used, memory=held)
    about = [[r.path.name, r.n_bytes, r.n_rows] for r in opened.files.readers]
    checksum = f"files:{hashlib.sha256(repr(about).encode()).hexdigest()}"
    called = source if len(files) == 1 else f"{source} and {len(files) - 1} more"
    return Rows(called, opened, np.empty(0), own or "row", checksum, label=label, id=own)


def _find_label(names: Sequence[str], where: str, columns: Columns, needed: bool) -> str | None:
    """The label column: see `open_rows`."""
    if columns.label is not None:
        return _find(columns.label, names, where)
    apart = {columns.id, *columns.drop, *columns.features}
    left = [c for c in names if c not in apart]
    last = left[-1] if needed and left else None
    return next((c for word in _LABEL_NAMES for c in left if c.lower() == word), last)


def _used(names: Sequence[str], where: str, label: str | None, columns: Columns) -> list[str]:
    """The columns that are features."""
    asked = {*columns.drop, *columns.features, *([] if columns.id is None else [columns.id])}
    for name in sorted(asked - set(names)):
        _find(name, names, where)
    apart = {label, columns.id, *columns.drop}
    used = list(columns.features) or [c for c in names if c not in apart]
    if not used or label in used:
        raise ValueError(f"{where}: no feature is left besides the label {label!r}")
    return used


def _find(name: str, columns: Sequence[str], where: str) -> str:
    if name in columns:
        return name
    if re.fullmatch(r"-\d+", name) and int(name) >= -len(columns):
        return columns[int(name)]
    near = get_close_matches(name, columns, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {quoted(columns)}"
    raise ValueError(f"{where} has no column {name!r}: {hint}")


def labels_of(column: Any) -> NDArray[Any]:
    """Labels as whole numbers, truth values or text; None where there is none."""
    missing = (column.isna() | (column == "").fillna(False)).to_numpy(dtype=bool)
    known = column[~missing].infer_objects().convert_dtypes()
    if not pd.api.types.is_numeric_dtype(known.dtype):  # which truth values are too
        known = known.astype(str)
    if not missing.any():
        return np.array(known.tolist())
    out: NDArray[Any] = np.full(len(column), None, dtype=object)
    out[~missing] = known.tolist()
    return out


def _ordered(x: Any, order: list[str] | None) -> Any:
    """Rows with the columns of a model, of which some may be missing; no names if it has none."""
    if order is None:
        return x
    if isinstance(x, pd.DataFrame):
        return x.reindex(columns=order) if order else x.to_numpy()
    return pd.DataFrame(x, columns=order) if order else np.asarray(x)


def parse_shape(text: str | None, n_features: int) -> tuple[int, ...] | None:
    """28x28 → (28, 28); ValueError where it does not fit the features."""
    if text is None:
        return None
    if re.fullmatch(r"\d+x\d+(x\d+)?", text) is None:
        raise ValueError(f"--image-shape must look like 28x28, got {text!r}")
    shape = tuple(int(size) for size in text.split("x"))
    if math.prod(shape) != n_features:
        raise ValueError(
            f"--image-shape {text} has {math.prod(shape)} pixels, rows have {n_features}"
        )
    return shape


def one_line(error: BaseException) -> str:
    """What an exception says, without line breaks."""
    return " ".join(str(error).split())


def about_data(used: Rows, **more: Any) -> dict[str, Any]:
    """What a record says of the data."""
    return {
        "name": used.name, "checksum": used.checksum, "features": used.n_features,
        "label": used.label, "image_shape": used.image_shape, **more,
    }  # fmt: skip


# Models.


class Opened(NamedTuple):
    """A model, the record of its run (empty where there is none), and where it lies."""

    model: Any
    record: dict[str, Any]
    path: Path

    def of_rows(self, what: str) -> Any:
        """The model, for what only memories that are rows can do."""
        if self.takes_texts and what != "a page":
            raise ValueError(f"{what} needs features that can be read: texts have none")
        return self.model

    @property
    def takes_texts(self) -> bool:
        """Whether its rows are texts."""
        return self.model.model_.features.encoder is not None

    @property
    def classes(self) -> list[str]:
        """Names of the classes or clusters."""
        return [str(label) for label in self.model.classes_.tolist()]

    @property
    def order(self) -> list[str]:
        """The columns that it takes, by name; none if they have no names."""
        return [str(name) for name in getattr(self.model, "feature_names_in_", [])]

    def columns(self, given: Columns, where: str, names: Sequence[str]) -> Columns:
        """What a table with these names has for it; label and id are those of training."""
        noted = self.record.get("data", {})
        label, own = (noted.get(k) if noted.get(k) in names else None for k in ("label", "id"))
        given = replace(given, label=given.label or label, id=given.id or own)
        if self.takes_texts:
            text = given.text or next(iter(self.order), None)
            if text is None:
                raise ValueError(f"the model takes texts: name their column in {where} with --text")
            return replace(given, text=text, features=[text])
        if not names or not self.order:
            return given
        encoding = self.model.model_.features.encoding
        unused = [] if encoding is None else [c.name for c in encoding.columns if not c.width]
        needed = [name for name in self.order if name not in unused]
        lost = [name for name in needed if name not in names]
        if lost == needed:
            raise ValueError(
                f"{where} has none of the columns that the model needs, such as {quoted(lost)}: use "
                "the columns it was trained on"
            )
        if lost:
            count = "this column counts" if len(lost) == 1 else "these columns count"
            warn_user(f"{where} lacks {quoted(lost, len(lost))}: {count} as missing values")
        return replace(given, features=[name for name in needed if name in names])

    def label(self, name: str, flag: str) -> Any:
        """The class of that name; ValueError names the flag."""
        if name not in self.classes:
            raise ValueError(f"{flag} must be one of {quoted(self.classes, 12)}, got {name!r:.60}")
        return self.model.classes_[self.classes.index(name)]

    def shape(
        self, text: str | None, known: tuple[int, ...] | None = None
    ) -> tuple[int, ...] | None:
        """The shape of images: as given, as stored with the rows, or as the run noted."""
        n = self.model.n_features_in_
        noted = self.record.get("data", {}).get("image_shape")
        known = known or (tuple(noted) if noted else None)
        return parse_shape(text, n) or (known if known and math.prod(known) == n else None)


def text_encoder(name: str | None) -> Any:
    """The encoder of texts that --encoder names: NAME of MODULE; None for the packaged one."""
    if name is None or ":" not in name:
        return name
    sys.path.insert(0, os.getcwd())  # as Python does for a script of the user's
    try:
        return resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--encoder {name} cannot be imported ({one_line(error)})") from error
    finally:
        sys.path.remove(os.getcwd())


def open_model(path: Path, encoder: str | None = None, *, labeled: bool = False) -> Opened:
    """A model from its file or the folder of its run; encoder: what --encoder says."""
    path = path / MODEL if path.is_dir() else path
    model = mnemosphere.load(path, encoder=text_encoder(encoder))
    if labeled and not isinstance(model, mnemosphere.DAMClassifier):
        raise ValueError(f"{path} holds clusters, not labels: give the model of a `train` run")
    return Opened(model, _record(path.parent / RESULTS), path)


def _record(path: Path) -> dict[str, Any]:
    """What a run has noted beside its model; nothing where there is no such file."""
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        dict(record.get("data", {}))
    except (AttributeError, RecursionError, ValueError) as error:
        reason = one_line(error)[:200]
        raise ValueError(f"{path} is damaged ({reason}): train again, or move it away") from error
    return dict(record)


def rows_for(
    opened: Opened, data: str | Sequence[str], columns: Selection, names: Sequence[str] = (), *,
    memory: float | None = 1e12, labels: bool = False, measured: bool = False,
) -> Rows:  # fmt: skip
    """The rows of DATA as the model takes them: those of a split, or those with these names.

    labels: they are needed. measured: figures are taken on them, so the rows are those held out, if
    the data have a split of their own or the model was trained on this very file; else all. Labels
    of rows that were trained on are left out, unless they are needed.
    """
    about, n = opened.record.get("data", {}), opened.model.n_features_in_
    rows = open_rows(data, columns, memory, labels=labels, opened=opened)
    order = [rows.text] if rows.text else opened.order
    if not (order and rows.columns) and rows.n_features != n:
        raise ValueError(
            f"{rows.name} has {rows.n_features} features, the model takes {n}: use data of the same "
            "columns; --label, --id and --drop leave columns out"
        )
    if labels and rows.in_memory and rows.y is None:
        raise ValueError(f"{rows.name} has no labels: name their column with --label")
    held = {"checksum", "test_fraction", "seed"} <= about.keys() and rows.is_test is None
    rows = replace(rows, order=order, x=_ordered(rows.x, order) if rows.in_memory else rows.x)
    if measured and held and about["checksum"] == rows.checksum:
        rows = rows.hold_out(about["test_fraction"], about["seed"])
        if not labels and rows.is_test is not None and not rows.is_test.any():
            rows = replace(rows, y=None)
    split = columns.split or ("all" if names else None)
    rows = rows.part(split)
    return rows.called(names) if names else rows
