"""Numbers inside the sentences of the pages on the theory, from the stored results."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
from scipy.stats import ttest_rel

from research.pages.stored import FINISHED_FACTS, read
from research.report import STORED, Json

Facts = dict[str, str]


def study(name: str) -> Json:
    """A stored study."""
    content: Json = json.loads((STORED / "theory" / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _power(value: float) -> str:
    """As 8.6·10⁻³."""
    mantissa, exponent = f"{value:.1e}".split("e")
    upper = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}·10{upper}"


def _listed(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"


def _bifurcation() -> Facts:
    events = {
        (name, kind): place for name, kind, place in study("bifurcation")["data"]["bifurcations"]
    }
    return {
        "fold": f"{events['broken (a)', 'end']:.4f}",
        "line": f"{events['symmetric', 'crossing']:.4f}",
        "saddles": f"{events['partly broken 2+1 (a)', 'end']:.4f}",
        "fork": f"{events['broken (c)', 'symmetry']:.4f}",
    }


def _free_entropy() -> Facts:
    curves = {curve["name"]: curve for curve in study("free-entropy")["data"]["curves"]}
    beta = np.asarray(curves["broken"]["beta"])
    symmetric = np.interp(beta, curves["symmetric"]["beta"], curves["symmetric"]["free_entropy"])
    gap = np.asarray(curves["broken"]["free_entropy"]) - symmetric
    order = np.argsort(gap)
    return {"crossing": f"{np.interp(0.0, gap[order], beta[order]):.3f}"}


def _spectrum() -> Facts:
    data = study("spectrum")["data"]
    values = np.asarray(data["eigenvalues"])
    closed = np.asarray(data["antisymmetric"]).ravel()
    return {"distance": _power(float(np.abs(closed[:, None] - values).min(1).max()))}


def _examples() -> Facts:
    data = study("examples")["data"]
    branches = data["branches"]
    found = {
        "gap": f"{branches['gap']:.4f}",
        "f_1": f"{branches['f_1']:.1f}",
        "balance": f"{branches['balance']:.0f}",
    }
    noise = data["noise"]
    found |= {
        "factor": f"{noise['one']['factor']:.3f}", "one": f"{noise['one']['overlap']:.3f}",
        "parting": _listed([f"{v:.3g}" for v in noise["parting"]]),
        "misled": f"{noise['misled'][0][0]:.3f}", "dropped": f"{noise['near']['dropped']:.2f}",
        **{f"near {key}": _listed([f"{v:.3f}" for v in noise["near"][key]]) for key in ("paper", "noise")},
    }  # fmt: skip
    thresholds = data["tricritical"]
    for size, rho in zip(thresholds["memories"], thresholds["rho"], strict=True):
        found[f"tricritical {size}"] = f"{rho:.3f}"
    return found


def _holm(p: list[float], level: float = 0.05) -> list[bool]:
    """Which of several tests stand at this level for all together."""
    found, ranked = [False] * len(p), sorted(range(len(p)), key=p.__getitem__)
    for k, i in enumerate(ranked):
        if p[i] > level / (len(p) - k):
            break
        found[i] = True
    return found


def _splitting() -> Facts:
    """Splitting against each rival: paired t tests over seeds, Holm over the settings."""
    losses: dict[tuple[str, int, str], dict[str, list[float]]] = {}
    for run in sorted(read("splitting")["runs"], key=lambda run: int(run["seed"])):
        setting = losses.setdefault((run["set"], run["width"], run["mode"]), {})
        setting.setdefault(run["way"], []).append(run["loss"])
    found = {"settings": str(len(losses))}
    for rival in ("noise", "annealing", "k-means"):
        tests = [ttest_rel(own["splitting"], own[rival]) for own in losses.values()]
        stands = _holm([float(test.pvalue) for test in tests])
        ahead = [float(t.statistic) < 0 for t, clear in zip(tests, stands, strict=True) if clear]
        found[f"against {rival}"] = f"{sum(ahead)} to {len(ahead) - sum(ahead)}"
    return found


def _edge() -> Facts:
    data = study("edge-kernels")["data"]
    found = {f"split {row['m']}": f"{row['beta']:.4f}" for row in data["splits"]}
    gaps = [
        abs(p["shares"] - np.interp(p["temperature"], curve["temperature"], curve["shares"]))
        for curve in data["curves"] for p in data["points"]
        if p["a"] == curve["a"] and p["temperature"] >= 1.5
    ]  # fmt: skip
    return found | {"gap": f"{max(gaps):.3f}"}


_FACTS = {
    "edge": _edge,
    "splitting": _splitting,
    "bifurcation": _bifurcation,
    "free-entropy": _free_entropy,
    "spectrum": _spectrum,
    "examples": _examples,
}


@cache
def _facts(section: str) -> Facts:
    return FINISHED_FACTS[section] if section in FINISHED_FACTS else _FACTS[section]()


def fact(section: str, what: str) -> str:
    """One number as text."""
    found = _facts(section)
    if what not in found:
        raise ValueError(f"a page wants {what!r} of {section}, there are {sorted(found)}")
    return found[what]
