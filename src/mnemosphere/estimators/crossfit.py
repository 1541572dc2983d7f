"""Cross-fitting: candidates are trained on some rows and evaluated on others.

The search and the calibration both use it. Everything that is learned (normalization, metric,
start, memories, weights) is learned from the rows that are fitted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import METRICS, Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators.start import start_joint, start_memories
from mnemosphere.model import initialize, metric
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import (
    label_log_loss,
    label_shares,
    net_class_weights,
    pseudo_labels,
)
from mnemosphere.model.gaps import has_gaps
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.training import few_labels, stacked
from mnemosphere.training.adam import PASSES, Adam
from mnemosphere.training.conditional import class_targets, start_conditional
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint

Floats = NDArray[np.float64]

JOINT_STEPS = 10  # exact steps of a joint model: further ones would overfit
SOFTER = 0.5  # standard errors by which a softer temperature may be worse
NEGLIGIBLE = 0.002  # of a log-loss: what a simpler model or a softer temperature may cost at least
_TOGETHER = 1 << 21  # rows × memories of problems that are trained side by side
# Logarithms of the temperatures at which candidates are evaluated: their loss is smooth in between.
LOG_T = tuple(0.5 * k for k in range(-6, 11))


@dataclass(frozen=True)
class Candidate:
    """One setting of what the search decides."""

    normalize: str
    shrinkage: float | None  # of the metric, if the normalization has one
    n_memories: int
    objective: str  # "joint" or "conditional"
    sharing: float | None = None  # ς relative to the analytic one; None: ς is given, or not used
    noise: float = 0.0  # on rows, of the conditional objective
    unlabeled: bool = False  # whether rows without label take part


class Split(NamedTuple):
    """Numbers of the rows to fit and of those held out."""

    fitted: Tensor
    held: Tensor


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

    @functools.cached_property
    def labeled(self) -> Tensor:
        """Which rows have a label, (n,)."""
        return self.targets.sum(1) > 0

    @functools.cached_property
    def has_gaps(self) -> bool:
        """Whether a feature of some row is missing."""
        return any(has_gaps(x) for _, x in self.rows.chunks())

    @property
    def is_sparse(self) -> bool:
        """Whether rows are stored sparse."""
        return isinstance(self.rows.values, SparseRows)

    def take(self, index: Tensor) -> Self:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[index]
        return replace(self, rows=self.rows.take(index), targets=self.targets[index], weight=weight)

    def on_sphere(self, normalizer: Normalizer) -> tuple[Batch, Tensor]:
        """(unit rows with their labels, which of them have no direction)."""
        x, lost = on_sphere(self.rows, normalizer, self.dtype)
        weight = None if self.weight is None else self.weight.to(self.dtype)
        return Batch(x, self.targets.to(self.dtype), weight), lost


class Geometry(NamedTuple):
    """How rows are put on the sphere, learned from rows."""

    normalizer: Normalizer
    metric: Tensor | None

    @classmethod
    def fit(cls, candidate: Candidate, rows: Sample) -> tuple[Self, Batch, Tensor]:
        """(the geometry, the rows as it puts them on the sphere, which have no direction)."""
        normalizer = Normalizer.fit(candidate.normalize, rows.rows, rows.weight)
        batch, lost = rows.on_sphere(normalizer)
        if candidate.normalize not in METRICS:
            return cls(normalizer, None), batch, lost
        known = batch.take(~lost) if bool(lost.any()) else batch
        found = metric.start(
            known, candidate.shrinkage or 0.0, weighted=candidate.normalize == "weighted"
        )
        return cls(normalizer, found), metric.apply(found, batch), lost

    def place(self, rows: Sample) -> tuple[Batch, Tensor]:
        """(other rows in this geometry, which have no direction)."""
        batch, lost = rows.on_sphere(self.normalizer)
        return batch if self.metric is None else metric.apply(self.metric, batch), lost


@dataclass(frozen=True)
class Settings:
    """What all candidates share."""

    beta: float | None  # given, or None: learned
    varsigma: float | None  # given, or None
    smoothing: float  # of labels, for the joint objective
    uniform_weight: float | None
    adam: Adam
    seed: int


@dataclass(frozen=True)
class Evaluation:
    """Held-out log-losses of one candidate."""

    losses: Floats  # (rows, 2, temperatures): of the labels, and of labels spread over all classes
    weight: Floats  # (rows,)
    n_classes: int

    @functools.cached_property
    def _means(self) -> Floats:
        """Mean loss at each temperature, one row of each class added: see `pseudo_labels`."""
        plain, spread = np.tensordot(self.weight / self.weight.sum(), self.losses, 1)
        share = pseudo_labels(len(self.weight), self.n_classes)
        found: Floats = (1 - share) * plain + share * spread
        return found

    @property
    def best(self) -> int:
        """The temperature with the least mean loss."""
        return int(np.argmin(self._means))

    @property
    def own(self) -> Floats:
        """The loss of each row at that temperature."""
        found: Floats = self.losses[:, 0, self.best]
        return found

    @property
    def mean(self) -> float:
        """The mean loss at the best temperature; of one class, rounding may take it below 0."""
        return max(0.0, float(self.weight @ self.own / self.weight.sum()))

    @property
    def temperature(self) -> float:
        """The softest that is within half a standard error of the best; else the best itself.

        Without evidence for more, classes keep to their frequencies.
        """
        loss, k = self._means, self.best
        for j in range(len(LOG_T) - 1, k, -1):
            worse = self.losses[:, 0, j] - self.losses[:, 0, k]
            mean, error = mean_and_error(worse, self.weight)
            if mean <= max(NEGLIGIBLE, SOFTER * error):
                return math.exp(LOG_T[j])
        if not 0 < k < len(LOG_T) - 1:
            return math.exp(LOG_T[k])
        down, up = loss[k - 1] - loss[k], loss[k + 1] - loss[k]
        shift = 0.5 * (down - up) / (down + up) if down + up > 1e-12 else 0.0
        return math.exp(LOG_T[k] + shift * (LOG_T[k + 1] - LOG_T[k]))

    @property
    def error(self) -> float:
        """Its standard error."""
        return mean_and_error(self.own, self.weight)[1]


def mean_and_error(values: Floats, weight: Floats) -> tuple[float, float]:
    """The weighted mean, and its standard error."""
    share = weight / weight.sum()
    mean = float(share @ values)
    return mean, float(np.sqrt(np.sum((share * (values - mean)) ** 2)))


def splits(targets: Tensor, n_fitted: int, n_held: int, number: int, seed: int) -> list[Split]:
    """Disjoint held-out parts of the labeled rows, classes in proportion, and rows to fit.

    Rows without label are never held out; all of them take part in each fit.
    """
    order = initialize.class_by_class(targets, generator=torch.Generator().manual_seed(seed))
    labeled = targets.sum(1) > 0
    known, unknown = order[labeled[order]], order[~labeled[order]]
    found = []
    for k in range(number):
        rolled = known.roll(-k * n_held)
        fitted = rolled[n_held : n_held + n_fitted]
        found.append(Split(torch.cat([fitted, unknown]).sort().values, rolled[:n_held]))
    return found


class _Trial(NamedTuple):
    """A candidate on one split."""

    losses: Floats  # (held-out rows, 2, temperatures), to be filled in
    directed: NDArray[np.int64]  # the held-out rows that have a direction
    candidate: Candidate
    params: Parameters
    fitted: Batch
    held: Batch


def evaluate(
    sample: Sample, candidates: Sequence[Candidate], parts: Sequence[Split], settings: Settings
) -> list[Evaluation]:
    """Held-out losses of each candidate, all splits one after the other."""
    held = [sample.take(part.held) for part in parts]
    trials: list[_Trial] = []
    losses = []
    for number, (part, own) in enumerate(zip(parts, held, strict=True)):
        rows = sample.take(part.fitted)
        prior = rows.targets[:, :-1].sum(0)
        chance = label_shares(own.targets) @ -(prior / prior.sum()).clamp_min(1e-9).log()
        # Rows without direction are predicted by the class frequencies.
        blank = np.tile(chance.double().cpu().numpy()[:, None, None], (1, 2, len(LOG_T)))
        losses.append([blank.copy() for _ in candidates])
        trials += _trials(rows, own, candidates, losses[-1], settings, settings.seed + number)
    for group in _groups(trials):
        for trial, loss in zip(group, _held_out_losses(group, settings), strict=True):
            trial.losses[trial.directed] = loss
    weights = [
        np.ones(own.n_rows) if own.weight is None else own.weight.double().cpu().numpy()
        for own in held
    ]
    return [
        Evaluation(
            np.concatenate([own[k] for own in losses]), np.concatenate(weights), sample.n_classes
        )
        for k in range(len(candidates))
    ]


def _trials(
    rows: Sample, held: Sample, candidates: Sequence[Candidate], losses: list[Floats],
    settings: Settings, seed: int,
) -> Iterator[_Trial]:  # fmt: skip
    """One split as every candidate sees it, with memories where they start."""
    placed: dict[tuple[str, float | None], tuple[Batch, Batch, Tensor]] = {}
    starts: dict[tuple[object, ...], tuple[Tensor, Tensor | None]] = {}
    for candidate, loss in zip(candidates, losses, strict=True):
        key = candidate.normalize, candidate.shrinkage
        if key not in placed:
            geometry, fitted, lost = Geometry.fit(candidate, rows)
            batch, without = geometry.place(held)
            some = (~without).nonzero()[:, 0]
            fitted = fitted.take(~lost) if bool(lost.any()) else fitted
            placed[key] = fitted, batch.take(some), some
        fitted, batch, some = placed[key]
        if not candidate.unlabeled and not bool(rows.labeled.all()):
            fitted = fitted.take(fitted.targets.sum(1) > 0)
        if len(some) == 0 or fitted.n_rows == 0:
            continue
        begun = (*key, candidate.n_memories, candidate.unlabeled)
        if begun not in starts:  # the same for both objectives
            starts[begun] = _memories(candidate, fitted, seed)
        params = _begin(candidate, fitted, starts[begun], settings)
        yield _Trial(loss, some.cpu().numpy(), candidate, params, fitted, batch)


def _memories(candidate: Candidate, fitted: Batch, seed: int) -> tuple[Tensor, Tensor | None]:
    """Where memories start, and their labels."""
    most = max(fitted.n_rows, fitted.targets.shape[1] - 1)
    return start_memories(
        fitted, min(candidate.n_memories, most), own_labels=not candidate.unlabeled,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def _begin(
    candidate: Candidate, fitted: Batch, memories: tuple[Tensor, Tensor | None], settings: Settings
) -> Parameters:
    w, labels = memories
    if candidate.objective == "conditional":
        assert labels is not None
        return start_conditional(w, labels, beta=settings.beta)
    return start_joint(
        w, labels, fitted, varsigma=settings.varsigma, sharing=candidate.sharing or 1.0,
        beta=settings.beta, uniform_weight=settings.uniform_weight,
    )  # fmt: skip


def _groups(trials: Sequence[_Trial]) -> list[list[_Trial]]:
    """Trials of one shape and objective, as many as are trained side by side."""
    by_shape: dict[tuple[object, ...], list[_Trial]] = {}
    for k, trial in enumerate(trials):
        alone = isinstance(trial.fitted.x, SparseRows) or trial.candidate.unlabeled
        key = (
            trial.candidate.objective, trial.params.w.shape, trial.fitted.n_rows,
            trial.held.n_rows, k if alone else -1,
        )  # fmt: skip
        by_shape.setdefault(key, []).append(trial)
    found = []
    for group in by_shape.values():
        size = max(1, _TOGETHER // (group[0].fitted.n_rows * group[0].params.n_memories))
        found += [group[cut : cut + size] for cut in range(0, len(group), size)]
    return found


def _held_out_losses(group: Sequence[_Trial], settings: Settings) -> list[Floats]:
    """Train a group of trials and evaluate them: (held-out rows, 2, temperatures) of each."""
    order = sorted(range(len(group)), key=lambda k: -group[k].candidate.noise)
    some = [group[k] for k in order]
    if len(group) == 1:
        params, rows, held = some[0].params, some[0].fitted, some[0].held
    else:
        params = Parameters.stack([trial.params for trial in some])
        rows = Batch.stack([trial.fitted for trial in some])
        held = Batch.stack([trial.held for trial in some])
    read = label_log_loss(_train(params, rows, some, settings), held)
    losses = torch.stack([torch.stack(read(log_t), -1) for log_t in LOG_T], -1).cpu().numpy()
    several = losses.reshape(len(group), *losses.shape[-3:])
    return [several[order.index(k)] for k in range(len(group))]


def _train(
    params: Parameters, rows: Batch, trials: Sequence[_Trial], settings: Settings
) -> Parameters:
    """Parameters from which classes are read, of one trial or of several stacked."""
    first, n_rows = trials[0].candidate, rows.x.shape[-2]
    learn_beta, generator = settings.beta is None, torch.Generator().manual_seed(settings.seed)
    if first.objective == "conditional":
        solver = settings.adam.resolve(n_rows, learn_beta=learn_beta, device=rows.x.device)
        params = stacked.conditional(
            params, replace(rows, targets=class_targets(rows.targets)),
            solver.scheduled(n_rows, PASSES), first.noise,
            noisy=sum(trial.candidate.noise > 0 for trial in trials), generator=generator,
        )  # fmt: skip
        return params.replace(p=net_class_weights(params, 0.0))
    if first.unlabeled:  # the weights of memories are held, as in the training of the model
        data = ArrayDataset(rows)
        settled = few_labels.settle(params, data, learn_beta=learn_beta, generator=generator)
        steps = FixedPoint(None, learn_beta=learn_beta, learn_weights=False)
        result = fit(settled.params, data, steps, max_iter=JOINT_STEPS, tol=steps.tol)
        params, counts = result.params, steps.label_counts(result.state, n_rows)
    else:
        params = stacked.joint(params, rows, learn_beta=learn_beta, max_iter=JOINT_STEPS)
        counts = params.p * n_rows
    return params.replace(p=net_class_weights(params, settings.smoothing, counts))
