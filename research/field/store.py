"""The results of a part: one JSON file, one line per cell, so that one can be measured again alone.

The head of a method says how its cells came about; a part may have been measured by several runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from mnemosphere.files import write_atomically
from research import report
from research.report import Json

RESULTS = report.STORED / "field"


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
