"""One search decides what "auto" means: successive halving (Jamieson and Talwalkar 2016).

candidates   geometry × number of memories × objective, for the joint one with ratios of the
analytic ς, for the conditional one with and without noise
rungs        each has three times the rows of the one before, or three times the memories if rows are
few, and keeps the best third
evaluation   log-loss of held-out rows at the best temperature, cross-fitted if rows are few
choice       the simplest candidate within one standard error of the best
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from mnemosphere.data.normalize import METRICS, NORMALIZATIONS, Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators.crossfit import (
    NEGLIGIBLE,
    Candidate,
    Evaluation,
    Sample,
    Settings,
    evaluate,
    mean_and_error,
    splits,
)
from mnemosphere.model.metric import MAX_RANK
from mnemosphere.text import format_table

__all__ = ["Choice", "SearchTable", "candidates", "halving", "run"]

SHRINKAGE = 0.5  # of both metrics: halfway between the covariance within classes and its mean
PER_CLASS = (1, 5, 25)  # memories: a class as one direction, as a few, as many
MAX_MEMORIES = 1000  # the last number is one per row, at most so many
ROWS_PER_CLASS = 5  # on average, in the first rung: fewer say nothing about a class
SHARING = (0.7, 1.0)  # ς relative to the analytic one: rows shared by more memories, and as usual
NOISES = (0.0, 0.5)  # of the conditional objective: none, and what suits images and noisy tables
FACTOR = 3  # rows (or splits) grow by it from rung to rung, candidates shrink by it
LEAST_FITTED = 60  # rows of the first rung, and most memories: fewer rank candidates by chance
LEAST_RUNGS = 3  # where rows cannot grow so often, memories do
MOST_ROWS = 2000  # fitted, and held out, in a rung: with more the ranking is the same
MOST_SPLITS = 5  # cross-fitting of few rows
MOST_LOST = 0.05  # of the rows may have no direction in a geometry
LEAST_MOVED = 0.05  # mean distance of the rows in two geometries: nearer, and they are one

# Columns of a printed table.
_COLUMNS = {
    "normalize": "geometry", "n_clusters": "clusters", "n_memories": "memories",
    "memories_per_cluster": "memories each", "objective": "objective", "sharing": "ς ratio",
    "noise": "noise", "unlabeled": "unlabeled rows", "log_loss": "held-out log-loss",
    "agreement": "agreement", "error": "±", "chosen": "chosen",
}  # fmt: skip


class SearchTable(list[dict[str, Any]]):
    """The trials of a search, first rung first; prints as a table of the last ones."""

    def __str__(self) -> str:
        """The last rung, best first; columns that say nothing are left out."""
        last = [t for t in self if t.get("rung") == self[-1].get("rung")]
        last.sort(key=lambda t: float(t.get("log_loss", -t.get("agreement", 0.0))))
        shown = [name for name in _COLUMNS if any(t.get(name) for t in last)]
        lines = [{_COLUMNS[name]: _cell(trial.get(name)) for name in shown} for trial in last]
        return format_table(lines, 100) if lines else "no search"

    def fallen_back(self, facts: Mapping[str, Any]) -> SearchTable:
        """The same if the candidate with these facts was used in place of the one chosen."""
        rung = next(trial["rung"] for trial in self if trial["chosen"])
        return SearchTable(
            trial | ({"chosen": False, "failed": True} if trial["chosen"] else
                     {"chosen": trial["rung"] == rung and facts.items() <= trial.items()})
            for trial in self
        )  # fmt: skip


def _cell(value: Any) -> str:
    """Yes or nothing, up to four decimals, or as it is."""
    value = "yes" * value if isinstance(value, bool) else value
    return f"{round(value, 4):g}" if isinstance(value, float) else str(value or "")


@dataclass(frozen=True)
class Choice:
    """What the search chose, what it expects of it, and what it would choose next."""

    candidate: Candidate
    runner_up: Choice | None  # in the same geometry
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
    widths = _widths(n_rows, sample.n_classes) if n_memories is None else [n_memories]
    ratios: Sequence[float | None] = SHARING if varsigma is None else (None,)
    noises: Sequence[float] = NOISES if noise is None else (noise,)
    noises = (0.0,) if sample.is_sparse else noises
    with_unlabeled = "joint" in objectives and not bool(sample.labeled.all())
    found = []
    for kind in kinds:
        geometry = kind, SHRINKAGE if kind in METRICS else None
        for width in widths:
            if "joint" in objectives:
                found += [Candidate(*geometry, width, "joint", own) for own in ratios]
            if "conditional" in objectives:
                found += [Candidate(*geometry, width, "conditional", noise=own) for own in noises]
        if with_unlabeled and kind not in METRICS:
            width = n_memories or _widths(sample.n_rows, sample.n_classes)[-1]
            found.append(Candidate(*geometry, width, "joint", ratios[-1], unlabeled=True))
    return found


def _widths(n_rows: int, n_classes: int) -> list[int]:
    """Numbers of memories; those that hardly differ are one candidate."""
    most = max(min(n_rows, MAX_MEMORIES), n_classes)
    return [*(k * n_classes for k in PER_CLASS if 2 * k * n_classes <= most), most]


def usable(sample: Sample) -> list[str]:
    """The geometries that leave hardly a row without direction, simplest first."""
    kinds = [*directed(sample.rows, sample.weight), "standard"]
    if not sample.is_sparse:
        # A metric fills missing values; whitening those would count what it made up.
        kinds += [] if sample.has_gaps else ["whitened"]
        kinds += ["weighted"] if sample.rows.n_features < MAX_RANK else []
    return kinds


def directed(rows: StoredRows, weight: Tensor | None) -> list[str]:
    """Those of "unit" and "center" that leave hardly a row without direction, and differ at all."""
    found: dict[str, Tensor] = {}
    for kind, least in (("unit", 2), ("center", 3)):
        if rows.n_features >= least:
            x, lost = on_sphere(rows, Normalizer(kind), torch.float64)
            mass = torch.ones_like(lost, dtype=torch.float64) if weight is None else weight
            others = found.values() if type(x) is Tensor else ()
            same = any(float((x - other).norm(dim=1).mean()) <= LEAST_MOVED for other in others)
            if not same and float(mass[lost].sum()) <= MOST_LOST * float(mass.sum()):
                found[kind] = x
    return [*found]


def rungs(n_rows: int, n_classes: int) -> list[tuple[int, int, int, int]]:
    """(fitted rows, held-out rows, splits, most memories) of each rung for so many labeled rows."""
    sizes, memories = [min(n_rows * (MOST_SPLITS - 1) // MOST_SPLITS, MOST_ROWS)], [n_rows]
    while sizes[0] // FACTOR >= max(LEAST_FITTED, ROWS_PER_CLASS * n_classes):
        sizes.insert(0, sizes[0] // FACTOR)
        memories.insert(0, sizes[0] // FACTOR)
    while len(sizes) < LEAST_RUNGS:
        sizes.insert(0, sizes[0])
        memories.insert(0, min(sizes[0], memories[0]) // FACTOR)
    found = []
    for fitted, most in zip(sizes, memories, strict=True):
        held = min(n_rows - fitted, MOST_ROWS)
        number = min(MOST_SPLITS, math.ceil(MOST_ROWS / held), n_rows // held)
        found.append((fitted, held, number, max(most, n_classes, LEAST_FITTED)))
    return found


C = TypeVar("C")
S = TypeVar("S", bound=tuple[int, ...])


@dataclass(frozen=True)
class Ranking(Generic[C]):
    """The candidates of the last rung with their readings, best first, and the one to take."""

    last: list[tuple[C, Any]]
    place: int
    trials: SearchTable


def halving(
    options: Sequence[C], stages: Sequence[S], evaluate: Callable[[list[C], S], Sequence[Any]],
    facts: Callable[[C, Any], dict[str, Any]], complexity: Callable[[C], Any], slack: float = 0.0,
) -> Ranking[C]:  # fmt: skip
    """Successive halving; the simplest candidate that is close to the best of the last rung.

    A stage begins with its number of rows. A reading has a `mean`, the lower the better, and is
    the mean of its `own` by `weight`. `facts` are what the table says of a candidate.
    """
    left, trials = list(options), SearchTable()
    for rung, stage in enumerate(stages):
        found = zip(left, evaluate(left, stage), strict=True)
        ranked = sorted(found, key=lambda pair: float(pair[1].mean))
        left = [own for own, _ in ranked[: math.ceil(len(left) / FACTOR)]]
        start = {"rung": rung, "rows": stage[0]}
        trials += [start | facts(*pair) | {"chosen": False} for pair in ranked]
    (_, best), *others = ranked
    near = [0, *(k for k, (_, own) in enumerate(others, 1) if is_close(own, best, slack))]
    place = min(near, key=lambda k: complexity(ranked[k][0]))
    trials[place - len(ranked)]["chosen"] = True
    return Ranking(ranked, place, trials)


def is_close(own: Any, best: Any, slack: float = 0.0) -> bool:
    """Whether a reading is within one standard error of another (or the slack, if it is larger).

    The standard error is that of the difference, row by row.
    """
    mean, error = mean_and_error(own.own - best.own, best.weight)
    return mean <= max(slack, error)


def run(
    sample: Sample, options: Sequence[Candidate], settings: Settings, *, limit: int | None = None
) -> Choice:
    """Successive halving among the options; limit: how many of them take part."""
    n_labeled = int(sample.labeled.sum())
    if limit is not None and limit < len(options):
        order = torch.randperm(len(options), generator=torch.Generator().manual_seed(settings.seed))
        options = [options[k] for k in sorted(order[:limit].tolist())]
    least = 2 if n_labeled == sample.n_rows else ROWS_PER_CLASS
    if n_labeled < least * max(2, sample.n_classes):  # nothing can be held out
        taken = next((own for own in options if own.unlabeled), options[0])
        return Choice(taken, None, None, SearchTable())

    known: dict[tuple[Candidate, int], Evaluation] = {}

    def held_out(left: list[Candidate], stage: tuple[int, int, int, int]) -> list[Evaluation]:
        """No trial runs twice: with few memories in a rung, candidates share trials."""
        fitted, held, number, most = stage
        more = sample.n_rows - n_labeled  # rows, of candidates that fit those without label too
        limits = [min(own.n_memories, most + more * own.unlabeled) for own in left]
        keys = [(replace(own, n_memories=k), fitted) for own, k in zip(left, limits, strict=True)]
        new = [key for key in dict.fromkeys(keys) if key not in known]
        parts = splits(sample.targets, fitted, held, number, settings.seed)
        found = evaluate(sample, [own for own, _ in new], parts, settings)
        known.update(zip(new, found, strict=True))
        return [known[key] for key in keys]

    # As many rungs as leave a few candidates for the last: two are compared on all rows at once.
    n_rungs = max(1, math.ceil(math.log(len(options), FACTOR)))
    stages = rungs(n_labeled, sample.n_classes)[-n_rungs:]
    found = halving(options, stages, held_out, facts_of, complexity, NEGLIGIBLE)
    taken, expected = found.last.pop(found.place)
    # Rows are on the sphere by then: the one to fall back on has the same geometry.
    others = [
        Choice(own, None, evaluated, found.trials)
        for own, evaluated in found.last
        if (own.normalize, own.unlabeled) == (taken.normalize, taken.unlabeled)
    ]
    return Choice(taken, others[0] if others else None, expected, found.trials)


def complexity(candidate: Candidate) -> tuple[bool, int, int, int, float]:
    """Preferred: rows without label, fewer memories, simpler geometry, joint, no noise."""
    return (
        not candidate.unlabeled, candidate.n_memories, NORMALIZATIONS.index(candidate.normalize),
        int(candidate.objective == "conditional"), candidate.noise,
    )  # fmt: skip


def facts_of(own: Candidate, found: Evaluation) -> dict[str, Any]:
    """A trial in plain values."""
    sharing = {} if own.sharing is None else {"sharing": own.sharing}
    return {
        "normalize": own.normalize, "n_memories": own.n_memories, "objective": own.objective,
        **sharing, "noise": own.noise, "unlabeled": own.unlabeled, "log_loss": found.mean,
        "error": found.error,
    }  # fmt: skip
