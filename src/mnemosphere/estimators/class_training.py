"""How a classifier is trained: search, then the joint or the conditional likelihood, then a guard.

rows as stored -> choose(...)  what is "auto"
-> place(...)   unit rows
-> train(...)   memories, class weights, temperature
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.data.dataset import Dataset
from mnemosphere.data.normalize import METRICS, Normalizer
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators import search
from mnemosphere.estimators.crossfit import JOINT_STEPS, Candidate, Geometry, Sample, Settings
from mnemosphere.estimators.search import Choice, SearchTable
from mnemosphere.estimators.start import start_joint, start_memories, usual_uniform_weight
from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import (
    at_temperature,
    best_temperature,
    label_log_loss,
    net_class_weights,
)
from mnemosphere.model.parameters import Parameters
from mnemosphere.training import few_labels
from mnemosphere.training.adam import PASSES, Adam
from mnemosphere.training.callbacks import Callback, PassRecord
from mnemosphere.training.conditional import class_targets, fit_density, start_conditional
from mnemosphere.training.fit import FitResult, fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.sgd import SGD

__all__ = ["ClassSettings", "Trained", "choose", "place", "train"]

HELD_OUT, HELD_OUT_FROM = 2000, 20_000  # rows kept for calibration and guard, of so many and more
START_ROWS = 50_000  # rows that memories start on
DENSITY_ROWS = 10_000  # rows that the density of a conditional model is fitted to
_SGD_PASSES = 300
_LEAST_HELD = 20  # rows for early stopping of SGD: fewer tell nothing
_SLACK = 0.01  # of a log-loss: rounding and a lucky search are no failure


@dataclass(frozen=True)
class ClassSettings:
    """The settings of a classifier that its training needs; None stands for "auto"."""

    n_memories: int | None
    objective: str  # "auto", "joint" or "conditional"
    growth: int | None
    varsigma: float | None
    beta: float | None
    normalize: str
    solver: FixedPoint | SGD | Adam | None
    max_iter: int | None
    tol: float
    label_smoothing: float
    uniform_weight: float | None
    search: int | str | None = "auto"

    @property
    def learn_beta(self) -> bool:
        """Whether β is trained."""
        return self.beta is None

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


class Trained(NamedTuple):
    """What a training ends with."""

    params: Parameters  # the density of the rows
    class_weights: Tensor  # (P+1, C+1) from which classes are read, net of smoothing
    temperature: float  # at which they are read
    history: tuple[PassRecord, ...]
    status: str
    lineage: Lineage | None = None

    @property
    def class_params(self) -> Parameters:
        """Parameters whose log_joint gives the probabilities of the classes."""
        p = self.class_weights
        net = self.params.replace(p=p, p_h=p.sum(1), p_q=p.sum(0))
        return at_temperature(net, self.temperature)


def choose(
    rows: StoredRows, targets: Tensor, weight: Tensor | None, settings: ClassSettings, *,
    seed: int, dtype: torch.dtype,
) -> Choice:  # fmt: skip
    """Decide what is "auto" by a search on at most a few thousand of the rows."""
    if isinstance(settings.objective, str) and settings.objective == "conditional":
        if settings.growth is not None:
            raise ValueError(
                "growth splits memories of the joint likelihood: use objective='joint' or "
                "growth=None"
            )
        if isinstance(settings.solver, FixedPoint):
            raise ValueError(
                "the fixed point needs non-negative label weights, which the conditional "
                "objective has not: use solver='auto', Adam() or SGD()"
            )
    labeled = targets.sum(1) > 0
    n_labeled = int(labeled.sum())
    most = search.MOST_FITTED + search.MOST_HELD
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(rows.n_rows, generator=generator).to(targets.device)
    some = torch.cat([order[labeled[order]][:most], order[~labeled[order]][:most]]).sort().values
    whole = Sample(rows, targets, weight, torch.float32)  # it only compares
    sample = whole if len(some) == rows.n_rows else whole.take(some)
    if sample.is_sparse and settings.normalize in METRICS:
        raise ValueError(
            f"normalize={settings.normalize!r} would fill sparse rows: pass normalize='unit' or "
            "dense rows"
        )
    noise = settings.adam.noise
    options = search.candidates(
        sample, n_labeled, normalize=settings.normalize, n_memories=settings.n_memories,
        objectives=settings.objectives, varsigma=settings.varsigma,
        noise=None if isinstance(noise, str) else noise,
    )  # fmt: skip
    if settings.search is None:
        options = [_plain(options, sample)]
    calibrated_later = rows.n_rows > HELD_OUT_FROM
    if len(options) == 1 and calibrated_later:
        return Choice(options[0], None, None, SearchTable())
    shared = Settings(
        settings.beta, settings.varsigma, settings.label_smoothing, settings.uniform_weight,
        settings.adam, seed,
    )  # fmt: skip
    limit = settings.search if isinstance(settings.search, int) else None
    return search.run(sample, options, shared, limit=limit)


def _plain(options: Sequence[Candidate], sample: Sample) -> Candidate:
    """What is taken without a search: many memories, the plain geometry of the kind of rows."""
    kind = "unit" if sample.is_sparse else "standard"

    def distance(own: Candidate) -> tuple[bool, bool, int, float]:
        return (own.normalize != kind, own.unlabeled, -own.n_memories, -(own.sharing or 0.0))

    return min(options, key=distance)


def place(
    candidate: Candidate, rows: StoredRows, targets: Tensor, weight: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Normalizer, Batch, Tensor]:  # fmt: skip
    """(the normalizer, unit rows, which of the rows have no direction)."""
    geometry, batch, lost = Geometry.fit(candidate, Sample(rows, targets, weight, dtype))
    normalizer = geometry.normalizer
    if geometry.metric is not None:
        normalizer = normalizer.with_metric(geometry.metric)
    return normalizer, batch, lost


def train(
    choice: Choice, dataset: Dataset, settings: ClassSettings, *, seed: int,
    callbacks: Sequence[Callback] = (),
) -> tuple[Trained, Choice]:  # fmt: skip
    """Train what was chosen; if it is clearly worse than expected, the runner-up."""
    generator = torch.Generator().manual_seed(seed)
    held: Dataset | None = None
    if dataset.n_rows > HELD_OUT_FROM and not dataset.has_unlabeled():
        dataset, held = dataset.split(HELD_OUT / dataset.n_rows, generator=generator)
    trained = _train(choice, dataset, held, settings, generator, callbacks, "")
    if choice.expected is None or choice.runner_up is None or trained.status == "interrupted":
        return trained, choice
    expected = choice.expected
    limit = expected.mean + search.CLEARLY_WORSE * expected.error + _SLACK
    if _loss(trained, dataset if held is None else held) <= limit:
        return trained, choice
    other = replace(choice, candidate=choice.runner_up, runner_up=None)
    second = _train(other, dataset, held, settings, generator, callbacks, "runner-up.")
    return second, replace(other, trials=search.SearchTable([*choice.trials, _guarded(choice)]))


def _guarded(choice: Choice) -> dict[str, object]:
    """The line of the table that says why the runner-up was trained."""
    last = dict(choice.trials[-1])
    return last | {"guard": "clearly worse than expected after training: the runner-up is used"}


def _loss(trained: Trained, dataset: Dataset) -> float:
    """Log-loss of labeled rows, a thousand at most."""
    rows = dataset.sample(search.MOST_HELD, generator=torch.Generator().manual_seed(0))
    rows = rows.take(rows.targets.sum(1) > 0)
    return rows.mean(label_log_loss(trained.class_params, rows)(0.0)[0])


def _train(
    choice: Choice, dataset: Dataset, held: Dataset | None, settings: ClassSettings,
    generator: torch.Generator, callbacks: Sequence[Callback], stage: str,
) -> Trained:  # fmt: skip
    candidate = choice.candidate
    gradient = isinstance(settings.solver, SGD)
    if candidate.objective == "conditional" and not gradient:
        result, net = _conditional(candidate, dataset, settings, generator, callbacks, stage)
        lineage = None
    else:
        result, net, lineage = _joint(candidate, dataset, settings, generator, callbacks, stage)
    trained = Trained(net, net.p, 1.0, result.history, result.status, lineage)
    if trained.status == "interrupted":
        temperature = 1.0
    elif held is not None:
        pairs = [(net, part.take(part.targets.sum(1) > 0)) for part in held.batches(None)]
        temperature = best_temperature(pairs)
    else:
        temperature = choice.temperature
    if candidate.objective == "joint" or gradient:
        return trained._replace(params=result.params, temperature=temperature)
    rows = dataset.sample(DENSITY_ROWS, generator=generator)
    uniform = settings.uniform_weight
    density = fit_density(
        result.params,
        rows,
        learn_beta=settings.learn_beta,
        uniform_weight=usual_uniform_weight(len(result.params.w)) if uniform is None else uniform,
    )
    # Classes are read at the slope that was trained, whatever the density has.
    ratio = float(density.beta_eff / result.params.beta_eff)
    return trained._replace(params=density, temperature=ratio * temperature)


def _conditional(
    candidate: Candidate, dataset: Dataset, settings: ClassSettings,
    generator: torch.Generator, callbacks: Sequence[Callback], stage: str,
) -> tuple[FitResult, Parameters]:  # fmt: skip
    """(the result of Adam, the same with the class weights that classes are read from)."""
    rows = dataset.sample(START_ROWS, generator=generator)
    params = start_conditional(
        *initialize.within_classes(
            rows.filled().x, rows.targets, candidate.n_memories, generator=generator
        ),
        beta=settings.beta,
    )
    n_rows = dataset.n_rows
    solver = settings.adam.resolve(n_rows, learn_beta=settings.learn_beta, device=dataset.device)
    passes = settings.max_iter or PASSES
    result = fit(
        params, dataset.with_targets(class_targets), solver.scheduled(n_rows, passes),
        rule=objectives.conditional, max_iter=passes, generator=generator, callbacks=callbacks,
        stage=stage, noise=SphereNoise(candidate.noise) if candidate.noise > 0 else None,
    )  # fmt: skip
    status = "converged" if result.status == "max_iter" else result.status  # steps have faded out
    net = result.params.replace(p=net_class_weights(result.params, 0.0))
    return replace(result, status=status), net


def _joint(
    candidate: Candidate, dataset: Dataset, settings: ClassSettings,
    generator: torch.Generator, callbacks: Sequence[Callback], stage: str,
) -> tuple[FitResult, Parameters, Lineage | None]:  # fmt: skip
    """(the result of the fixed point or of SGD, its net class weights, the tree of splits)."""
    given = settings.solver if isinstance(settings.solver, FixedPoint | SGD) else FixedPoint()
    solver = given.resolve(dataset.n_rows, learn_beta=settings.learn_beta, device=dataset.device)
    exact = solver.rows_per_step is None
    plain = settings.growth is None and isinstance(solver, FixedPoint) and not candidate.unlabeled
    if isinstance(solver, FixedPoint):
        learned = solver.learn_weights
        learned = plain and exact if learned is None else learned
        solver = replace(solver, learn_weights=learned, once_per_pass=plain and not learned)
    width = candidate.n_memories
    first = width if settings.growth is None else min(settings.growth, width)
    uniform = settings.uniform_weight
    uniform = usual_uniform_weight(width) if uniform is None else uniform
    rows = dataset.sample(START_ROWS, generator=generator)
    w, labels = start_memories(rows, first, own_labels=plain, generator=generator)
    params = start_joint(
        w, labels, rows, varsigma=settings.varsigma, sharing=candidate.sharing or 1.0,
        beta=settings.beta,
        uniform_weight=uniform * first / width,  # splitting leaves it alone: right at the end
        learned_weights=bool(getattr(solver, "learn_weights", False)), mass=dataset.label_mass(),
    )  # fmt: skip
    history: tuple[PassRecord, ...] = ()
    if candidate.unlabeled and dataset.has_unlabeled():
        settled = few_labels.settle(
            params, dataset, learn_beta=settings.learn_beta, generator=generator,
            callbacks=callbacks, stage=stage,
        )  # fmt: skip
        params, history = settled.params, settled.history
        if settled.status == "interrupted":
            return settled, _net(settled, settings, None), None
    rule = objectives.joint if candidate.objective == "joint" else objectives.conditional
    validation, patience = None, None
    passes, phase_iter = (JOINT_STEPS if exact else 6), 2
    if isinstance(solver, SGD):
        passes, phase_iter = _SGD_PASSES, 100
        if solver.validation_fraction * dataset.n_rows >= _LEAST_HELD:
            dataset, validation = dataset.split(solver.validation_fraction, generator=generator)
        patience = None if validation is None else solver.patience
    passes = settings.max_iter or passes
    if settings.growth is not None:
        grown = grow(
            params, dataset, solver, max_memories=width, rule=rule, phase_iter=phase_iter,
            max_iter=passes, tol=settings.tol, validation=validation, patience=patience,
            generator=generator, callbacks=callbacks, stage=stage,
        )  # fmt: skip
        result = FitResult(grown.params, grown.state, (*history, *grown.history), grown.status)
        counts = solver.label_counts(grown.state, dataset.n_rows)
        return result, _net(result, settings, counts), grown.lineage
    result = fit(
        params, dataset, solver, rule=rule, max_iter=passes, tol=settings.tol,
        validation=validation, patience=patience, generator=generator, callbacks=callbacks,
        stage=stage,
    )  # fmt: skip
    counts = solver.label_counts(result.state, dataset.n_rows)
    result = replace(result, history=(*history, *result.history))
    return result, _net(result, settings, counts), None


def _net(result: FitResult, settings: ClassSettings, counts: Tensor | None) -> Parameters:
    p = net_class_weights(result.params, settings.label_smoothing, counts)
    return result.params.replace(p=p)
