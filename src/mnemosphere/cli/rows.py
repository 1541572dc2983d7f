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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mnemosphere.cli.options import Columns
from mnemosphere.cli.output import MODEL, RESULTS
from mnemosphere.data.encoding import listed as quoted
from mnemosphere.data.files import column_names
from mnemosphere.data.named import NAMES
from mnemosphere.data.tables import (
    HELD,
    IN_PIECES,
    MEMORY,
    Table,
    expand,
    read_labels,
    read_tables,
    suffix_of,
)
from mnemosphere.machine import available_memory
from mnemosphere.schema import (
    check_depth,
    check_fields,
    items,
    maybe,
    number,
    text,
    warn_user,
    whole,
)

if TYPE_CHECKING:
    from mnemosphere.data.files import RawRows

_LABEL_NAMES = ("label", "target", "class", "y")
_MOSTLY = 0.5  # share of missing values from which on the last column is hardly the label
_MOST_HELD_OUT = 20_000
# What commands read of the data in the record of a run, where it is there.
_NOTED = {
    "name": text, "checksum": text, "label": maybe(text), "test_fraction": number(0, 1),
    "seed": whole(), "image_shape": maybe(items(whole(1))), "id": maybe(text),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that an estimator takes, with their labels and what the user calls them."""

    name: str  # of what was read
    checksum: str
    x: Any  # (n, N) a frame, an array, or a `Dataset` that memory does not hold
    y: NDArray[Any] | None  # (n,); objects with None if some labels are missing; in a `Dataset`
    names: NDArray[Any]  # (n,) strings; of a `Dataset` none
    kind: str = "row"  # what the names are: "line", "row", or the column they come from
    label: str | None = None  # the label column
    is_test: NDArray[np.bool_] | None = None
    image_shape: tuple[int, ...] | None = None
    images: Any = None  # (n, pixels) what x was encoded from, where it was
    text: str | None = None  # the column, if x holds texts alone
    # Of a `Dataset`: the rows by their part, its column of names, encoder and columns of the model.
    parts: dict[str, Rows] = field(default_factory=dict)
    id: str | None = None
    encoder: Any = None
    order: tuple[str, ...] = ()

    @property
    def in_memory(self) -> bool:
        """Whether all rows are held."""
        return not hasattr(self.x, "files")

    def __len__(self) -> int:
        return len(self.names) if self.in_memory else int(self.x.n_rows)

    @property
    def n_features(self) -> int:
        """How many columns, before images were encoded."""
        if not self.in_memory:
            return int(self.x.n_features)
        return int((self.x if self.images is None else self.images).shape[1])

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
        from mnemosphere.data.files import ahead

        for raw in ahead(self.x.files.pieces()):
            yield self._held(raw)

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
        if encoder is None or not self.in_memory:
            return replace(self, encoder=encoder)
        return replace(self, x=encoder.transform(self.x), images=np.asarray(self.x))

    def part(self, split: str | None, default: str = "test") -> Rows:
        """The rows of a split: 'train', 'test' or 'all'; all rows where there is no split."""
        if split not in (None, "train", "test", "all"):
            raise ValueError(f"--split must be train, test or all, got {split!r}")
        has_test = self.is_test is not None and bool(self.is_test.any())
        if not has_test and not self.parts:
            if split in ("train", "test"):
                raise ValueError(f"{self.name} has no {split} rows of its own: drop --split")
            return self
        chosen = split or default
        if chosen == "all":
            return self
        if self.parts:
            return self.parts[chosen]
        assert self.is_test is not None
        return self.take(self.is_test if chosen == "test" else ~self.is_test)

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
        import torch

        from mnemosphere.data.dataset import held_out

        if not self.in_memory:
            n = min(round(fraction * len(self)), _MOST_HELD_OUT)
            if n == 0:
                return self
            raw = self.x.files.sample(n, seed)
            rest = replace(self.x, files=self.x.files.without(raw.number))
            return replace(self, parts={"train": replace(self, x=rest), "test": self._held(raw)})
        labeled = torch.from_numpy(self.labeled)
        targets = torch.zeros(len(self), 1)
        if self.y is not None and bool(labeled.any()) and fraction > 0:
            _, index = np.unique(self.y[self.labeled].astype(str), return_inverse=True)
            targets = torch.zeros(len(self), int(index.max()) + 1)
            targets[labeled.nonzero()[:, 0], torch.from_numpy(index)] = 1.0
        held = held_out(targets, fraction, generator=torch.Generator().manual_seed(seed))
        return replace(self, is_test=held.numpy())

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
        x = self.x.files.framed(raw.rows.values.numpy())
        if self.order and isinstance(x, pd.DataFrame):
            x = x.reindex(columns=list(self.order))
        if self.id is not None and raw.y is not None:
            y, names = None, np.array([str(name) for name in raw.y.tolist()])
        else:
            y = None if raw.y is None else labels_of(pd.Series(raw.y))
            names = np.array([self._name(k) for k in raw.number.tolist()])
        held = replace(self, x=x, y=y, names=names, parts={}, label=None if self.id else self.label)
        return held.encoded(self.encoder)


# Which columns are what.


def open_rows(
    data: str | Sequence[str], columns: Columns, memory: float | None = None, *,
    guess: str = "last", wanted: Sequence[str] = (), unused: Sequence[str] = (),
    named: bool = False, noted: Mapping[str, Any] = MappingProxyType({}),
) -> Rows:  # fmt: skip
    """The rows of DATA, held if memory (in megabytes, None: what is free) does so.

    guess, if no label is named: "last" takes a column called label, target, class or y, else the
    last one; "named" only the former. wanted: the columns that a model takes, of which it does not
    use some. named: rows of a `Dataset` are called by their `id`, and have no labels. noted: label
    and id of the training rows, which are those of these rows too if there are such columns.
    """
    files = _large(listed(data), columns, memory)
    if files is not None:
        columns = _as_noted(columns, column_names(files[0]), noted)
        return _streamed(files, columns, memory, guess, wanted, unused, named)
    table = read_tables(listed(data), columns.max_rows, header=not columns.no_header)
    columns = _as_noted(columns, table.columns, noted)
    if wanted and table.columns and columns.text is None:
        table = _with_columns(table, wanted, unused)
        columns = replace(columns, features=tuple(wanted))
    return choose(table, columns, guess)


def _as_noted(columns: Columns, names: Sequence[str], noted: Mapping[str, Any]) -> Columns:
    label, own = (noted.get(key) if noted.get(key) in names else None for key in ("label", "id"))
    return replace(columns, label=columns.label or label, id=columns.id or own)


def choose(table: Table, columns: Columns, guess: str = "last") -> Rows:
    """The rows of a table: see `open_rows`."""
    y, label = table.labels, columns.label
    if label is not None and label not in table.columns and Path(label).is_file():
        y, label = read_labels(Path(label), len(table.row_names)), None
    is_frame = bool(table.columns)
    if not is_frame:  # the columns of an array are called by their numbers
        table = replace(table, values=pd.DataFrame(table.values).rename(columns=str))
        guess = "no"
    if label is not None or y is None:
        label = _find_label(table.columns, table.name, columns, guess, table.values)
    used = _used(table.columns, table.name, label, columns)
    x = table.finite(used)
    if is_frame and columns.features and columns.text is None:  # asked for by name: no ids
        x = x.astype(dict.fromkeys(x.select_dtypes("integer"), "float64"))
    if label is not None:
        y = table.values[label]
    names, kind = table.row_names, table.row_kind
    if columns.id is not None:
        names, kind = table.values[columns.id].astype(str).to_numpy(), columns.id
    return Rows(
        table.name, table.checksum, x if is_frame else x.to_numpy(),
        None if y is None else labels_of(pd.Series(y)), np.asarray(names, dtype=str), kind, label,
        table.is_test, table.image_shape, text=columns.text,
    )  # fmt: skip


def _large(sources: list[str], columns: Columns, memory: float | None) -> list[Path] | None:
    """The files if memory does not hold them; several arrays are always read in parts."""
    named = len(sources) == 1 and (sources[0] in NAMES or Path(sources[0]).is_dir())
    if columns.max_rows is not None or named:
        return None
    files = expand(sources)
    if not all(path.is_file() and suffix_of(path) in IN_PIECES for path in files):
        return None  # an error comes when it is read
    budget = available_memory("cpu") if memory is None else memory * 2**20
    held = HELD * sum(path.stat().st_size for path in files)
    arrays = suffix_of(files[0]) == ".npy" and len(files) > 1
    return files if held > budget or arrays else None


def _streamed(
    files: list[Path], columns: Columns, memory: float | None, guess: str, wanted: Sequence[str],
    unused: Sequence[str], named: bool,
) -> Rows:  # fmt: skip
    from mnemosphere.data.dataset import Dataset

    if columns.text is not None:
        raise ValueError("memory does not hold these texts: take a part of them, with --max-rows")
    if columns.no_header:
        raise ValueError("memory does not hold these rows: they need names of columns in a header")
    names, source, label, used = column_names(files[0]), str(files[0]), columns.label, None
    named &= columns.id is not None
    if names:
        needed = tuple(name for name in wanted if name not in unused)
        columns = replace(columns, features=needed or columns.features)
        label = _find_label(names, source, columns, guess)
        used = _used(names, source, label, columns)
    elif columns.drop or columns.features or columns.id:
        raise ValueError(f"{source} has no names of columns: leave --id, --drop, --features out")
    held = MEMORY if memory is None else min(round(memory * 2**20), MEMORY)
    opened = Dataset.open(
        list(files), label=columns.id if named else label, features=used, memory=held
    )
    about = [[r.path.name, r.n_bytes, r.n_rows] for r in opened.files.readers]
    checksum = f"files:{hashlib.sha256(repr(about).encode()).hexdigest()}"
    called = source if len(files) == 1 else f"{source} and {len(files) - 1} more"
    own = columns.id if named else None
    return Rows(called, checksum, opened, None, np.empty(0), own or "row", label, id=own,
                order=tuple(wanted))  # fmt: skip


def _find_label(
    names: Sequence[str], where: str, columns: Columns, guess: str, frame: Any = None
) -> str | None:
    """The label column: see `open_rows`."""
    if columns.label is not None:
        return _find(columns.label, names, where)
    apart = {columns.id, *columns.drop, *columns.features}
    left = [c for c in names if c not in apart]
    called = next((c for word in _LABEL_NAMES for c in left if c.lower() == word), None)
    if called is not None or guess != "last" or not left:
        return None if guess == "no" else called
    full = left
    if frame is not None:
        mostly = frame[left].isna().mean() > _MOSTLY
        full = [c for c in left if not mostly[c]] or left
    if full[-1] != left[-1]:
        warn_user(
            f"the last column {left[-1]!r} is mostly missing values, so {full[-1]!r} is taken for the "
            "label: name another one with --label",
        )
    return full[-1]


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


def _with_columns(table: Table, wanted: Sequence[str], unused: Sequence[str]) -> Table:
    """The table with all columns that the model was given, missing values in those that it lacks.

    Columns that training left out are not needed, and missed by nobody.
    """
    known = {*table.columns}
    lost = [name for name in wanted if name not in known]
    needed = [name for name in lost if name not in unused]
    if needed and len(needed) == len(set(wanted) - set(unused)):
        raise ValueError(
            f"{table.name} has none of the columns that the model needs, such as "
            f"{quoted(needed)}: use the columns it was trained on"
        )
    if needed:
        warn_user(
            f"{table.name} lacks {quoted(needed, len(needed))}: "
            f"{'this column counts' if len(needed) == 1 else 'these columns count'} as missing "
            "values",
        )
    return replace(table, values=table.values.assign(**dict.fromkeys(lost, np.nan)))


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


def listed(data: str | Sequence[str]) -> list[str]:
    """One or more names of files."""
    return [data] if isinstance(data, str) else list(data)


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
    encoder: Any = None  # of the images that it is given, where it has one

    @property
    def first(self) -> Any:
        """What takes the rows as they are."""
        return self.model if self.encoder is None else self.encoder

    @property
    def whole(self) -> Any:
        """All of it: the model, or the pipeline of encoder and model."""
        from sklearn.pipeline import make_pipeline

        return self.model if self.encoder is None else make_pipeline(self.encoder, self.model)

    @property
    def pictures(self) -> Any:
        """What memories look like (P, pixels), where they are not rows themselves."""
        from mnemosphere import memory_pictures

        return None if self.encoder is None else memory_pictures(self.whole)

    def of_rows(self, what: str) -> Any:
        """The model, for what only memories that are rows can do."""
        if self.encoder is not None:
            raise ValueError(f"{what} needs memories of pixels: train without --encoder")
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

    def label(self, name: str, flag: str) -> Any:
        """The class of that name; ValueError names the flag."""
        if name not in self.classes:
            raise ValueError(f"{flag} must be one of {quoted(self.classes, 12)}, got {name!r:.60}")
        return self.model.classes_[self.classes.index(name)]

    def shape(self, text: str | None, rows: Rows | None = None) -> tuple[int, ...] | None:
        """The shape of images: as given, as stored with the rows, or as the run noted."""
        n = self.first.n_features_in_
        noted = self.record.get("data", {}).get("image_shape")
        known = (None if rows is None else rows.image_shape) or (tuple(noted) if noted else None)
        return parse_shape(text, n) or (known if known and math.prod(known) == n else None)


def text_encoder(name: str | None) -> Any:
    """The encoder of texts that --encoder names: NAME of MODULE; None for the packaged one."""
    if name is None or ":" not in name:
        return name
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())  # as Python does for a script of the user's
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--encoder {name} cannot be imported ({one_line(error)})") from error
    finally:
        sys.path.remove(os.getcwd())


def open_model(path: Path, encoder: str | None = None, *, labeled: bool = False) -> Opened:
    """A model from its file or the folder of its run; encoder: what --encoder says."""
    from sklearn.pipeline import Pipeline

    import mnemosphere
    from mnemosphere.encoder import two_layers

    path = path / MODEL if path.is_dir() else path
    model = mnemosphere.load(path, encoder=text_encoder(encoder))
    first = None
    if isinstance(model, Pipeline):
        two_layers(model)  # says what is wrong with any other
        first, model = (step for _, step in model.steps)
    if labeled and not isinstance(model, mnemosphere.DAMClassifier):
        raise ValueError(f"{path} holds clusters, not labels: give the model of a `train` run")
    return Opened(model, _record(path.parent / RESULTS), path, first)


def _record(path: Path) -> dict[str, Any]:
    """What a run has noted beside its model; nothing where there is no such file."""
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        check_depth(record)
        noted = {k: v for k, v in record.get("data", {}).items() if k in _NOTED}
        check_fields(noted, {k: _NOTED[k] for k in noted}, "data")
    except (AttributeError, RecursionError, ValueError) as error:
        reason = one_line(error)[:200]
        raise ValueError(f"{path} is damaged ({reason}): train again, or move it away") from error
    return dict(record)


def rows_for(
    opened: Opened, data: str | Sequence[str], columns: Columns, split: str | None = None, *,
    memory: float | None = 1e12, labels: bool = False, measured: bool = False,
) -> Rows:  # fmt: skip
    """The rows of DATA as the model takes them.

    labels: they are needed. measured: figures are taken on them, so the rows are those held out, if
    the data have a split of their own or the model was trained on this very file; else all. Labels
    of rows that were trained on are left out, unless they are needed.
    """
    about, first = opened.record.get("data", {}), opened.first
    wanted = [str(name) for name in getattr(first, "feature_names_in_", [])]
    encoding = first.model_.features.encoding
    unused = [] if encoding is None else [c.name for c in encoding.columns if not c.width]
    if opened.takes_texts:
        name = columns.text or (wanted[0] if wanted else None)
        if name is None:
            raise ValueError(f"the model takes texts: name their column in {data} with --text")
        columns, wanted = replace(columns, text=name, features=(name,)), [name]
    rows = open_rows(
        data, columns, memory, guess="last" if labels else "named", wanted=wanted, unused=unused,
        named=not labels, noted=about,
    )  # fmt: skip
    n, given = first.n_features_in_, rows.n_features + (0 if rows.in_memory else len(unused))
    if given != n:
        raise ValueError(
            f"{rows.name} has {given} features, the model takes {n}: use data of the same columns; "
            "--label, --id and --drop leave columns out"
        )
    if labels and rows.in_memory and rows.y is None:
        raise ValueError(f"{rows.name} has no labels: name their column with --label")
    held = {"checksum", "test_fraction", "seed"} <= about.keys() and rows.is_test is None
    if measured and held and about["checksum"] == rows.checksum:
        rows = rows.hold_out(about["test_fraction"], about["seed"])
        if not labels and rows.is_test is not None and not rows.is_test.any():
            rows = replace(rows, y=None)
    if rows.in_memory and not (wanted and isinstance(rows.x, pd.DataFrame)):
        named = pd.DataFrame(rows.x, columns=wanted) if wanted else np.asarray(rows.x)
        rows = replace(rows, x=named)
    return rows.part(split).encoded(opened.encoder)
