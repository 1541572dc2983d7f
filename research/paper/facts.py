"""Numbers inside the sentences of the page "The paper, reproduced", from the stored results.

A sentence has `<!--=fig6 gap-->0.02<!--/-->`: the name of a section, that of a fact. What stands
between is made anew with the page, so that a sentence cannot contradict its result file.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from research.paper.capacity import growth_rates
from research.paper.experiment import load_arrays
from research.paper.prior import SHARES
from research.report import Json

Facts = dict[str, str]


def _agree(result: Json) -> Facts:
    compared = [c["within"] for c in result["paper"] if c["within"] is not None]
    return {"agree": f"{sum(compared)} of {len(compared)}"}


def _rows(result: Json, case: str, solver: str) -> list[Json]:
    rows: list[Json] = result["measured"]["rows"]
    return [r for r in rows if r["case"] == case and r.get("solver", solver) == solver]


def _mean(rows: list[Json], *path: str) -> float:
    values: list[Any] = list(rows)
    for name in path:
        values = [value[name] for value in values]
    return float(np.mean(values))


def _fig2(result: Json, folder: Path) -> Facts:
    found = {}
    for beta in (18, 14, 10, 6):
        rows = _rows(result, f"beta={beta}", "sgd")
        found[f"noisy {beta}"] = f"{_mean(rows, 'memory', 'noisy'):.0f}%"
        found[f"twin {beta}"] = f"{_mean(rows, 'memory', 'twin'):.4f}"
    return found


def _table1(result: Json, folder: Path) -> Facts:
    arrays, found = load_arrays(folder), {}
    for beta in (6, 10, 14, 18):
        rows = _rows(result, f"beta={beta}", "sgd")
        curves = [arrays[f"curve beta={beta}-sgd-{row['seed']}"][0] for row in rows]
        found[f"accuracy {beta}"] = f"{_mean(rows, 'accuracy'):.2f}%"
        found[f"passes {beta}"] = f"{_mean(rows, 'passes'):.0f}"
        gain = 100 * float(np.mean([curve[-1] - curve[-51] for curve in curves]))
        found[f"gain {beta}"] = f"{gain:.2f}"
    found["above 18"] = f"{_mean(_rows(result, 'beta=18', 'sgd'), 'accuracy') - 91:.1f}"
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
    found = {}
    for case, solver in (("1", "sgd"), ("0.25", "sgd"), ("1", "fixed-point")):
        rows = _rows(result, f"varsigma={case}", solver)
        found |= {
            f"{solver} {case} noisy": f"{_mean(rows, 'memory', 'noisy'):.0f}%",
            f"{solver} {case} accuracy": f"{_mean(rows, 'accuracy'):.2f}%",
            f"{solver} {case} true": f"{_mean(rows, 'accuracy_true'):.2f}%",
            f"{solver} {case} beta": f"{_mean(rows, 'beta'):.0f}",
        }
    return found


def _fig4(result: Json, folder: Path) -> Facts:
    found = {}
    for row in result["measured"]["rows"]:
        if row["seed"] == 0:
            found |= {
                f"{row['case']} within": f"{row['within']:.2f}",
                f"{row['case']} loss": f"{row['loss']:.3f}".replace("-", "−"),
                f"{row['case']} marginals": f"{row['marginal_error_trained']:.0e}",
                f"{row['case']} projected": f"{row['marginal_error']:.0e}",
            }
    return found


def _fig5(result: Json, folder: Path) -> Facts:
    runs = result["measured"]["runs"]
    return {
        "ratio": f"{result['measured']['trunk_ratio']:.1f}",
        **{f"{name} total": f"{run['memory_passes'] / 1000:.0f}" for name, run in runs.items()},
        "widths": ", ".join(str(width) for width in runs["with"]["widths"]),
    }


def _around(values: list[float], level: float) -> tuple[int, int]:
    """The places of the last value below a level and of the first above it."""
    above = next(k for k, value in enumerate(values) if value > level)
    return above - 1, above


def _fig6(result: Json, folder: Path) -> Facts:
    found: Facts = {}
    measured = result["measured"]
    for data, methods in measured["sweeps"].items():
        plain, split = methods["sgd"], methods["sgd-split"]
        common = [p for p in plain["p_max"] if p in split["p_max"]]
        pairs = [(plain["p_max"].index(p), split["p_max"].index(p)) for p in common]
        gaps = [split["accuracy"][b] - plain["accuracy"][a] for a, b in pairs]
        laws = measured["fits"][data]
        found |= {
            f"{data} gap": f"{np.mean(gaps):.2f}",
            f"{data} widths": f"{len(split['p_max'])}",
            f"{data} splits": ", ".join(f"{n:.3g}" for n in split["splits"]),
            f"{data} fifth": " and ".join(
                str(split["p_max"][k]) for k in _around(split["splits"], 4.5)
            ),
            f"{data} passes": f"{plain['passes'][0]:.0f} to {plain['passes'][-1]:.0f}",
        }
        for what in ("seconds", "work"):
            first, last = (plain[what][a] / split[what][b] for a, b in (pairs[0], pairs[-1]))
            slopes = [laws[method][what]["line"]["b"] for method in ("sgd", "sgd-split")]
            found |= {
                f"{data} {what} power": f"{laws['sgd'][what]['power']['b']:.2f}",
                f"{data} {what} split power": f"{laws['sgd-split'][what]['power']['b']:.2f}",
                f"{data} {what} advantage": f"{first:.1f} to {last:.1f}",
                f"{data} {what} slopes": f"{slopes[1] / slopes[0]:.2f}",
            }
            if {1600, 1625} <= set(split["p_max"]):
                at = [split[what][split["p_max"].index(p)] for p in (1500, 1600, 1625)]
                for step, (before, after) in zip(("tread", "jump"), pairwise(at), strict=True):
                    found[f"{data} {what} {step}"] = f"{100 * (after / before - 1):.0f}%"
                for form in ("staircase", "line"):
                    share = laws["sgd-split"][what][form]["r2"] or 0.0
                    found[f"{data} {what} {form}"] = f"{100 * share:.0f}%"
        counts = {
            method: len({r["seed"] for r in measured["rows"]
                         if (r["data"], r["method"]) == (data, method)})
            for method in methods
        }  # fmt: skip
        found |= {f"{data} {method} seeds": str(n) for method, n in counts.items()}
    return found


def _fig4_starts(result: Json, folder: Path) -> Facts:
    found = {}
    for case in dict.fromkeys(row["case"] for row in result["measured"]["rows"]):
        rows = [row for row in result["measured"]["rows"] if row["case"] == case]
        within = [row["within"] for row in rows]
        found |= {
            f"{case} beta": f"{_mean(rows, 'beta'):.1f}",
            f"{case} within": f"{min(within):.2f} to {max(within):.2f}".replace("-", "−"),
            f"{case} seeds": str(len(rows)),
        }
    return found


def _capacity(result: Json, folder: Path) -> Facts:
    rates = list(growth_rates(result["measured"]).values())
    return {"low": f"{rates[0]:.2f}", "high": f"{rates[-1]:.2f}"}


def _prior(result: Json, folder: Path) -> Facts:
    found = {}
    for solver in ("sgd", "fixed-point"):
        for kind, words in SHARES.items():
            rows = _rows(result, f"varsigma=0.25, {words}", solver)
            found[f"{solver} {kind}"] = f"{_mean(rows, 'accuracy'):.2f}%"
    return found


_FACTS: dict[str, Callable[[Json, Path], Facts]] = {
    "fig2": _fig2,
    "capacity": _capacity,
    "prior": _prior,
    "table1": _table1,
    "regularizer": _regularizer,
    "fig4": _fig4,
    "fig4-starts": _fig4_starts,
    "fig5": _fig5,
    "fig6": _fig6,
}


def facts(section: str, result: Json, folder: Path) -> Facts:
    """All facts of a section by their names."""
    more = _FACTS.get(section.removesuffix("-cpu"))
    return _agree(result) | ({} if more is None else more(result, folder))
