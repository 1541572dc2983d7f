"""The data sets: those that scikit-learn brings, and a folder of tables where there is one.

The folder is `DIR/tables`: `index.csv` with the columns name and kind, and per name an .npz file
with the arrays X and y.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

BUNDLED: dict[str, Callable[..., Any]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast-cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}


@dataclass(frozen=True)
class Table:
    """Rows and their classes, numbered from 0."""

    name: str
    kind: str  # "table", "time series", … as the index has it; "bundled" for scikit-learn's
    x: Any  # an array of numbers, or a frame
    y: NDArray[np.int64]

    def at(self, index: NDArray[np.int64]) -> tuple[Any, NDArray[np.int64]]:
        """Some rows and their classes."""
        return self.x.iloc[index] if hasattr(self.x, "iloc") else self.x[index], self.y[index]

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1


def kinds(folder: Path | None) -> dict[str, str]:
    """Name and kind of every set there is, smallest folder first."""
    found = dict.fromkeys(BUNDLED, "bundled")
    if folder is not None:
        with (folder / "tables" / "index.csv").open(encoding="utf-8", newline="") as lines:
            found |= {line["name"]: line["kind"] for line in csv.DictReader(lines)}
    return found


def load(name: str, kind: str, folder: Path | None) -> Table:
    if name in BUNDLED:
        x, y = BUNDLED[name](return_X_y=True)
    else:
        if folder is None:
            raise SystemExit(f"error: {name!r} is a table of a folder: pass --data DIR")
        with np.load(folder / "tables" / f"{name}.npz", allow_pickle=False) as stored:
            x, y = stored["X"], stored["y"]
    return Table(name, kind, np.asarray(x, float), np.unique(y, return_inverse=True)[1])
