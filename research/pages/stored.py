"""Stored results of measurements, tables made from them, and whether these may still be shown.

The rule: all results of a table are of one machine, of a version that may still be shown, and of the
defaults that the package has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from research.pages.marks import markdown
from research.report import STORED, Json, defaults

SHOWN = ("0.4", "0.5")  # versions whose results may stand on a page, which names them
RESULTS = STORED / "benchmarks"


class Table(NamedTuple):
    """A table as Markdown, and the heads of the runs behind it."""

    text: str
    runs: list[Json]


def read(name: str) -> Json:
    """A stored result."""
    content: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def table(columns: Mapping[str, str], rows: Iterable[Json], *runs: Json, more: str = "",
          guide: bool = False) -> Table:  # fmt: skip
    """A table by its columns' templates, the commands of the runs behind it, and a remark.

    On pages of the guide, machine and version stand in place of the commands.
    """
    lines = [[template.format(**row) for template in columns.values()] for row in rows]
    below = measured_on(runs) if guide else sources(runs)
    return Table(f"{markdown(list(columns), lines)}\n\n{below}{more}", list(runs))


def problems(name: str, runs: Iterable[Json]) -> list[str]:
    """Reasons not to show a table of these runs."""
    runs = list(runs)
    machines = sorted({device(run) for run in runs})
    found = [f"{name}: more than one machine: {', '.join(machines)}"] if len(machines) > 1 else []
    for run in runs:
        version = _version(run) or "an unknown version"
        if version.rpartition(".")[0] not in SHOWN:
            found.append(f"{name}: measured with {version}, run again: {run['command']}")
        elif run.get("defaults") != defaults():
            found.append(f"{name}: measured with other defaults, run again: {run['command']}")
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


def _machine(run: Json) -> str:
    version = _version(run)
    return device(run) + (f", version {version}" if version else "")


def source(run: Json) -> str:
    """Command, machine and version."""
    return f"- {command(run)}, {_machine(run)}"


def measured_on(runs: Iterable[Json]) -> str:
    """Machine and version, each once."""
    return f"Measured on: {'; '.join(dict.fromkeys(map(_machine, runs)))}"


def sources(runs: Iterable[Json]) -> str:
    """Each once."""
    return "\n".join(dict.fromkeys(map(source, runs)))
