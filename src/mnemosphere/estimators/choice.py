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
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.estimators.progress import Progress, SearchTable
from mnemosphere.estimators.settings import Sample, Settings
from mnemosphere.geometry import KINDS, Center, Circles, Product, Unit
from mnemosphere.geometry.base import check_some_left, learn, on_sphere
from mnemosphere.model import initialize
from mnemosphere.model.batch import Batch
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
from mnemosphere.training import stacked
from mnemosphere.training.conditional import start_conditional
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import EXACT_STEPS, start_joint, start_memories
from mnemosphere.training.sgd import SGD
from mnemosphere.training.train import Spec, train

Floats = NDArray[np.float64]
PER_CLASS = (1, 4)  # memories in the screening; where one is best, four may not be, and the reverse
FACTOR = 4  # between widths of the path
ROWS_PER_MEMORY, LEAST_WIDEST = 15, 300  # rows for each at least, unless there are so few memories
PRICE = math.log(1.07) / math.log(4)  # four times the memories must lower the loss by 7%
PRICE_OF_CYCLE = math.log(1.02)  # one more cycle, which takes as long as all before, by 2%
MOST_CYCLES = 6
NOISE = 0.5  # on rows, relative to their length: what suits images and noisy tables
LINES = 2  # that are followed at a time
ROWS, ROWS_PER_CLASS = 1500, 20  # fitted in the screening
FOLDS = ((5, 5000), (10, 2500))  # parts that are held out in turn, while so many rows are in all
FEWEST, HELD = 5, 2000  # of parts that the rows are cut into; most rows of one
MOST_ROWS = 60_000  # fitted on the path
MOST_LOST, LEAST_MOVED = 0.05, 0.05  # rows without direction; mean distance of two geometries
MOST_COORDINATES = 4096  # of columns on circles that are tried
SAME_LENGTH = 0.01  # spread of lengths, relative, of rows that are directions
UNLIKE = 10.0  # spreads of features that are further apart are those of unlike units
STACKED = 1 << 21  # rows × memories of problems that are trained side by side
PADDED = 1 << 20  # rows × memories × features, up to which they need not be of one shape


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what held-out rows say of it."""

    spec: Spec
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


class Evaluation:
    """Log-losses of one candidate on held-out rows."""

    def __init__(
        self, losses: Floats, odd: Floats, weight: Floats, folds: tuple[Fold, ...]
    ) -> None:
        """From the losses of rows with their own labels, and with labels that have nothing to do with them.

        n rows without a mistake do not say that there is none: one more is counted, which is a held-out row
        with a class drawn by the class frequencies. It costs those most that are the most certain.
        """
        n_rows, share = float(weight.sum() ** 2 / (weight @ weight)), weight / weight.sum()
        every = share @ (n_rows * losses + odd) / (n_rows + 1)
        best = int(np.argmin(every))
        self.weight, self.folds = weight, folds
        self.own = losses[:, best]  # the loss of each row at the best temperature
        mean, self.error = _mean_and_error(self.own, weight)
        # Of one class, rounding may take the mean below 0, with one more row or without.
        self.mean, self.level = max(0.0, mean), max(0.0, float(every[best]))
        self.temperature = posterior_temperature(losses, weight)  # of the classes

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
    # What trials begin with, after no cycle and without noise, and what they have trained.
    known: dict[Spec, Mixture] = field(default_factory=dict)

    def place(self, kind: str) -> tuple[Batch, Batch, Tensor]:
        """(fitted rows with a direction, held-out rows, which of those have none, so that any will do)."""
        if kind not in self.placed:
            own = self.fitted
            geometry = learn(kind, own.rows, own.targets, own.weight)
            fitted, without = own.on_sphere(geometry)
            check_some_left(geometry, without)
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

    def trial(self, own: Spec, settings: Settings, varsigma: float | None) -> _Trial:
        """A candidate, as it goes on from what is known. varsigma: of the other splits; None: not known yet."""
        fitted, held, _ = self.place(own.geometry)
        if not own.unlabeled and not bool(self.fitted.labeled.all()):
            fitted = fitted.take(fitted.targets.sum(1) > 0)
        for done in range(own.cycles - 1, 0, -1):
            if (before := replace(own, cycles=done)) in self.known:
                return _Trial(self, own, self.known[before], done, fitted, held)
        first = replace(own, cycles=0, noise=0.0)
        if first not in self.known:
            start = start_memories(
                fitted, min(own.n_memories, max(fitted.n_rows, self.fitted.n_classes)),
                own_labels=not own.unlabeled,
                generator=torch.Generator().manual_seed(self.turn),
            )  # fmt: skip
            if own.objective == "conditional":
                params = start_conditional(start, fitted.label_mass(), beta=settings.beta)
            else:
                params = start_joint(
                    start, fitted, varsigma=varsigma or settings.varsigma, beta=settings.beta,
                    uniform_weight=settings.uniform_weight,
                )  # fmt: skip
            self.known[first] = params
        return _Trial(self, own, self.known[first], 0, fitted, held)


class _Trial(NamedTuple):
    """A candidate on one split."""

    part: Split
    spec: Spec
    params: Mixture  # after the cycles that are done
    done: int
    fitted: Batch
    held: Batch


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
    least, most = Circles.least_and_most(n)
    if most > MOST_COORDINATES >= least:
        most = Circles.fit(sample.rows).n_coordinates(n)
    return [*kinds, "circles"] if most <= MOST_COORDINATES else kinds


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
            mass = lost.new_ones(len(lost)).double() if weight is None else weight
            moved = (float((x - other).norm(dim=1).mean()) for other in found.values())
            same = any(far <= LEAST_MOVED for far in moved)
            if not same and float(mass[lost].sum()) <= MOST_LOST * float(mass.sum()):
                found[geometry.name] = x
    return [*found]


class _Scope:
    """What is open, and on how many rows it is tried."""

    def __init__(self, sample: Sample, settings: Settings) -> None:
        """Of these rows; without a search, one candidate."""
        n_labeled, n_classes = int(sample.labeled.sum()), sample.n_classes
        kinds, conditional = [settings.geometry], settings.objective == "conditional"
        if settings.geometry == "auto":
            kinds = usable(sample.cross_fitted())
            if not conditional:  # there, columns that depend on each other count twice on circles
                kinds = [kind for kind in kinds if not kind.endswith("circles")] or kinds
        parts = (min(most, n_labeled, rows // max(1, n_labeled)) for most, rows in FOLDS)
        self.number = max(1, *parts)  # of parts that are held out in turn
        self.held = min(max(1, n_labeled // max(FEWEST, self.number)), HELD)  # rows of each
        self.whole = min(n_labeled - self.held, MOST_ROWS)  # rows fitted on the path
        self.first = min(self.whole, max(ROWS, ROWS_PER_CLASS * n_classes))  # in the screening
        most = max(n_classes, 2 * self.first // 3)
        widths = sorted({min(k * n_classes, most) for k in PER_CLASS})
        widths = widths if settings.n_memories is None else [settings.n_memories]
        noise = settings.adam.noise if conditional else 0.0
        self.noises = [0.0, NOISE] if isinstance(noise, str) else [noise]
        # Whether there may be more memories, and more cycles.
        searched, by_adam = settings.search is not None, not isinstance(settings.solver, SGD)
        self.grows = searched and settings.n_memories is None
        self.goes_on = searched and conditional and settings.max_iter is None and by_adam
        if not searched:
            kinds = [kind for kind in kinds if kind == "standard"] or kinds[:1]
            widths, self.noises = widths[-1:], self.noises[:1]
        self.screen = [
            Spec(kind, k, settings.objective, self.noises[0]) for kind in kinds for k in widths
        ]
        # Geometries that only a clearly better one replaces.
        self.plain = ("unit", "center") if are_directions(sample.rows) else ()


class _Trials:
    """Candidates that were evaluated on the same rows."""

    def __init__(
        self, sample: Sample, settings: Settings, scope: _Scope, fitted: int, progress: Progress
    ) -> None:
        self.sample, self.settings, self.scope = sample, settings, scope
        self.fitted, self.progress = fitted, progress
        self.parts = splits(sample, fitted, scope.held, scope.number)
        self.found: dict[Spec, Evaluation] = {}

    def run(self, stage: str, candidates: Iterable[Spec]) -> None:
        """Evaluate those that are new."""
        new = [own for own in dict.fromkeys(candidates) if own not in self.found]
        show = partial(self.progress.show, stage)
        self.found.update(evaluate(new, self.parts, self.settings, show))

    def score(self, own: Spec) -> float:
        """Its loss, with a price on memories and steps."""
        price = PRICE * math.log(own.n_memories) + PRICE_OF_CYCLE * own.cycles
        return self.found[own].level * math.exp(price)

    def near(self) -> list[Spec]:
        """Those that are not clearly worse than the best, best first."""
        best, *others = sorted(self.found, key=self.score)
        least = self.found[best]
        return [best, *(own for own in others if not self.found[own].exceeds(least))]

    def lines(self) -> list[Spec]:
        """The best of each geometry, and of those with the fewest memories, unless clearly worse."""
        lead: dict[tuple[str, bool], Spec] = {}
        least = min(own.n_memories for own in self.found)
        for own in self.near():
            lead.setdefault((own.geometry, own.n_memories == least), own)
        return [*lead.values()]

    def around(self, own: Spec) -> Iterator[Spec]:
        """A candidate with one more cycle, with more memories, and with other noise."""
        most = max(min(LEAST_WIDEST, 2 * self.fitted // 3), self.fitted // ROWS_PER_MEMORY)
        if self.scope.goes_on and own.cycles < MOST_CYCLES:
            yield replace(own, cycles=own.cycles + 1)
        wider = min(FACTOR * own.n_memories, most)
        if self.scope.grows and 2 * wider >= 3 * own.n_memories:
            yield replace(own, n_memories=wider)
        yield from (replace(own, noise=noise) for noise in self.scope.noises)

    def follow(self) -> None:
        """What is around the best lines, and again, until they all have been followed."""
        done: set[Spec] = set()
        while front := [own for own in self.lines()[:LINES] if own not in done]:
            done.update(front)
            self.run("following the best", [new for own in front for new in self.around(own)])

    def with_unlabeled(self) -> Iterator[Spec]:
        """Candidates that learn from rows without label, of the best geometries."""
        sample = self.sample
        k = self.settings.n_memories or min(sample.rows.n_rows, max(ROWS, sample.n_classes))
        kinds = dict.fromkeys(own.geometry for own in sorted(self.found, key=self.score))
        for kind in [own for own in kinds if own != "whitened"][:2] or ["standard"]:
            yield Spec(kind, k, "joint", unlabeled=True)

    def chosen(self) -> Spec:
        """The best; one that uses all rows, or keeps directions, if it is not clearly worse."""
        return max(self.near(), key=lambda own: (own.unlabeled, own.geometry in self.scope.plain))

    def table(self, chosen: Spec) -> Iterator[dict[str, Any]]:
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
    scope, n_labeled = _Scope(sample, settings), int(sample.labeled.sum())
    few_labels = n_labeled < sample.rows.n_rows and settings.objective == "joint"
    enough = FEWEST if n_labeled < sample.rows.n_rows else 2
    if n_labeled < enough * max(2, sample.n_classes):  # nothing can be held out
        kind = scope.screen[0].geometry
        few_labels = few_labels and kind != "whitened"
        width = min(sample.rows.n_rows, ROWS) if few_labels else sample.n_classes
        width = settings.n_memories or width
        return Choice(Spec(kind, width, settings.objective, unlabeled=few_labels))
    first = last = _Trials(sample, settings, scope, scope.first, progress)
    several, interrupted = len(scope.screen) > 1, False
    try:
        first.run("trying geometries" if several else "holding rows out", scope.screen)
        if settings.search is not None:
            if scope.whole > 1.2 * scope.first and (scope.grows or several):
                last = _Trials(sample, settings, scope, scope.whole, progress)
                last.run("trying the best on more rows", first.lines())
            last.follow()
        if few_labels:
            last.run("trying rows without label", last.with_unlabeled())
    except KeyboardInterrupt:
        last, interrupted = last if last.found else first, True
        if not last.found:
            raise
    best = last.chosen()
    table = [*(first.table(best) if last is not first else ()), *last.table(best)]
    places, said, expected = *last.found[best].held_out(), last.found[best]
    held = sample.cross_fitted().take(places), said, expected.folds
    return Choice(best, expected.temperature, SearchTable(table), held, interrupted)


def evaluate(
    candidates: Sequence[Spec], parts: Sequence[Split], settings: Settings,
    show: Callable[[float, float], None],
) -> Iterator[tuple[Spec, Evaluation]]:  # fmt: skip
    """Each candidate on all splits, as soon as the last of them is done.

    show: is told how many trials are done, of how many.
    """
    trials: list[_Trial] = []
    varsigma: dict[Spec, float] = {}
    for spec, part in itertools.product(candidates, parts):
        trials.append(part.trial(spec, settings, varsigma.get(spec)))
        varsigma[spec] = trials[-1].params.varsigma
    weights = [part.held.weight for part in parts]
    weight = np.concatenate([
        np.ones(len(part.number)) if each is None else each.double().cpu().numpy()
        for part, each in zip(parts, weights, strict=True)
    ])  # fmt: skip
    found: dict[Spec, dict[int, tuple[Floats, Fold]]] = {spec: {} for spec in candidates}
    done = 0
    for group in _groups(trials):
        for trial, told in zip(group, _held_out_losses(group, settings), strict=True):
            several = found[trial.spec]
            several[trial.part.turn] = told
            if len(several) == len(parts):
                losses, folds = zip(*(several[k] for k in sorted(several)), strict=True)
                own, odd = np.concatenate(losses, 1)
                yield trial.spec, Evaluation(own, odd, weight, folds)
        done += len(group)
        show(done, len(trials))


def _groups(trials: Sequence[_Trial]) -> Iterator[list[_Trial]]:
    """Trials of one objective, as many as are trained side by side; large ones of one shape."""
    by_shape: dict[tuple[object, ...], list[_Trial]] = {}
    for k, (_, own, params, done, fitted, held) in enumerate(trials):
        n_memories, n = params.w.shape
        padded = own.objective == "conditional" and fitted.n_rows * n_memories * n <= PADDED
        key = (
            own.objective, own.noise, own.cycles, done, fitted.n_rows, held.n_rows, padded,
            n if own.noise > 0 or not padded else 0, 0 if padded else n_memories,
            k if own.unlabeled else -1,
        )  # fmt: skip
        by_shape.setdefault(key, []).append(trials[k])
    for group in by_shape.values():
        widest = max(trial.params.n_memories for trial in group)
        size = max(1, STACKED // (group[0].fitted.n_rows * widest))
        yield from (group[cut : cut + size] for cut in range(0, len(group), size))


def _held_out_losses(group: Sequence[_Trial], settings: Settings) -> Iterator[tuple[Floats, Fold]]:
    """Train a group of trials and evaluate them: losses (2, held-out rows, temperatures), and votes."""
    parts, specs, starts, _, fitted, held = zip(*group, strict=True)
    params, rows, unseen = stacked.stack(starts, fitted, held)
    params, votes = _train(params, rows, group[0], settings)
    losses = np.stack(tempered_losses(votes, unseen))
    losses = losses.reshape(2, len(group), *losses.shape[-2:])
    trained, alone = params.unstacked(), votes.unstacked()
    for k, (part, own, start) in enumerate(zip(parts, specs, starts, strict=True)):
        if own.objective == "conditional":
            part.known[own] = _cut(trained[k], start)
        lost = part.place(own.geometry)[2].cpu().numpy()
        losses[:, k, lost] = part.chance()[lost]
        fold = Fold(part.number, held[k], fitted[k], _cut(alone[k], start))
        yield losses[:, k], fold


def _cut(params: Mixture, like: Mixture) -> Mixture:
    """Without the memories and coordinates that `stack` has added."""
    n_memories, n = like.w.shape
    p, share = params.p[: n_memories + 1], params.p_h[: n_memories + 1]
    return params.replace(w=params.w[:n_memories, :n], p=p, p_h=share)


def _train(
    params: Mixture, rows: Batch, first: _Trial, settings: Settings
) -> tuple[Mixture, Mixture]:
    """(the parameters, the votes) of one trial, or of several stacked, of which one is `first`."""
    own, beta = first.spec, settings.beta
    conditional = own.objective == "conditional"
    frequencies = label_frequencies(rows.label_mass(), settings.smoothing)
    if conditional or own.unlabeled:
        run = train(
            ArrayDataset(rows.filled() if conditional else rows), own, beta=beta,
            solver=settings.adam if conditional else FixedPoint(None), start=params,
            done=first.done, generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        if run.status == "interrupted":
            raise KeyboardInterrupt
        params, counts = run.params, run.counts
    else:
        params = stacked.joint(params, rows, learn_beta=beta is None, max_iter=EXACT_STEPS)
        counts = params.p * rows.n_rows
    smoothing = 0.0 if conditional else settings.smoothing
    p = net_class_weights(params, smoothing, frequencies, counts)
    share = mean_shares(params, p, rows, frequencies) if conditional else None
    return params, params.with_classes(p, frequencies, share)
