"""Rows of files that memory does not hold, as commands see them: part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mnemosphere.data.ahead import ahead
from mnemosphere.data.columns import Rows, find_label, labels_of, used_columns
from mnemosphere.data.readers import column_names
from mnemosphere.data.source import MEMORY, Dataset, RawRows
from mnemosphere.data.tables import Table

_MOST_HELD_OUT = 20_000


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows that an estimator takes as a `Dataset`; see `Rows`."""

    table: Table  # all but its values
    x: Dataset
    label: str | None
    id: str | None = None  # the column that names rows, which then have no labels
    kind: str = "row"
    y: None = None  # they are in the files
    images: None = None
    in_memory: Literal[False] = False
    encoder: Any = None  # of the images that a model is given

    @classmethod
    def open(
        cls, files: Sequence[Path], *, label: str | None = None, guess_label: str = "last",
        id: str | None = None, drop: Sequence[str] = (), features: Sequence[str] = (),
        named: bool = False, wanted: Sequence[str] = (), memory: int = MEMORY,
    ) -> FileRows:  # fmt: skip
        """Say which columns are what: see `choose`.

        named: rows are called by their `id` and have no labels. wanted: the columns that a model
        takes, where the files have names of columns.
        """
        first = files[0]
        names, source = column_names(first), str(first)
        used = None
        if names:
            features = wanted or features
            label = find_label(names, source, label, guess_label, id, drop, features)
            used = used_columns(names, source, label, id, drop, features)
        elif drop or features or id:
            raise ValueError(f"{first} has no names of columns: leave --id, --drop, --features out")
        elif label is None and guess_label == "last" and "images-idx3" in first.name:
            label = str(first.with_name(first.name.replace("images-idx3", "labels-idx1")))
        named &= id is not None
        opened = Dataset.open(
            list(files), label=id if named else label, features=used,
            memory=memory,
        )  # fmt: skip
        about = [[r.path.name, r.n_bytes, r.n_rows] for r in opened.readers]
        told = hashlib.sha256(repr(about).encode())
        called = source if len(files) == 1 else f"{source} and {len(files) - 1} more"
        table = Table(called, None, np.empty(0), "row", f"files:{told.hexdigest()}")
        return cls(table, opened, label, id if named else None, str(id) if named else "row")

    def __len__(self) -> int:
        return self.x.n_rows

    def batches(self) -> Iterator[Rows]:
        """The rows in parts that memory holds, in the order of the files."""
        for raw in ahead(self.x.pieces()):
            yield self.part_of(raw)

    def hold_out(self, fraction: float, seed: int) -> tuple[FileRows, Rows | None]:
        """(the others, that share of the rows as far as memory holds them)."""
        if not 0 <= fraction < 1:
            raise ValueError(f"--test-fraction must lie in [0, 1), got {fraction}")
        n = min(round(fraction * len(self)), _MOST_HELD_OUT)
        if n == 0:
            return self, None
        raw = self.x.sample(n, seed)
        assert raw.rows.number is not None
        return replace(self, x=self.x.without(raw.rows.number)), self.part_of(raw)

    def names_of(self, rows: NDArray[Any]) -> dict[int, str]:
        """Names of rows as a model calls them that was fitted to all of these."""
        numbers = {int(k): int(k) for k in rows.reshape(-1) if k >= 0}
        if self.x.fits:  # then it was given as an array, without those left out
            kept = self.x.numbers()
            numbers = {k: int(kept[k]) for k in numbers}
        return {k: self.name(number) for k, number in numbers.items()}

    def name(self, number: int) -> str:
        """What a row is called, by its number over all files."""
        path, row = self.x.where(number)
        return str(row) if len(self.x.readers) == 1 else f"{path.name}:{row}"

    def part_of(self, raw: RawRows) -> Rows:
        """Some of the rows, held in memory."""
        x: Any = raw.rows.values.numpy()
        if self.x.names is not None and len(self.x.names) == x.shape[1]:
            x = pd.DataFrame(x, columns=self.x.names)
        y = raw.y
        if self.id is not None and y is not None:
            names = np.array([str(name) for name in y.tolist()])
            return Rows(self.table, x, None, names, self.kind, None).encoded(self.encoder)
        assert raw.rows.number is not None
        names = np.array([self.name(k) for k in raw.rows.number.tolist()])
        labels = None if y is None else labels_of(pd.Series(y))
        return Rows(self.table, x, labels, names, self.kind, self.label).encoded(self.encoder)
