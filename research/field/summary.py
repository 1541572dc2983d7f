"""What the results of a part say: mean scores, mean ranks, and costs as ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from research.field import methods, scores
from research.field.parts import PARTS
from research.field.store import Results
from research.report import Json

MOST = 0.95  # of the sets: a method that was left out of more is not ranked


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


def measures(results: Results) -> list[str]:
    """Those of the part that all methods have on some set: AUROC is one of two classes."""
    cells, of = results.cells, results.heads
    return [
        key for key in PARTS[results.part].measures
        if of and any(all(key in cells.get((s, m), {}) for m in of) for s in results.sets)
    ]  # fmt: skip


def ranking(results: Results, key: str, among: Sequence[str] = ()) -> Ranking:
    """By one measure: methods measured on most sets, on the sets where they all have it.

    among: these instead.
    """
    sets = outside(results)
    found = [
        m
        for m in results.heads
        if m in among
        or (not among and sum((s, m) in results.cells for s in sets) >= MOST * len(sets))
    ]
    sets = [s for s in sets if all(key in results.cells.get((s, m), {}) for m in found)]
    values = np.array([[mean(results.cells[s, m], key) for m in found] for s in sets])
    high = PARTS[results.part].measures[key]
    return Ranking(sets, found, values, scores.ranks(values, high_is_good=high), high)


def cost_ratios(results: Results, key: str, method: str) -> scores.Floats:
    """Seconds of a method over ours, on every set and fold: each taken in one process, one after the other."""
    found = [
        np.divide(results.cells[s, method][key], results.cells[s, methods.OURS][key])
        for s in outside(results)
        if (s, method) in results.cells and (s, methods.OURS) in results.cells
    ]
    return np.concatenate(found)
