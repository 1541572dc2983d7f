"""Tables as the commands read and write them: pandas does it."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mnemosphere.base.files import writing
from mnemosphere.base.machine import check_memory
from mnemosphere.rows.containers import listed

TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")  # what is written
_HELD = 5  # times the size of a file is what reading it takes of memory, about
# Empty cells are missing and nothing else is: a class may be called NA.
_EMPTY: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}


def read_table(path: Path) -> pd.DataFrame:
    """All rows of a file, called by their numbers from 0, or by the index of a Parquet file."""
    if not path.is_file():
        raise ValueError(f"no file {path}: check the path")
    check_memory(_HELD * path.stat().st_size, "cpu", f"reading {path}",
                 "files larger than memory are for mn.Dataset, in Python")  # fmt: skip
    name = path.name.lower()
    try:
        if name.endswith(TABLES[:-1]):
            frame = _read_text(path, name)
        elif name.endswith(".xlsx"):
            frame = pd.read_excel(path, engine="openpyxl", **_EMPTY)
        elif name.endswith(".parquet"):
            frame = pd.read_parquet(path)
        elif name.endswith(".jsonl"):
            frame = pd.read_json(path, lines=True, precise_float=True)
        else:
            raise ValueError(f"its name must end in {', '.join((*TABLES, '.xlsx', '.jsonl'))}")
        if frame.empty:
            raise ValueError("it has no rows")
    except ImportError:
        raise
    except Exception as error:  # what else is wrong with a file can be anything
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    frame.columns = frame.columns.map(str).str.strip()
    frame.index.name = frame.index.name or "row"
    return frame


def _read_text(path: Path, name: str) -> pd.DataFrame:
    """A text file with names of columns; its first line tells the separator."""
    opened: Any = gzip.open if name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        first = file.readline()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # of cells that would be lost
        frame = pd.read_csv(
            path, sep=max(",;\t", key=first.count), index_col=False, skip_blank_lines=False,
            skipinitialspace=True, low_memory=False, **_EMPTY,
        )  # fmt: skip
    if "Unnamed: 0" in frame:  # the index that pandas writes
        return frame.drop(columns="Unnamed: 0")
    return frame


def check_columns(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """ValueError names the first of these columns that a table lacks."""
    for name in names:
        if name not in frame:
            near = get_close_matches(name, frame.columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {listed(frame.columns)}"
            raise ValueError(f"no column {name!r}: {hint}")


def named_rows(frame: pd.DataFrame, id: str | None) -> pd.DataFrame:
    """The table with its rows called by a column."""
    if id is None:
        return frame
    check_columns(frame, [id])
    return frame.set_index(id)


def rows_called(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The rows of these names."""
    called = frame.index.astype(str)
    for name in names:
        if name not in called:
            raise ValueError(
                f"no {frame.index.name} {name!r}: there are {called[0]} to {called[-1]}"
            )
    return frame[called.isin(list(names))]


def held_out(labels: pd.Series, seed: int) -> NDArray[np.bool_]:
    """Which rows to hold out: a fifth of each class, none of a class of fewer than five rows."""
    plain = labels.reset_index(drop=True)
    order = np.random.default_rng(seed).permutation(len(plain))
    place = plain.iloc[order].groupby(plain.iloc[order]).cumcount().sort_index()
    held: NDArray[np.bool_] = (place % 5 == 4).to_numpy() & plain.notna().to_numpy()
    return held


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table that appears whole or not at all."""
    name = path.name.lower()
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        if name.endswith(".parquet"):
            table.to_parquet(file)
        else:
            # No time stamp: the same rows give the same bytes.
            packed: Any = {"method": "gzip", "mtime": 0} if name.endswith(".gz") else None
            table.to_csv(file, sep="\t" if ".tsv" in name else ",", compression=packed)
