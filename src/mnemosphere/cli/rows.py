"""The rows a command works on, and the model it uses on them."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mnemosphere.cli.options import Columns
from mnemosphere.cli.output import MODEL, RESULTS
from mnemosphere.cli.table_rows import LargeRows, Rows, choose, parse_shape
from mnemosphere.cli.tables import HELD, Table, one_line, read_tables
from mnemosphere.data.encoding import listed as quoted
from mnemosphere.data.files import column_names
from mnemosphere.data.named import NAMES
from mnemosphere.data.paths import MEMORY, SUFFIXES, expand
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

# What commands read of the record of a run, where it is there.
_NOTED = {
    "data": {
        "name": text, "checksum": text, "label": maybe(text), "test_fraction": number(0, 1),
        "seed": whole(), "image_shape": maybe(items(whole(1))), "id": maybe(text),
    },
    "novelty": {"threshold": maybe(number())},
}  # fmt: skip


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

    def shape(self, text: str | None, rows: Rows | None = None) -> tuple[int, ...] | None:
        """The shape of images: as given, as stored with the rows, or as the run noted."""
        n = self.first.n_features_in_
        stored = None if rows is None else rows.table.image_shape
        noted = self.record.get("data", {}).get("image_shape")
        known = stored or (tuple(noted) if noted else None)
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
        for part, fields in _NOTED.items():
            noted = record.get(part, {})
            check_fields({k: v for k, v in noted.items() if k in fields}, {
                k: check for k, check in fields.items() if k in noted
            }, part)  # fmt: skip
    except (AttributeError, RecursionError, ValueError) as error:
        reason = one_line(error)[:200]
        raise ValueError(f"{path} is damaged ({reason}): train again, or move it away") from error
    return dict(record)


def rows_for(
    opened: Opened, data: str | Sequence[str], columns: Columns, split: str | None = None, *,
    labels: bool = False, measured: bool = False,
) -> Rows:  # fmt: skip
    """The rows of DATA as the model takes them.

    labels: they are needed. measured: figures are taken on them, so the rows are those held out, if
    the data have a split of their own or the model was trained on this very file; else all. Labels
    of rows that were trained on are left out, unless they are needed.
    """
    table = read_tables(listed(data), columns.max_rows)
    about, data = opened.record.get("data", {}), table.name
    wanted = [str(n) for n in getattr(opened.first, "feature_names_in_", [])]
    label, n = columns.label, opened.first.n_features_in_
    if opened.takes_texts:
        columns = _with_text(columns, wanted, data)
        wanted = [str(columns.text)]
    if label is None and about.get("label") in table.columns:
        label = about["label"]
    if columns.id is None and about.get("id") in table.columns:
        columns = replace(columns, id=about["id"])
    if wanted and table.columns and not opened.takes_texts:
        table = _with_columns(table, wanted, _unused(opened.first))
        columns = replace(columns, features=tuple(wanted))
    guess = "last" if labels else "named"
    rows = choose(
        table, label=label, guess_label=guess, id=columns.id, drop=columns.drop,
        features=columns.features, text=columns.text,
    )  # fmt: skip
    if rows.x.shape[1] != n:
        raise ValueError(
            f"{data} has {rows.x.shape[1]} features, the model takes {n}: use data of the same "
            "columns; --label, --id and --drop leave columns out"
        )
    if labels and rows.y is None:
        raise ValueError(f"{data} has no labels: name their column with --label")
    held = {"checksum", "test_fraction", "seed"} <= about.keys()
    if measured and rows.is_test is None and held and about["checksum"] == table.checksum:
        rows = rows.hold_out(about["test_fraction"], about["seed"])
        assert rows.is_test is not None
        if not labels and not rows.is_test.any():
            rows = replace(rows, y=None)
    return _named_like(rows, wanted).part(split).encoded(opened.encoder)


def _with_text(columns: Columns, wanted: Sequence[str], data: str) -> Columns:
    """With the column of texts: as named, or as in training."""
    text = columns.text or (wanted[0] if wanted else None)
    if text is None:
        raise ValueError(f"the model takes texts: name their column in {data} with --text")
    return replace(columns, text=text, features=(text,))


def _with_columns(table: Table, wanted: Sequence[str], unused: set[str]) -> Table:
    """The table with all columns that the model was given, missing values in those that it lacks.

    Columns that training left out are not needed, and missed by nobody.
    """
    lost = [name for name in wanted if name not in table.columns]
    if not lost:
        return table
    needed = [name for name in lost if name not in unused]
    if len(needed) == len(set(wanted) - unused):
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
    values = table.values.assign(**dict.fromkeys(lost, np.nan))
    return replace(table, values=values)


def _named_like(rows: Rows, wanted: Sequence[str]) -> Rows:
    """Frames for a model that knows names of columns, arrays for one that does not."""
    import pandas as pd

    if wanted and not isinstance(rows.x, pd.DataFrame):
        return replace(rows, x=pd.DataFrame(rows.x, columns=list(wanted)))
    return rows if wanted else replace(rows, x=np.asarray(rows.x))


def load_rows(data: str | Sequence[str], columns: Columns, guess_label: str) -> Rows:
    """The rows of DATA where there is no model yet."""
    table = read_tables(listed(data), columns.max_rows)
    return choose(table, guess_label=guess_label, **_chosen(columns))


def _chosen(columns: Columns) -> dict[str, Any]:
    return {k: value for k, value in vars(columns).items() if k not in ("max_rows", "encoder")}


def large(data: str | Sequence[str], columns: Columns, memory: float | None) -> list[Path] | None:
    """The files of DATA if memory, in megabytes, does not hold them; else None.

    memory None: what is free. Several arrays are always read in parts.
    """
    given = listed(data)
    named = len(given) == 1 and (given[0] in NAMES or Path(given[0]).is_dir())
    if columns.max_rows is not None or named:
        return None
    files = expand(given)
    if not all(path.is_file() and path.suffix.lower() in SUFFIXES for path in files):
        return None  # the error comes when it is read
    budget = available_memory("cpu") if memory is None else memory * 2**20
    held = HELD * sum(path.stat().st_size for path in files)
    arrays = files[0].suffix.lower() == ".npy" and len(files) > 1
    return files if held > budget or arrays else None


def load_files(
    files: Sequence[Path], columns: Columns, memory: float | None, **more: Any
) -> LargeRows:
    """Their rows, of which memory holds a part at a time."""
    if columns.text is not None:
        raise ValueError("memory does not hold these texts: take a part of them, with --max-rows")
    held = MEMORY if memory is None else min(round(memory * 2**20), MEMORY)
    chosen = {name: value for name, value in _chosen(columns).items() if name != "text"}
    return LargeRows.open(files, memory=held, **{**chosen, **more})


def files_for(
    opened: Opened, files: Sequence[Path], columns: Columns, memory: float | None, *,
    labels: bool = False,
) -> LargeRows:  # fmt: skip
    """The same for a model, with the columns that it takes; labels: they are needed."""
    about = opened.record.get("data", {})
    wanted = tuple(str(n) for n in getattr(opened.first, "feature_names_in_", []))
    unused = _unused(opened.first)
    if opened.takes_texts:
        columns = _with_text(columns, wanted, str(files[0]))
    if not labels and columns.id is None and about.get("id") in column_names(files[0]):
        columns = replace(columns, id=about["id"])
    if labels and columns.label is None:
        columns = replace(columns, label=about.get("label"))
    rows = load_files(
        files, columns, memory, wanted=[name for name in wanted if name not in unused],
        named=not labels, guess_label="last" if labels else "named",
    )  # fmt: skip
    if rows.x.n_features != opened.first.n_features_in_ - len(unused):
        raise ValueError(
            f"{rows.table.name} has {rows.x.n_features} features, the model takes "
            f"{opened.first.n_features_in_}: use data of the same columns; --label, --id and "
            "--drop leave columns out"
        )
    return replace(rows, encoder=opened.encoder, order=wanted)


def _unused(first: Any) -> set[str]:
    """The columns that training left out."""
    encoding = first.model_.features.encoding
    return set() if encoding is None else {c.name for c in encoding.columns if not c.width}


def listed(data: str | Sequence[str]) -> list[str]:
    """One or more names of files."""
    return [data] if isinstance(data, str) else list(data)


def about_data(used: Rows | LargeRows, **more: Any) -> dict[str, Any]:
    """What a record says of the data."""
    table = used.table
    if used.in_memory:
        n_features = (used.x if used.images is None else used.images).shape[1]
    else:
        n_features = used.x.n_features
    return {
        "name": table.name, "checksum": table.checksum,
        "features": n_features,
        "label": used.label, "image_shape": table.image_shape, **more,
    }  # fmt: skip
