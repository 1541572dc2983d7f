"""Sec. (DAM_model): the capacity is exponential in N, and low β lowers it.

P = e^{αN} random patterns are the memories; recall starts from a pattern with noise, overlap m_0,
and takes one step x ← Σ_μ softmax(β⟨w^μ, x⟩) w^μ. With β = λN the other patterns are a random
energy model: their terms add up to e^{NΦ},

    Φ = α + ½ η(2λ)          while the overlaps t = ς(2λ) that count are there, ½ log(1 − t²) ≥ −α
    Φ = λ √(1 − e^{−2α})     beyond, where the nearest pattern alone counts

and the pattern is found where λ m_0 > Φ: below α_c(λ, m_0), for log P = α_c N.
"""

from __future__ import annotations

import math
import statistics
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from mnemosphere.numerics import sphere
from mnemosphere.plots.style import MARKERS, PALETTE, figure_style, new_figure
from research.paper.experiment import Experiment, Run, save_picture
from research.report import Comparison, Json


def critical_load(slope: float, overlap: float) -> float:
    """α_c(λ, m_0)."""
    root = math.hypot(1.0, 2 * slope)
    half_eta = 0.5 * (root - 1 - math.log((1 + root) / 2))
    load = slope * overlap - half_eta
    typical = 2 * slope / (root + 1)  # ς(2λ)
    if load >= -0.5 * math.log1p(-(typical**2)):
        return load
    return -0.5 * math.log1p(-(overlap**2))


def recalled(
    n: int, n_patterns: int, beta: float, overlap: float, *, tries: int, generator: torch.Generator
) -> float:
    """Share of noisy patterns that a step of recall brings back to within half of the noise."""
    w = sphere.sample_uniform(n_patterns, n, generator=generator, dtype=torch.float64)
    target = w[: min(tries, n_patterns)]
    noise = sphere.sample_uniform(len(target), n, generator=generator, dtype=torch.float64)
    across = sphere.project(noise - (noise * target).sum(1, keepdim=True) * target)
    x = overlap * target + math.sqrt(1 - overlap**2) * across
    x = sphere.project(torch.softmax(beta * x @ w.T, 1) @ w)
    return float(((x * target).sum(1) > (1 + overlap) / 2).double().mean())


def _settings(quick: bool) -> Json:
    return {
        # λ = β/N, and N such that half as many patterns again as α_c allows fit into memory.
        "features": {"0.5": [8, 16], "2": [6, 10]}
        if quick
        else {"0.25": [24, 36, 48], "0.5": [14, 21, 28], "1": [10, 14, 19], "2": [8, 12, 16]},
        "overlap": 0.8,
        "loads": [round(0.5 + 0.1 * k, 2) for k in range(11)],  # in units of α_c
        "tries": 100,
        "repeats": 2 if quick else 6,
    }


def _run(run: Run) -> Json:
    chosen, rows = run.settings, []
    theory = {text: critical_load(float(text), chosen["overlap"]) for text in chosen["features"]}

    def measure(slope: float, n: int, loads: list[float]) -> list[float]:
        generator = torch.Generator().manual_seed(run.seeds[0])
        return [
            statistics.fmean(
                recalled(
                    n, round(math.exp(load * n)), slope * n, chosen["overlap"],
                    tries=chosen["tries"], generator=generator,
                )
                for _ in range(chosen["repeats"])
            )
            for load in loads
        ]  # fmt: skip

    for text, sizes in chosen["features"].items():
        loads = [theory[text] * load for load in chosen["loads"]]
        for n in sizes:
            run.progress(f"λ = {text}, N = {n}")
            share = run.parts.step(f"{text}-{n}", partial(measure, float(text), n, loads))
            half = _crossing(loads, share)
            rows.append({"slope": text, "features": n, "loads": loads, "share": share,
                         "half": half})  # fmt: skip
    return {"rows": rows, "theory": theory}


def _crossing(loads: list[float], share: list[float]) -> float | None:
    """Load at which half of the patterns are found, by interpolation; None where never."""
    for k in range(1, len(loads)):
        if share[k - 1] >= 0.5 > share[k]:
            part = (share[k - 1] - 0.5) / (share[k - 1] - share[k])
            return loads[k - 1] + part * (loads[k] - loads[k - 1])
    return None


def growth_rates(measured: Json) -> dict[str, float]:
    """Slope of log P at which half is found, against N: the measured α_c for each λ."""
    found = {}
    for slope in measured["theory"]:
        own = [r for r in measured["rows"] if r["slope"] == slope and r["half"] is not None]
        if len(own) > 1:
            n = np.array([r["features"] for r in own], dtype=float)
            log_p = n * np.array([r["half"] for r in own])
            found[slope] = float(np.polyfit(n, log_p, 1)[0])
    return found


def _compare(measured: Json) -> list[Comparison]:
    found = []
    for slope, rate in growth_rates(measured).items():
        theory = measured["theory"][slope]
        found.append(
            Comparison(
                f"β = {slope} N: d log P / dN", rate, f"theory {theory:.3f}", 0.8 * theory,
                1.2 * theory, "", digits=3,
            )
        )  # fmt: skip
    return found


@figure_style()
def _picture(result: Json) -> Figure:
    measured = result["measured"]
    figure = new_figure(8.4, 3.6)
    left, right = figure.subplots(1, 2)
    for k, (slope, theory) in enumerate(measured["theory"].items()):
        own = [row for row in measured["rows"] if row["slope"] == slope]
        for j, row in enumerate(own):
            last = j == len(own) - 1
            left.plot(
                np.array(row["loads"]) / theory, row["share"], color=PALETTE[k], marker=MARKERS[j],
                markersize=3, linewidth=1.6 if last else 0.7, alpha=1.0 if last else 0.6,
            )  # fmt: skip
        known = [row for row in own if row["half"] is not None]
        n = np.array([row["features"] for row in known])
        log_p = np.array([row["features"] * row["half"] for row in known])
        right.plot(n, log_p, MARKERS[k], color=PALETTE[k], label=rf"$\beta = {slope}\,N$")
        if len(n):
            offset = float((log_p - theory * n).mean())
            right.plot(n, theory * n + offset, ":", color=PALETTE[k])
    left.axvline(1, color="#999999", linestyle=":")
    left.set_xlabel(r"load $\log P\,/\,N$ over $\alpha_c$; thick: largest N")
    left.set_ylabel("patterns found")
    right.set_xlabel("features N")
    right.set_ylabel("log P where half are found")
    right.legend(fontsize=8)
    for ax in (left, right):
        ax.grid(color="#E5E5E5", linewidth=0.6)
    return figure


def _draw(result: Json, folder: Path) -> list[Path]:
    return [save_picture(_picture(result), folder, "capacity", result)]


EXPERIMENTS = (
    Experiment(
        "capacity",
        "Sec. (DAM_model): exponential capacity, and what β does to it",
        _settings,
        _run,
        _draw,
        _compare,
        datasets=(),
    ),
)
