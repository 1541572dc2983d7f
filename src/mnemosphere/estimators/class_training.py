"""How a classifier is trained: search, then the joint or the conditional likelihood, then a guard.

rows as stored -> choose(...)  what is "auto"
-> place(...)   unit rows
-> train(...)   memories, class weights, temperature
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, Dataset
from mnemosphere.data.normalize import DENSE, SCALED, Normalizer
from mnemosphere.data.rows import StoredRows, in_order, merge_copies
from mnemosphere.estimators import search
from mnemosphere.estimators.crossfit import (
    JOINT_STEPS,
    NEGLIGIBLE,
    Candidate,
    Floats,
    Geometry,
    Sample,
    Settings,
    mean_and_error,
)
from mnemosphere.estimators.search import Choice, SearchTable
from mnemosphere.estimators.setup import SOLVERS, Trained, check_room, precision_of
from mnemosphere.estimators.start import start_joint, start_memories, usual_uniform_weight
from mnemosphere.fitted import trained_with
from mnemosphere.interpret.certify import warn_set_aside
from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import (
    best_temperature,
    label_log_loss,
    net_class_weights,
)
from mnemosphere.model.merge import gather, merge, merge_duplicates
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import inference
from mnemosphere.model.votes import Votes
from mnemosphere.training import few_labels
from mnemosphere.training.adam import PASSES, Adam
from mnemosphere.training.callbacks import Callback, PassRecord
from mnemosphere.training.conditional import class_targets, start_conditional
from mnemosphere.training.distributed import current
from mnemosphere.training.fit import FitResult, fit
from mnemosphere.training.fixed_point import FixedPoint, PassFixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.sgd import SGD

__all__ = ["ClassTraining"]

HELD_OUT, HELD_OUT_FROM = 2000, 20_000  # rows kept for calibration and guard, of so many and more
EXACT_ROWS = 10_000  # up to so many, joint models are trained by exact steps, as in the search
START_ROWS = 50_000  # rows that memories start on
# A conditional model gets a density of its own: few memories, trained to tell classes apart, do not
# describe the rows. As many rows for each memory of it, at most so many memories.
_ROWS_OF_DENSITY, _MOST_OF_DENSITY = 5, 500
_SGD_PASSES = 300
_LEAST_HELD = 20  # rows for early stopping of SGD: fewer tell nothing
_FEW_NUMBERS = 50_000  # of rows, memories and classes, up to which precision is double
_FEW_MEMORIES = 200  # as many are counted for that: few models of small data have more
_CLEARLY_WORSE = 4.0  # standard errors by which a trained model may miss what the search predicted
_SLACK = 0.01  # of a log-loss: rounding and a lucky search are no failure


@dataclass(frozen=True)
class _Settings:
    """The settings of a classifier that its training needs; None stands for "auto"."""

    n_memories: int | None
    objective: str  # "auto", "joint" or "conditional"
    growth: int | None
    varsigma: float | None
    beta: float | None
    normalize: str
    solver: FixedPoint | SGD | Adam | None
    max_iter: int | None
    label_smoothing: float
    uniform_weight: float | None
    search: int | str | None = "auto"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From the settings of a `DAMClassifier`."""

        def known(name: str, auto: str = "auto") -> Any:
            return None if given[name] == auto else given[name]

        solver = given["solver"]
        return cls(
            known("n_memories"), given["objective"], given["growth"], known("varsigma"),
            known("beta", "learn"), given["normalize"],
            SOLVERS.get(solver) if isinstance(solver, str) else solver, given["max_iter"],
            trained_with(given)["smoothing"], known("uniform_weight"),
            given["search"],
        )  # fmt: skip

    def check(self) -> None:
        """Raise ValueError if the settings contradict each other."""
        conditional = "joint" not in self.objectives
        if conditional and self.growth is not None:
            raise ValueError(
                "growth splits memories of the joint likelihood: use objective='joint' or "
                "growth=None"
            )
        if conditional and isinstance(self.solver, FixedPoint):
            raise ValueError(
                "the fixed point needs non-negative label weights, which the conditional "
                "objective has not: use solver='auto', Adam() or SGD()"
            )
        if not conditional and isinstance(self.solver, Adam):
            raise ValueError(
                "Adam trains the conditional likelihood: use objective='conditional', or "
                "solver='auto' for the joint one"
            )

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


class ClassTraining:
    """The training that the settings of a classifier ask for, on one set of rows."""

    normalizer: Normalizer  # set by `resolve`, as is the choice
    choice: Choice

    def __init__(self, settings: Mapping[str, Any], n_features: int, classes: NDArray[Any]) -> None:
        self.settings, self.classes_ = _Settings.of(settings), classes
        self._precision = settings["precision"]

    @property
    def trials(self) -> SearchTable:
        """The table of the search."""
        return self.choice.trials

    def precision_for(self, n_numbers: int) -> torch.dtype:
        """The precision of training, by how many numbers it works on."""
        return precision_of(self._precision, n_numbers, _FEW_NUMBERS)

    def resolve(
        self, stored: StoredRows, targets: Tensor, weight: Tensor | None, seed: int,
        *, streamed: bool = False,
    ) -> ArrayDataset:  # fmt: skip
        """Settle everything that is "auto"; return the rows on the sphere.

        streamed: they are the first batch of a stream, which the joint likelihood follows.
        """
        settings = replace(self.settings, objective="joint") if streamed else self.settings
        if stored.n_features < 2 and settings.normalize not in ("auto", *SCALED, "circles"):
            raise ValueError(
                f"X has {stored.n_features} feature(s) after normalize={settings.normalize!r}, the "
                "sphere needs 2: use normalize='standard'"
            )
        given = stored, weight
        # The search takes copies for what they are: rows that come again.
        each = in_order(stored, targets, weight)
        stored, targets, weight = merge_copies(stored, targets, weight)
        most = settings.n_memories or min(stored.n_rows, search.MAX_MEMORIES)
        # A pass has two products with the features and three with the classes.
        numbers = stored.n_numbers + 3 * targets.numel() // 2
        dtype = self.precision_for(max(numbers, stored.n_rows * min(most, _FEW_MEMORIES)))
        check_room(stored, most, targets.shape[1], dtype)
        with inference(type(stored.values)):
            self.choice = current().on_rank0(
                partial(_choose, *each, settings, seed=seed, dtype=dtype)
            )
        candidate = self.choice.candidate
        if settings.n_memories is None and candidate.n_memories > stored.n_rows:
            candidate = replace(candidate, n_memories=stored.n_rows)  # of distinct rows
            self.choice = replace(self.choice, candidate=candidate)
        labeled = targets.sum(1) > 0
        if not candidate.unlabeled and not bool(labeled.all()):
            kept = labeled.nonzero()[:, 0]
            stored, targets = stored.take(kept), targets[kept]
            weight = None if weight is None else weight[kept]
        geometry, rows, lost = Geometry.fit(candidate, Sample(stored, targets, weight, dtype))
        self.normalizer = geometry.normalizer
        self.normalizer.check_some_left(lost)
        if bool(lost.any()):
            warn_set_aside(self.normalizer, *given)
            rows = rows.take(~lost)
        if geometry.metric is not None:
            self.normalizer = self.normalizer.with_metric(geometry.metric)
        return ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)

    def train(self, dataset: Dataset, seed: int, callbacks: Sequence[Callback]) -> Trained:
        """Train what was chosen; if it is clearly worse than expected, the runner-up."""
        trained, self.choice = _guarded(self.choice, dataset, self.settings, seed, callbacks)
        return trained

    def first_parameters(self, dataset: ArrayDataset, seed: int) -> Parameters:
        """Where a stream starts."""
        settings, candidate = self.settings, self.choice.candidate
        w, labels = start_memories(
            dataset.rows, candidate.n_memories, own_labels=True,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        return start_joint(
            w, labels, dataset.rows, varsigma=settings.varsigma, sharing=candidate.sharing or 1.0,
            beta=settings.beta, uniform_weight=settings.uniform_weight, learned_weights=False,
        )  # fmt: skip


def _choose(
    rows: StoredRows, targets: Tensor, weight: Tensor | None, settings: _Settings, *, seed: int,
    dtype: torch.dtype,
) -> Choice:  # fmt: skip
    """Decide what is "auto" by a search on at most a few thousand of the rows."""
    settings.check()
    labeled = targets.sum(1) > 0
    n_labeled = int(labeled.sum())
    most = 2 * search.MOST_ROWS
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(rows.n_rows, generator=generator).to(targets.device)
    some = torch.cat([order[labeled[order]][:most], order[~labeled[order]][:most]]).sort().values
    whole = Sample(rows, targets, weight, dtype)
    sample = whole if len(some) == rows.n_rows else whole.take(some)
    if sample.is_sparse and settings.normalize in DENSE:
        raise ValueError(
            f"normalize={settings.normalize!r} would fill sparse rows: pass normalize='unit' or "
            "dense rows"
        )
    noise = settings.adam.noise
    if sample.is_sparse and not isinstance(noise, str) and noise > 0:
        raise ValueError("noise would make sparse rows dense: pass Adam(noise=0)")
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
    """What is taken without a search: a few memories, the plain geometry of the kind of rows."""
    kind = "unit" if sample.is_sparse else "standard"
    few = search.PER_CLASS[1] * sample.n_classes

    def distance(own: Candidate) -> tuple[bool, bool, int, float]:
        memories = abs(own.n_memories - few)
        return (own.normalize != kind, own.unlabeled, memories, -(own.sharing or 0.0))

    return min(options, key=distance)


def _guarded(
    choice: Choice, dataset: Dataset, settings: _Settings, seed: int,
    callbacks: Sequence[Callback],
) -> tuple[Trained, Choice]:  # fmt: skip
    """(what was trained, the choice that it is of): the runner-up if the first one fails."""
    generator = torch.Generator().manual_seed(seed)
    held: Dataset | None = None
    if dataset.n_rows > HELD_OUT_FROM and not dataset.has_unlabeled():
        dataset, held = dataset.split(HELD_OUT / dataset.n_rows, generator=generator)
    trained = _train(choice, dataset, held, settings, generator, callbacks, "")
    if choice.expected is None or choice.runner_up is None or trained.status == "interrupted":
        return trained, choice
    expected = choice.expected
    limit = expected.mean + _CLEARLY_WORSE * expected.error + _SLACK
    if _loss(trained, dataset if held is None else held) <= limit:
        return trained, choice
    other = choice.runner_up
    second = _train(other, dataset, held, settings, generator, callbacks, "runner-up.")
    assert other.expected is not None
    facts = search.facts_of(other.candidate, other.expected)
    return second, replace(other, trials=choice.trials.fallen_back(facts))


def _loss(trained: Trained, dataset: Dataset) -> float:
    """Log-loss of labeled rows, a thousand at most."""
    rows = dataset.sample(search.MOST_ROWS, generator=torch.Generator().manual_seed(0))
    rows = rows.take(rows.targets.sum(1) > 0)
    return rows.mean(label_log_loss(trained.votes, rows)(0.0)[0])


def _train(
    choice: Choice, dataset: Dataset, held: Dataset | None, settings: _Settings,
    generator: torch.Generator, callbacks: Sequence[Callback], stage: str,
) -> Trained:  # fmt: skip
    candidate = choice.candidate
    gradient = isinstance(settings.solver, SGD)
    if candidate.objective == "conditional" and not gradient:
        result, net = _conditional(candidate, dataset, settings, generator, callbacks, stage)
        lineage = None
    else:
        result, net, lineage = _joint(candidate, dataset, settings, generator, callbacks, stage)
    if result.status == "interrupted":
        temperature = 1.0
    elif held is not None:
        pairs = [(net, part.take(part.targets.sum(1) > 0)) for part in held.batches(None)]
        temperature = best_temperature(pairs)
    else:
        temperature = choice.temperature
    params = result.params
    if lineage is None:
        params, own = merge_duplicates(params, net.p)
        net = net if own is None else params.replace(p=own)
        # A few labels cannot tell which memories the other rows need.
        if settings.n_memories is None and not candidate.unlabeled:
            rows = (held or dataset).sample(search.MOST_ROWS, generator=generator)
            params, net = _with_fewer_memories(params, net, temperature, rows)
    joint = candidate.objective == "joint"
    return Trained(
        Votes.of(params, net.p, temperature),
        params if joint else _density(candidate, dataset, settings, generator),
        result.history, result.status, lineage,
    )  # fmt: skip


def _density(
    candidate: Candidate, dataset: Dataset, settings: _Settings, generator: torch.Generator
) -> Parameters:
    """A joint model of some of the rows, ς = 1: novelty is measured by it."""
    rows = dataset.sample(_ROWS_OF_DENSITY * _MOST_OF_DENSITY, generator=generator)
    n_memories = max(1, rows.n_rows // _ROWS_OF_DENSITY)
    joint = replace(candidate, objective="joint", n_memories=n_memories, unlabeled=False)
    plain = replace(settings, varsigma=1.0, beta=None, growth=None, solver=None, max_iter=None)
    return _joint(joint, ArrayDataset(rows), plain, generator, (), "")[0].params


def _with_fewer_memories(
    params: Parameters, net: Parameters, temperature: float, rows: Batch
) -> tuple[Parameters, Parameters]:
    """Both with memories merged, half of them at a time, while the rows are predicted as well.

    As well: the mean log-loss is within one standard error of what it was, row by row. params: as
    trained; net: with the weights that classes are read from, at that temperature.
    """
    rows = rows.take(rows.targets.sum(1) > 0)
    reading = net  # merged by the joint likelihood; predictions are read at the temperature
    weight = (
        rows.targets.new_ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    )

    def loss(params: Parameters) -> Floats:
        found: Floats = label_log_loss(params, rows)(math.log(temperature))[0].cpu().numpy()
        return found

    before, source = loss(reading), torch.arange(net.n_memories, device=net.w.device)
    while reading.n_memories >= 2 * (net.n_columns - 1):
        merged = merge(reading, rows, reading.n_memories // 2)
        worse, error = mean_and_error(loss(merged.params) - before, weight.double().cpu().numpy())
        if worse > max(NEGLIGIBLE, error):
            break
        reading, source = merged.params, merged.source[source]
    if reading.n_memories == net.n_memories:
        return params, net
    return gather(params, reading.w, source), gather(net, reading.w, source)


def _conditional(
    candidate: Candidate, dataset: Dataset, settings: _Settings,
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
    candidate: Candidate, dataset: Dataset, settings: _Settings,
    generator: torch.Generator, callbacks: Sequence[Callback], stage: str,
) -> tuple[FitResult, Parameters, Lineage | None]:  # fmt: skip
    """(the result of the fixed point or of SGD, its net class weights, the tree of splits)."""
    exact_steps = FixedPoint(None if dataset.n_rows <= EXACT_ROWS else "auto")
    given = settings.solver if isinstance(settings.solver, FixedPoint | SGD) else exact_steps
    solver = given.resolve(dataset.n_rows, learn_beta=settings.learn_beta, device=dataset.device)
    exact = solver.rows_per_step is None
    plain = settings.growth is None and isinstance(solver, FixedPoint) and not candidate.unlabeled
    if isinstance(solver, FixedPoint):
        learned = solver.learn_weights
        learned = plain and exact if learned is None else learned
        solver = replace(solver, learn_weights=learned)
        solver = PassFixedPoint.of(solver) if plain and not learned else solver
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
            max_iter=passes, tol=solver.tol, validation=validation, patience=patience,
            generator=generator, callbacks=callbacks, stage=stage,
        )  # fmt: skip
        result = FitResult(grown.params, grown.state, (*history, *grown.history), grown.status)
        counts = solver.label_counts(grown.state, dataset.n_rows)
        return result, _net(result, settings, counts), grown.lineage
    result = fit(
        params, dataset, solver, rule=rule, max_iter=passes, tol=solver.tol,
        validation=validation, patience=patience, generator=generator, callbacks=callbacks,
        stage=stage,
    )  # fmt: skip
    counts = solver.label_counts(result.state, dataset.n_rows)
    # Exact passes end early by default: further ones overfit, and the search took as many.
    early = exact and settings.max_iter is None and result.status == "max_iter"
    status = "stopped early" if early else result.status
    result = replace(result, history=(*history, *result.history), status=status)
    return result, _net(result, settings, counts), None


def _net(result: FitResult, settings: _Settings, counts: Tensor | None) -> Parameters:
    p = net_class_weights(result.params, settings.label_smoothing, counts)
    return result.params.replace(p=p)
