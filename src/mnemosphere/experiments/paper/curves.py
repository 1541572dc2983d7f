"""Test accuracy against passes over the data: both solvers on the same axes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mnemosphere.experiments.paper.classification import NAMES, SOLVERS, key, label
from mnemosphere.experiments.paper.frame import Json, load_arrays
from mnemosphere.plots.look import BLACK, GREY, PALETTE, new_figure, plain_log, style

_LINE: dict[str, Literal["-", "--"]] = {"sgd": "-", "fixed-point": "--"}
_MARK = {"sgd": "o", "fixed-point": "D"}


@style()
def draw_curves(result: Json, folder: Path, *, paper: Mapping[str, float] | None = None) -> Figure:
    """Accuracy after 1, 2, … passes: a color a case, a line a seed, the end marked.

    `paper` holds published accuracies in percent, each an arrow at the right border.
    """
    arrays = load_arrays(folder)
    rows = result["measured"]["rows"]
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure = new_figure(6.4, 4.0)
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
    ax.set_xlim(0.93, longest * 1.12)
    ax.set_xlabel("passes over the training rows")
    ax.set_ylabel("test accuracy, %")
    ax.grid(color="#E5E5E5", linewidth=0.6)
    if paper and not result["quick"]:
        _published(ax, [paper[case] for case in cases], [PALETTE[k] for k in range(len(cases))])
    _legends(ax, cases, bool(paper), result["quick"])
    return figure


def _color(cases: list[str], row: Json) -> str:
    """Of the case; of the solver where there is one case."""
    place = cases.index(row["case"]) if len(cases) > 1 else SOLVERS.index(row["solver"])
    return PALETTE[place]


def _published(ax: Axes, numbers: list[float], colors: list[str]) -> None:
    for number, color in zip(numbers, colors, strict=True):
        ax.plot(
            1.012,
            number,
            marker="<",
            color=color,
            markersize=6,
            transform=ax.get_yaxis_transform(),
            clip_on=False,
        )


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
        ax.legend(handles=kinds, loc="lower right", title=label(cases[0]), title_fontsize=8.5)
        return
    if published and not quick:
        kinds.append(
            Line2D([], [], color=GREY, marker="<", linestyle="", label="the paper, rounded down")
        )
    colors = [Line2D([], [], color=PALETTE[k], label=label(case)) for k, case in enumerate(cases)]
    first = ax.legend(handles=colors, loc="lower right", bbox_to_anchor=(0.64, 0.0), fontsize=8)
    ax.add_artist(first)
    ax.legend(handles=kinds, loc="lower right", fontsize=8)
