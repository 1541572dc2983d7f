"""Test accuracy against passes over the data: both solvers on the same axes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mnemosphere.plots.style import BLACK, GREY, PALETTE, figure_style, new_figure, root_figure
from research.paper.classification import NAMES, SOLVERS, key, label
from research.paper.experiment import load_arrays
from research.plots.axes import plain_log
from research.report import Json

_LINE: dict[str, Literal["-", "--"]] = {"sgd": "-", "fixed-point": "--"}
_MARK = {"sgd": "o", "fixed-point": "D"}


@figure_style()
def draw_curves(result: Json, folder: Path, *, paper: Mapping[str, float] | None = None) -> Figure:
    """Accuracy after 1, 2, … passes: one color per case, one line per seed, the end marked.

    `paper` holds published accuracies in percent, each an arrow at the right.
    """
    arrays = load_arrays(folder)
    rows = result["measured"]["rows"]
    published = None if result["quick"] else paper
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure = new_figure(6.4, 4.4 if len(cases) > 1 else 3.8)
    ax = figure.subplots()
    longest = 1
    for row in rows:
        accuracy = 100 * arrays[f"curve {key(row)}"][0][1:]
        passes = range(1, len(accuracy) + 1)
        longest = max(longest, len(accuracy))
        color = _color(cases, row)
        ax.plot(passes, accuracy, linestyle=_LINE[row["solver"]], color=color, linewidth=1.2)
        ax.plot(len(accuracy), accuracy[-1], _MARK[row["solver"]], color=color, markersize=4)
    if not result["quick"]:
        ax.set_ylim(bottom=45)  # where memories are still noise there is nothing to compare
    ax.set_xscale("log")
    plain_log(ax.xaxis)
    ax.set_xlim(0.93, longest * (1.4 if published else 1.12))
    ax.set_xlabel("passes over the training rows")
    ax.set_ylabel("test accuracy, %")
    ax.grid(color="#E5E5E5", linewidth=0.6)
    if published:
        for color, case in zip(PALETTE, cases, strict=False):
            ax.plot(longest * 1.25, published[case], "<", color=color, markersize=6)
    _legends(ax, cases, bool(published), result["quick"])
    return figure


def _color(cases: list[str], row: Json) -> str:
    """Of the case; of the solver where there is one case."""
    place = cases.index(row["case"]) if len(cases) > 1 else SOLVERS.index(row["solver"])
    return PALETTE[place]


def _legends(ax: Axes, cases: list[str], published: bool, quick: bool) -> None:
    one = len(cases) == 1
    kinds = [
        Line2D(
            [],
            [],
            color=_color(cases, {"case": cases[0], "solver": solver}) if one else BLACK,
            linestyle=_LINE[solver],
            marker=_MARK[solver],
            markersize=4,
            label=NAMES[solver]
            + (", the authors' preset" if solver == "sgd" and not quick else ""),
        )
        for solver in SOLVERS
    ]
    if one:
        ax.set_title(label(cases[0]), fontsize=8.5)
        root_figure(ax).legend(handles=kinds, loc="outside lower center", ncols=2, fontsize=8)
        return
    if published:
        kinds.append(
            Line2D([], [], color=GREY, marker="<", linestyle="", label="the paper, rounded down")
        )
    colors = [Line2D([], [], color=PALETTE[k], label=label(case)) for k, case in enumerate(cases)]
    figure = root_figure(ax)
    figure.legend(handles=colors, loc="outside lower left", ncols=2, fontsize=8)
    figure.legend(handles=kinds, loc="outside lower right", fontsize=8)
