"""One batch of a stream, with classes that may be new."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.warnings import warn_user
from mnemosphere.estimators.class_training import prepare
from mnemosphere.estimators.inputs import FitInputs, encode, read_inputs
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.settings import Settings
from mnemosphere.estimators.setup import kept_settings, sound
from mnemosphere.fitted.model import FittedModel, Record, Stream, as_numpy
from mnemosphere.interpret.classes import extend
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import accumulate
from mnemosphere.model.soft_labels import label_frequencies, net_class_weights, reweighted
from mnemosphere.rows.batches import Dataset
from mnemosphere.rows.containers import listed
from mnemosphere.rows.labels import Encoded, Labels, row_weights
from mnemosphere.rows.rows import Rows
from mnemosphere.training.callbacks import PassRecord
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import start_joint, start_memories
from mnemosphere.training.latent import votes_of_memories

SHARE = 0.05  # of a pass that a batch stands for


def learn_batch(
    model: FittedModel | None, settings: Settings, X: Any, y: Any, classes: Any,
    sample_weight: Any, progress: Progress,
) -> FittedModel:  # fmt: skip
    """The model after a batch of labeled rows; None: a fresh one, which begins with it."""
    if isinstance(X, Dataset):
        raise TypeError("this takes rows in memory, got a Dataset: pass it to fit")
    known = _known_classes(model, y, classes, settings.given["unlabeled"])
    if model is None:
        given = {**settings.given, "callbacks": ()}
        settings = replace(settings, objective="joint", given=given)
        model, batch = _begin(read_inputs(settings, X, y, sample_weight, progress, classes=known))
    else:
        stored = model.stored(X)
        coded = encode(settings, y, stored, known, require_label=False)
        weight = row_weights(coded, settings.given["class_weight"], sample_weight)
        model, rest = _with_new_classes(model, stored, coded, weight, model.columns.texts(X))
        if not len(rest):
            return model
        weight = None if weight is None else weight[rest]
        batch = model.batch(stored.take(rest), coded.targets[rest], weight)
    return sound(_take_in_labeled(model, batch))


def _known_classes(
    model: FittedModel | None, y: Any, classes: Any, unlabeled: object
) -> NDArray[Any] | None:
    """The classes of the model, with those that are new in this batch; None: those of y.

    classes: those to come, which count on a fresh model alone.
    """
    given = None if classes is None else Labels.of(classes, unlabeled=None).found
    labels = None if np.ndim(y) == 2 else Labels.of(y, unlabeled=unlabeled)
    if model is None:
        if labels is not None and len(labels.found) == 1:
            raise ValueError(
                f"the first batch has one class, {labels.found[0].item()!r}: begin with rows of all "
                "classes, since they settle the geometry and the first memories, or with fit"
            )
        is_open = labels is not None and given is None and bool(labels.outside.any())
        return labels.found if labels is not None and is_open else given
    known: NDArray[Any] = model.classes
    if given is not None and not set(known.tolist()) <= set(given.tolist()):
        raise ValueError(f"classes {given.tolist()} differ from the model's {known.tolist()}")
    if labels is None or not len(labels.found):
        return known
    alike = (labels.found.dtype.kind in "biuf") == (known.dtype.kind in "biuf")
    return np.union1d(known, labels.found) if alike else known


def _begin(inputs: FitInputs) -> tuple[FittedModel, Batch]:
    """(a model whose memories start on the first batch, the batch on the sphere)."""
    settings, (dataset, geometry, choice) = inputs.settings, prepare(inputs)
    start = start_memories(
        dataset.rows, choice.spec.n_memories, own_labels=True,
        generator=torch.Generator().manual_seed(inputs.seed),
    )  # fmt: skip
    params = start_joint(
        start, dataset.rows, varsigma=settings.varsigma, beta=settings.beta,
        uniform_weight=settings.uniform_weight, learned_weights=False,
    )  # fmt: skip
    columns = replace(inputs.columns, observed=None)  # later batches may hold other numbers
    model = FittedModel(
        "classifier", params, params, geometry, columns, inputs.classes,
        label_mass=torch.zeros(len(inputs.classes) + 1, dtype=torch.float64),
        stream=Stream(FixedPoint().start(params)),
        record=Record(settings=kept_settings(settings.given), search=choice.trials),
        smoothing=settings.smoothing, learns_beta=settings.beta is None,
    )  # fmt: skip
    return model, dataset.rows


def _with_new_classes(
    model: FittedModel, stored: Rows, coded: Encoded, weight: Tensor | None,
    texts: list[str | None] | None,
) -> tuple[FittedModel, Tensor]:  # fmt: skip
    """(the model with classes that it has no rows of, as `add_class` adds them; rows of the others).

    The joint likelihood would cost a model of the conditional one more than rows of known classes
    gain, so these are left out there.
    """
    lost, there = model.on_sphere(stored)[1], sorted({*coded.index.tolist()})
    counts = ~lost if weight is None else ~lost & (weight > 0)
    seen = model.classes
    if model.label_mass is not None and model.stream is not None:
        seen = seen[as_numpy(_counts(model.label_mass, model.smoothing)[:-1]) > 0]
    fresh = [k for k in there if k >= 0 and coded.classes[k] not in seen]
    for k in fresh:
        own = coded.index == k
        rows = (own & counts if bool((own & counts).any()) else own).nonzero()[:, 0]
        named = None if texts is None else [texts[row] for row in rows.tolist()]
        model = extend(model, stored.take(rows), coded.classes[k].item(), named)
    new = torch.isin(coded.index, torch.tensor(fresh, device=coded.index.device))
    rest = (~new).nonzero()[:, 0]
    if not fresh:
        return model, rest
    if len(rest) and model.objective == "conditional":
        warn_user(
            f"{listed(coded.classes[fresh].tolist())} is new: the {len(rest)} rows of known "
            "classes are left out, since partial_fit goes on by the joint likelihood, which would "
            "cost a model of the conditional one accuracy: fit again with all rows to learn them"
        )
        return model, rest[:0]
    if model.stream is not None:  # memories of few rows count less in what follows
        assert model.label_mass is not None
        p_q = _class_prior(model.label_mass, model.smoothing).to(model.density.p)
        density = model.density.with_classes(reweighted(model.density.p, p_q))
        model = model.replace(density=density, stream=Stream(FixedPoint().resume(density)))
    return model, rest


def take_in(model: FittedModel, batch: Batch, rule: LabelRule) -> FittedModel:
    """The model after one incremental fixed-point step of its density from a batch."""
    began, mass = time.perf_counter(), model.label_mass
    step = FixedPoint(batch.n_rows, learn_beta=model.learns_beta)
    state = step.resume(model.density) if model.stream is None else model.stream.state
    batch.check(model.density)
    stats = accumulate(model.density, batch, rule)
    params, state = step.step(model.density, state, stats, batch, SHARE)
    record = PassRecord(
        len(model.record.history) + 1, float(stats.mean_loss), None, float(params.beta), None,
        params.n_memories, time.perf_counter() - began,
    )  # fmt: skip
    if mass is None:
        votes = votes_of_memories(params)
    else:  # at the temperature of the model before
        prior = label_frequencies(params.p_q, model.smoothing)
        counts = step.label_counts(state, float(mass.sum()))
        p = net_class_weights(params, model.smoothing, prior, counts)
        votes = params.with_classes(p, prior).at(model.votes.temperature)
    history = [*model.record.history, asdict(record)]
    return model.changed(
        votes, params, lineage=model.lineage, stream=Stream(state), objective="joint",
        record=replace(model.record, history=history, status="streaming", converged=False),
    )  # fmt: skip


def _take_in_labeled(model: FittedModel, batch: Batch) -> FittedModel:
    """The same for a classifier, of classes that the model has."""
    if model.objective == "conditional":
        warn_user(
            "partial_fit goes on by the joint likelihood from the density of a model that was "
            "trained by the conditional one, which costs accuracy: if that matters, fit again with "
            "all rows, or with objective='joint' before"
        )
    assert model.label_mass is not None
    mass = model.label_mass + batch.label_mass().double().cpu()
    p_q = _class_prior(mass, model.smoothing).to(model.density.p)
    try:
        p = reweighted(model.density.p, p_q, hold=True)
    except RuntimeError:  # memories of one class each leave no way to hold their weights
        p = reweighted(model.density.p, p_q)
    params = model.density.with_classes(p)
    stream = model.stream or Stream(FixedPoint().resume(params))
    model = model.replace(density=params, label_mass=mass, stream=stream)
    return take_in(model, batch, objectives.joint)


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
