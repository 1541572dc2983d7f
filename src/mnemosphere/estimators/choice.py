"""How settings that are "auto" are decided: screen a few candidates well, then follow the widths.

screen   every geometry with one and with four memories per class, by the conditional objective; the best two
         with noise on the rows, and by the joint objective
path     for the best: four times as many memories, and again, while that helps
choice   the best of them; the joint objective unless the conditional one is better by half a standard error

Few rows are cross-fitted in five folds. Of many rows one part is held out; candidates are screened on some of
the others, and the path is followed on all of them, at last with more steps.

Everything that is learned (geometry, start, memories, weights) is learned from the rows that are fitted. The
choice does not depend on `random_state`: trials have a seed of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.text import Shown, Table
from mnemosphere.estimators.progress import Progress
from mnemosphere.fitted.model import trained_with
from mnemosphere.geometry import Center, Geometry, Unit
from mnemosphere.geometry.place import on_sphere
from mnemosphere.geometry.whitened import MAX_RANK
from mnemosphere.model import initialize
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import (
    LOG_T,
    label_frequencies,
    label_shares,
    mean_shares,
    net_class_weights,
    posterior_temperature,
    tempered_losses,
)
from mnemosphere.model.initialize import Start
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.model.votes import Mixture, Votes
from mnemosphere.rows import odds
from mnemosphere.rows.stored import StoredRows
from mnemosphere.training import few_labels, stacked
from mnemosphere.training.adam import Adam
from mnemosphere.training.conditional import STEPS, class_targets, start_conditional
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import EXACT_STEPS, start_joint, start_memories
from mnemosphere.training.sgd import SGD

__all__ = ["Candidate", "Choice", "Sample", "SearchTable", "Settings", "choose"]

Floats = NDArray[np.float64]
SOLVERS: dict[str, FixedPoint | SGD | Adam] = {
    "fixed-point": FixedPoint(), "sgd": SGD(), "adam": Adam()
}  # fmt: skip

PER_CLASS = (1, 4)  # memories in the screening; where one is best, four may not be, and the reverse
FACTOR = 4  # between widths of the path
ROWS_PER_MEMORY, LEAST_WIDEST = 15, 300  # rows for each at least, unless there are so few memories
PRICE = math.log(1.02) / math.log(4)  # four times the memories must lower the loss by 2%
NOISE = 0.5  # on rows, relative to their length: what suits images and noisy tables
TOP = 2  # geometries that go on: the third is hardly ever the best
ROWS, ROWS_PER_CLASS = 1500, 20  # fitted in the screening; up to so many, rows are cross-fitted
FOLDS, HELD = 5, 2000  # parts that are held out in turn; most rows of one
MOST_ROWS = 60_000  # fitted on the path
LONGER = 3  # times the steps, where that helps
MOST_LOST, LEAST_MOVED = 0.05, 0.05  # rows without direction; mean distance of two geometries
UNLIKE = 10.0  # spreads of features that are further apart are those of unlike units
STACKED = 1 << 21  # rows × memories of problems that are trained side by side

# Columns of a printed table.
_COLUMNS = {
    "normalize": "geometry", "n_clusters": "clusters", "n_memories": "memories",
    "memories_per_cluster": "memories each", "objective": "objective", "noise": "noise",
    "longer": "steps", "unlabeled": "unlabeled rows", "log_loss": "held-out log-loss",
    "agreement": "agreement", "error": "±", "chosen": "chosen",
}  # fmt: skip


class SearchTable(Shown, list[dict[str, Any]]):
    """The trials of a search; prints as a table of those on most rows, best first."""

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """The table; columns that say nothing are left out."""
        last = [t for t in self if t.get("rows") == self[-1].get("rows")]
        last.sort(key=lambda t: float(t.get("log_loss", -t.get("agreement", 0.0))))
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

    normalize: str
    n_memories: int
    objective: str  # "joint" or "conditional"
    noise: float = 0.0  # on rows, of the conditional objective
    longer: int = 1  # times the usual number of steps
    unlabeled: bool = False  # whether rows without label take part


@dataclass(frozen=True)
class Settings:
    """The settings of a classifier that the choice and the training read; None stands for "auto"."""

    n_memories: int | None
    objective: str  # "auto", "joint" or "conditional"
    growth: int | None
    varsigma: float | None
    beta: float | None  # None: learned
    normalize: str
    solver: FixedPoint | SGD | Adam | None
    search: str | None
    max_iter: int | None
    smoothing: float  # of labels, for the joint objective
    uniform_weight: float | None
    precision: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From the parameters of a `DAMClassifier`."""

        def known(name: str, auto: str = "auto") -> Any:
            return None if given[name] == auto else given[name]

        solver = given["solver"]
        return cls(
            known("n_memories"), given["objective"], given["growth"], known("varsigma"),
            known("beta", "learn"), given["normalize"],
            SOLVERS.get(solver) if isinstance(solver, str) else solver, given["search"],
            given["max_iter"], trained_with(given)["smoothing"], known("uniform_weight"),
            given["precision"],
        )  # fmt: skip

    def check(self, sample: Sample) -> None:
        """Raise ValueError if the settings contradict each other, or do not suit the rows."""
        conditional = "joint" not in self.objectives
        if conditional and self.growth is not None:
            raise ValueError(
                "growth splits memories of the joint likelihood: use objective='joint' or "
                "growth=None"
            )
        if isinstance(self.solver, FixedPoint if conditional else Adam):
            kind = "conditional" if conditional else "joint"
            raise ValueError(
                f"{type(self.solver).__name__} does not train the {kind} likelihood: use "
                "solver='auto', or another objective"
            )
        if (
            sample.is_sparse
            and self.normalize != "auto"
            and not Geometry.kinds[self.normalize].keeps_sparse
        ):
            raise ValueError(
                f"normalize={self.normalize!r} would fill sparse rows: pass normalize='unit' or "
                "dense rows"
            )
        noise = self.adam.noise
        if sample.is_sparse and not isinstance(noise, str) and noise > 0:
            raise ValueError("noise would make sparse rows dense: pass Adam(noise=0)")

    @property
    def adam(self) -> Adam:
        """The solver of the conditional likelihood."""
        return self.solver if isinstance(self.solver, Adam) else Adam()

    @property
    def objectives(self) -> tuple[str, ...]:
        """Those that may be chosen: a solver, or a tree of splits, belongs to one of them."""
        if self.objective != "auto":
            return (self.objective,)
        if isinstance(self.solver, Adam):
            return ("conditional",)
        if self.solver is not None or self.growth is not None:
            return ("joint",)
        return ("joint", "conditional")


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what held-out rows say of it."""

    candidate: Candidate
    expected: Evaluation | None = None  # None if nothing was evaluated
    trials: SearchTable = field(default_factory=SearchTable)

    @property
    def temperature(self) -> float:
        """That of the classes, from held-out rows."""
        return 1.0 if self.expected is None else self.expected.temperature


@dataclass(frozen=True)
class Sample:
    """Stored rows with label weights, to be put on the sphere in one way or another."""

    rows: StoredRows
    targets: Tensor  # (n, C+1) float64; zeros: a row without label
    weight: Tensor | None
    dtype: torch.dtype

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.rows.n_rows

    @property
    def n_classes(self) -> int:
        """C."""
        return self.targets.shape[1] - 1

    @cached_property
    def labeled(self) -> Tensor:
        """Which rows have a label, (n,)."""
        return self.targets.sum(1) > 0

    @property
    def is_sparse(self) -> bool:
        """Whether rows are stored sparse."""
        return isinstance(self.rows.values, SparseRows)

    def take(self, index: Tensor) -> Self:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[index]
        return replace(self, rows=self.rows.take(index), targets=self.targets[index], weight=weight)

    def cross_fitted(self, other: StoredRows) -> tuple[Self, StoredRows]:
        """The sample and other rows with log-odds in place of levels, learned from the sample."""
        rows, counts = odds.cross_fitted(self.rows, label_shares(self.targets), self.weight)
        return replace(self, rows=rows), odds.with_odds(other, counts)

    def geometry(self, kind: str) -> Geometry:
        """How rows are put on the sphere, learned from these."""
        return Geometry.kinds[kind].fit(self.rows, self.targets, self.weight)

    def on_sphere(self, geometry: Geometry) -> tuple[Batch, Tensor]:
        """(unit rows with their labels, which of them have no direction)."""
        x, lost = on_sphere(self.rows, geometry, self.dtype)
        weight = None if self.weight is None else self.weight.to(self.dtype)
        return Batch(x, self.targets.to(self.dtype), weight), lost


@dataclass(frozen=True)
class Evaluation:
    """Log-losses of one candidate on held-out rows."""

    losses: Floats  # (rows, temperatures)
    weight: Floats  # (rows,)

    @cached_property
    def _means(self) -> Floats:
        found: Floats = self.weight / self.weight.sum() @ self.losses
        return found

    @property
    def own(self) -> Floats:
        """The loss of each row at the best temperature."""
        found: Floats = self.losses[:, int(np.argmin(self._means))]
        return found

    @property
    def mean(self) -> float:
        """The mean loss at that temperature; of one class, rounding may take it below 0."""
        return max(0.0, float(self._means.min()))

    @property
    def error(self) -> float:
        """Its standard error."""
        return _mean_and_error(self.own, self.weight)[1]

    @property
    def temperature(self) -> float:
        """That of the classes."""
        return posterior_temperature(self.losses, self.weight)

    def exceeds(self, other: Evaluation) -> bool:
        """Whether it is worse by more than half a standard error of the difference, row by row."""
        mean, error = _mean_and_error(self.own - other.own, self.weight)
        return mean > error / 2


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
    seed: int
    placed: dict[str, tuple[Batch, Batch, Tensor]] = field(default_factory=dict)
    starts: dict[tuple[object, ...], Start] = field(default_factory=dict)

    def place(self, kind: str) -> tuple[Batch, Batch, Tensor]:
        """(fitted rows, held-out rows with a direction, which of those held out these are)."""
        if kind not in self.placed:
            geometry = self.fitted.geometry(kind)
            fitted, lost = self.fitted.on_sphere(geometry)
            held, without = self.held.on_sphere(geometry)
            some = (~without).nonzero()[:, 0]
            fitted = fitted.take(~lost) if bool(lost.any()) else fitted
            self.placed[kind] = fitted, held.take(some), some
        return self.placed[kind]

    def start(self, candidate: Candidate, fitted: Batch) -> Start:
        """The memories to train from, the same for both objectives."""
        key = candidate.normalize, candidate.n_memories, candidate.unlabeled
        if key not in self.starts:
            self.starts[key] = start_memories(
                fitted, min(candidate.n_memories, max(fitted.n_rows, self.fitted.n_classes)),
                own_labels=not candidate.unlabeled,
                generator=torch.Generator().manual_seed(self.seed),
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
        own, held = sample.take(fitted), sample.take(rolled[:n_held])
        if sample.rows.levels:
            own, rows = own.cross_fitted(held.rows)
            held = replace(held, rows=rows)
        found.append(Split(own, held, k))
    return found


def usable(sample: Sample) -> list[str]:
    """The geometries that make sense and leave hardly a row without direction, simplest first."""
    kinds = [*directed(sample.rows, sample.weight), "standard"]
    if not sample.is_sparse:
        kinds += ["whitened"]
        kinds += ["circles"] if sample.rows.n_features < MAX_RANK else []
    return kinds


def directed(rows: StoredRows, weight: Tensor | None) -> list[str]:
    """Those of "unit" and "center" that leave hardly a row without direction, and differ at all.

    None if features have unlike units: such a row has no direction worth the name.
    """
    found: dict[str, Tensor] = {}
    if not isinstance(rows.values, SparseRows):
        x = torch.cat([part for _, part in itertools.islice(rows.chunks(), 1)])
        spread = torch.where(x.isnan(), x.nanmean(0).nan_to_num(0.0), x).std(0, correction=0)
        spread = spread[spread > 0]
        if len(spread) and float(spread.quantile(0.9)) > UNLIKE * float(spread.median()):
            return []
    for geometry, least in ((Unit(), 2), (Center(), 3)):
        if rows.n_features >= least:
            x, lost = on_sphere(rows, geometry, torch.float64)
            mass = torch.ones_like(lost, dtype=torch.float64) if weight is None else weight
            others = found.values() if type(x) is Tensor else ()
            same = any(float((x - other).norm(dim=1).mean()) <= LEAST_MOVED for other in others)
            if not same and float(mass[lost].sum()) <= MOST_LOST * float(mass.sum()):
                found[geometry.name] = x
    return [*found]


class _Trials:
    """Candidates that were evaluated on the same rows."""

    def __init__(
        self, sample: Sample, settings: Settings, fitted: int, held: int, number: int,
        progress: Progress,
    ) -> None:  # fmt: skip
        self.settings, self.fitted, self.progress = settings, fitted, progress
        self.parts = splits(sample, fitted, held, number)
        self.found: dict[Candidate, Evaluation] = {}

    def run(self, stage: str, candidates: Sequence[Candidate]) -> None:
        """Evaluate those that are new."""
        new = [own for own in dict.fromkeys(candidates) if own not in self.found]
        found = evaluate(new, self.parts, self.settings, partial(self.progress.show, stage))
        self.found.update(zip(new, found, strict=True))

    def ranked(self, objective: str) -> list[Candidate]:
        """Those of an objective, best first."""
        return sorted((c for c in self.found if c.objective == objective), key=self.score)

    def score(self, own: Candidate) -> float:
        """Its loss, with a price on memories and steps."""
        return float(self.found[own].mean * (own.n_memories * own.longer) ** PRICE)

    def geometries(self, objective: str) -> list[str]:
        """Geometries of an objective, best first."""
        return list(dict.fromkeys(own.normalize for own in self.ranked(objective)))

    def follow(self, lines: Sequence[Candidate]) -> None:
        """Wider candidates, line by line, while that helps; in each round the better half goes on.

        The best line goes one further than it would, and the joint objective has a line of its own.
        """
        most = max(min(LEAST_WIDEST, 2 * self.fitted // 3), self.fitted // ROWS_PER_MEMORY)
        best = min(lines, key=self._best_of_line)
        lines = [own for own in lines if own == best or self._leads(own)]
        while lines:
            wider = [(own, min(FACTOR * own.n_memories, most)) for own in lines]
            lines = [replace(own, n_memories=k) for own, k in wider if 2 * k >= 3 * own.n_memories]
            self.run("trying widths", lines)
            lines = sorted(filter(self._leads, lines), key=self._best_of_line)
            joint = [own for own in lines if own.objective == "joint"]
            others = [own for own in lines if own.objective != "joint"]
            lines = joint + others[: -(-len(others) // 2)]

    def _best_of_line(self, line: Candidate) -> float:
        """The least score of candidates that differ in their memories alone."""
        alike = (own for own in self.found if replace(own, n_memories=line.n_memories) == line)
        return min(map(self.score, alike))

    def _leads(self, own: Candidate) -> bool:
        return self.score(own) <= self._best_of_line(own)

    def leaders(self, lines: Sequence[Candidate]) -> list[Candidate]:
        """The best line of each geometry; one of the joint objective if it is not clearly worse."""
        conditional = [own for own in lines if own.objective == "conditional"]
        conditional.sort(key=self._best_of_line)
        found = list({own.normalize: own for own in reversed(conditional)}.values())
        best = self.found[min(self.found, key=self.score)]
        near = (own for own in self.ranked("joint")[:1] if not self.found[own].exceeds(best))
        kinds = [own.normalize for own in near] if found else [own.normalize for own in lines]
        return [own for own in lines if own.objective == "joint" and own.normalize in kinds] + found

    def table(self, chosen: Candidate) -> Iterator[dict[str, Any]]:
        """The trials in plain values, best first."""
        for own, found in sorted(self.found.items(), key=lambda pair: pair[1].mean):
            yield {
                "rows": self.fitted, **vars(own), "log_loss": found.mean, "error": found.error,
                "chosen": own == chosen,
            }  # fmt: skip


def choose(sample: Sample, settings: Settings, progress: Progress) -> Choice:
    """Decide what is not given, and evaluate it on held-out rows.

    Without a search what is open is set: standard units (rows as they are if sparse), four memories
    per class, the conditional objective, no noise.
    """
    settings.check(sample)
    n_memories, noise, objectives = settings.n_memories, settings.adam.noise, settings.objectives
    n_labeled, n_classes = int(sample.labeled.sum()), sample.n_classes
    kinds = [settings.normalize]
    if settings.normalize == "auto":
        kinds = usable(sample.cross_fitted(sample.rows)[0] if sample.rows.levels else sample)
    held = min(max(1, n_labeled // FOLDS), HELD)
    number = min(FOLDS, n_labeled, max(1, FOLDS * ROWS // max(1, n_labeled)))
    whole = min(n_labeled - held, MOST_ROWS)
    first = min(whole, max(ROWS, ROWS_PER_CLASS * n_classes))
    most = max(n_classes, 2 * first // 3)
    widths = sorted({min(k * n_classes, most) for k in PER_CLASS})
    widths = widths if n_memories is None else [n_memories]
    noises = [0.0] if sample.is_sparse else [0.0, NOISE] if isinstance(noise, str) else [noise]
    if settings.search is None:
        kinds = [k for k in kinds if k == ("unit" if sample.is_sparse else "standard")] or kinds[:1]
        objectives, widths, noises = objectives[-1:], widths[-1:], noises[:1]
    trials = last = _Trials(sample, settings, first, held, number, progress)
    joint, conditional = ("joint" in objectives, "conditional" in objectives)
    # On circles, columns that depend on each other count twice in the joint likelihood.
    plain = [kind for kind in kinds if kind != "circles"] or kinds
    screen = [Candidate(kind, k, "conditional", noises[0]) for kind in kinds for k in widths]
    least = 2 if n_labeled == sample.n_rows else FOLDS
    if n_labeled < least * max(2, n_classes):  # nothing can be held out
        return Choice(_alone(plain[0] if joint else kinds[0], n_memories, objectives, sample))
    if conditional:
        trials.run("trying geometries", screen)
        plain = [kind for kind in trials.geometries("conditional") if kind in plain][:TOP] or plain
    if joint:
        screen = [Candidate(kind, k, "joint") for kind in plain for k in widths]
        trials.run("trying the joint objective", screen)
    lines = [Candidate(kind, widths[-1], "joint") for kind in trials.geometries("joint")[:1]]
    lines += [
        Candidate(kind, widths[-1], "conditional", own)
        for kind in trials.geometries("conditional")[:TOP] for own in noises
    ]  # fmt: skip
    if len({*trials.found, *lines}) > 1:
        screen = [replace(own, n_memories=k) for own in lines for k in widths]
        trials.run("trying noise", screen)
        if whole > 1.2 * first:
            last = _Trials(sample, settings, whole, held, number, progress)
            lines = trials.leaders(lines)
            screen = [replace(own, n_memories=k) for own in lines for k in widths]
            last.run("trying the best on more rows", screen)
        if n_memories is None:
            last.follow(lines)
        if last is not trials and conditional:
            longer = replace(last.ranked("conditional")[0], longer=LONGER)
            last.run("trying more steps", [longer])
    if joint and n_labeled < sample.n_rows:
        k = n_memories or min(sample.n_rows, max(ROWS, n_classes))
        own = [kind for kind in plain if kind != "whitened"] or ["standard"]
        screen = [Candidate(kind, k, "joint", unlabeled=True) for kind in own]
        last.run("trying rows without label", screen)
    ranked = [last.ranked(kind) for kind in ("joint", "conditional")]
    found = last.found
    best = min((own[0] for own in ranked if own), key=last.score)
    if ranked[0] and not found[ranked[0][0]].exceeds(found[best]):
        best = ranked[0][0]
    spread = [own for own in ranked[0] if own.unlabeled and not found[own].exceeds(found[best])]
    best = spread[0] if spread else best
    table = [*(trials.table(best) if last is not trials else ()), *last.table(best)]
    return Choice(best, found[best], SearchTable(table))


def _alone(
    kind: str, n_memories: int | None, objectives: Sequence[str], sample: Sample
) -> Candidate:
    """What is taken if no row can be held out."""
    unlabeled = "joint" in objectives and not bool(sample.labeled.all()) and kind != "whitened"
    width = min(sample.n_rows, ROWS) if unlabeled else sample.n_classes
    return Candidate(kind, n_memories or width, objectives[0], unlabeled=unlabeled)


class _Trial(NamedTuple):
    """A candidate on one split."""

    losses: Floats  # (held-out rows, temperatures), to be filled in
    directed: NDArray[np.int64]  # the held-out rows that have a direction
    candidate: Candidate
    params: Parameters
    fitted: Batch
    held: Batch


def evaluate(
    candidates: Sequence[Candidate], parts: Sequence[Split], settings: Settings,
    show: Callable[[float, float], None],
) -> list[Evaluation]:  # fmt: skip
    """Held-out losses of each candidate, all splits one after the other.

    show: is told how many trials are done, of how many.
    """
    trials: list[_Trial] = []
    losses: list[list[Floats]] = []
    varsigma: dict[Candidate, float] = {}  # of joint candidates, the same in all splits
    for part in parts:
        prior = part.fitted.targets[:, :-1].sum(0)
        chance = label_shares(part.held.targets) @ -(prior / prior.sum()).clamp_min(1e-9).log()
        # Rows without direction are predicted by the class frequencies.
        plain = np.tile(chance.double().cpu().numpy()[:, None], (1, len(LOG_T)))
        losses.append([plain.copy() for _ in candidates])
        for candidate, loss in zip(candidates, losses[-1], strict=True):
            fitted, held, some = part.place(candidate.normalize)
            if not candidate.unlabeled and not bool(part.fitted.labeled.all()):
                fitted = fitted.take(fitted.targets.sum(1) > 0)
            if len(some) and fitted.n_rows:
                given = varsigma.get(candidate, settings.varsigma)
                params = _begin(candidate, fitted, part.start(candidate, fitted), settings, given)
                varsigma[candidate] = params.varsigma
                trials.append(_Trial(loss, some.cpu().numpy(), candidate, params, fitted, held))
    done = 0
    for group in _groups(trials):
        for trial, loss in zip(group, _held_out_losses(group, settings), strict=True):
            trial.losses[trial.directed] = loss
        done += len(group)
        show(done, len(trials))
    weights = [
        np.ones(part.held.n_rows) if part.held.weight is None
        else part.held.weight.double().cpu().numpy()
        for part in parts
    ]  # fmt: skip
    weight = np.concatenate(weights)
    return [
        Evaluation(np.concatenate([own[k] for own in losses]), weight)
        for k in range(len(candidates))
    ]


def _begin(
    candidate: Candidate, fitted: Batch, start: Start, settings: Settings, varsigma: float | None,
) -> Parameters:  # fmt: skip
    if candidate.objective == "conditional":
        return start_conditional(start, fitted.label_mass(), beta=settings.beta)
    return start_joint(
        start, fitted, varsigma=varsigma, beta=settings.beta,
        uniform_weight=settings.uniform_weight,
    )  # fmt: skip


def _groups(trials: Sequence[_Trial]) -> list[list[_Trial]]:
    """Trials of one shape and objective, as many as are trained side by side."""
    by_shape: dict[tuple[object, ...], list[_Trial]] = {}
    for k, trial in enumerate(trials):
        alone = isinstance(trial.fitted.x, SparseRows) or trial.candidate.unlabeled
        key = (
            trial.candidate.objective, trial.candidate.longer, trial.params.w.shape,
            trial.fitted.n_rows, trial.held.n_rows, k if alone else -1,
        )  # fmt: skip
        by_shape.setdefault(key, []).append(trial)
    found = []
    for group in by_shape.values():
        size = max(1, STACKED // (group[0].fitted.n_rows * group[0].params.n_memories))
        found += [group[cut : cut + size] for cut in range(0, len(group), size)]
    return found


def _held_out_losses(group: Sequence[_Trial], settings: Settings) -> list[Floats]:
    """Train a group of trials and evaluate them: (held-out rows, temperatures) of each."""
    order = sorted(range(len(group)), key=lambda k: -group[k].candidate.noise)
    some = [group[k] for k in order]
    if len(group) == 1:
        params, rows, held = some[0].params, some[0].fitted, some[0].held
    else:
        params = Parameters.stack([trial.params for trial in some])
        rows = Batch.stack([trial.fitted for trial in some])
        held = Batch.stack([trial.held for trial in some])
    losses = tempered_losses(_train(params, rows, some, settings), held)
    several = losses.reshape(len(group), *losses.shape[-2:])
    return [several[order.index(k)] for k in range(len(group))]


def _train(
    params: Parameters, rows: Batch, trials: Sequence[_Trial], settings: Settings
) -> Mixture:
    """Parameters, or votes, from which classes are read, of one trial or of several stacked."""
    first, n_rows = trials[0].candidate, rows.x.shape[-2]
    learn_beta, generator = settings.beta is None, torch.Generator().manual_seed(0)
    frequencies = label_frequencies(rows.label_mass(), settings.smoothing)
    if first.objective == "conditional":
        solver = settings.adam.resolve(n_rows, learn_beta=learn_beta, device=rows.x.device)
        passes = solver.passes(n_rows, first.longer * STEPS // 2)
        params = stacked.conditional(
            params, replace(rows, targets=class_targets(rows.targets)),
            solver.scheduled(n_rows, passes), first.noise,
            noisy=sum(trial.candidate.noise > 0 for trial in trials), generator=generator,
        )  # fmt: skip
        p = net_class_weights(params, 0.0, frequencies)
        return Votes.of(params, p, share=mean_shares(params, p, rows, frequencies))
    if first.unlabeled:  # the weights of memories are held, as in the training of the model
        data = ArrayDataset(rows)
        settled = few_labels.settle(params, data, learn_beta=learn_beta, generator=generator)
        steps = FixedPoint(None, learn_beta=learn_beta, learn_weights=False)
        result = fit(settled.params, data, steps, max_iter=EXACT_STEPS, tol=steps.tol)
        params, counts = result.params, steps.label_counts(result.state, n_rows)
    else:
        params = stacked.joint(params, rows, learn_beta=learn_beta, max_iter=EXACT_STEPS)
        counts = params.p * n_rows
    p = net_class_weights(params, settings.smoothing, frequencies, counts)
    return params.replace(p=p)
