"""One batch of a stream, with classes that may be new."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.warnings import warn_user
from mnemosphere.estimators.choice import Settings
from mnemosphere.estimators.class_training import prepare
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.setup import kept_settings
from mnemosphere.fitted.model import FittedModel, Record, Stream, draw_seed
from mnemosphere.interpret.classes import extend
from mnemosphere.model import objectives
from mnemosphere.model.class_reading import label_frequencies, net_class_weights
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior
from mnemosphere.model.votes import Votes
from mnemosphere.rows.encoding import listed
from mnemosphere.rows.features import Features
from mnemosphere.rows.labels import Encoded, Labels
from mnemosphere.rows.stored import StoredRows
from mnemosphere.training.dataset import ArrayDataset, StreamedBatch
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import start_joint, start_memories
from mnemosphere.training.late_classes import give_memories


def known_classes(
    model: FittedModel | None, y: Any, classes: Any, unlabeled: object
) -> NDArray[Any] | None:
    """The classes of the model, with those that are new in this batch; None: those of y.

    classes: those to come, which count on a fresh model alone.
    """
    given = None if classes is None else Labels.of(classes, unlabeled=None).found
    if model is None:
        return _first_classes(y, given, unlabeled)
    if given is not None and not set(model.classes.tolist()) <= set(given.tolist()):
        raise ValueError(
            f"classes {given.tolist()} differ from the model's {model.classes.tolist()}"
        )
    known: NDArray[Any] = model.classes
    if np.ndim(y) == 2:
        return known
    found = Labels.of(y, unlabeled=unlabeled).found
    alike = (found.dtype.kind in "biuf") == (known.dtype.kind in "biuf")
    return np.union1d(known, found) if alike and len(found) else known


def _first_classes(y: Any, given: NDArray[Any] | None, unlabeled: object) -> NDArray[Any] | None:
    """The classes of a fresh model; ValueError if its first batch has fewer than two of them."""
    if np.ndim(y) == 2:
        return given
    labels = Labels.of(y, unlabeled=unlabeled)
    if len(labels.found) == 1:
        raise ValueError(
            f"the first batch has one class, {labels.found[0].item()!r}: begin with rows of all "
            "classes, since they settle the geometry and the first memories, or with fit"
        )
    return labels.found if given is None and labels.outside.any() else given


def begin_stream(
    settings: Settings, features: Features, stored: StoredRows, coded: Encoded,
    weight: Tensor | None, progress: Progress,
) -> tuple[FittedModel, ArrayDataset]:  # fmt: skip
    """(a model whose memories start on the first batch, the batch on the sphere)."""
    settings = replace(settings, objectives=("joint",))
    generator = torch.Generator().manual_seed(draw_seed(settings.given["random_state"]))
    dataset, geometry, choice = prepare(settings, stored, coded.targets, weight, progress)
    start = start_memories(
        dataset.rows, choice.candidate.n_memories, own_labels=True, generator=generator
    )
    params = start_joint(
        start, dataset.rows, varsigma=settings.varsigma, beta=settings.beta,
        uniform_weight=settings.uniform_weight, learned_weights=False,
    )  # fmt: skip
    features = replace(features, observed=None)  # later batches may hold other numbers
    model = FittedModel(
        "classifier", Votes.of(params), params, geometry, features, coded.classes,
        label_mass=torch.zeros(len(coded.classes) + 1, dtype=torch.float64),
        stream=Stream(FixedPoint().start(params)),
        record=Record(settings=kept_settings(settings.given), search=choice.trials),
        smoothing=settings.smoothing, learns_beta=settings.beta is None,
    )  # fmt: skip
    return model, dataset


def with_new_classes(
    model: FittedModel, stored: StoredRows, coded: Encoded, weight: Tensor | None,
    texts: list[str | None] | None,
) -> tuple[FittedModel, Tensor]:  # fmt: skip
    """(the model with the classes that it did not know, as `add_class` adds them; rows to learn).

    The joint likelihood would cost a model of the conditional one more than rows of known classes
    gain, so these are left out there.
    """
    fresh = np.flatnonzero(~np.isin(coded.classes, model.classes))
    if not len(fresh):
        return model, torch.arange(stored.n_rows, device=stored.device)
    stream, (_, lost) = model.stream, model.on_sphere(stored)
    counts = ~lost if weight is None else ~lost & (weight > 0)
    for k in fresh.tolist():
        own = coded.index == k
        rows = (own & counts if bool((own & counts).any()) else own).nonzero()[:, 0]
        named = None if texts is None else [texts[row] for row in rows.tolist()]
        model = extend(model, stored.take(rows), coded.classes[k].item(), named)
    new = torch.isin(coded.index, torch.from_numpy(fresh).to(coded.index))
    rest = (~new).nonzero()[:, 0]
    if len(rest) and model.objective == "conditional":
        warn_user(
            f"{listed(coded.classes[fresh].tolist())} is new: the {len(rest)} rows of known "
            "classes are left out, since partial_fit goes on by the joint likelihood, which would "
            "cost a model of the conditional one accuracy: fit again with all rows to learn them"
        )
        return model, rest[:0]
    if len(rest) or stream is not None:  # memories of few rows count less in what follows
        assert model.label_mass is not None
        p_q = _class_prior(model.label_mass, model.smoothing).to(model.density.p)
        model = model.replace(density=with_class_prior(model.density, p_q))
    if stream is not None:
        late = stream.late | set(coded.classes[fresh].tolist())
        stream = replace(stream, state=FixedPoint().resume(model.density), late=late)
    return model.replace(stream=stream), rest


def take_in(
    model: FittedModel, dataset: ArrayDataset, rule: LabelRule, solver: object
) -> FittedModel:
    """The model after one incremental fixed-point step of its density from a batch.

    solver: the setting, of which the half-life counts.
    """
    half_life = getattr(solver, "half_life", None)
    step = FixedPoint(dataset.n_rows, learn_beta=model.learns_beta, half_life=half_life)
    stream = model.stream or Stream(step.resume(model.density))
    result = fit(
        model.density, StreamedBatch(dataset.rows), step, rule=rule, max_iter=1, state=stream.state
    )
    (record,) = result.history
    n_iter = len(model.record.history) + 1
    seen = dataset.n_rows if model.label_mass is None else float(model.label_mass.sum())
    counts = step.label_counts(result.state, seen)
    history = [*model.record.history, {**record.as_dict(), "n_iter": n_iter}]
    return model.changed(
        _votes(model, result.params, counts), result.params, lineage=model.lineage,
        stream=replace(stream, state=result.state), objective="joint",
        record=replace(model.record, history=history, status="streaming", converged=False),
    )  # fmt: skip


def _votes(model: FittedModel, params: Parameters, counts: Tensor) -> Votes:
    """Votes of parameters trained by the joint likelihood, at the temperature that such a model has."""
    if not model.is_classifier:
        return Votes.of(params)
    prior = label_frequencies(params.p_q, model.smoothing)
    p = net_class_weights(params, model.smoothing, prior, counts)
    temperature = model.votes.temperature if model.is_joint else 1.0  # of another slope
    return Votes.of(params, p, temperature, prior)


def take_in_labeled(model: FittedModel, dataset: ArrayDataset, solver: object) -> FittedModel:
    """The same for a classifier, of classes that the model has."""
    if model.objective == "conditional":
        warn_user(
            "partial_fit goes on by the joint likelihood from the density of a model that was "
            "trained by the conditional one, which costs accuracy: if that matters, fit again with "
            "all rows, or with objective='joint' before"
        )
    classes, smoothing = model.classes, model.smoothing
    assert model.label_mass is not None
    counts, first = _counts(model.label_mass, smoothing), not bool(model.label_mass.any())
    half_life = getattr(solver, "half_life", None)
    if half_life is not None:
        counts = counts * 0.5 ** (dataset.rows.total_weight / half_life)
    old, new = model.density, _counts(dataset.label_mass().cpu(), smoothing)
    stream = model.stream
    late = frozenset() if stream is None else stream.late
    if not first:
        arrived = ((new > 0.5) & (counts < 0.5))[:-1].tolist()
        late |= {label for label, here in zip(classes.tolist(), arrived, strict=True) if here}
    counts = counts + new
    n_classes = len(classes)
    columns = torch.arange(n_classes + 1)  # the last is "none of them", of rows out of scope
    soft = objectives.soft_labels(columns, n_classes, smoothing, dtype=torch.float64)
    mass = counts @ soft
    params, state = old, None if stream is None else stream.state
    if late:
        due = (counts / counts.sum() * old.n_memories).to(old.p)
        places = [classes.tolist().index(label) for label in late]
        state = FixedPoint().resume(old) if state is None else state
        params, state = give_memories(old, state, dataset.rows, due, places)
    p_q = _class_prior(mass, smoothing).to(params.p)
    try:
        params = with_class_prior(params, p_q, hold=True)
    except RuntimeError:  # memories of one class each leave no way to hold their weights
        params = with_class_prior(params, p_q)
    state = FixedPoint().resume(params) if state is None else state
    model = model.replace(density=params, label_mass=mass, stream=Stream(state, late))
    return take_in(model, dataset, objectives.joint, solver)


def _counts(mass: Tensor, smoothing: float) -> Tensor:
    """Rows of each class, and of none, whose smoothed label weights sum to `mass`, (C+1,)."""
    counts: Tensor = (mass - smoothing / len(mass) * mass.sum()) / (1 - smoothing)
    return torch.where(counts < 1e-9 * mass.sum(), 0.0, counts)


def _class_prior(mass: Tensor, smoothing: float) -> Tensor:
    """Column sums of p (C+1,) for summed label weights."""
    # A class not seen yet keeps a sliver, so that it can still be learned.
    p_q = mass + 1e-6 * mass.sum()
    if smoothing == 0 and not mass[-1] > 0:
        p_q[-1] = 0.0  # no label weight goes to "none of them"
    return p_q
