"""The stored results of the benchmarks, and templates of tables made from them.

A template is a column's head and a format string for `str.format` with the fields of one row of a
result. In rows that were grouped, a field is `Values`: `{accuracy:percent}` is the mean and range.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from research.pages.marks import markdown
from research.report import STORED, Json

RESULTS = STORED / "benchmarks"
MINUS = str.maketrans("-", "−")


def read(name: str) -> Json:
    content: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


class Values(list[float]):
    """A field of several rows: `percent`, `±.2f`, `median.2f`, `min.2f`, `signed`, `.2f` (mean)."""

    def __format__(self, spec: str) -> str:
        if not self:
            return ""
        mean = statistics.fmean(self) if isinstance(self[0], int | float) else None
        if spec == "":
            return ", ".join(map(str, dict.fromkeys(self)))
        if spec == "percent":
            spread = f" ({min(self):.2f}–{max(self):.2f})" if len(self) > 1 else ""
            return f"{mean:.2f}%{spread}"
        if spec == "signed":
            return ", ".join(f"{value:+.2f}".translate(MINUS) for value in self)
        if spec.startswith("±"):
            return f"{mean:{spec[1:]}} ± {statistics.stdev(self):{spec[1:]}}"
        if spec.startswith("median"):
            return f"{statistics.median(self):{spec[6:]}}"
        if spec.startswith("min"):
            return f"{min(self):{spec[3:]}}"
        return f"{mean:{spec}}"


class Row(dict[str, Any]):
    """A row of which fields may be missing."""

    def __missing__(self, key: str) -> Values:
        return Values()


def collect(rows: Iterable[Json]) -> Json:
    """One row of several: nested fields of numbers as `Values`."""
    listed = list(rows)
    found: Json = {}
    for key, value in listed[0].items():
        of_all = [row[key] for row in listed if key in row]
        found[key] = collect(of_all) if isinstance(value, dict) else Values(of_all)
    return found


def grouped(rows: Iterable[Json], *keys: str) -> list[Json]:
    """Rows with the same `keys` as one."""
    found: dict[tuple[Any, ...], list[Json]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [collect(rows) | dict(zip(keys, names, strict=True)) for names, rows in found.items()]


def table(columns: Mapping[str, str], rows: Iterable[Json], *runs: Json) -> str:
    """A table by its columns' templates, and the commands of the runs behind it."""
    lines = [[template.format_map(Row(row)) for template in columns.values()] for row in rows]
    listed = "\n".join(dict.fromkeys(map(source, runs)))
    return "\n\n".join([markdown(list(columns), lines), *([listed] if listed else [])])


def of(
    name: str, path: str, columns: Mapping[str, str], *keys: str, **where: object
) -> Callable[[], str]:
    """A table of the rows at `path` of a result, those of `where`, grouped by `keys`."""

    def made() -> str:
        run = read(name)
        rows = [r for r in run[path] if all(r[key] == value for key, value in where.items())]
        return table(columns, grouped(rows, *keys) if keys else rows, run)

    return made


def command(run: Json) -> str:
    """As code."""
    return f"`{run['command']}`"


def device(run: Json) -> str:
    names = {"aarch64": "Arm processor", "x86_64": "x86 processor"}
    name = str(names.get(run["device"], run["device"]))
    if name not in names.values():
        return name
    return f"{name}, {run['threads']} thread{'s' if run['threads'] > 1 else ''}"


def source(run: Json) -> str:
    return f"- {command(run)}, {device({'threads': 1} | run)}"
