"""The page "In the field": tables and pictures of our methods and the baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from matplotlib.figure import Figure

from mnemosphere.plots.style import GREY, VERMILLION, figure_style, new_figure
from research.field import methods, scores, summary
from research.field.store import RESULTS, Results
from research.pages.marks import markdown
from research.pages.stored import Table, sources

WORDS = {
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "calibration_error": "calibration error",
    "rand_index": "adjusted Rand index",
    "mutual_information": "mutual information",
    "auroc": "AUROC",
}


def ranked(part: str, key: str) -> summary.Ranking:
    return summary.ranking(Results.read(part), key)


def short(seconds: float) -> str:
    """Two digits: 0.0031, 0.25, 12."""
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def size(n_bytes: float) -> str:
    unit, name = (1e6, "MB") if n_bytes >= 1e6 else (1e3, "kB")
    return f"{short(n_bytes / unit)} {name}"


def finished(text: str, results: Results) -> Table:
    """With the runs behind a table listed."""
    runs = [*results.heads.values()]
    return Table(f"{text}\n\n{sources(runs)}", runs)


def rank_table() -> Table:
    """One line per classifier: mean ranks, mean accuracy, cost."""
    results = Results.read("classify")
    by = {key: summary.ranking(results, key) for key in summary.measures(results)}
    accuracy = by["accuracy"]
    differs = scores.wilcoxon_holm(accuracy.scores, accuracy.methods)

    def against_ours(name: str) -> str:
        if name == methods.OURS:
            return ""
        p = next(p for pair, p in differs.items() if {name, methods.OURS} == set(pair))
        return "< 0.001" if p < 0.001 else f"{p:.2g}"

    def median(name: str, key: str) -> float:
        values = [summary.mean(results.cells[s, name], key) for s in accuracy.sets]
        return float(np.median(values))

    lines = []
    for name in sorted(accuracy.methods, key=accuracy.mean_ranks.__getitem__):
        cells = [f"**{name}**" if name.startswith(methods.OURS) else name]
        cells += [_ranked(found, name) for found in by.values()]
        cells.append(f"{100 * accuracy.mean_scores[name]:.1f}%")
        cells.append(against_ours(name))
        cells += [short(median(name, key)) for key in ("fit_seconds", "predict_seconds")]
        lines.append([*cells, size(median(name, "bytes"))])
    head = ["method", *(f"rank, {WORDS[key]}" for key in by), "mean accuracy", "p against dam"]
    table = markdown([*head, "fit, s", "predict, s", "size"], lines)
    of = len(summary.outside(results))
    n_folds = results.heads[methods.OURS]["folds"]
    text = f"{n_folds} folds. {len(accuracy.sets)} of {of} sets are ranked: those that all have."
    if "auroc" in by:
        text += f" AUROC: {len(by['auroc'].sets)} sets of two classes."
    return finished(f"{table}\n\n{text}", results)


def cost_ratios() -> Table:
    """Seconds of fit and prediction over ours, and of one explanation."""
    results = Results.read("classify")

    def ratio(name: str, key: str) -> str:
        low, middle, high = np.quantile(summary.cost_ratios(results, key, name), [0.25, 0.5, 0.75])
        return f"{short(middle)} ({short(low)}–{short(high)})"

    lines = []
    for name in results.heads:
        own = [c for (_, m), c in results.cells.items() if m == name]
        explained = [summary.mean(c, "explain_seconds") for c in own if "explain_seconds" in c]
        shown = short(1000 * float(np.median(explained))) if explained else ""
        fit = short(float(np.median([summary.mean(c, "fit_seconds") for c in own])))
        ratios = [ratio(name, key) for key in ("fit_seconds", "predict_seconds")]
        lines.append([name, fit, *ratios, shown])
    head = ["method", "fit, s", "fit, in units of dam", "prediction, in units of dam",
            "explanation of a row, ms"]  # fmt: skip
    return finished(markdown(head, lines), results)


def accuracy_sets() -> Table:
    """Every set and method, in percent; the best of a set in bold."""
    results = Results.read("classify")
    found = summary.ranking(results, "accuracy")
    others = sorted(n for n, s in results.sets.items() if n not in found.sets)
    lines = []
    for name in [*found.sets, *others]:
        facts = results.sets[name]
        cells = [results.cells.get((name, m)) for m in found.methods]
        values = [f"{100 * summary.mean(c, 'accuracy'):.1f}" if c else "" for c in cells]
        best = max(float(v) for v in values if v)
        shown = [f"**{v}**" if v and float(v) == best else v for v in values]
        lines.append([name, f"{facts['rows']} × {facts['features']}, {facts['classes']}", *shown])
    text = markdown(["set", "rows × features, classes", *found.methods], lines)
    return Table(text, [*results.heads.values()])


def part_table(part: str, given: Results | None = None) -> Table:
    """One line per method: mean ranks and mean scores; of all methods where results are given."""
    results = given or Results.read(part)
    keys, among = summary.measures(results), [*results.heads] if given else []
    by = {key: summary.ranking(results, key, among) for key in keys}
    first = by[keys[0]]
    lines = []
    for name in sorted(first.methods, key=first.mean_ranks.__getitem__):
        cells = [f"**{name}**" if name.startswith(methods.OURS) else name]
        for found in by.values():
            cells += [f"{found.mean_ranks[name]:.2f}", f"{found.mean_scores[name]:.3f}"]
        seconds = [summary.mean(results.cells[s, name], "fit_seconds") for s in first.sets]
        lines.append([*cells, short(float(np.median(seconds)))])
    head = [text for key in keys for text in (f"rank, {WORDS[key]}", f"mean {WORDS[key]}")]
    table = markdown(["method", *head, "fit, s"], lines)
    n_folds = results.heads[first.methods[0]]["folds"]
    largest = max(results.sets[s]["rows"] for s in first.sets)
    rule = f"{len(first.sets)} sets of up to {largest:,} rows, {n_folds} folds."
    return finished(f"{table}\n\n{rule}", results)


def explainable_table() -> Table:
    """All methods on the sets that explainable boosting was measured on, with explanations' time."""
    results = Results.read("classify", RESULTS / "explainable")
    table = part_table("classify", results)
    told = []
    for name in (methods.OURS, methods.EXPLAINABLE):
        own = [
            summary.mean(c, "explain_seconds") for (_, m), c in results.cells.items() if m == name
        ]
        told.append(f"{name} {short(1000 * float(np.median(own)))} ms")
    return table._replace(text=f"{table.text}\n\nMedian time to explain a row: {', '.join(told)}.")


def _ranked(found: summary.Ranking, name: str) -> str:
    """Mean rank and its interval."""
    low, high = found.intervals()[name]
    return f"{found.mean_ranks[name]:.2f} ({low:.1f}–{high:.1f})"


def readme_source() -> Table:
    """What the chart of the first page was measured on, and seconds of a fit."""
    results = Results.read("classify")
    first = ranked("classify", "accuracy")
    seconds = {
        name: float(np.median([summary.mean(results.cells[s, name], "fit_seconds") for s in first.sets]))
        for name in first.methods
    }  # fmt: skip
    told = ", ".join(
        f"{_shown(m)} {short(v)}" for m, v in sorted(seconds.items(), key=lambda p: p[1])
    )
    largest = max(results.sets[s]["rows"] for s in first.sets)
    text = (
        f"Mean ranks on {len(first.sets)} tables of up to {largest:,} rows, five folds; lines: 95% bootstrap "
        f"interval over tables. Median processor seconds of a fit in one thread: {told}."
    )
    return Table(text, [*results.heads.values()])


@figure_style()
def readme() -> Figure:
    """Mean ranks of the classifiers with their intervals, a panel per measure."""
    figure = new_figure(9.0, 2.7)
    keys = summary.measures(Results.read("classify"))
    panels = figure.subplots(1, len(keys), sharex=True, sharey=True)
    order = sorted((first := ranked("classify", keys[0])).methods, key=first.mean_ranks.__getitem__)
    for ax, key in zip(panels, keys, strict=True):
        found = ranked("classify", key)
        for place, name in enumerate(order):
            color = VERMILLION if name == methods.OURS else GREY
            ax.plot(found.intervals()[name], [place] * 2, color=color, linewidth=2.4)
            ax.plot(found.mean_ranks[name], place, "o", color=color, markersize=8)
        ax.set_title(WORDS[key])
        ax.grid(axis="x", color="#E5E5E5", linewidth=0.6)
        ax.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(order)), [_shown(name) for name in order])
    panels[0].set_ylim(len(order) - 0.5, -0.5)
    panels[0].set_xlim(1, len(order))
    panels[len(keys) // 2].set_xlabel("mean rank, 1 is best")
    return figure


def _shown(name: str) -> str:
    """A method as pictures call it."""
    return name.replace(f"{methods.OURS}-", "mnemosphere, ").replace(methods.OURS, "mnemosphere")


def _parts(names: Iterable[str]) -> dict[str, Callable[[], Table]]:
    return {f"field {name}": lambda name=name: part_table(name) for name in names}


TABLES: dict[str, Callable[[], Table]] = {
    "field ranks": rank_table,
    "field explainable": explainable_table,
    "field cost ratios": cost_ratios,
    "field accuracy": accuracy_sets,
    "field readme": readme_source,
    **_parts(("cluster", "few-labels", "novelty")),
}
PICTURES = {"field-readme": readme}
