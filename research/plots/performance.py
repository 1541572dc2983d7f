"""Accuracy and cost against width with the laws fitted to them: Fig. (performance)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.plots.growth import Sweep, accuracy_and_time
from mnemosphere.plots.look import category_style, new_figure, plain, style


@style()
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
    """One row a data set: accuracy left, cost right, in units of the first sweep's first point.

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
        color, _ = category_style(k)
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
