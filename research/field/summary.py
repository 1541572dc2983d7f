"""What the results of a part say: mean scores, mean ranks, and the criteria for ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from research.field import methods, scores
from research.field.parts import PARTS
from research.field.store import Results
from research.report import Json

POINT = 0.01  # accuracy: "within a point"
NEAR = (methods.NEIGHBORS, methods.LOGISTIC, methods.SVM)
MOST = 2 / 3  # of the sets: a method that is still being measured is not ranked
FEW = 5  # memories
TIMED = ("time",)
SMALL, MOST_TIMES = 10_000, 5  # rows below which the cost of a fit is measured, and the limit


@dataclass(frozen=True)
class Ranking:
    """Scores (sets, methods) by one measure, and their ranks."""

    sets: list[str]
    methods: list[str]
    scores: scores.Floats
    ranks: scores.Floats
    high_is_good: bool

    @property
    def mean_ranks(self) -> dict[str, float]:
        return dict(zip(self.methods, self.ranks.mean(0).tolist(), strict=True))

    @property
    def mean_scores(self) -> dict[str, float]:
        return dict(zip(self.methods, self.scores.mean(0).tolist(), strict=True))

    @property
    def critical_difference(self) -> float:
        return scores.critical_difference(len(self.methods), len(self.sets))

    def intervals(self, n_draws: int = 2000) -> dict[str, tuple[float, float]]:
        """95% of the mean ranks of sets drawn with replacement."""
        draws = np.random.default_rng(0).integers(0, len(self.sets), (n_draws, len(self.sets)))
        means = self.ranks[draws].mean(1)  # (draws, methods)
        low, high = np.quantile(means, [0.025, 0.975], axis=0).tolist()
        return dict(zip(self.methods, zip(low, high, strict=True), strict=True))

    def of(self, method: str) -> scores.Floats:
        """Its scores, one per set."""
        return self.scores[:, self.methods.index(method)]


def outside(results: Results) -> list[str]:
    """The sets compared: those of the folder, or scikit-learn's where there are no others."""
    found = [n for n, s in sorted(results.sets.items()) if s["kind"] != "bundled"]
    return found or sorted(results.sets)


def mean(cell: Json, key: str) -> float:
    return float(np.mean(cell[key]))


def ranking(results: Results, key: str, among: Sequence[str] = ()) -> Ranking:
    """By one measure: methods measured on most sets, on the sets that they all have.

    among: these alone.
    """
    sets = outside(results)
    found = [
        m
        for m in results.heads
        if sum((s, m) in results.cells for s in sets) >= MOST * len(sets)
        and (not among or m in among)
    ]
    sets = [s for s in sets if all((s, m) in results.cells for m in found)]
    values = np.array([[mean(results.cells[s, m], key) for m in found] for s in sets])
    high = PARTS[results.part].measures[key]
    return Ranking(sets, found, values, scores.ranks(values, high_is_good=high), high)


@dataclass(frozen=True)
class Criterion:
    """One thing that must be seen."""

    what: str
    seen: str
    met: bool


def criteria(results: Results, timed: Results, ours: str = methods.OURS) -> list[Criterion]:
    """What is asked of ours among classifiers."""
    found = []
    words = {"accuracy": "accuracy", "log_loss": "log-loss"}
    rivals = [m for m in methods.PROTOTYPE_TYPE if not m.startswith(methods.OURS)]
    for key, word in words.items():
        ranked = ranking(results, key).mean_ranks
        if ours not in ranked:
            return []
        for names, title in (
            (rivals, "the best mean rank of all prototype methods"),
            ((methods.NEIGHBORS,), "a better mean rank than k-NN"),
            ((methods.LOGISTIC,), "a better mean rank than logistic regression"),
        ):
            others = {m: ranked[m] for m in names if m in ranked}
            if others:
                best = min(others, key=others.__getitem__)
                seen = f"{ranked[ours]:.2f}, {best} {others[best]:.2f}"
                # A rival that is not measured may be better.
                if open_ones := [m for m in names if m not in ranked]:
                    seen += f"; not measured: {', '.join(open_ones)}"
                met = ranked[ours] < others[best] and not open_ones
                found.append(Criterion(f"{word}: {title}", seen, met))
    accuracy = ranking(results, "accuracy", (ours, *NEAR))
    error = ranking(results, "calibration_error", (ours, methods.LOGISTIC))
    n = len(accuracy.sets)
    if all(m in accuracy.methods for m in NEAR):
        best_score = np.max([accuracy.of(m) for m in NEAR], axis=0)
        near = int((accuracy.of(ours) >= best_score - POINT - 1e-9).sum())
        what = "accuracy within a point of the best of k-NN, logistic regression, RBF SVM"
        wanted = math.ceil(2 * n / 3)
        found.append(Criterion(what, f"{near} of {n} sets, {wanted} wanted", near >= wanted))
    if methods.LOGISTIC in error.methods:
        n = len(error.sets)
        lower = int((error.of(ours) <= error.of(methods.LOGISTIC)).sum())
        what, wanted = "calibration error at most that of logistic regression", math.ceil(n / 2)
        found.append(Criterion(what, f"{lower} of {n} sets, {wanted} wanted", lower >= wanted))
    return [*found, *few_memories(results, ours), *cost_of_a_fit(timed, ours)]


def few_memories(results: Results, ours: str) -> list[Criterion]:
    """Do a few memories decide? If that is measured."""
    cells = [results.cells.get((name, ours), {}) for name in outside(results)]
    cells = [cell for cell in cells if methods.DECISION[0] in cell]
    if not cells:
        return []
    needed, _, three, uniform = ([mean(c, key) for c in cells] for key in methods.DECISION[:4])
    few, n = sum(k <= FEW for k in needed), len(cells)
    wanted, all_three, most = math.ceil(0.9 * n), float(np.mean(three)), float(np.mean(uniform))
    return [
        Criterion(f"at most {FEW} memories hold 90% of the vote, median over rows",
                  f"{few} of {n} sets, {wanted} wanted", few >= wanted),
        Criterion("the three strongest memories give the class on 97% of rows",
                  f"{all_three:.1%}", all_three >= 0.97),
        Criterion("the uniform component decides on at most 2% of rows", f"{most:.1%}",
                  most <= 0.02),
    ]  # fmt: skip


def cost_of_a_fit(timed: Results, ours: str) -> list[Criterion]:
    """The criterion, if anything is measured."""
    ratios = fit_ratios(timed, ours)
    if not ratios:
        return []
    slow = sum(r > MOST_TIMES for r in ratios.values())
    slowest = max(ratios, key=ratios.__getitem__)
    seen = f"median {np.median(list(ratios.values())):.1f}, most {ratios[slowest]:.1f} ({slowest})"
    what = "fit at most 5 times logistic regression + k-NN, sets under 10,000 rows"
    return [Criterion(what, f"{seen}, above 5 on {slow} of {len(ratios)}", slow == 0)]


def fit_ratios(timed: Results, ours: str) -> dict[str, float]:
    """Time of our fit over that of logistic regression and tuned k-NN together, per small set."""
    found = {}
    for name in outside(timed):
        cell = timed.cells.get((name, ours))
        if timed.sets[name]["rows"] >= SMALL or not cell:
            continue
        if timed.part in TIMED:  # all in one cell
            peers = [mean(cell, peer) for peer in methods.TIMED_BY]
        elif all((name, peer) in timed.cells for peer in methods.TIMED_BY):
            peers = [mean(timed.cells[name, peer], "fit_seconds") for peer in methods.TIMED_BY]
        else:
            continue
        found[name] = mean(cell, "fit_seconds") / sum(peers)
    return found


def line(part: str, cell: Json) -> str:
    """A cell in one line."""
    seen = ", ".join(f"{key} {mean(cell, key):.4f}" for key in PARTS[part].measures)
    return f"{cell['set']:<20} {cell['method']:<28} {seen}, fit {mean(cell, 'fit_seconds'):.3f} s"


def text(results: Results) -> str:
    """For the terminal."""
    lines: list[str] = []
    for key, high in PARTS[results.part].measures.items() if results.cells else ():
        ranked = ranking(results, key)
        if len(ranked.methods) < 2:
            continue
        lines.append(
            f"\n{results.part}: {key} ({'high' if high else 'low'} is good), "
            f"{len(ranked.sets)} sets, critical difference {ranked.critical_difference:.2f}"
        )
        spread, scored = ranked.intervals(), ranked.mean_scores
        for name, rank in sorted(ranked.mean_ranks.items(), key=lambda item: item[1]):
            low, high_end = spread[name]
            lines.append(
                f"  {name:<40} mean rank {rank:5.2f} ({low:.2f}–{high_end:.2f}), "
                f"mean {scored[name]:.4f}"
            )
    if results.part in ("classify", "frames", *TIMED):
        for ours in (m for m in methods.BOTH if m in results.heads):
            lines.append(f"\nwhat must be seen, {ours}:")
            if results.part in TIMED:
                found = cost_of_a_fit(results, ours)
            else:
                timed = results if results.part == "frames" else Results("time")
                found = criteria(results, timed, ours)
            for c in found:
                lines.append(f"  {'yes' if c.met else 'NO ':<4} {c.what}: {c.seen}")
    return "\n".join(lines)
