"""Numbers inside the sentences of the pages on the theory, from the stored results."""

from __future__ import annotations

import json
from functools import cache

import numpy as np

from research.pages.stored import FINISHED_FACTS
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
    finite, window, branches = data["finite rho"], data["window"], data["branches"]
    found = {
        "hard": _listed([f"{d:.2g}" if d > 1e-4 else _power(d) for d in data["hard"]["distance"]]),
        "beta_eff": f"{finite['beta_eff']:.2f}",
        "missed": _listed([_power(v) for v in finite["missed"][:-1]]),
        "eigenvalues": ", ".join(f"{v:.4f}" for v in finite["eigenvalue"][:-1]),
        "limit": f"{finite['eigenvalue'][-1]:.4f}",
        "window": " < β < ".join(f"{end:.2f}" for end in window["ends"][0]),
        "gap": f"{branches['gap']:.4f}",
        "f_1": f"{branches['f_1']:.1f}",
        "balance": f"{branches['balance']:.0f}",
    }
    thresholds = data["tricritical"]
    for size, rho in zip(thresholds["memories"], thresholds["rho"], strict=True):
        found[f"tricritical {size}"] = f"{rho:.3f}"
    return found


_FACTS = {
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
