"""The page on robustness: curves, tables and answers, from the stored study."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from mnemosphere.plots.style import PALETTE, figure_style, new_figure
from research.benchmarks.robustness import FOREST, LOGISTIC, ONE_NEIGHBOR, TEXTS
from research.pages.marks import markdown
from research.pages.stored import Table, read, source
from research.report import Json

NAME = "robustness"
_TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", TEXTS: "BANKING77 vectors"}
_AT = {"image": (0.5, 1.0, 1.5), "text": (0.1, 0.2, 0.3), "table": (0.25, 0.5, 1.0)}
_PICTURE = "![Certified and attacked accuracy against ε](../images/robustness.png)\n\n*Accuracy by length of the change.*"
_METHODS = ("joint", "conditional", LOGISTIC, ONE_NEIGHBOR, FOREST)
_PLAIN = f"{LOGISTIC}, C = 1"


def _runs() -> list[Json]:
    found: list[Json] = read(NAME)["runs"]
    return found


def _mean(runs: Sequence[Json], key: str) -> float:
    """Over sets and seeds; half of the rows that no attack moved have no median."""
    return statistics.fmean(math.inf if run[key] is None else run[key] for run in runs)


def _groups(runs: Sequence[Json]) -> dict[str, list[Json]]:
    """Runs by what a table calls them: image sets and texts each, tables together."""
    found: dict[str, list[Json]] = {}
    tables = len({run["set"] for run in runs if run["kind"] == "table"})
    for run in runs:
        title = _TITLES.get(run["set"], f"{tables} tables, mean")
        found.setdefault(title, []).append(run)
    order = [*_TITLES.values(), f"{tables} tables, mean"]
    return {title: found[title] for title in order if title in found}


def _cells(runs: Sequence[Json]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((run["set"], run["seed"]) for run in runs))


def _at(run: Json, curve: str, length: float) -> float:
    return float(np.interp(length, run["lengths"], run[curve]))


def tuned(runs: Sequence[Json], method: str, length: float) -> list[Json]:
    """For every set and seed, the run of a method that certifies most at a length, by the rows for choosing."""
    own = [run for run in runs if run["method"] == method and run["swept"] != "geometry"]
    return [
        max((run for run in own if (run["set"], run["seed"]) == cell),
            key=lambda run: _at(run, "chosen_by", length))
        for cell in _cells(own)
    ]  # fmt: skip


def curves_table() -> str:
    """Certified and attacked accuracy of every method at fixed lengths, its setting chosen for each."""
    lines = []
    for title, of in _groups(_runs()).items():
        lengths = _AT[of[0]["kind"]]
        plain = [run for run in of if run["method"] == LOGISTIC and run["value"] == 1.0]
        for method in (*_METHODS[:3], _PLAIN, *_METHODS[3:]):
            shown = []
            for length in (0.0, *lengths):
                mine = plain if method == _PLAIN else tuned(of, method, length)
                low, high = (
                    statistics.fmean(_at(run, c, length) for run in mine) if length else _mean(mine, "accuracy")
                    for c in ("certified", "attacked")
                )  # fmt: skip
                proven = "–" if method == FOREST else f"{low:.1%}"
                shown.append(f"{low:.1%}" if not length else f"{proven} / {high:.1%}")
            lines.append([title, method, *shown])
        lines.append([f"*ε of {title}*", "", "*0*", *(f"*{e:g}*" for e in lengths)])
    head = ["data", "method", "accuracy", "robust accuracy at the first ε", "second ε", "third ε"]
    return f"{markdown(head, lines)}\n\n{source(read(NAME))}"


def sweep_table(swept: str, title: str) -> str:
    """Accuracy, radius and attack along a sweep, group by group."""
    groups = _groups([run for run in _runs() if run["swept"] == swept])
    lines = []
    for name, of in groups.items():
        for value in dict.fromkeys(run["value"] for run in of):
            mine = [run for run in of if run["value"] == value]
            figures = (f"{_mean(mine, key):.3g}" for key in ("radius", "attack"))
            shown = value if isinstance(value, str) else f"{value:g}"
            lines.append([name, shown, f"{_mean(mine, 'accuracy'):.1%}", *figures])
    return markdown(["data", title, "accuracy", "median certified radius", "median attack"], lines)


def difference(runs: Sequence[Json], one: str, other: str, place: int) -> tuple[float, float, int]:
    """Mean and standard error of the certified accuracy of one less the other's, and the number of pairs.

    At the given one of each kind's three lengths, each method at the setting chosen for it.
    """
    gaps = []
    for kind, lengths in _AT.items():
        of = [run for run in runs if run["kind"] == kind]
        pairs = zip(tuned(of, one, lengths[place]), tuned(of, other, lengths[place]), strict=True)
        gaps += [
            _at(a, "certified", lengths[place]) - _at(b, "certified", lengths[place])
            for a, b in pairs
        ]
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf
    return statistics.fmean(gaps), error, len(gaps)


def answers() -> str:
    """What remains of the claim once baselines are tuned, and how tight the certificate is."""
    runs = _runs()
    lines = []
    for one, other in (("joint", LOGISTIC), ("joint", ONE_NEIGHBOR), ("conditional", "joint")):
        shown = []
        for place in range(3):
            mean, error, n = difference(runs, one, other, place)
            shown.append(f"{100 * mean:+.1f} ± {100 * error:.1f}".replace("-", "−"))
        lines.append(
            f"{one.capitalize()} less {other}, certified accuracy at the three ε, points over {n} fits: {', '.join(shown)}."
        )
    plain = [r for r in runs if r["method"] == LOGISTIC and r["value"] == 1.0]
    wider = []
    for run in plain:
        cell = (run["set"], run["seed"])
        own = [r for r in runs if (r["set"], r["seed"]) == cell and r["method"] == LOGISTIC]
        near = [r for r in own if r["accuracy"] >= run["accuracy"] - _error(run)]
        wider.append(max(r["radius"] for r in near) / run["radius"])
    lines.append(
        f"Logistic regression with another C, as accurate within a standard error, has a median certified radius up to "
        f"{statistics.median(wider):.2f} times that with C = 1, in the median over fits."
    )
    for value in dict.fromkeys(r["value"] for r in runs if r["swept"] == "geometry"):
        tight = [r["radius"] / r["attack"] for r in runs
                 if r["swept"] == "geometry" and r["value"] == value and r["attack"]]  # fmt: skip
        lines.append(
            f"Tables, geometry={value!r}: the certificate reaches {statistics.median(tight):.0%} of the shortest attack, in the median."
        )
    return "\n".join(f"- {line}" for line in lines)


def _error(run: Json) -> float:
    return math.sqrt(max(run["accuracy"] * (1 - run["accuracy"]), 1e-4) / run["tested"])


@figure_style()
def curves() -> Figure:
    """Certified accuracy as lines, attacked accuracy dashed, against ε; settings chosen for each ε."""
    groups = _groups(_runs())
    figure = new_figure(8.6, 3.3 * -(-len(groups) // 2))
    panels = figure.subplots(-(-len(groups) // 2), 2, squeeze=False).ravel()
    for ax, (title, of) in zip(panels, groups.items(), strict=False):
        lengths = of[0]["lengths"]
        for k, method in enumerate(_METHODS):
            if not any(run["method"] == method for run in of):
                continue
            for curve, style in (("certified", "-"), ("attacked", "--")):
                if curve == "certified" and method == FOREST:
                    continue
                mean = [
                    statistics.fmean(_at(run, curve, e) for run in tuned(of, method, e))
                    for e in lengths
                ]
                label = method if style == "-" or method == FOREST else None
                ax.plot(lengths, mean, style, color=PALETTE[k], label=label)
        ax.set_title(title)
        ax.set_xlabel("ε: " + ("pixel L2" if of[0]["kind"] == "image" else "standard units"
                               if of[0]["kind"] == "table" else "L2"))  # fmt: skip
        ax.set_ylim(0, 1)
        ax.grid(color="#E5E5E5", linewidth=0.6)
    for ax in panels[len(groups) :]:
        ax.remove()
    figure.supylabel("accuracy", fontsize=11)
    figure.axes[-1].legend(fontsize=9, title_fontsize=9, title="lines certified, dashed attacked")
    return figure


def _table(make: Callable[[], str]) -> Callable[[], Table]:
    return lambda: Table(make(), [read(NAME)])


TABLES = {
    "robustness answers": _table(answers),
    "robustness curves": _table(lambda: f"{_PICTURE}\n\n{curves_table()}"),
    "robustness varsigma": _table(lambda: sweep_table("varsigma", "ς")),
    "robustness C": _table(lambda: sweep_table("C", "C")),
    "robustness geometry": _table(lambda: sweep_table("geometry", "geometry")),
}
PICTURES = {"robustness": curves}
