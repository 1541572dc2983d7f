"""The stored results of the benchmarks, and how their numbers are written."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable

from research.benchmarks.conditional import CASES
from research.report import STORED, Json

RESULTS = STORED / "benchmarks"


def read(name: str) -> Json:
    content: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def growth_runs() -> list[Json]:
    """Every stored growth, smallest final width first."""
    found = [read(path.stem) for path in RESULTS.glob("growth_*.json")]
    return sorted((r for r in found if "rows" in r), key=lambda r: (solver(r), width(r)))


def solver(run: Json) -> str:
    """Of a growth; its command tells."""
    return "SGD" if "--solver sgd" in run["command"] else "fixed point"


def width(run: Json) -> int:
    return int(run["rows"][0]["memories"])


def command(run: Json) -> str:
    """As code."""
    return f"`{run['command']}`"


def device(run: Json) -> str:
    names = {"aarch64": "Arm processor", "x86_64": "x86 processor"}
    name = str(names.get(run["device"], run["device"]))
    if name not in names.values():
        return name
    return f"{name}, {run['threads']} thread{'s' if run['threads'] > 1 else ''}"


def percent(values: Iterable[float]) -> str:
    """Mean, and the range where there are several."""
    found = list(values)
    mean = f"{statistics.fmean(found):.2f}%"
    return mean if len(found) == 1 else f"{mean} ({min(found):.2f}–{max(found):.2f})"


def conditional_runs() -> dict[str, Json]:
    """The data sets that are measured, in the order of the study."""
    found = {name: RESULTS / f"conditional_{name}.json" for name in CASES}
    return {name: read(path.stem) for name, path in found.items() if path.exists()}


def average(rows: Iterable[Json], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def source(run: Json) -> str:
    return f"- {command(run)}, {device({'threads': 1} | run)}"


def sources(*names: str) -> str:
    return "\n".join(source(read(name)) for name in names)
