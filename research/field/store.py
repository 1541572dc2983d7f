"""The results of a part: one JSON file, one line per data set and method, figures by fold.

While a run lasts, every cell (a data set, a method and a fold) is a file of its own, in a folder that is
named for version, machine, defaults, folds and seed. So an interrupted run goes on, and a file of
results has cells of one kind of run alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mnemosphere.base.files import write_atomically
from research import report
from research.report import Json

RESULTS = report.STORED / "field"
CELLS = Path("runs") / "field"


def run_id(head: Json) -> str:
    """The same for runs whose cells may stand in one table."""
    parts = (
        head["versions"]["mnemosphere"],
        *(head.get(k) for k in ("device", "defaults", "folds", "seeds")),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def gathered(folds: Sequence[Json]) -> Json:
    """The cells of all folds as one: lists over folds, and the calibration error of all rows."""
    found = {key: [fold[key] for fold in folds] for key in folds[0]}
    if gaps := found.pop("calibration", None):
        error = np.abs(np.sum(gaps, axis=0)).sum() / sum(found.pop("tested"))
        found["calibration_error"] = round(float(error), 6)
    return found


@dataclass
class Results:
    """Data sets, heads by method, and cells by set and method."""

    part: str
    sets: dict[str, Json] = field(default_factory=dict)  # rows, features, classes, kind
    heads: dict[str, Json] = field(default_factory=dict)
    cells: dict[tuple[str, str], Json] = field(default_factory=dict)

    @classmethod
    def read(cls, part: str, folder: Path = RESULTS) -> Results:
        """What is stored; empty where nothing is."""
        path = folder / f"{part}.json"
        if not path.exists():
            return cls(part)
        stored = report.read_json(path, "delete it to measure it again")
        cells = {(c["set"], c["method"]): c for c in stored["cells"]}
        return cls(part, stored["sets"], stored["methods"], cells)

    def alike(self, head: Json) -> Results:
        """What of it may stand beside a run with this head."""
        heads = {m: h for m, h in self.heads.items() if run_id(h) == run_id(head)}
        cells = {key: cell for key, cell in self.cells.items() if key[1] in heads}
        sets = {name: self.sets[name] for name in {name for name, _ in cells}}
        return Results(self.part, sets, heads, cells)

    def write(self, folder: Path = RESULTS) -> None:
        """Whole or not at all; cells in order, so that the same results make the same file."""
        order = {name: k for k, name in enumerate(self.heads)}
        cells = sorted(self.cells.values(), key=lambda c: (c["set"], order[c["method"]]))
        parts = {
            "part": json.dumps(self.part),
            "sets": _lines({name: json.dumps(self.sets[name]) for name in sorted(self.sets)}),
            "methods": _lines(
                {k: json.dumps(h, ensure_ascii=False) for k, h in self.heads.items()}
            ),
            "cells": "[\n" + ",\n".join(json.dumps(c, allow_nan=False) for c in cells) + "\n]",
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{self.part}.json", (_lines(parts) + "\n").encode())


def _lines(values: dict[str, str]) -> str:
    """A JSON object of values already written, one per line."""
    lines = (f"{json.dumps(key)}: {value}" for key, value in values.items())
    return "{\n" + ",\n".join(lines) + "\n}"
