"""The page on robustness: curves, tables and answers, from the stored study."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from mnemosphere.plots.style import PALETTE, figure_style, new_figure
from research.benchmarks.robustness import BASELINES, FOREST, LOGISTIC, ONE_NEIGHBOR, TEXTS
from research.pages.marks import markdown
from research.pages.stored import RESULTS, read, source
from research.report import Json

NAME = "robustness"
_TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", TEXTS: "BANKING77 vectors"}
_AT = {"image": (0.5, 1.0, 1.5), "text": (0.1, 0.2, 0.3), "table": (0.25, 0.5, 1.0)}
_MISSING = "Not measured yet: `python -m research robustness --jobs 16 --data DIR`."
_PICTURE = "![Certified and attacked accuracy against ε](images/robustness.png)"
_DRAWN = ("joint", "conditional", *BASELINES)


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


def _bounds(runs: Sequence[Json], length: float) -> str:
    """Certified / attacked accuracy at a length."""
    low, high = (
        statistics.fmean(float(np.interp(length, run["lengths"], run[curve])) for run in runs)
        for curve in ("certified", "attacked")
    )
    return f"{'–' if runs[0]['method'] == FOREST else f'{low:.1%}'} / {high:.1%}"


def curves_table() -> str:
    """Accuracy, radius, certified and attacked accuracy of every method."""
    lines = []
    for title, of in _groups([run for run in _runs() if not run["swept"]]).items():
        lengths = _AT[of[0]["kind"]]
        for method in dict.fromkeys(run["method"] for run in of):
            mine = [run for run in of if run["method"] == method]
            bounds = [_bounds(mine, length) for length in lengths]
            radius = "" if method == FOREST else f"{_mean(mine, 'radius'):.3g}"
            lines.append([title, method, f"{_mean(mine, 'accuracy'):.1%}", radius,
                          f"{_mean(mine, 'attack'):.3g}", *bounds])  # fmt: skip
        lines.append([f"*ε of {title}*", "", "", "", "", *(f"*{e:g}*" for e in lengths)])
    head = ["data", "method", "accuracy", "median certified radius", "median attack",
            "robust accuracy at the first ε", "second ε", "third ε"]  # fmt: skip
    return f"{markdown(head, lines)}\n\n{source(read(NAME))}"


def sweep_table(swept: str, title: str) -> str:
    """Accuracy and radius along a sweep, group by group."""
    groups = _groups([run for run in _runs() if run["swept"] == swept])
    lines = []
    for name, of in groups.items():
        for value in sorted({run["value"] for run in of}):
            mine = [run for run in of if run["value"] == value]
            figures = (f"{_mean(mine, key):.3g}" for key in ("radius", "attack"))
            lines.append([name, f"{value:g}", f"{_mean(mine, 'accuracy'):.1%}", *figures])
    return markdown(["data", title, "accuracy", "median certified radius", "median attack"], lines)


def most_robust(runs: Sequence[Json]) -> Json:
    """The run of the largest radius among those as accurate as the best, within an error."""
    best = max(run["accuracy"] for run in runs)
    error = math.sqrt(best * (1 - best) / runs[0]["tested"])
    return max((run for run in runs if run["accuracy"] >= best - error), key=lambda r: r["radius"])


def answers() -> str:
    """Does the claim hold, and which ς is most robust at equal accuracy?"""
    plain = [run for run in _runs() if not run["swept"]]
    of = {(run["set"], run["seed"], run["method"]): run for run in plain}
    cells = list(dict.fromkeys((run["set"], run["seed"]) for run in plain))

    def against(one: str, other: str) -> str:
        both = [(of[*c, one], of[*c, other]) for c in cells if (*c, other) in of]
        wider = sum(a["radius"] > b["radius"] for a, b in both)
        ratio = statistics.median(a["radius"] / b["radius"] for a, b in both if b["radius"] > 0)
        gap = statistics.fmean(a["accuracy"] - b["accuracy"] for a, b in both)
        return (
            f"the median certified radius of {one} is the larger one on {wider} of {len(both)} "
            f"fits, {ratio:.2f} times that of {other} in the median; accuracy {100 * gap:+.1f} "
            "points on average"
        )

    swept = [run for run in _runs() if run["swept"] == "varsigma"]
    chosen = [
        most_robust([run for run in swept if (run["set"], run["seed"]) == cell])["value"]
        for cell in dict.fromkeys((run["set"], run["seed"]) for run in swept)
    ]
    tight = [run["radius"] / run["attack"] for run in plain
             if run["method"] in ("joint", "conditional", "grown") and run["attack"]]  # fmt: skip
    counted = ", ".join(f"{value:g} ({n})" for value, n in sorted(Counter(chosen).items()))
    lines = [
        f"Joint against {LOGISTIC}: {against('joint', LOGISTIC)}.",
        f"Joint against {ONE_NEIGHBOR}: {against('joint', ONE_NEIGHBOR)}.",
        f"Conditional against joint: {against('conditional', 'joint')}.",
        f"The certificate reaches {statistics.median(tight):.0%} of the shortest attack found, in "
        "the median.",
        f"ς with the largest radius among those within one standard error of the best accuracy, "
        f"and on how many fits: {counted}.",
    ]
    return "\n".join(f"- {line}" for line in lines)


@figure_style()
def curves() -> Figure:
    """Certified accuracy as lines, attacked accuracy dashed, against ε."""
    groups = _groups([run for run in _runs() if not run["swept"]])
    figure = new_figure(8.6, 3.3 * -(-len(groups) // 2))
    panels = figure.subplots(-(-len(groups) // 2), 2, squeeze=False).ravel()
    for ax, (title, of) in zip(panels, groups.items(), strict=False):
        for k, method in enumerate(_DRAWN):
            mine = [run for run in of if run["method"] == method]
            if not mine:
                continue
            for curve, style in (("certified", "-"), ("attacked", "--")):
                if curve == "certified" and method == FOREST:
                    continue
                mean = np.mean([run[curve] for run in mine], axis=0)
                label = method if style == "-" or method == FOREST else None
                ax.plot(mine[0]["lengths"], mean, style, color=PALETTE[k], label=label)
        ax.set_title(title)
        ax.set_xlabel("ε: " + ("pixel L2" if of[0]["kind"] == "image" else "standard units"
                               if of[0]["kind"] == "table" else "L2"))  # fmt: skip
        ax.set_ylim(0, 1)
        ax.grid(color="#E5E5E5", linewidth=0.6)
    figure.supylabel("accuracy", fontsize=11)
    figure.axes[-1].legend(fontsize=9, title_fontsize=9, title="lines certified, dashed attacked")
    return figure


def _stored(make: Callable[[], str]) -> Callable[[], str]:
    return lambda: make() if (RESULTS / f"{NAME}.json").exists() else _MISSING


TABLES = {
    "robustness answers": _stored(answers),
    "robustness curves": _stored(lambda: f"{_PICTURE}\n\n{curves_table()}"),
    "robustness varsigma": _stored(lambda: sweep_table("varsigma", "ς")),
    "robustness beta": _stored(lambda: sweep_table("beta", "β per feature, held")),
    "robustness memories": _stored(lambda: sweep_table("memories", "memories")),
}
PICTURES = {"robustness": curves} if (RESULTS / f"{NAME}.json").exists() else {}
