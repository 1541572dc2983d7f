"""Accuracy and cost against width with the laws fitted to them: Fig. (performance)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import PercentFormatter

from mnemosphere.plots.style import MARKERS, PALETTE, figure_style, new_figure, plain


@figure_style()
def performance(
    sweeps: Mapping[str, Mapping[str, Mapping[str, Any]]],
    fits: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    initial: Mapping[str, int],
    names: Mapping[str, str],
    titles: Mapping[str, str],
) -> Figure:
    """One row per data set: accuracy left, time right, in units of the first sweep's first point.

    sweeps[data][method] holds p_max, accuracy in percent, seconds and their deviations ("_std");
    fits[data][method]["seconds"] a line in P_max and perhaps a staircase in the number of doublings from
    initial[method], each with a, b and r2. The staircase is drawn for methods whose names end in
    "split", the line for the others.
    """
    figure = new_figure(8.0, 3.3 * len(sweeps))
    rows = np.atleast_1d(np.asarray(figure.subfigures(len(sweeps), 1), dtype=object))
    for row, (data, methods) in zip(rows, sweeps.items(), strict=True):
        _draw_row(row, methods, fits[data], initial, names)
        row.suptitle(plain(titles.get(data, data), 60), x=0.01, ha="left", fontsize=10)
    return figure


def _draw_row(
    row: SubFigure,
    methods: Mapping[str, Mapping[str, Any]],
    fits: Mapping[str, Mapping[str, Any]],
    initial: Mapping[str, int],
    names: Mapping[str, str],
) -> None:
    left, right = row.subplots(1, 2)
    unit = next(iter(methods.values()))["seconds"][0]
    for k, (method, sweep) in enumerate(methods.items()):
        color = PALETTE[k % len(PALETTE)]
        look: dict[str, Any] = {
            "label": names[method], "color": color, "marker": MARKERS[k % len(MARKERS)],
            "capsize": 2.5, "elinewidth": 1.0,
        }  # fmt: skip
        shares = (np.array(sweep[f"accuracy{s}"]) / 100 for s in ("", "_std"))
        left.errorbar(sweep["p_max"], *shares, **look)
        costs = (np.array(sweep[f"seconds{s}"]) / unit for s in ("", "_std"))
        right.errorbar(sweep["p_max"], *costs, **look)
        found = fits[method]["seconds"]
        split = method.endswith("split")
        if split and "staircase" in found:
            _draw_stairs(right, sweep["p_max"], found["staircase"], unit, initial[method], color)
        elif not split:
            ends = np.array([sweep["p_max"][0], sweep["p_max"][-1]])
            line = found["line"]
            right.plot(
                ends, (line["a"] + line["b"] * ends) / unit, "--", color=color, linewidth=0.9
            )
    for ax in (left, right):
        ax.set_xlabel(r"memories $P_{\max}$")
        ax.grid(color="#E5E5E5", linewidth=0.6)
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    left.set_ylabel("test accuracy")
    right.set_ylabel("training time, relative")
    right.set_ylim(bottom=0)
    first = next(iter(methods.values()))["p_max"][0]
    right.annotate(
        "$t = 1$", (first, 1.0), xytext=(14, 26), textcoords="offset points", fontsize=8.5,
        arrowprops={"arrowstyle": "->", "shrinkB": 5, "linewidth": 0.9},
    )  # fmt: skip
    handles, labels = left.get_legend_handles_labels()
    # Below: inside, it would cover a curve of one data set or the other.
    row.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=7.5)


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
