"""Stored results of measurements, tables made from them, and whether these may still be shown.

A table is wrong if its results are of several versions, machines or defaults, or if the code that
they describe has changed since. Tables of finished benchmarks, whose code was removed, are stored as
text with command, machine and version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from research import report
from research.pages.marks import markdown
from research.report import STORED, Json

RESULTS = STORED / "benchmarks"
MINUS = str.maketrans("-", "−")
FINISHED: dict[str, str] = json.loads((RESULTS / "finished.json").read_text(encoding="utf-8"))
_ALIKE = {"version": lambda run: _version(run), "machine": lambda run: device(run),
          "defaults": lambda run: run.get("defaults")}  # fmt: skip


class Table(NamedTuple):
    """A table as Markdown, and the heads of the runs behind it."""

    text: str
    runs: list[Json]


def read(name: str) -> Json:
    """A stored result."""
    content: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def table(columns: Mapping[str, str], rows: Iterable[Json], *runs: Json, more: str = "") -> Table:
    """A table by its columns' templates, the commands of the runs behind it, and a remark."""
    lines = [[template.format(**row) for template in columns.values()] for row in rows]
    return Table(f"{markdown(list(columns), lines)}\n\n{sources(runs)}{more}", list(runs))


def problems(name: str, runs: Iterable[Json]) -> list[str]:
    """Reasons not to show a table of these runs."""
    runs = list(runs)
    found = [
        f"{name}: results of more than one {what}: {', '.join(sorted(map(str, values)))}"
        for what, of in _ALIKE.items()
        if len(values := {value for run in runs if (value := of(run))}) > 1
    ]
    for run in runs:
        parts = run.get("describes", report.DEFAULT_FIT)
        if parts and run.get("code") != report.code_of(parts):
            found.append(f"{name}: older than the code it describes: {run['command']}")
    return list(dict.fromkeys(found))


def command(run: Json) -> str:
    """As code."""
    return f"`{run['command']}`"


def device(run: Json) -> str:
    """The machine in words."""
    names = {"aarch64": "Arm processor", "x86_64": "x86 processor"}
    name = str(names.get(run["device"], run["device"]))
    if name not in names.values():
        return name
    threads = run.get("threads", 1)
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}"


def _version(run: Json) -> str:
    return str(run.get("versions", {}).get("mnemosphere", ""))


def source(run: Json) -> str:
    """Command, machine and version."""
    version = _version(run)
    return f"- {command(run)}, {device(run)}" + (f", version {version}" if version else "")


def sources(runs: Iterable[Json]) -> str:
    """Each once."""
    return "\n".join(dict.fromkeys(map(source, runs)))
