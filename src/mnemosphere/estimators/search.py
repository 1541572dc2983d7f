"""One search decides what "auto" means: successive halving (Jamieson and Talwalkar 2016).

candidates   geometry × number of memories × objective, for the joint one with ratios of the
analytic ς, for the conditional one with and without noise
rungs        each trains on three times the rows of the one before and keeps the best third
evaluation   log-loss of held-out rows at the best temperature, cross-fitted if rows are few
choice       the simplest candidate within one standard error of the best
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from mnemosphere.data.normalize import METRICS, NORMALIZATIONS, Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.estimators.crossfit import (
    ROWS_PER_MEMORY,
    Candidate,
    Evaluation,
    Sample,
    Settings,
    evaluate,
    splits,
)
from mnemosphere.model.metric import MAX_RANK
from mnemosphere.text import format_table

__all__ = ["Choice", "SearchTable", "candidates", "run"]

SHRINKAGE = 0.5  # of both metrics: halfway between the covariance within classes and its mean
PER_CLASS = (1, 5)  # memories: a class as one direction, and as a few
MAX_MEMORIES = 1000  # the third number is a fifth of the rows, at most so many
SHARING = (0.7, 1.0)  # ς relative to the analytic one: rows shared by more memories, and as usual
NOISES = (0.0, 0.4)  # of the conditional objective: none, and what suits images and noisy tables
FACTOR = 3  # rows grow by it from rung to rung, candidates shrink by it
LEAST_FITTED = 60  # rows of the first rung: fewer rank candidates by chance
LEAST_OF_CLASS = 5  # and so many per class
MOST_FITTED = 6000  # rows of the last rung: the ranking of larger ones is the same
MOST_HELD = 2000  # held-out rows of a rung: enough to tell candidates apart
MOST_SPLITS = 5  # cross-fitting of few rows
FIRST_SPLITS = 2  # of the first rung, if there are too few rows for a smaller one
MOST_LOST = 0.05  # of the rows may have no direction in a geometry
_WIDTH = 100  # letters of a printed table
CLEARLY_WORSE = 4.0  # standard errors by which a trained model may miss what the search predicted


class Trial(NamedTuple):
    """One line of the table of a search."""

    rung: int
    rows: int
    candidate: Candidate
    log_loss: float
    error: float
    chosen: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a model file."""
        own = self.candidate
        sharing = {} if own.sharing is None else {"sharing": own.sharing}
        return {
            "rung": self.rung, "rows": self.rows, "normalize": own.normalize,
            "n_memories": own.n_memories, "objective": own.objective, **sharing,
            "noise": own.noise, "unlabeled": own.unlabeled, "log_loss": self.log_loss,
            "error": self.error, "chosen": self.chosen,
        }  # fmt: skip


class SearchTable(list[dict[str, Any]]):
    """The trials of a search, first rung first; prints as a table of the last ones."""

    def __str__(self) -> str:
        """The last rung, best first."""
        if self and "rung" not in self[-1]:  # of a clusterer, or of an older file
            return "\n".join(map(str, self))
        last = [trial for trial in self if trial["rung"] == self[-1]["rung"]] if self else []
        lines = [
            {
                "geometry": trial["normalize"],
                "memories": str(trial["n_memories"]),
                "objective": trial["objective"] + " + unlabeled" * trial["unlabeled"],
                "ς ratio": f"{trial['sharing']:g}" if "sharing" in trial else "",
                "noise": f"{trial['noise']:g}" if trial["objective"] == "conditional" else "",
                "held-out log-loss": f"{trial['log_loss']:.4f} ± {trial['error']:.4f}",
                "": "chosen" * trial["chosen"],
            }
            for trial in sorted(last, key=lambda trial: float(trial["log_loss"]))
        ]
        return format_table(lines, _WIDTH) if lines else "no search"


@dataclass(frozen=True)
class Choice:
    """What the search chose, what it expects of it, and what it would choose next."""

    candidate: Candidate
    runner_up: Candidate | None
    expected: Evaluation | None  # held-out losses; None if nothing was evaluated
    trials: SearchTable

    @property
    def objective(self) -> str:
        """The objective of what was chosen."""
        return self.candidate.objective

    @property
    def temperature(self) -> float:
        """That of the classes, from held-out rows."""
        return 1.0 if self.expected is None else self.expected.temperature


def candidates(
    sample: Sample,
    n_rows: int,
    *,
    normalize: str,
    n_memories: int | None,
    objectives: Sequence[str],
    varsigma: float | None,
    noise: float | None,
) -> list[Candidate]:
    """All candidates for n_rows labeled rows like the sample; what is given is in all of them."""
    kinds = [normalize] if normalize != "auto" else usable(sample)
    fifth = min(max(n_rows // ROWS_PER_MEMORY, sample.n_classes), MAX_MEMORIES)
    # Numbers that hardly differ are one candidate.
    few = [k * sample.n_classes for k in PER_CLASS if 2 * k * sample.n_classes <= fifth]
    widths = [*few, fifth]
    widths = widths if n_memories is None else [n_memories]
    noises: Sequence[float] = NOISES if noise is None else (noise,)
    found = []
    partly = not bool(sample.labeled.all())
    for kind in kinds:
        shrinkage = SHRINKAGE if kind in METRICS else None
        for width in widths:
            if "joint" in objectives:
                sharings = SHARING if varsigma is None else (None,)
                found += [Candidate(kind, shrinkage, width, "joint", own) for own in sharings]
            if "conditional" in objectives:
                amounts = (0.0,) if sample.is_sparse else noises
                found += [
                    Candidate(kind, shrinkage, width, "conditional", noise=own) for own in amounts
                ]
        if partly and "joint" in objectives and kind not in METRICS:
            all_rows = min(sample.n_rows // ROWS_PER_MEMORY, MAX_MEMORIES)
            width = max(widths[-1], all_rows) if n_memories is None else n_memories
            sharing = 1.0 if varsigma is None else None
            found.append(Candidate(kind, None, width, "joint", sharing, unlabeled=True))
    return found


def usable(sample: Sample) -> list[str]:
    """The geometries that leave hardly a row without direction, simplest first."""
    kinds = []
    for kind, least in (("unit", 2), ("center", 3)):
        if sample.rows.n_features >= least:
            _, lost = on_sphere(sample.rows, Normalizer(kind), sample.dtype)
            weight = torch.ones_like(lost) if sample.weight is None else sample.weight
            if float(weight[lost].sum()) <= MOST_LOST * float(weight.sum()):
                kinds.append(kind)
    kinds.append("standard")
    if not sample.is_sparse:
        # A metric fills missing values; whitening those would count what it made up.
        kinds += [] if sample.has_gaps else ["whitened"]
        kinds += ["weighted"] if sample.rows.n_features < MAX_RANK else []
    return kinds


def rungs(n_rows: int, n_classes: int) -> list[tuple[int, int, int]]:
    """(fitted rows, held-out rows, splits) of each rung for so many labeled rows."""
    last = min(n_rows * (MOST_SPLITS - 1) // MOST_SPLITS, MOST_FITTED)
    sizes = [last]
    while sizes[0] // FACTOR >= max(LEAST_FITTED, LEAST_OF_CLASS * n_classes):
        sizes.insert(0, sizes[0] // FACTOR)
    found = []
    for fitted in sizes:
        held = min(n_rows - fitted, MOST_HELD)
        number = min(MOST_SPLITS, math.ceil(MOST_HELD / max(held, 1)), n_rows // max(held, 1))
        found.append((fitted, held, max(1, number)))
    if len(found) == 1 and found[0][2] > FIRST_SPLITS:  # then splits grow instead of rows
        found.insert(0, (*found[0][:2], FIRST_SPLITS))
    return found


def run(
    sample: Sample, options: Sequence[Candidate], settings: Settings, *, limit: int | None = None
) -> Choice:
    """Successive halving among the options; limit: how many of them take part."""
    n_labeled = int(sample.labeled.sum())
    left = list(options)
    if limit is not None and limit < len(left):
        order = torch.randperm(len(left), generator=torch.Generator().manual_seed(settings.seed))
        left = [left[k] for k in sorted(order[:limit].tolist())]
    stages = rungs(n_labeled, sample.n_classes)
    least = 2 if n_labeled == sample.n_rows else LEAST_OF_CLASS
    if n_labeled < least * max(2, sample.n_classes):  # nothing can be held out
        taken = next((own for own in left if own.unlabeled), left[0])
        return Choice(taken, None, None, SearchTable())
    stages = stages if len(left) > 1 else stages[-1:]
    trials: list[Trial] = []
    for number, (fitted, held, n_splits) in enumerate(stages):
        parts = splits(sample.targets, fitted, held, n_splits, settings.seed)
        found = evaluate(sample, left, parts, settings)
        ranked = sorted(zip(found, range(len(left)), strict=True), key=lambda pair: pair[0].mean)
        trials += [Trial(number, fitted, left[k], own.mean, own.error) for own, k in ranked]
        if number < len(stages) - 1:
            left = [left[k] for _, k in ranked[: math.ceil(len(left) / FACTOR)]]
    best = _simplest([(left[k], own) for own, k in ranked])
    chosen, others = left[ranked[best][1]], [k for i, (_, k) in enumerate(ranked) if i != best]
    at = len(trials) - len(ranked) + best
    trials[at] = trials[at]._replace(chosen=True)
    return Choice(
        chosen, left[others[0]] if others else None, ranked[best][0],
        SearchTable(trial.as_dict() for trial in trials),
    )  # fmt: skip


def complexity(candidate: Candidate) -> tuple[bool, int, int, int, float]:
    """Preferred: rows without label, fewer memories, simpler geometry, joint, no noise."""
    return (
        not candidate.unlabeled, candidate.n_memories, NORMALIZATIONS.index(candidate.normalize),
        int(candidate.objective == "conditional"), candidate.noise,
    )  # fmt: skip


def _simplest(ranked: Sequence[tuple[Candidate, Evaluation]]) -> int:
    """The place of the simplest candidate within one standard error of the best, which is first.

    The standard error is that of the difference, row by row.
    """
    least = ranked[0][1]
    share = least.weight / least.weight.sum()

    def close(own: Evaluation) -> bool:
        worse = own.own - least.own
        mean = float(share @ worse)
        return mean <= float(np.sqrt(np.sum((share * (worse - mean)) ** 2)))

    near = [k for k, (_, own) in enumerate(ranked) if close(own)]
    return min(near, key=lambda k: complexity(ranked[k][0]))


def by_rung(trials: Sequence[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """(rung, its trials) one after the other."""
    for number in sorted({trial["rung"] for trial in trials}):
        yield number, [trial for trial in trials if trial["rung"] == number]
