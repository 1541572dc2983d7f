"""Numbers inside the sentences of the pages on the theory, from the stored results."""

from __future__ import annotations

import json
from functools import cache

import numpy as np

from research.report import STORED, Json

Facts = dict[str, str]


def study(name: str) -> Json:
    """A stored study."""
    content: Json = json.loads((STORED / "theory" / f"{name}.json").read_text(encoding="utf-8"))
    return content


def power(value: float) -> str:
    """As 8.6·10⁻³."""
    mantissa, exponent = f"{value:.1e}".split("e")
    upper = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}·10{upper}".replace("-", "−")


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
    return {"distance": power(float(np.abs(closed[:, None] - values).min(1).max()))}


def _orders() -> Facts:
    found = study("transition-order")["data"]["tricritical"]
    return {f"tricritical {row['memories']}": f"{row['rho']:.3f}" for row in found}


def _finite_size() -> Facts:
    data = study("finite-size")["data"]
    rows, branches = data["rows"], data["branches"]
    last = [row["sampled"][-1] | {"theory": row["theory"]} for row in rows]
    within = sum(abs(r["mean"] - r["theory"]) <= 0.01 + 3 * r["error"] for r in last)
    return {
        "settings": str(len(rows)), "within": str(within), "largest": str(last[0]["n_features"]),
        "gap": f"{branches['gap']:.4f}", "f_1": f"{branches['f_1']:.1f}",
        "balance": f"{branches['balance']:.0f}",
    }  # fmt: skip


def _weak() -> Facts:
    noise = study("weak-teachers")["data"]["examples"]
    return {
        "factor": f"{noise['one']['factor']:.3f}", "one": f"{noise['one']['overlap']:.3f}",
        "parting": _listed([f"{v:.3g}" for v in noise["parting"]]),
        "misled": f"{noise['misled'][0][0]:.3f}", "dropped": f"{noise['near']['dropped']:.2f}",
        **{f"near {key}": _listed([f"{v:.3f}" for v in noise["near"][key]]) for key in ("paper", "noise")},
    }  # fmt: skip


_FACTS = {
    "bifurcation": _bifurcation,
    "free-entropy": _free_entropy,
    "spectrum": _spectrum,
    "order": _orders,
    "finite-size": _finite_size,
    "weak": _weak,
}


@cache
def _facts(section: str) -> Facts:
    return _FACTS[section]()


def fact(section: str, what: str) -> str:
    """One number as text."""
    found = _facts(section)
    if what not in found:
        raise ValueError(f"a page wants {what!r} of {section}, there are {sorted(found)}")
    return found[what]
