"""The page "Beyond the paper": tables, pictures and numbers, from the stored studies."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from mnemosphere.plots.style import MARKERS, PALETTE, SEQUENTIAL, figure_style, new_figure
from mnemosphere.theory.problem import MAX_DROPPED
from research.benchmarks.noise_bound import METHODS as NOISE_METHODS
from research.benchmarks.splitting import MODES, WAYS
from research.benchmarks.training_time import METHODS as TIMED
from research.pages.marks import markdown
from research.pages.stored import MINUS, RESULTS, read, source
from research.report import STORED, Json

Facts = dict[str, str]
_LEVEL = 2.0  # standard errors within which two ways are level
_TIMED_NAMES = {
    "sgd": "SGD", "sgd-split": "SGD, splitting", "fixed-point": "fixed point",
    "fixed-point-split": "fixed point, splitting",
}  # fmt: skip


@cache
def _study(name: str) -> Json:
    content: Json = json.loads((STORED / "theory" / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _pm(mean: float, error: float, digits: int = 3) -> str:
    return f"{mean:.{digits}f} ± {error:.{digits}f}".translate(MINUS)


def _summary(values: Sequence[float]) -> tuple[float, float]:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.fmean(values), error


# --- weak teachers, validity


def weak_table() -> str:
    """Overlaps of the largest N, one row for each b and number of memories."""
    run = _study("weak-teachers")
    points = run["data"]["points"]
    largest = max(p["n_features"] for p in points)
    lines = [
        [p["memories"], f"{p['b']:g}", f"{p['paper']:.3f}", f"{p['theory']:.3f}", _pm(p["sampled"], p["error"]),
         f"{p['theory_mean']:.3f}", _pm(p["sampled_mean"], p["mean_error"])]
        for p in points if p["n_features"] == largest
    ]  # fmt: skip
    head = ["*P* = *P*\\*", "*b*", "own overlap, paper", "with noise", f"sampled, *N* = {largest}",
            "mean of all overlaps, with noise", "sampled"]  # fmt: skip
    return f"{markdown(head, lines)}\n\n{source(run)}"


def validity_table() -> str:
    """Error by the size of what is dropped."""
    run = _study("validity")
    edges = (0.0, 0.01, 0.03, MAX_DROPPED, 0.3, 1.0, math.inf)
    lines = []
    for low, high in pairwise(edges):
        own = [r for r in run["data"]["rows"] if low < r["dropped"] <= high]
        gaps = {k: [abs(r[k] - r["sampled"]) for r in own] for k in ("plain", "noisy")}
        name = f"{low:g} to {high:g}" if math.isfinite(high) else f"above {low:g}"
        shown = [f"{statistics.median(v):.4f}, {max(v):.3f}" for v in gaps.values()]
        lines.append([name, len(own), *shown, f"{statistics.median(r['error'] for r in own):.4f}"])
    head = ["terms dropped", "settings", "error of the paper's equations: median, largest", "with noise kept",
            "error of the sample"]  # fmt: skip
    return f"{markdown(head, lines)}\n\n{source(run)}"


# --- which ς


def varsigma_table() -> str:
    """The numbers, and what each costs in log-loss, set by set."""
    run = _study("varsigma")
    rows = run["data"]["rows"]
    lines = []
    for name in dict.fromkeys(r["set"] for r in rows):
        own = [r for r in rows if r["set"] == name]
        numbers = [
            f"{statistics.fmean(r[k] for r in own):.2f}"
            for k in ("collapse", "merging", "splitting", "analytic", "best")
        ]
        cost = [
            _pm(*_summary([r["losses"][k] - r["losses"]["best"] for r in own]))
            for k in ("merging", "splitting", "analytic")
        ]
        lines.append([name, *numbers, *cost])
    head = ["data", "collapse", "merging", "splitting", "analytic", "best on fresh rows", "log-loss above the best: merging",
            "splitting", "analytic"]  # fmt: skip
    return f"{markdown(head, lines)}\n\n{source(run)}"


def _varsigma() -> Facts:
    rows = _study("varsigma")["data"]["rows"]
    cost = {
        k: [r["losses"][k] - r["losses"]["best"] for r in rows]
        for k in ("merging", "splitting", "analytic")
    }
    wins = sum(a < b for a, b in zip(cost["analytic"], cost["splitting"], strict=True))
    above = sum(r["best"] > r["merging"] for r in rows)
    return {
        **{f"cost {k}": _pm(*_summary(v)) for k, v in cost.items()},
        "fits": str(len(rows)), "analytic wins": f"{wins} of {len(rows)}", "above": f"{above} of {len(rows)}",
    }  # fmt: skip


# --- splitting against its rivals


def _settings() -> list[tuple[str, int, str]]:
    return list(dict.fromkeys((r["set"], r["width"], r["mode"]) for r in read("splitting")["runs"]))


@cache
def _gaps() -> dict[tuple[str, int, str], dict[str, list[float]]]:
    """Loss of each way above the best way of the same seed, in the order of seeds."""
    found: dict[tuple[str, int, str], dict[str, list[float]]] = {}
    for setting in _settings():
        own = [r for r in read("splitting")["runs"] if (r["set"], r["width"], r["mode"]) == setting]
        by_seed = {s: [r for r in own if r["seed"] == s] for s in sorted({r["seed"] for r in own})}
        best = {s: min(r["loss"] for r in runs) for s, runs in by_seed.items()}
        found[setting] = {
            way: [next(r["loss"] for r in by_seed[s] if r["way"] == way) - best[s] for s in by_seed]
            for way in WAYS
        }
    return found


def level(gaps: dict[str, list[float]]) -> tuple[str, list[str]]:
    """The way of lowest mean loss, and all that are within two standard errors of it, seed by seed."""
    first = min(gaps, key=lambda way: statistics.fmean(gaps[way]))
    near = [first]
    for way in gaps:
        mean, error = _summary([a - b for a, b in zip(gaps[way], gaps[first], strict=True)])
        if way != first and mean <= _LEVEL * error:
            near.append(way)
    return first, near


def splitting_table() -> str:
    """For each way of β: how often a way is best or level, and what it takes."""
    run, lines = read("splitting"), []
    for mode in MODES:
        settings = [s for s in _settings() if s[2] == mode]
        verdicts = {s: level(_gaps()[s]) for s in settings}
        for way in WAYS:
            best = sum(verdicts[s][0] == way for s in settings)
            near = sum(way in verdicts[s][1] for s in settings)
            own = [r for r in run["runs"] if r["mode"] == mode and r["way"] == way]
            lines.append([mode, way, f"{best}", f"{near} of {len(settings)}",
                          f"{statistics.fmean(r['passes'] for r in own):.0f}",
                          f"{statistics.fmean(r['seconds'] for r in own):.2f}"])  # fmt: skip
    head = ["β", "way", "lowest loss", "lowest or level", "passes of the full width", "seconds"]
    return f"{markdown(head, lines)}\n\n{source(run)}"


def _splitting() -> Facts:
    against: dict[str, list[int]] = {}
    for setting in _settings():
        gaps = _gaps()[setting]
        for way in WAYS[1:]:
            mean, error = _summary(
                [a - b for a, b in zip(gaps["splitting"], gaps[way], strict=True)]
            )
            against.setdefault(way, []).append(
                0 if abs(mean) <= _LEVEL * error else (-1 if mean < 0 else 1)
            )
    n = len(_settings())
    return {"settings": str(n), **{
        f"against {way}": f"ahead in {v.count(-1)}, level in {v.count(0)}, behind in {v.count(1)} of {n}"
        for way, v in against.items()
    }}  # fmt: skip


@figure_style()
def splitting_map() -> Figure:
    """Mean loss above the best way of the same seed; framed: lowest, or level with it."""
    settings = _settings()
    value = np.array([[statistics.fmean(_gaps()[s][way]) for way in WAYS] for s in settings])
    shade = value / np.maximum(value.max(1, keepdims=True), 1e-12)
    figure = new_figure(8.4, 0.27 * len(settings) + 1.3)
    ax = figure.subplots()
    ax.imshow(shade, cmap=SEQUENTIAL, vmin=0, vmax=1.6, aspect="auto")
    for i, setting in enumerate(settings):
        near = level(_gaps()[setting])[1]
        for j, way in enumerate(WAYS):
            weight = "bold" if way in near else "normal"
            color = "white" if shade[i, j] > 0.65 else "black"
            ax.text(
                j,
                i,
                f"{value[i, j]:.2g}",
                ha="center",
                va="center",
                fontsize=8,
                weight=weight,
                color=color,
            )
    ax.set_xticks(range(len(WAYS)), WAYS)
    ax.set_yticks(
        range(len(settings)), [f"{s}, P = {p}, β {mode}" for s, p, mode in settings], fontsize=8
    )
    ax.tick_params(length=0)
    ax.set_title(
        "loss above the best way of the same seed, nats per row; bold: lowest or level", fontsize=10
    )
    return figure


# --- training time


def time_table() -> str:
    """Exponents with intervals."""
    run = read("training_time")
    lines = [
        [_TIMED_NAMES[law["method"]],
         *(f"{law[k]['slope']:.2f} ({law[k]['low']:.2f} to {law[k]['high']:.2f})".translate(MINUS)
           for k in ("passes", "work"))]
        for law in run["laws"]
    ]  # fmt: skip
    head = ["method", "exponent of the passes", "exponent of the arithmetic"]
    return f"{markdown(head, lines)}\n\n{source(run)}"


@figure_style()
def time_curves() -> Figure:
    """Passes and arithmetic against the number of memories."""
    runs = read("training_time")["runs"]
    figure = new_figure(8.4, 3.6)
    panels = figure.subplots(1, 2)
    shown = (("passes", "passes"), ("work", "arithmetic, in passes of the full width"))
    for ax, (key, label) in zip(panels, shown, strict=True):
        for k, method in enumerate(TIMED):
            own = [r for r in runs if r["method"] == method]
            widths = sorted({r["width"] for r in own})
            value = [[r[key] for r in own if r["width"] == w and r[key]] for w in widths]
            kept = [(w, v) for w, v in zip(widths, value, strict=True) if v]
            ax.errorbar(
                [w for w, _ in kept], [statistics.fmean(v) for _, v in kept],
                [statistics.stdev(v) if len(v) > 1 else 0.0 for _, v in kept],
                marker=MARKERS[k], color=PALETTE[k], capsize=2, linewidth=1.2, label=_TIMED_NAMES[method],
            )  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_yticks([10, 20, 30, 50, 70], ["10", "20", "30", "50", "70"])
        ax.minorticks_off()
        ticks = sorted({r["width"] for r in runs})
        ax.set_xticks(ticks, [str(t) for t in ticks])
        ax.set_xlabel("memories P")
        ax.set_ylabel(label)
        ax.grid(color="#E5E5E5", linewidth=0.6)
    panels[0].legend(fontsize=8)
    return figure


# --- noise in the loss


def noise_table() -> str:
    """Log-loss and accuracy of three ways to train."""
    run, lines = read("noise_bound"), []
    for name in dict.fromkeys(r["set"] for r in run["runs"]):
        for method in NOISE_METHODS:
            own = [r for r in run["runs"] if (r["set"], r["method"]) == (name, method)]
            lines.append([name, method, _pm(*_summary([r["log_loss"] for r in own]), 4),
                          f"{statistics.fmean(r['accuracy'] for r in own):.1%}",
                          f"{statistics.fmean(r['seconds'] for r in own):.1f}"])  # fmt: skip
    return f"{markdown(['data', 'training', 'log-loss', 'accuracy', 'seconds'], lines)}\n\n{source(run)}"


@figure_style()
def noise_bars() -> Figure:
    """Log-loss above training without noise, seed by seed."""
    runs = read("noise_bound")["runs"]
    names = list(dict.fromkeys(r["set"] for r in runs))
    figure = new_figure(6.0, 3.2)
    ax = figure.subplots()
    for j, method in enumerate(NOISE_METHODS[1:]):
        found = []
        for name in names:
            loss = {(r["method"], r["seed"]): r["log_loss"] for r in runs if r["set"] == name}
            seeds = sorted({s for _, s in loss})
            found.append(_summary([loss[method, s] - loss["none", s] for s in seeds]))
        ax.bar(np.arange(len(names)) + 0.36 * (j - 0.5), [m for m, _ in found], 0.34, yerr=[e for _, e in found],
               color=PALETTE[j], capsize=3, label=method)  # fmt: skip
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylabel("log-loss less that without noise")
    ax.legend()
    return figure


def _if_stored(name: str, make: Callable[[], str]) -> Callable[[], str]:
    return lambda: (
        make()
        if (RESULTS / f"{name}.json").exists()
        else f"Not measured yet: `python -m research {name}`."
    )


TABLES = {
    "beyond weak": weak_table,
    "beyond validity": validity_table,
    "beyond varsigma": varsigma_table,
    "beyond splitting": _if_stored("splitting", splitting_table),
    "beyond time": _if_stored("training_time", time_table),
    "beyond noise": _if_stored("noise_bound", noise_table),
}
_DRAWN = {
    "beyond-splitting": ("splitting", splitting_map),
    "beyond-time": ("training_time", time_curves),
    "beyond-noise": ("noise_bound", noise_bars),
}
PICTURES = {k: draw for k, (name, draw) in _DRAWN.items() if (RESULTS / f"{name}.json").exists()}
FACTS = {"varsigma": _varsigma, "splitting-ways": _splitting}
