"""How settings that are "auto" are decided: screen a few candidates well, then follow the best.

screen     every geometry with one and with four memories per class, one cycle of training
more rows  the best of them again, where rows are many
path       what is around the best candidates, one more cycle, four times the memories, noise on the rows; then what
           is around those, until the best of each geometry has been followed
choice     the best, with a price on memories and steps; a plain geometry unless another is clearly better

Few rows are cross-fitted in five folds. Of many rows one part is held out; candidates are screened on some of
the others, and the path is followed on all of them.

Everything that is learned (geometry, start, memories, weights) is learned from the rows that are fitted. Rows are
distinct: a copy is weight, so that no row is both fitted and held out. The choice does not depend on
`random_state`: trials have a seed of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.text import Shown, Table
from mnemosphere.estimators.progress import Progress
from mnemosphere.geometry import KINDS, Center, Circles, Geometry, Product, Unit
from mnemosphere.geometry.base import learn, on_sphere
from mnemosphere.model import initialize
from mnemosphere.model.batch import Batch
from mnemosphere.model.initialize import Start
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import log_joint
from mnemosphere.model.soft_labels import (
    LOG_T,
    label_frequencies,
    label_shares,
    mean_shares,
    net_class_weights,
    posterior_temperature,
    tempered_losses,
)
from mnemosphere.rows.odds import Odds
from mnemosphere.rows.rows import Rows
from mnemosphere.training import few_labels, stacked
from mnemosphere.training.adam import Adam
from mnemosphere.training.conditional import class_targets, start_conditional
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import EXACT_STEPS, start_joint, start_memories
from mnemosphere.training.sgd import SGD

Floats = NDArray[np.float64]
_ADAM = Adam()
SOLVERS: dict[str, FixedPoint | SGD | Adam] = {
    "fixed-point": FixedPoint(), "sgd": SGD(), "adam": _ADAM
}  # fmt: skip

PER_CLASS = (1, 4)  # memories in the screening; where one is best, four may not be, and the reverse
FACTOR = 4  # between widths of the path
ROWS_PER_MEMORY, LEAST_WIDEST = 15, 300  # rows for each at least, unless there are so few memories
PRICE = math.log(1.02) / math.log(4)  # four times the memories must lower the loss by 2%
PRICE_OF_CYCLE = 1.04  # one more cycle, which takes as long as all before, by 4%
FEW_CYCLES, MOST_CYCLES = 2, 6  # with which more memories and other noise are tried; of all
NOISE = 0.5  # on rows, relative to their length: what suits images and noisy tables
MOST_LINES = 3  # that are followed at a time
# Geometries that a difference below its error does not leave.
PLAIN = ("unit", "center", "standard")
ROWS, ROWS_PER_CLASS = 1500, 20  # fitted in the screening
FOLDS, HELD = 5, 2000  # parts that are held out in turn; most rows of one
FOLDED = 5000  # rows of all folds together, beyond which there are fewer
FEW_KINDS, OFTEN = 50, 5  # distinct rows at most, and how often: a table of few kinds of rows
MOST_ROWS = 60_000  # fitted on the path
MOST_LOST, LEAST_MOVED = 0.05, 0.05  # rows without direction; mean distance of two geometries
MOST_COORDINATES = 4096  # of columns on circles that are tried
UNLIKE = 10.0  # spreads of features that are further apart are those of unlike units
STACKED = 1 << 21  # rows × memories of problems that are trained side by side
PADDED = 1 << 20  # rows × memories × features, up to which they need not be of one shape

# Columns of a printed table.
_COLUMNS = {
    "geometry": "geometry", "n_clusters": "clusters", "n_memories": "memories",
    "objective": "objective", "noise": "noise", "cycles": "cycles", "unlabeled": "unlabeled rows",
    "log_loss": "held-out log-loss", "error": "±", "silhouette": "silhouette",
    "excess": "over one cloud", "chosen": "chosen",
}  # fmt: skip


class SearchTable(Shown, list[dict[str, Any]]):
    """The trials of a search; prints as a table of those on most rows, best first."""

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """The table; columns that say nothing are left out."""
        last = [t for t in self if t.get("rows") == self[-1].get("rows")]
        last.sort(key=lambda t: float(t.get("log_loss", -t.get("silhouette", 0.0))))
        shown = [name for name in _COLUMNS if any(t.get(name) for t in last)]
        lines = [{_COLUMNS[name]: _cell(trial.get(name)) for name in shown} for trial in last]
        return [lines if lines else "no search"]


def _cell(value: Any) -> str:
    """Yes or nothing, up to four decimals, or as it is."""
    value = "yes" * value if isinstance(value, bool) else value
    return f"{round(value, 4):g}" if isinstance(value, float) else str(value or "")


@dataclass(frozen=True)
class Candidate:
    """One setting of what is decided."""

    geometry: str
    n_memories: int
    objective: str  # "joint" or "conditional"
    noise: float = 0.0  # on rows, of the conditional objective
    cycles: int = 1  # of Adam, each twice as long as the one before
    unlabeled: bool = False  # whether rows without label take part

    @property
    def is_plain(self) -> bool:
        """Whether its geometry is a direction, or has standard units."""
        return self.geometry.split("+")[-1] in PLAIN


@dataclass(frozen=True)
class Settings:
    """The settings of an estimator of rows, parsed once; None stands for "auto", of β for "learn"."""

    given: Mapping[str, Any]  # its parameters
    n_memories: int | None
    varsigma: float | None
    beta: float | None
    uniform_weight: float | None
    objective: str  # "joint", "conditional", or "auto": by whether all rows have labels
    solver: FixedPoint | SGD | Adam | None
    adam: Adam  # the solver of the conditional likelihood
    geometry: str
    growth: int | None
    search: str | None
    max_iter: int | None
    smoothing: float  # of labels, for the joint objective
    precision: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From the parameters of a `DAMClassifier` or a `DAMClusterer`."""
        numbers = ("n_memories", "varsigma", "beta", "uniform_weight")
        known = {name: None if isinstance(given[name], str) else given[name] for name in numbers}
        solver, objective = given["solver"], given.get("objective", "joint")
        solver = SOLVERS.get(solver) if isinstance(solver, str) else solver
        adam = solver if isinstance(solver, Adam) else None
        if objective == "auto" and (solver is not None or given["growth"] is not None):
            # A solver, or a tree of splits, belongs to one of them.
            objective = "joint" if adam is None else "conditional"
        smoothing = float(given.get("label_smoothing", given.get("smoothing", 0.0)))
        return cls(
            given, solver=solver, adam=adam or _ADAM,
            objective=objective, geometry=given["geometry"], growth=given["growth"], search=given.get("search"),
            max_iter=given["max_iter"], precision=given["precision"],
            smoothing=smoothing if smoothing > 1e-30 else 0.0,  # less would vanish in products
            **known,
        )  # fmt: skip

    def for_rows(self, sample: Sample) -> Self:
        """With the objective for these rows; ValueError if settings contradict each other."""
        auto = "conditional" if bool(sample.labeled.all()) else "joint"
        own = replace(self, objective=auto if self.objective == "auto" else self.objective)
        conditional = own.objective == "conditional"
        if conditional and self.growth is not None:
            raise ValueError(
                "growth splits memories of the joint likelihood: use objective='joint' or "
                "growth=None"
            )
        if isinstance(self.solver, FixedPoint if conditional else Adam):
            raise ValueError(
                f"{type(self.solver).__name__} does not train the {own.objective} likelihood: use "
                "solver='auto', or another objective"
            )
        return own


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what held-out rows say of it."""

    candidate: Candidate
    temperature: float = 1.0  # of the classes
    trials: SearchTable = field(default_factory=SearchTable)
    # rows, the log of the votes for each class (n, C+1) of models that have not seen them, and their folds
    held: tuple[Sample, Tensor, tuple[Fold, ...]] | None = None
    interrupted: bool = False  # whether Ctrl-C ended the search


def has_few_kinds(n_rows: int, n_distinct: int) -> bool:
    """Whether a table has so few kinds of rows, each so often, that a new row is one of them.

    There copies are held out like other rows. Elsewhere a copy of a fitted row tells nothing of new rows.
    """
    return n_distinct <= FEW_KINDS and n_rows >= OFTEN * n_distinct


@dataclass(frozen=True)
class Sample:
    """Stored rows with label weights, to be put on the sphere in one way or another."""

    rows: Rows
    targets: Tensor  # (n, C+1) float64; zeros: a row without label
    weight: Tensor | None
    dtype: torch.dtype

    @property
    def n_classes(self) -> int:
        """C."""
        return self.targets.shape[1] - 1

    @cached_property
    def labeled(self) -> Tensor:
        """Which rows have a label, (n,)."""
        return self.targets.sum(1) > 0

    def label_mass(self) -> Tensor:
        """Summed label weights (C+1,), by sample weight."""
        return self.targets.sum(0) if self.weight is None else self.weight @ self.targets

    def take(self, index: Tensor) -> Self:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[index]
        return replace(self, rows=self.rows.take(index), targets=self.targets[index], weight=weight)

    @cached_property
    def odds(self) -> Odds:
        """What its rows tell of the levels of categories."""
        return Odds.learn(self.rows, label_shares(self.targets), self.weight)

    def cross_fitted(self) -> Self:
        """The sample with log-odds in place of levels, each row by the rows of other folds."""
        return replace(self, rows=self.odds.of_training(self.rows)) if self.rows.levels else self

    def on_sphere(self, geometry: Geometry) -> tuple[Batch, Tensor]:
        """(unit rows with their labels, which of them have no direction)."""
        x, lost = on_sphere(self.rows, geometry, self.dtype)
        weight = None if self.weight is None else self.weight.to(self.dtype)
        return Batch(x, self.targets.to(self.dtype), weight), lost


class Fold(NamedTuple):
    """Held-out rows with a direction, rows and votes that have not seen them."""

    number: Tensor
    placed: Batch  # as these votes read them
    fitted: Batch
    votes: Mixture


@dataclass(frozen=True)
class Evaluation:
    """Log-losses of one candidate on held-out rows."""

    weight: Floats  # (rows,)
    own: Floats  # the loss of each row at the best temperature
    mean: float  # their mean
    error: float  # its standard error
    level: float  # the mean with one more row, of any class
    temperature: float  # of the classes
    folds: tuple[Fold, ...] = ()

    @classmethod
    def of(cls, losses: Floats, odd: Floats, weight: Floats, folds: tuple[Fold, ...] = ()) -> Self:
        """From the losses of rows with their own labels, and with labels that have nothing to do with them.

        n rows without a mistake do not say that there is none: one more is counted, which is a held-out row
        with a class drawn by the class frequencies. It costs those most that are the most certain.
        """
        n_rows, share = float(weight.sum() ** 2 / (weight @ weight)), weight / weight.sum()
        every = share @ (n_rows * losses + odd) / (n_rows + 1)
        best = int(np.argmin(every))
        own = losses[:, best]
        mean, error = _mean_and_error(own, weight)
        level = max(0.0, float(every[best]))  # of one class, rounding may take it below 0
        temperature = posterior_temperature(losses, weight)
        return cls(weight, own, max(0.0, mean), error, level, temperature, folds)

    def held_out(self) -> tuple[Tensor, Tensor]:
        """(numbers of the held-out rows, the log of the votes for each class of models that have not seen them)."""
        said = []
        for own in self.folds:
            votes = own.votes.at(self.temperature).precise
            said.append(log_joint(votes, own.placed.x.to(votes.w.dtype)))
        return torch.cat([own.number for own in self.folds]), torch.cat(said)

    def exceeds(self, other: Evaluation) -> bool:
        """Whether it is worse by more than the standard error of the difference, row by row."""
        mean, error = _mean_and_error(self.own - other.own, self.weight)
        return mean > error


def _mean_and_error(values: Floats, weight: Floats) -> tuple[float, float]:
    """The weighted mean, and its standard error."""
    share = weight / weight.sum()
    mean = float(share @ values)
    return mean, float(np.sqrt(np.sum((share * (values - mean)) ** 2)))


@dataclass(frozen=True)
class Split:
    """Rows to fit and rows held out, as geometries place them and memories start on them."""

    fitted: Sample
    held: Sample
    number: Tensor  # of the rows that are held out, among all
    turn: int  # which of the splits it is
    placed: dict[str, tuple[Batch, Batch, Tensor]] = field(default_factory=dict)
    starts: dict[tuple[object, ...], Start] = field(default_factory=dict)
    trained: dict[Candidate, Mixture] = field(
        default_factory=dict
    )  # what further cycles go on from

    def place(self, kind: str) -> tuple[Batch, Batch, Tensor]:
        """(fitted rows, held-out rows with a direction, which of those held out these are)."""
        if kind not in self.placed:
            own = self.fitted
            geometry = learn(kind, own.rows, own.targets, own.weight)
            fitted, lost = self.fitted.on_sphere(geometry)
            held, without = self.held.on_sphere(geometry)
            some = (~without).nonzero()[:, 0]
            fitted = fitted.take(~lost) if bool(lost.any()) else fitted
            self.placed[kind] = fitted, held.take(some), some
        return self.placed[kind]

    def start(self, candidate: Candidate, fitted: Batch) -> Start:
        """The memories to train from, the same for both objectives."""
        key = candidate.geometry, candidate.n_memories, candidate.unlabeled
        if key not in self.starts:
            self.starts[key] = start_memories(
                fitted, min(candidate.n_memories, max(fitted.n_rows, self.fitted.n_classes)),
                own_labels=not candidate.unlabeled,
                generator=torch.Generator().manual_seed(self.turn),
            )  # fmt: skip
        return self.starts[key]


def splits(sample: Sample, n_fitted: int, n_held: int, number: int) -> list[Split]:
    """Disjoint held-out parts of the labeled rows, classes in proportion, and rows to fit.

    Rows without label are never held out; all of them take part in each fit.
    """
    order = initialize.class_by_class(sample.targets, generator=torch.Generator().manual_seed(0))
    known, unknown = order[sample.labeled[order]], order[~sample.labeled[order]]
    found = []
    for k in range(number):
        rolled = known.roll(-k * n_held)
        fitted = torch.cat([rolled[n_held : n_held + n_fitted], unknown]).sort().values
        places = rolled[:n_held]
        own, held = sample.take(fitted), sample.take(places)
        if sample.rows.levels:
            rows, own = own.odds.of_others(held.rows), own.cross_fitted()
            held = replace(held, rows=rows)
        found.append(Split(own, held, places, k))
    return found


def usable(sample: Sample) -> list[str]:
    """The geometries that make sense and leave hardly a row without direction, simplest first.

    A text, or another vector, has a geometry of its own beside that of the other columns. Alone it is a direction.
    """
    if len(sample.rows.vectors) == sample.rows.n_features:
        return directed(sample.rows, sample.weight) or ["unit"]
    if 0 < len(sample.rows.vectors) < sample.rows.n_features:
        return [name for name, kind in KINDS.items() if kind.of is Product]
    kinds = [*directed(sample.rows, sample.weight), "standard", "whitened"]
    n = sample.rows.n_features
    few = Circles.least_and_most(n)[1] <= MOST_COORDINATES
    if not few and Circles.least_and_most(n)[0] <= MOST_COORDINATES:
        few = Circles.fit(sample.rows).n_coordinates(n) <= MOST_COORDINATES
    return [*kinds, "circles"] if few else kinds


def spreads(rows: Rows) -> Tensor:
    """Standard deviations of the features, (N,), in the first chunk of rows."""
    x = torch.cat([part for _, part in itertools.islice(rows.chunks(), 1)])
    return torch.where(x.isnan(), x.nanmean(0).nan_to_num(0.0), x).std(0, correction=0)


def directed(rows: Rows, weight: Tensor | None) -> list[str]:
    """Those of "unit" and "center" that leave hardly a row without direction, and differ at all.

    None if features have unlike units: such a row has no direction worth the name.
    """
    found: dict[str, Tensor] = {}
    spread = spreads(rows)
    spread = spread[spread > 0]
    if len(spread) and float(spread.quantile(0.9)) > UNLIKE * float(spread.median()):
        return []
    for geometry, least in ((Unit(), 2), (Center(), 3)):
        if rows.n_features >= least:
            x, lost = on_sphere(rows, geometry, torch.float64)
            mass = torch.ones_like(lost, dtype=torch.float64) if weight is None else weight
            moved = (float((x - other).norm(dim=1).mean()) for other in found.values())
            same = any(far <= LEAST_MOVED for far in moved)
            if not same and float(mass[lost].sum()) <= MOST_LOST * float(mass.sum()):
                found[geometry.name] = x
    return [*found]


@dataclass(frozen=True)
class _Scope:
    """What is open, and on how many rows it is tried."""

    kinds: list[str]  # simplest first
    objective: str
    widths: list[int]
    noises: list[float]
    first: int  # rows fitted in the screening
    whole: int  # and on the path
    held: int  # rows held out at a time
    number: int  # of times
    grows: bool  # whether there may be more memories
    goes_on: bool  # whether there may be more cycles

    @classmethod
    def of(cls, sample: Sample, settings: Settings) -> Self:
        """Of these rows; without a search, one candidate."""
        n_labeled, n_classes = int(sample.labeled.sum()), sample.n_classes
        kinds, conditional = [settings.geometry], settings.objective == "conditional"
        if settings.geometry == "auto":
            kinds = usable(sample.cross_fitted())
            if not conditional:  # there, columns that depend on each other count twice on circles
                kinds = [kind for kind in kinds if not kind.endswith("circles")] or kinds
        held = min(max(1, n_labeled // FOLDS), HELD)
        whole = min(n_labeled - held, MOST_ROWS)
        first = min(whole, max(ROWS, ROWS_PER_CLASS * n_classes))
        most = max(n_classes, 2 * first // 3)
        widths = sorted({min(k * n_classes, most) for k in PER_CLASS})
        widths = widths if settings.n_memories is None else [settings.n_memories]
        noises = [0.0]
        if conditional:
            noise = settings.adam.noise
            noises = [0.0, NOISE] if isinstance(noise, str) else [noise]
        if settings.search is None:
            kinds = [kind for kind in kinds if kind == "standard"] or kinds[:1]
            widths, noises = widths[-1:], noises[:1]
        number = min(FOLDS, n_labeled, max(1, FOLDED // max(1, n_labeled)))
        searched = settings.search is not None
        return cls(
            kinds, settings.objective, widths, noises, first, whole, held, number,
            grows=searched and settings.n_memories is None,
            goes_on=searched and conditional and settings.max_iter is None
            and not isinstance(settings.solver, SGD),
        )  # fmt: skip

    @property
    def screen(self) -> list[Candidate]:
        """What is tried first."""
        return [
            Candidate(kind, k, self.objective, self.noises[0])
            for kind in self.kinds for k in self.widths
        ]  # fmt: skip

    def around(self, own: Candidate, most: int) -> Iterator[Candidate]:
        """A candidate with one more cycle; unless it has many, with more memories, and with other noise."""
        if self.goes_on and own.cycles < MOST_CYCLES:
            yield replace(own, cycles=own.cycles + 1)
        if own.cycles > FEW_CYCLES:  # what is not better by then
            return
        few, wider = max(1, own.cycles - 1), min(FACTOR * own.n_memories, most)
        if self.grows and 2 * wider >= 3 * own.n_memories:
            yield replace(own, n_memories=wider, cycles=few)
        for noise in self.noises:
            if noise != own.noise:
                yield replace(own, noise=noise, cycles=few)


class _Trials:
    """Candidates that were evaluated on the same rows."""

    def __init__(
        self, sample: Sample, settings: Settings, scope: _Scope, fitted: int, progress: Progress
    ) -> None:
        self.settings, self.fitted, self.progress = settings, fitted, progress
        self.parts = splits(sample, fitted, scope.held, scope.number)
        self.found: dict[Candidate, Evaluation] = {}

    def run(self, stage: str, candidates: Iterable[Candidate]) -> None:
        """Evaluate those that are new."""
        new = [own for own in dict.fromkeys(candidates) if own not in self.found]
        show = partial(self.progress.show, stage)
        self.found.update(evaluate(new, self.parts, self.settings, show))

    def score(self, own: Candidate) -> float:
        """Its loss, with a price on memories and steps."""
        price = float(own.n_memories**PRICE) * PRICE_OF_CYCLE**own.cycles
        return self.found[own].level * price

    def still_gains(self, own: Candidate) -> bool:
        """Whether its last cycle has clearly helped."""
        before = self.found.get(replace(own, cycles=own.cycles - 1))
        return before is None or before.exceeds(self.found[own])

    def ranked(self) -> list[Candidate]:
        """Best first."""
        return sorted(self.found, key=self.score)

    def lines(self) -> list[Candidate]:
        """The best of each geometry, and of those with the fewest memories, unless clearly worse."""
        ranked, lead = self.ranked(), dict[tuple[str, bool], Candidate]()
        least = min(own.n_memories for own in ranked)
        for own in ranked:
            lead.setdefault((own.geometry, own.n_memories == least), own)
        best = self.found[ranked[0]]
        return [own for own in lead.values() if not self.found[own].exceeds(best)]

    def chosen(self) -> Candidate:
        """The best; one that uses all rows, or of a plain geometry, if that is not clearly worse."""
        best, *others = self.ranked()
        near = [best, *(own for own in others if not self.found[own].exceeds(self.found[best]))]
        return max(near, key=lambda own: (own.unlabeled, own.is_plain))  # the best of those

    def table(self, chosen: Candidate) -> Iterator[dict[str, Any]]:
        """The trials in plain values, best first."""
        for own, found in sorted(self.found.items(), key=lambda pair: pair[1].mean):
            yield {
                "rows": self.fitted, **vars(own), "log_loss": found.mean, "error": found.error,
                "chosen": own == chosen,
            }  # fmt: skip


def choose(sample: Sample, settings: Settings, progress: Progress) -> Choice:
    """Decide what is not given, and evaluate it on held-out rows.

    Without a search what is open is set: standard units, four memories per class, one cycle, no noise.
    """
    settings = settings.for_rows(sample)
    scope, n_labeled = _Scope.of(sample, settings), int(sample.labeled.sum())
    some_unknown = n_labeled < sample.rows.n_rows
    if n_labeled < (FOLDS if some_unknown else 2) * max(2, sample.n_classes):
        return Choice(_alone(scope, settings.n_memories, sample))  # nothing can be held out
    first = last = _Trials(sample, settings, scope, scope.first, progress)
    joins, interrupted = some_unknown and scope.objective == "joint", False
    try:
        first.run(
            "trying geometries" if len(scope.screen) > 1 else "holding rows out", scope.screen
        )
        if settings.search is not None:
            if scope.whole > 1.2 * scope.first and (scope.grows or len(scope.screen) > 1):
                last = _Trials(sample, settings, scope, scope.whole, progress)
                last.run("trying the best on more rows", first.lines()[:MOST_LINES])
            _follow(last, scope)
        if joins:
            last.run(
                "trying rows without label", _with_unlabeled(last, settings.n_memories, sample)
            )
        best = last.chosen()
    except KeyboardInterrupt:
        last = last if last.found else first
        if not last.found:
            raise
        best, interrupted = last.chosen(), True
    table = [*(first.table(best) if last is not first else ()), *last.table(best)]
    held, expected = None, last.found[best]
    if expected.folds:
        places, said = expected.held_out()
        held = sample.cross_fitted().take(places), said, expected.folds
    return Choice(best, expected.temperature, SearchTable(table), held, interrupted)


def _follow(trials: _Trials, scope: _Scope) -> None:
    """What is around the best lines, and again, until the best of each has been followed."""
    most = max(min(LEAST_WIDEST, 2 * trials.fitted // 3), trials.fitted // ROWS_PER_MEMORY)
    done: set[Candidate] = set()
    while front := [own for own in trials.lines()[:MOST_LINES] if own not in done]:
        done.update(front)
        front = [own for own in front if trials.still_gains(own)]
        trials.run("following the best", [new for own in front for new in scope.around(own, most)])


def _with_unlabeled(trials: _Trials, n_memories: int | None, sample: Sample) -> Iterator[Candidate]:
    """Candidates that learn from rows without label, of the best geometries."""
    k = n_memories or min(sample.rows.n_rows, max(ROWS, sample.n_classes))
    kinds = [own.geometry for own in trials.ranked()]
    for kind in [own for own in dict.fromkeys(kinds) if own != "whitened"][:2] or ["standard"]:
        yield Candidate(kind, k, "joint", unlabeled=True)


def _alone(scope: _Scope, n_memories: int | None, sample: Sample) -> Candidate:
    """What is taken if no row can be held out."""
    kind = scope.kinds[0]
    unlabeled = scope.objective == "joint" and not bool(sample.labeled.all()) and kind != "whitened"
    width = min(sample.rows.n_rows, ROWS) if unlabeled else sample.n_classes
    return Candidate(kind, n_memories or width, scope.objective, unlabeled=unlabeled)


class _Trial(NamedTuple):
    """A candidate on one split."""

    part: Split
    candidate: Candidate
    some: Tensor  # the held-out rows that have a direction
    params: Mixture  # after the cycles that are done
    done: int
    fitted: Batch
    held: Batch


def _trial(
    part: Split, own: Candidate, settings: Settings, varsigma: float | None
) -> _Trial | None:
    """A candidate as it goes on from what was trained on the split; None if no row has a direction."""
    fitted, held, some = part.place(own.geometry)
    if not own.unlabeled and not bool(part.fitted.labeled.all()):
        fitted = fitted.take(fitted.targets.sum(1) > 0)
    if not len(some) or not fitted.n_rows:
        return None
    before, done = own, own.cycles
    while done and before not in part.trained:
        done -= 1
        before = replace(own, cycles=done)
    if done:
        params = part.trained[before]
    elif own.objective == "conditional":
        start = part.start(own, fitted)
        params = start_conditional(start, fitted.label_mass(), beta=settings.beta)
    else:
        params = start_joint(
            part.start(own, fitted), fitted, varsigma=varsigma or settings.varsigma,
            beta=settings.beta, uniform_weight=settings.uniform_weight,
        )  # fmt: skip
    return _Trial(part, own, some, params, done, fitted, held)


def evaluate(
    candidates: Sequence[Candidate], parts: Sequence[Split], settings: Settings,
    show: Callable[[float, float], None],
) -> Iterator[tuple[Candidate, Evaluation]]:  # fmt: skip
    """Held-out losses of each candidate, all splits one after the other; of some after Ctrl-C.

    show: is told how many trials are done, of how many.
    """
    trials: list[_Trial] = []
    varsigma: dict[Candidate, float] = {}  # of joint candidates, the same in all splits
    for part, candidate in itertools.product(parts, candidates):
        trial = _trial(part, candidate, settings, varsigma.get(candidate))
        if trial is not None:
            varsigma[candidate] = trial.params.varsigma
            trials.append(trial)
    # Rows without direction are predicted by the class frequencies.
    chances, weights = [], []
    for part in parts:
        prior, weight = part.fitted.label_mass()[:-1], part.held.weight
        chance = label_shares(part.held.targets) @ -(prior / prior.sum()).clamp_min(1e-9).log()
        chances.append(chance.double().cpu().numpy())
        weights.append(np.ones(len(chance)) if weight is None else weight.double().cpu().numpy())
    losses = {
        own: [np.tile(chance[:, None], (2, 1, len(LOG_T))) for chance in chances]
        for own in candidates
    }
    folds: dict[Candidate, list[Fold]] = {own: [] for own in candidates}
    every = np.concatenate(weights)

    def found(own: Candidate) -> tuple[Candidate, Evaluation]:
        loss, odd = np.concatenate(losses[own], 1)
        return own, Evaluation.of(loss, odd, every, tuple(folds[own]))

    done = 0
    try:
        for group in _groups(trials):
            for own, (loss, votes) in zip(group, _held_out_losses(group, settings), strict=True):
                losses[own.candidate][own.part.turn][:, own.some.cpu().numpy()] = loss
                fold = Fold(own.part.number[own.some], own.held, own.fitted, votes)
                folds[own.candidate].append(fold)
            done += len(group)
            show(done, len(trials))
    except KeyboardInterrupt:  # rows of further splits count as predicted by the class frequencies
        yield from (found(own) for own in candidates if folds[own])
        raise
    yield from map(found, candidates)


def _groups(trials: Sequence[_Trial]) -> list[list[_Trial]]:
    """Trials of one objective, as many as are trained side by side; large ones of one shape."""
    by_shape: dict[tuple[object, ...], list[_Trial]] = {}
    for k, trial in enumerate(trials):
        own, (n_memories, n) = trial.candidate, trial.params.w.shape
        padded = own.objective == "conditional" and trial.fitted.n_rows * n_memories * n <= PADDED
        key = (
            own.objective, own.noise, own.cycles, trial.done, trial.fitted.n_rows, trial.held.n_rows, padded,
            n if own.noise > 0 or not padded else 0, 0 if padded else n_memories,
            k if own.unlabeled else -1,
        )  # fmt: skip
        by_shape.setdefault(key, []).append(trial)
    found = []
    for group in by_shape.values():
        widest = max(trial.params.n_memories for trial in group)
        size = max(1, STACKED // (group[0].fitted.n_rows * widest))
        found += [group[cut : cut + size] for cut in range(0, len(group), size)]
    return found


def _held_out_losses(group: Sequence[_Trial], settings: Settings) -> list[tuple[Floats, Mixture]]:
    """Train a group of trials and evaluate them: losses (2, held-out rows, temperatures), and votes."""
    params, rows, held = stacked.stack(
        [trial.params for trial in group], [trial.fitted for trial in group],
        [trial.held for trial in group],
    )  # fmt: skip
    params, votes = _train(params, rows, group, settings)
    losses = np.stack(tempered_losses(votes, held))
    several = losses.reshape(2, len(group), *losses.shape[-2:])
    trained, alone = params.unstacked(), votes.unstacked()
    for own, after in zip(group, trained, strict=True):
        if own.candidate.objective == "conditional":
            own.part.trained[own.candidate] = _cut(after, own.params)
    return [(several[:, k], _cut(alone[k], own.params)) for k, own in enumerate(group)]


def _cut(params: Mixture, like: Mixture) -> Mixture:
    """Without the memories and coordinates that `stack` has added."""
    n_memories, n = like.w.shape
    p, share = params.p[: n_memories + 1], params.p_h[: n_memories + 1]
    return params.replace(w=params.w[:n_memories, :n], p=p, p_h=share)


def _train(
    params: Mixture, rows: Batch, trials: Sequence[_Trial], settings: Settings
) -> tuple[Mixture, Mixture]:
    """(the parameters, the votes) of one trial, or of several stacked."""
    first, n_rows = trials[0].candidate, rows.x.shape[-2]
    learn_beta, generator = settings.beta is None, torch.Generator().manual_seed(0)
    frequencies = label_frequencies(rows.label_mass(), settings.smoothing)
    if first.objective == "conditional":
        adam = settings.adam.resolve(n_rows, learn_beta=learn_beta, device=rows.x.device)
        for cycle in range(trials[0].done, first.cycles):
            params = stacked.conditional(
                params, replace(rows, targets=class_targets(rows.targets, cycle)),
                *adam.scheduled(n_rows, cycle), noise=first.noise,
                generator=generator,
            )  # fmt: skip
        p = net_class_weights(params, 0.0, frequencies)
        share = mean_shares(params, p, rows, frequencies)
        return params, params.with_classes(p, frequencies, share)
    if first.unlabeled:  # the weights of memories are held, as in the training of the model
        data = ArrayDataset(rows)
        settled = few_labels.fit_unlabeled_start(
            params, data, learn_beta=learn_beta, generator=generator
        )
        steps = FixedPoint(None, learn_beta=learn_beta, learn_weights=False)
        result = fit(settled.params, data, steps, max_iter=EXACT_STEPS)
        params, counts = result.params, steps.label_counts(result.state, n_rows)
    else:
        params = stacked.joint(params, rows, learn_beta=learn_beta, max_iter=EXACT_STEPS)
        counts = params.p * n_rows
    p = net_class_weights(params, settings.smoothing, frequencies, counts)
    return params, params.with_classes(p, frequencies)
