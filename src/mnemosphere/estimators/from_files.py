"""Estimators on rows in files: "auto" choices, labels, and answers batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.dataset import (
    SAMPLED,
    ArrayDataset,
    FileDataset,
    LabelWeights,
    no_labels,
    stored_weights,
)
from mnemosphere.data.files import FileRows, RawRows, ahead, join_rows
from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.rows import merge_copies
from mnemosphere.features import Features
from mnemosphere.fitted import FittedModel, as_numpy
from mnemosphere.labels import OUT_OF_SCOPE, Labels, class_index, class_weights, encode
from mnemosphere.machine import pick_device
from mnemosphere.model.objectives import soft_labels
from mnemosphere.training.distributed import current, process_group

_CPU = torch.device("cpu")


class Scan(NamedTuple):
    """What one look at labels and weights tells."""

    classes: NDArray[Any]
    mass: Tensor  # (C,) summed weight of each class
    unlabeled: bool  # whether a row has no label


def own_rows(files: FileRows) -> FileRows:
    """Those that this process reads; all of them if there is no group."""
    group = current()
    return files.shard(group.rank, group.size) if group.many else files


def sample_rows(
    source: FileDataset, seed: int, look: Callable[[RawRows], None] | None = None
) -> RawRows:
    """A sample of the rows, each read by the process that has it, gathered once."""
    group, own = current(), own_rows(source.files)
    found = group.gather(own.sample(SAMPLED, seed, look) if own.n_rows else None)
    return join_rows([part for part in found if part is not None])


@process_group()
def gathered(answer: Callable[..., Any], source: FileDataset) -> NDArray[Any]:
    """Answers to all rows, in their order, each given by the process that has it."""
    own = replace(source, files=own_rows(source.files))
    parts = [np.asarray(part) for part in answer(own)] if own.n_rows else []
    return np.concatenate([part for parts in current().gather(parts) for part in parts])


def scan(source: FileDataset, unlabeled: object) -> Scan:
    """The labels there are, in one look at their column; ValueError names a row without one."""
    if (key := _key(unlabeled)) not in source.files.noted:
        count = _Count(source, unlabeled)
        own = own_rows(source.files)
        for raw in own.pieces(labels_only=True) if own.n_rows else ():
            count(raw)
        source.files.noted[key] = count.told()
    found: Scan = source.files.noted[key]
    return found


def _key(unlabeled: object) -> str:
    return f"labels, unlabeled {unlabeled!r}"


class _Count:
    """Labels as they go by."""

    def __init__(self, source: FileDataset, unlabeled: object) -> None:
        self._source, self._unlabeled = source, unlabeled
        self._mass: dict[Any, float] = {}  # summed weight of each label
        self._partly = False  # whether a row has none

    def __call__(self, raw: RawRows) -> None:
        """Take in the labels of these rows."""
        y, number = raw.y, raw.number
        each = np.ones(raw.rows.n_rows) if raw.weight is None else np.asarray(raw.weight, float)
        if y is None or y.ndim != 1:
            path, _ = self._source.files.where(int(number[0]))
            raise ValueError(
                f"{path} has no column of labels: pass label= (soft labels are for rows in memory)"
            )
        labels = Labels.of(y)
        if self._unlabeled is None or self._unlabeled == self._unlabeled:
            none = np.flatnonzero(labels.place == -1)
            if none.size:
                path, row = self._source.files.where(int(number[none[0]]))
                raise ValueError(
                    f"{path}: row {row} has no label: drop the row, or mark rows without label by "
                    "unlabeled=float('nan')"
                )
            labels = Labels.of(y, unlabeled=self._unlabeled)
        self._partly |= bool((labels.place == -1).any())
        names = [*labels.found.tolist(), *([OUT_OF_SCOPE] if labels.outside.any() else [])]
        place = np.where(labels.outside, len(labels.found), labels.place)
        mass = np.bincount(place[place >= 0], each[place >= 0], minlength=len(names))
        for name, share in zip(names, mass.tolist(), strict=True):
            self._mass[name] = self._mass.get(name, 0.0) + share

    def told(self) -> Scan:
        """What all processes have met."""
        count: dict[Any, float] = {}
        partly = False
        for found, missing in current().gather((self._mass, self._partly)):
            partly |= missing
            for name, share in found.items():
                count[name] = count.get(name, 0.0) + share
        if not count:
            raise ValueError("every row is unlabeled: label some rows of each class")
        classes = class_index(list(count), None, _CPU)[0]
        if self._source.classes is not None:
            class_index(classes, self._source.classes, _CPU)  # says which are not among them
            classes = self._source.classes
        total = [count.get(name, 0.0) for name in classes.tolist()]
        return Scan(classes, torch.tensor(total, dtype=torch.float64), partly)


class Resolves(Protocol):
    """A training that has settled what is "auto"."""

    normalizer: Normalizer

    @property
    def resolve(self) -> Callable[..., ArrayDataset]:
        """Settle everything by rows."""

    def precision_for(self, n_numbers: int) -> torch.dtype:
        """The precision of training."""
        ...


class Learned(NamedTuple):
    """What training and the search for exemplars need."""

    training: Any  # that was begun, or given
    dataset: FileDataset
    rows: RawRows  # the sampled ones, as stored
    weight: Tensor | None  # theirs


def learn_labeled(
    settings: Mapping[str, Any], source: FileDataset, seed: int, begin: Callable[..., Resolves]
) -> Learned:
    """Settle what is "auto" for a classifier by a sample; all rows as training sees them.

    begin: what trains a model of these classes, which it is given.
    """
    device, unlabeled = pick_device(settings["device"]), settings["unlabeled"]
    weighting, smoothing = settings["class_weight"], settings["label_smoothing"]
    sampled = None
    if source.classes is not None and _key(unlabeled) not in source.files.noted:
        # Classes are known: how many rows have which is counted as the sample is drawn.
        count = _Count(source, unlabeled)
        sampled = sample_rows(source, seed, count)
        source.files.noted[_key(unlabeled)] = count.told()
    found = scan(source, unlabeled)
    n_classes = len(found.classes)
    each = torch.ones(n_classes, dtype=torch.float64)
    if weighting is not None:
        places = torch.arange(n_classes)
        each = class_weights(weighting, found.classes, places, found.mass)

    def label(raw: RawRows) -> tuple[Tensor, Tensor | None]:
        n = raw.rows.n_rows
        coded = encode(
            raw.y, n, found.classes, unlabeled=unlabeled, smoothing=smoothing,
            require_label=False, device=_CPU,
        )  # fmt: skip
        weight = stored_weights(raw)
        if weighting is not None:
            weight = torch.ones(n, dtype=torch.float64) if weight is None else weight
            weight = torch.where(coded.index >= 0, weight * each[coded.index], weight)
        return coded.targets, weight

    raw = _in_order(sample_rows(source, seed) if sampled is None else sampled, label)
    targets, weight = label(raw)
    training = begin(found.classes)
    on_device = None if weight is None else weight.to(device)
    training.resolve(raw.rows.on(device), targets.to(device), on_device, seed)
    soft = soft_labels(torch.arange(n_classes), n_classes, smoothing, dtype=torch.float64)
    mass = (found.mass * each) @ soft
    return _dataset(training, device, source, raw, label, mass, found.unlabeled)


def learn_rows(
    training: Resolves, source: FileDataset, prior: Tensor | None, seed: int, device: torch.device
) -> Learned:
    """The same for a clusterer, which looks at no labels."""
    label = no_labels(1)
    raw = _in_order(sample_rows(source, seed), label)
    weight = stored_weights(raw)
    on_device = None if weight is None else weight.to(device)
    training.resolve(raw.rows.on(device), on_device, prior, seed)
    mass = torch.zeros(1, dtype=torch.float64)
    return _dataset(training, device, source, raw, label, mass, True)


def _in_order(raw: RawRows, label: LabelWeights) -> RawRows:
    """Sampled rows in the order that they would have in memory, where few are put in order."""
    rows, *_ = merge_copies(raw.rows, *label(raw))
    if rows.n_rows < raw.rows.n_rows or rows.number is None:
        return raw
    return raw.take(torch.searchsorted(raw.number, rows.number))


def _dataset(
    training: Resolves, device: torch.device, source: FileDataset, raw: RawRows,
    label: LabelWeights, mass: Tensor, partly: bool,
) -> Learned:  # fmt: skip
    dtype = training.precision_for(source.n_rows * source.n_features)
    if training.normalizer.kind == "standard":
        own = own_rows(source.files)
        parts = (label(part)[1] for part in own.pieces(labels_only=True))
        weights = [weight for weight in parts if weight is not None]
        training.normalizer = Normalizer.fit(
            "standard", own.on(device), torch.cat(weights) if weights else None, current()
        )
    dataset = source.on_sphere(
        raw, training.normalizer, label, mass, partly=partly, device=device, dtype=dtype
    )
    return Learned(training, dataset, raw._replace(rows=raw.rows.on(device)), label(raw)[1])


def features_of(source: FileDataset, owner: str) -> Features:
    """The columns of a data set."""
    named = source.names is not None and len(source.names) == source.n_features
    return Features(
        source.n_features, tuple(map(str, source.names or ())) if named else None, owner=owner
    )


def check_features(features: Features, source: FileDataset) -> None:
    """ValueError where the columns are not those of training."""
    if source.n_features != features.n_columns:
        raise ValueError(
            f"{source.files.readers[0].path} has {source.n_features} features, but "
            f"{features.owner} is expecting {features.n_columns} features as input"
        )
    known = features.columns
    if known is not None and source.names is not None and list(known) != source.names:
        raise ValueError(
            f"{source.files.readers[0].path} has other columns than those of training: pass "
            "features=list(model.feature_names_in_)"
        )


@process_group()
def accuracy(model: FittedModel, source: FileDataset) -> float:
    """Weighted share of the labeled rows that the model gets right."""
    check_features(model.features, source)
    unlabeled = model.record.settings.get("unlabeled")
    right, total = 0.0, 0.0
    for raw in ahead(own_rows(source.files).pieces()):
        if raw.y is None:
            raise ValueError(f"{source.files.readers[0].path} has no labels: pass label=")
        weight = np.ones(raw.rows.n_rows) if raw.weight is None else np.asarray(raw.weight, float)
        labels = Labels.of(raw.y, unlabeled=unlabeled)
        weight = np.where(labels.place == -1, 0.0, weight)
        best = as_numpy(model.log_proba(raw.rows).argmax(1))
        right += float(weight[best == labels.among(model.classes, unknown=True)].sum())
        total += float(weight.sum())
    sums = current().sum(torch.tensor([right, total], dtype=torch.float64))[0].tolist()
    return float(sums[0] / sums[1])
