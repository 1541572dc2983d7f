"""How settings that are "auto" are decided: screen a few candidates, then follow the best ones.

screen     every geometry with one and with four memories per class, one cycle of training
more rows  the best of each geometry again, where rows are many
path       what is next to the two best lines: one more cycle, four times the memories, noise on the rows; then what
           is next to those, until nothing new comes up
choice     the best, with a price on memories and cycles

Few rows are cross-fitted, in up to ten folds. Of many rows one part is held out; candidates are screened on some
of the others, and the path is followed on all of them.

Everything that is learned (geometry, start, memories, weights) is learned from the rows that are fitted. Rows are
distinct: a copy is weight, so that no row is both fitted and held out. The choice does not depend on
`random_state`: trials have a seed of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.text import Shown, Table
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.settings import Sample, Settings
from mnemosphere.geometry import KINDS, Center, Circles, Product, Unit
from mnemosphere.geometry.base import learn, on_sphere
from mnemosphere.model import initialize
from mnemosphere.model.batch import Batch
from mnemosphere.model.initialize import Start
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import log_joint
from mnemosphere.model.soft_labels import (
    label_frequencies,
    label_shares,
    mean_shares,
    net_class_weights,
    posterior_temperature,
    tempered_losses,
)
from mnemosphere.rows.rows import Rows
from mnemosphere.training import few_labels, stacked
from mnemosphere.training.conditional import class_targets, start_conditional
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import EXACT_STEPS, start_joint, start_memories
from mnemosphere.training.sgd import SGD

Floats = NDArray[np.float64]
PER_CLASS = (1, 4)  # memories in the screening; where one is best, four may not be, and the reverse
FACTOR = 4  # between widths of the path
ROWS_PER_MEMORY, LEAST_WIDEST = 15, 300  # rows for each at least, unless there are so few memories
PRICE = math.log(1.02) / math.log(4)  # four times the memories must lower the loss by 2%
PRICE_OF_CYCLE = math.log(1.02)  # one more cycle, which takes as long as all before, by 2%, too
MOST_CYCLES = 6
NOISE = 0.5  # on rows, relative to their length: what suits images and noisy tables
LINES = 2  # that are followed at a time
ROWS, ROWS_PER_CLASS = 1500, 20  # fitted in the screening
FOLDS = (
    (5, 5000),
    (10, 2500),
)  # parts that are held out in turn, while so many rows are in all of them
FEWEST, HELD = 5, 2000  # of parts that the rows are cut into; most rows of one
MOST_ROWS = 60_000  # fitted on the path
MOST_LOST, LEAST_MOVED = 0.05, 0.05  # rows without direction; mean distance of two geometries
MOST_COORDINATES = 4096  # of columns on circles that are tried
SAME_LENGTH = 0.01  # spread of lengths, relative, of rows that are directions
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


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what held-out rows say of it."""

    candidate: Candidate
    temperature: float = 1.0  # of the classes
    trials: SearchTable = field(default_factory=SearchTable)
    # rows, the log of the votes for each class (n, C+1) of models that have not seen them, and their folds
    held: tuple[Sample, Tensor, tuple[Fold, ...]] | None = None
    interrupted: bool = False  # whether Ctrl-C ended the search


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
        """(fitted rows with a direction, held-out rows, which of those have none, so that any will do)."""
        if kind not in self.placed:
            own = self.fitted
            geometry = learn(kind, own.rows, own.targets, own.weight)
            fitted, without = own.on_sphere(geometry)
            held, lost = self.held.on_sphere(geometry)
            some = torch.eye(1, held.x.shape[1]).to(held.x)
            held = replace(held, x=torch.where(lost[:, None], some, held.x))
            self.placed[kind] = fitted.take(~without) if bool(without.any()) else fitted, held, lost
        return self.placed[kind]

    def chance(self) -> Floats:
        """The losses (rows, 1) of the held-out rows if all are answered by the class frequencies."""
        prior = self.fitted.label_mass()[:-1]
        log_prior = (prior / prior.sum()).clamp_min(1e-9).log()
        return (label_shares(self.held.targets) @ -log_prior).double().cpu().numpy()[:, None]

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


def are_directions(rows: Rows) -> bool:
    """Whether all rows have the same length, as vectors of an encoder do."""
    norms = torch.cat([part for _, part in itertools.islice(rows.chunks(), 1)]).norm(dim=1)
    return bool(norms.std(correction=0) <= SAME_LENGTH * norms.mean())


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
    plain: tuple[str, ...]  # geometries that only a clearly better one replaces

    @classmethod
    def of(cls, sample: Sample, settings: Settings) -> Self:
        """Of these rows; without a search, one candidate."""
        n_labeled, n_classes = int(sample.labeled.sum()), sample.n_classes
        kinds, conditional = [settings.geometry], settings.objective == "conditional"
        if settings.geometry == "auto":
            kinds = usable(sample.cross_fitted())
            if not conditional:  # there, columns that depend on each other count twice on circles
                kinds = [kind for kind in kinds if not kind.endswith("circles")] or kinds
        number = max(1, *(min(most, n_labeled, rows // max(1, n_labeled)) for most, rows in FOLDS))
        held = min(max(1, n_labeled // max(FEWEST, number)), HELD)
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
        searched = settings.search is not None
        return cls(
            kinds, settings.objective, widths, noises, first, whole, held, number,
            grows=searched and settings.n_memories is None,
            goes_on=searched and conditional and settings.max_iter is None
            and not isinstance(settings.solver, SGD),
            plain=("unit", "center") if are_directions(sample.rows) else (),
        )  # fmt: skip

    @property
    def screen(self) -> list[Candidate]:
        """What is tried first."""
        return [
            Candidate(kind, k, self.objective, self.noises[0])
            for kind in self.kinds for k in self.widths
        ]  # fmt: skip

    def around(self, own: Candidate, most: int) -> Iterator[Candidate]:
        """A candidate with one more cycle, with more memories, and with other noise."""
        if self.goes_on and own.cycles < MOST_CYCLES:
            yield replace(own, cycles=own.cycles + 1)
        wider = min(FACTOR * own.n_memories, most)
        if self.grows and 2 * wider >= 3 * own.n_memories:
            yield replace(own, n_memories=wider)
        yield from (replace(own, noise=noise) for noise in self.noises)


class _Trials:
    """Candidates that were evaluated on the same rows."""

    def __init__(
        self, sample: Sample, settings: Settings, scope: _Scope, fitted: int, progress: Progress
    ) -> None:
        self.settings, self.fitted, self.progress = settings, fitted, progress
        self.scope = scope
        self.parts = splits(sample, fitted, scope.held, scope.number)
        self.found: dict[Candidate, Evaluation] = {}

    def run(self, stage: str, candidates: Iterable[Candidate]) -> None:
        """Evaluate those that are new."""
        new = [own for own in dict.fromkeys(candidates) if own not in self.found]
        show = partial(self.progress.show, stage)
        self.found.update(evaluate(new, self.parts, self.settings, show))

    def score(self, own: Candidate) -> float:
        """Its loss, with a price on memories and steps."""
        price = PRICE * math.log(own.n_memories) + PRICE_OF_CYCLE * own.cycles
        return self.found[own].level * math.exp(price)

    def near(self) -> list[Candidate]:
        """Those that are not clearly worse than the best, best first."""
        best, *others = sorted(self.found, key=self.score)
        least = self.found[best]
        return [best, *(own for own in others if not self.found[own].exceeds(least))]

    def lines(self) -> list[Candidate]:
        """The best of each geometry, and of those with the fewest memories, unless clearly worse."""
        lead: dict[tuple[str, bool], Candidate] = {}
        least = min(own.n_memories for own in self.found)
        for own in self.near():
            lead.setdefault((own.geometry, own.n_memories == least), own)
        return [*lead.values()]

    def chosen(self) -> Candidate:
        """The best; one that uses all rows, or keeps directions, if it is not clearly worse."""
        return max(self.near(), key=lambda own: (own.unlabeled, own.geometry in self.scope.plain))

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
    if n_labeled < (FEWEST if some_unknown else 2) * max(2, sample.n_classes):
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
                last.run("trying the best on more rows", first.lines())
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
    """What is around the best lines, and again, until they all have been followed."""
    most = max(min(LEAST_WIDEST, 2 * trials.fitted // 3), trials.fitted // ROWS_PER_MEMORY)
    done: set[Candidate] = set()
    while front := [own for own in trials.lines()[:LINES] if own not in done]:
        done.update(front)
        trials.run("following the best", [new for own in front for new in scope.around(own, most)])


def _with_unlabeled(trials: _Trials, n_memories: int | None, sample: Sample) -> Iterator[Candidate]:
    """Candidates that learn from rows without label, of the best geometries."""
    k = n_memories or min(sample.rows.n_rows, max(ROWS, sample.n_classes))
    kinds = [own.geometry for own in sorted(trials.found, key=trials.score)]
    for kind in [own for own in dict.fromkeys(kinds) if own != "whitened"][:2] or ["standard"]:
        yield Candidate(kind, k, "joint", unlabeled=True)


def _alone(scope: _Scope, n_memories: int | None, sample: Sample) -> Candidate:
    """What is taken if no row can be held out."""
    kind = scope.kinds[0]
    unlabeled = scope.objective == "joint" and not bool(sample.labeled.all()) and kind != "whitened"
    width = min(sample.rows.n_rows, ROWS) if unlabeled else sample.n_classes
    return Candidate(kind, n_memories or width, scope.objective, unlabeled=unlabeled)


class _Trial(NamedTuple):
    """A candidate on one split, as it goes on from what was trained there."""

    part: Split
    candidate: Candidate
    params: Mixture  # after the cycles that are done
    done: int
    fitted: Batch
    held: Batch

    @classmethod
    def of(cls, part: Split, own: Candidate, settings: Settings, varsigma: float | None) -> _Trial:
        """varsigma: of the joint likelihood, the same on all splits; None: not known yet."""
        fitted, held, _ = part.place(own.geometry)
        if not own.unlabeled and not bool(part.fitted.labeled.all()):
            fitted = fitted.take(fitted.targets.sum(1) > 0)
        for done in range(own.cycles, 0, -1):
            if (before := replace(own, cycles=done)) in part.trained:
                return cls(part, own, part.trained[before], done, fitted, held)
        start = part.start(own, fitted)
        if own.objective == "conditional":
            params = start_conditional(start, fitted.label_mass(), beta=settings.beta)
        else:
            params = start_joint(
                start, fitted, varsigma=varsigma or settings.varsigma, beta=settings.beta,
                uniform_weight=settings.uniform_weight,
            )  # fmt: skip
        return cls(part, own, params, 0, fitted, held)


def evaluate(
    candidates: Sequence[Candidate], parts: Sequence[Split], settings: Settings,
    show: Callable[[float, float], None],
) -> Iterator[tuple[Candidate, Evaluation]]:  # fmt: skip
    """Each candidate on all splits, as soon as the last of them is done.

    show: is told how many trials are done, of how many.
    """
    trials: list[_Trial] = []
    varsigma: dict[Candidate, float] = {}
    for own, part in itertools.product(candidates, parts):
        trials.append(_Trial.of(part, own, settings, varsigma.get(own)))
        varsigma[own] = trials[-1].params.varsigma
    weight = np.concatenate([_weights(part.held) for part in parts])
    found: dict[Candidate, dict[int, tuple[Floats, Fold]]] = {own: {} for own in candidates}
    done = 0
    for group in _groups(trials):
        for trial, (losses, votes) in zip(group, _held_out_losses(group, settings), strict=True):
            several, part = found[trial.candidate], trial.part
            lost = part.place(trial.candidate.geometry)[2].cpu().numpy()
            if lost.any():
                losses[:, lost] = part.chance()[lost]
            several[part.turn] = losses, Fold(part.number, trial.held, trial.fitted, votes)
            if len(several) == len(parts):
                all_losses, folds = zip(*(several[k] for k in sorted(several)), strict=True)
                loss, odd = np.concatenate(all_losses, 1)
                yield trial.candidate, Evaluation.of(loss, odd, weight, folds)
        done += len(group)
        show(done, len(trials))


def _weights(held: Sample) -> Floats:
    """The weights of held-out rows."""
    if held.weight is None:
        return np.ones(held.rows.n_rows)
    found: Floats = held.weight.double().cpu().numpy()
    return found


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
