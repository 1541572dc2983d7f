"""Numbers inside the sentences of the pages on the theory, from the stored results."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mnemosphere.theory import varsigma_of_noise
from research.pages import beyond
from research.pages.stored import command, read
from research.report import STORED, Json

Facts = dict[str, str]
Array = NDArray[np.float64]


def _study(name: str) -> Json:
    content: Json = json.loads((STORED / "theory" / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _power(value: float) -> str:
    """As 8.6·10⁻³."""
    mantissa, exponent = f"{value:.1e}".split("e")
    upper = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}·10{upper}"


def _listed(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"


def _odds(share: Array) -> Array:
    found: Array = np.log(share / (1 - share))
    return found


def _starts() -> Facts:
    return {"slowest": f"{max(row['seconds'] for row in read('saddle_starts')['rows']):.1f}"}


def _gibbs() -> Facts:
    run = read("theory_vs_gibbs")
    rows = run["rows"]
    sizes = sorted({row["n_features"] for row in rows})
    last = [row for row in rows if row["n_features"] == sizes[-1]]
    special = [
        row for row in last
        if row["n_teacher"] != row["n_student"] or row["soft_labels"] or row["p_0"]
        or len(set(row["p_h"][1:])) > 1
    ]  # fmt: skip
    teachers = [next(len(r["teachers"]) for r in rows if r["n_features"] == n) for n in sizes]
    near = next(row for row in last if row["upsilon"] == 0.15)
    leading = varsigma_of_noise(near["upsilon"]) * near["beta"] * near["theory"]
    return {
        "settings": str(len(last)),
        "special": str(len(special)),
        "sizes": _listed([str(n) for n in sizes]),
        "teachers": _listed([str(n) for n in teachers]),
        "within": str(sum(row["within_tolerance"] for row in last)),
        "largest": str(sizes[-1]),
        "chains": str(sum(row["random_chains"] for row in rows)),
        "trapped": str(sum(row["trapped_chains"] for row in rows)),
        "leading": f"{leading:.2f}",
    }


def _bifurcation() -> Facts:
    events = {
        (name, kind): place for name, kind, place in _study("bifurcation")["data"]["bifurcations"]
    }
    return {
        "fold": f"{events['broken', 'end']:.4f}",
        "line": f"{events['symmetric', 'crossing']:.4f}",
    }


def _free_entropy() -> Facts:
    curves = {curve["name"]: curve for curve in _study("free-entropy")["data"]["curves"]}
    beta = np.asarray(curves["broken"]["beta"])
    symmetric = np.interp(beta, curves["symmetric"]["beta"], curves["symmetric"]["free_entropy"])
    gap = np.asarray(curves["broken"]["free_entropy"]) - symmetric
    order = np.argsort(gap)
    return {"crossing": f"{np.interp(0.0, gap[order], beta[order]):.3f}"}


def _spectrum() -> Facts:
    data = _study("spectrum")["data"]
    values = np.asarray(data["eigenvalues"])
    closed = np.asarray(data["antisymmetric"]).ravel()
    return {"distance": _power(float(np.abs(closed[:, None] - values).min(1).max()))}


def _examples() -> Facts:
    data = _study("examples")["data"]
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


def _occupation() -> Facts:
    run = _study("occupation")
    data, found = run["data"], {"sweeps": f"{run['settings']['sweeps']:,}"}
    share, odds = np.asarray(data["share"]), np.asarray(data["log_odds"], dtype=float)
    gap = np.abs(np.asarray(data["from_idle"]) - np.asarray(data["from_paired"])).max(1)
    for n, worst in zip(data["n_features"], gap, strict=True):
        found[f"starts {n}"] = f"{worst:.2f}"
    for beta in (8.0, 9.0):
        k = data["beta"].index(beta)
        for i, n in enumerate(data["n_features"]):
            found[f"visits {n} {beta:g}"] = _signed(float(_odds(share[i, :, k]).mean()))
            found[f"theory {n} {beta:g}"] = _signed(float(odds[i, :, k].mean()))
    return found


def _line() -> Facts:
    run = _study("line")
    data, settings = run["data"], run["settings"]
    found = {key: f"{settings[key]:,}" for key in ("sets", "chains", "sweeps")}
    found["command"] = command(run)
    share, error, odds = (np.asarray(data[key]) for key in ("share", "error", "log_odds"))
    measured = _odds(share)
    distance = np.abs(measured - odds) / (error / (share * (1 - share)))
    expected = 1 / (1 + np.exp(-odds))
    starts = np.abs(np.asarray(data["from_idle"]) - np.asarray(data["from_paired"]))
    within = np.abs(share - expected) <= 0.01 + 3 * error
    found["sizes"] = _listed([str(n) for n in data["n_features"]])
    found["largest"] = str(data["n_features"][-1])
    for i, n in enumerate(data["n_features"]):
        found |= {
            f"share {n}": f"{share[i].mean():.2f}",
            f"expected {n}": f"{expected[i].mean():.2f}",
            f"distance {n}": f"{distance[i].max():.1f}",
            f"difference {n}": _signed(float((measured - odds)[i].mean()), 2),
            f"starts {n}": f"{starts[i].max():.2f}",
            f"paired {n}": str((share[i] < 0.5).sum()),
            f"paired by theory {n}": str((expected[i] < 0.5).sum()),
            f"within {n}": f"{within[i].sum()} of {within.shape[1]}",
        }
    return found


def _draws() -> Facts:
    run = _study("random-labels")
    data = run["data"]
    each, gibbs, clamped = (np.asarray(data[key]) for key in ("each", "gibbs", "clamped"))
    found = {
        "command": command(run),
        "draws": str(len(each)),
        "teachers": str(gibbs.shape[2]),
        "averaged": _power(max(data["averaged"])),
        "each": f"{each.min():.2f} to {each.max():.2f}",
    }
    for i, n in enumerate(data["n_features"]):
        found[f"gibbs {n}"] = f"{gibbs[i].min():.2f} to {gibbs[i].max():.2f}"
        found[f"difference {n}"] = f"{np.abs(gibbs[i] - clamped[i]).mean():.3f}"
        found[f"correlation {n}"] = f"{np.corrcoef(gibbs[i].ravel(), clamped[i].ravel())[0, 1]:.2f}"
    return found


def _splits() -> Facts:
    data = _study("splits")["data"]
    predicted, measured = np.asarray(data["predicted"]), np.asarray(data["measured"])
    return {
        "limit": f"{data['limit']:.2f}",
        "predicted": _listed([f"{value:.2f}" for value in predicted.mean(0)]),
        "error": f"{100 * np.abs(measured / predicted - 1).max():.1f}%",
    }


def _regularizer() -> Facts:
    data, found = _study("regularizer")["data"], {}
    for upsilon, overlap, own in zip(data["upsilon"], data["overlap"], data["theory"], strict=True):
        best = max(overlap)
        first = next(v for v, m in zip(data["varsigma"], overlap, strict=True) if m > best - 0.02)
        found |= {f"plateau {upsilon:g}": f"{first:.1f}", f"theory {upsilon:g}": f"{own:.2f}"}
    return found


def _complexity() -> Facts:
    data = _study("complexity")["data"]
    beta = data["beta_eff"]
    digits, gaussian, planted = data["n_memories"]
    plateau = [b for b, n in zip(beta, planted, strict=True) if n == 8]
    k = [i for i, n in enumerate(digits) if 10 <= n <= 15]
    return {
        "plateau": f"{plateau[0]:.1f} to {plateau[-1]:.1f}",
        "bend": f"{digits[k[0]]} to {digits[k[-1]]}",
        "bend beta": f"{beta[k[0]]:.0f} to {beta[k[-1]]:.0f}",
        "gaussian": f"{gaussian[k[0]]} to {gaussian[k[-1]]}",
        "excess": f"{data['excess'][0][digits.index(12)]:.1f}",
    }


_FACTS = {
    "starts": _starts, "gibbs": _gibbs, "bifurcation": _bifurcation, "free-entropy": _free_entropy,
    "spectrum": _spectrum, "examples": _examples, "occupation": _occupation, "line": _line,
    "draws": _draws, "splits": _splits, "regularizer": _regularizer, "complexity": _complexity,
    **beyond.FACTS,
}  # fmt: skip


@cache
def _facts(section: str) -> Facts:
    return _FACTS[section]()


def fact(section: str, what: str) -> str:
    """One number as text."""
    found = _facts(section)
    if what not in found:
        raise ValueError(f"a page wants {what!r} of {section}, there are {sorted(found)}")
    return found[what]
