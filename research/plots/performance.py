"""Accuracy and cost against width with the laws fitted to them: Fig. (performance)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import NullLocator, PercentFormatter

from mnemosphere.plots.checks import as_array, same_length
from mnemosphere.plots.style import (
    MARKERS,
    PALETTE,
    figure_style,
    new_figure,
    plain,
    plain_log,
)
from research.plots.checks import increasing


@dataclass(frozen=True)
class Sweep:
    """Runs at several widths: accuracy in [0, 1] and training time, means and deviations."""

    n_memories: Any  # P_max (K,)
    accuracy: Any  # (K,)
    time: Any  # (K,) seconds
    accuracy_std: Any = None  # (K,), None: a single run each
    time_std: Any = None


@figure_style()
def accuracy_and_time(
    results: Mapping[str, Sweep],
    *,
    relative: bool = False,
    log: bool = False,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Accuracy (left) and training time (right) against the largest number of memories.

    `results` by name, such as "without splitting" and "with splitting": Fig. (performance) of the
    paper. `relative` divides times by the first time of the first entry, marked by an arrow, as
    there; `log` uses logarithmic axes for the widths and times.
    """
    if len(results) == 0:
        raise ValueError("results is empty: pass at least one sweep")
    sweeps = {plain(name, 40): _checked(name, sweep) for name, sweep in results.items()}
    first = next(iter(sweeps.values()))
    unit = float(first.time[0]) if relative else 1.0
    if figure is None:
        figure = new_figure(7.2, 3.0)
    left, right = figure.subplots(1, 2)
    for k, (name, sweep) in enumerate(sweeps.items()):
        color = PALETTE[k % len(PALETTE)]
        look: dict[str, Any] = {
            "label": name,
            "color": color,
            "marker": MARKERS[k % len(MARKERS)],
            "capsize": 2.5,
            "elinewidth": 1.0,
        }
        deviation = None if sweep.time_std is None else sweep.time_std / unit
        left.errorbar(sweep.n_memories, sweep.accuracy, sweep.accuracy_std, **look)
        right.errorbar(sweep.n_memories, sweep.time / unit, deviation, **look)
    for ax in (left, right):
        if log:
            widths = np.unique(np.concatenate([sweep.n_memories for sweep in sweeps.values()]))
            ax.set_xscale("log")
            ax.set_xticks(widths, [f"{width:g}" for width in widths], fontsize=7.5)
            ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel(r"memories $P_{\max}$")
        ax.grid(color="#E5E5E5", linewidth=0.6)
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    left.set_ylabel("test accuracy")
    left.legend(loc="best")
    right.set_ylabel("training time, relative" if relative else "training time in seconds")
    if log:
        right.set_yscale("log")
        plain_log(right.yaxis)
    if relative:
        right.annotate(
            "$t = 1$",
            (first.n_memories[0], 1.0),
            xytext=(14, 26),
            textcoords="offset points",
            fontsize=8.5,
            arrowprops={"arrowstyle": "->", "shrinkB": 5, "linewidth": 0.9},
        )
    return figure


def _checked(name: str, sweep: Sweep) -> Sweep:
    widths = increasing(sweep.n_memories, f"n_memories of {name!r}")
    values = {}
    for field in ("accuracy", "time", "accuracy_std", "time_std"):
        value = getattr(sweep, field)
        if value is None and field.endswith("_std"):
            continue
        array = as_array(value, f"{field} of {name!r}", 1)
        same_length(len(widths), "number of memories", **{field: array})
        values[field] = array
    accuracy = values["accuracy"]
    if accuracy.min() < 0 or accuracy.max() > 1:
        raise ValueError(
            f"accuracy of {name!r} must lie in [0, 1], got {accuracy.min():g} to "
            f"{accuracy.max():g}: divide percentages by 100"
        )
    if values["time"].min() <= 0:
        raise ValueError(f"time of {name!r} must be positive, got {values['time'].min():g}")
    return Sweep(widths, **values)


@figure_style()
def performance(
    sweeps: Mapping[str, Mapping[str, Mapping[str, Any]]],
    fits: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    what: str,
    words: str,
    initial: Mapping[str, int],
    names: Mapping[str, str],
    titles: Mapping[str, str],
) -> Figure:
    """One row per data set: accuracy left, cost right, in units of the first sweep's first point.

    sweeps[data][method] holds p_max, accuracy in percent, `what` and their deviations ("_std");
    fits[data][method][what] a line in P_max and perhaps a staircase in the number of doublings from
    initial[method], each with a, b and r2. The staircase is drawn for methods whose names end in
    "split", the line for the others.
    """
    if not sweeps:
        raise ValueError("sweeps is empty: pass at least one data set")
    figure = new_figure(8.0, 3.3 * len(sweeps))
    rows = np.atleast_1d(np.asarray(figure.subfigures(len(sweeps), 1), dtype=object))
    for row, (data, methods) in zip(rows, sweeps.items(), strict=True):
        _draw_row(row, methods, fits[data], what, words, initial, names)
        row.suptitle(plain(titles.get(data, data), 60), x=0.01, ha="left", fontsize=10)
    return figure


def _draw_row(
    row: SubFigure,
    methods: Mapping[str, Mapping[str, Any]],
    fits: Mapping[str, Mapping[str, Any]],
    what: str,
    words: str,
    initial: Mapping[str, int],
    names: Mapping[str, str],
) -> None:
    accuracy_and_time(
        {
            names[method]: Sweep(
                n_memories=sweep["p_max"],
                accuracy=np.asarray(sweep["accuracy"]) / 100,
                accuracy_std=np.asarray(sweep["accuracy_std"]) / 100,
                time=sweep[what],
                time_std=sweep[f"{what}_std"],
            )
            for method, sweep in methods.items()
        },
        relative=True,
        figure=row,
    )
    left, right = row.axes
    legend = left.get_legend()
    if legend is not None:
        legend.remove()
    handles, labels = left.get_legend_handles_labels()
    # Below: inside, it would cover a curve of one data set or the other.
    row.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=7.5)
    right.set_ylabel(f"{words}, relative")
    right.set_ylim(bottom=0)
    unit = next(iter(methods.values()))[what][0]
    for k, (method, sweep) in enumerate(methods.items()):
        color = PALETTE[k % len(PALETTE)]
        found = fits[method][what]
        split = method.endswith("split")
        if split and "staircase" in found:
            _draw_stairs(right, sweep["p_max"], found["staircase"], unit, initial[method], color)
        elif not split:
            ends = np.array([sweep["p_max"][0], sweep["p_max"][-1]])
            line = found["line"]
            right.plot(
                ends, (line["a"] + line["b"] * ends) / unit, "--", color=color, linewidth=0.9
            )


def _draw_stairs(
    ax: Axes, widths: Any, law: Mapping[str, float], unit: float, initial: int, color: str
) -> None:
    """The law a + b·⌈log₂(P/P_0)⌉ between the first and the last width."""
    first, last = widths[0], widths[-1]
    jumps = [initial * 2**k for k in range(1, 40) if first < initial * 2**k < last]
    edges = np.array([first, *jumps, last], dtype=float)
    middle = (edges[:-1] + edges[1:]) / 2
    values = (law["a"] + law["b"] * np.ceil(np.log2(middle / initial))) / unit
    ax.stairs(values, edges, baseline=None, color=color, linestyle="--", linewidth=0.9)
