"""Numbers inside the sentences of the page "The paper, reproduced", from the stored results.

A sentence has `<!--=fig6 gap-->0.02<!--/-->`: the name of a section, that of a fact. What stands
between is made anew with the page, so that a sentence cannot contradict its result file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from research.paper.experiment import load_arrays
from research.report import Json

Facts = dict[str, str]


def _rows(result: Json, case: str, solver: str) -> list[Json]:
    rows: list[Json] = result["measured"]["rows"]
    return [r for r in rows if r["case"] == case and r.get("solver", solver) == solver]


def _mean(rows: list[Json], *path: str) -> float:
    values: list[Any] = list(rows)
    for name in path:
        values = [value[name] for value in values]
    return float(np.mean(values))


def _fig2(result: Json, folder: Path) -> Facts:
    return {"noisy 18": f"{_mean(_rows(result, 'beta=18', 'sgd'), 'memory', 'noisy'):.0f}%"}


def _table1(result: Json, folder: Path) -> Facts:
    arrays = load_arrays(folder)
    curves = [arrays[f"curve beta=6-sgd-{r['seed']}"][0] for r in _rows(result, "beta=6", "sgd")]
    gain = 100 * float(np.mean([curve[-1] - curve[-51] for curve in curves]))
    found = {"gain 6": f"{gain:.2f}"}
    cases = list(dict.fromkeys(row["case"] for row in result["measured"]["rows"]))
    ahead = [
        _mean(_rows(result, case, "fixed-point"), "accuracy")
        > _mean(_rows(result, case, "sgd"), "accuracy")
        for case in cases
    ]
    found["ahead"] = f"{sum(ahead)} of {len(ahead)}"
    first, needed = [], []
    for row in _rows(result, "varsigma=0.25", "sgd"):
        quick, slow = (
            arrays[f"curve varsigma=0.25-{solver}-{row['seed']}"][0]
            for solver in ("fixed-point", "sgd")
        )
        first.append(quick[1])
        needed += np.flatnonzero(slow >= quick[1])[:1].tolist()
    found["first pass"] = f"{100 * np.mean(first):.1f}%"
    found["as many passes"] = f"{min(needed)} to {max(needed)}"
    found["reached"] = f"{len(needed)} of {len(first)}"
    return found


def _regularizer(result: Json, folder: Path) -> Facts:
    found: Facts = {}
    for case, solver in (("1", "sgd"), ("0.25", "sgd"), ("1", "fixed-point")):
        rows = _rows(result, f"varsigma={case}", solver)
        found |= {
            f"{solver} {case} noisy": f"{_mean(rows, 'memory', 'noisy'):.0f}%",
            f"{solver} {case} accuracy": f"{_mean(rows, 'accuracy'):.2f}%",
        }
    return found


def _fig4(result: Json, folder: Path) -> Facts:
    rows = [row for row in result["measured"]["rows"] if row["seed"] == 0]
    return {f"{row['case']} loss": f"{row['loss']:.3f}".replace("-", "−") for row in rows}


def _fig5(result: Json, folder: Path) -> Facts:
    runs = result["measured"]["runs"]
    return {
        "ratio": f"{result['measured']['trunk_ratio']:.1f}",
        **{f"{name} total": f"{run['memory_passes'] / 1000:.0f}" for name, run in runs.items()},
    }


def _around(values: list[float], level: float) -> tuple[int, int]:
    """The places of the last value below a level and of the first above it."""
    above = next(k for k, value in enumerate(values) if value > level)
    return above - 1, above


def _fig6(result: Json, folder: Path) -> Facts:
    found: Facts = {}
    for data, methods in result["measured"]["sweeps"].items():
        plain, split = methods["sgd"], methods["sgd-split"]
        common = [p for p in plain["p_max"] if p in split["p_max"]]
        pairs = [(plain["p_max"].index(p), split["p_max"].index(p)) for p in common]
        gaps = [split["accuracy"][b] - plain["accuracy"][a] for a, b in pairs]
        laws = result["measured"]["fits"][data]
        fifth = _around(split["splits"], 4.5)
        before, after = (split["work"][split["p_max"].index(p)] for p in (1600, 1625))
        found |= {
            f"{data} gap": f"{np.mean(gaps):.2f}",
            f"{data} fifth": " and ".join(str(split["p_max"][k]) for k in fifth),
            f"{data} work jump": f"{100 * (after / before - 1):.0f}%",
            f"{data} work power": f"{laws['sgd']['work']['power']['b']:.2f}",
            f"{data} work split power": f"{laws['sgd-split']['work']['power']['b']:.2f}",
        }
    return found


def _fig4_starts(result: Json, folder: Path) -> Facts:
    rows = [row for row in result["measured"]["rows"] if row["case"] == "authors"]
    return {"authors beta": f"{_mean(rows, 'beta'):.1f}"}


_FACTS: dict[str, Callable[[Json, Path], Facts]] = {
    "fig2": _fig2,
    "table1": _table1,
    "regularizer": _regularizer,
    "fig4": _fig4,
    "fig4-starts": _fig4_starts,
    "fig5": _fig5,
    "fig6": _fig6,
}


def facts(section: str, result: Json, folder: Path) -> Facts:
    """All facts of a section by their names."""
    return _FACTS[section](result, folder)
