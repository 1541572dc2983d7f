"""Estimators on rows in files: "auto" choices, labels, and answers batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.estimators import class_training, cluster_training
from mnemosphere.estimators.choice import Choice, Settings
from mnemosphere.estimators.cluster_training import Clusters
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.setup import (
    COLUMNS,
    FEW_NUMBERS,
    Ready,
    begin,
    device_of,
    precision_of,
    with_counts,
)
from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.geometry import Geometry
from mnemosphere.model.class_reading import label_shares
from mnemosphere.model.objectives import soft_labels
from mnemosphere.rows import odds
from mnemosphere.rows.encoding import is_frame
from mnemosphere.rows.features import Features
from mnemosphere.rows.labels import OUT_OF_SCOPE, Labels, class_index, class_weights, encode
from mnemosphere.rows.stored import ALONE, Sums, in_order
from mnemosphere.rows.streams import FileRows, Piece, RawRows, ahead, join_rows
from mnemosphere.training.dataset import (
    SAMPLED,
    FileDataset,
    LabelWeights,
    no_labels,
    stored_weights,
)
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


def sample_rows(source: FileDataset, seed: int) -> RawRows:
    """A sample of the rows, each read by the process that has it, gathered once."""
    found = current().gather(own_rows(source.files).rows(source.files.draw(SAMPLED, seed)))
    return join_rows([part for parts in found for part in parts])


@process_group()
def gathered(answer: Callable[..., Any], source: FileDataset) -> NDArray[Any]:
    """Answers to all rows, in their order, each given by the process that has it."""
    own = replace(source, files=own_rows(source.files))
    parts = [np.asarray(part) for part in answer(own)]
    return np.concatenate([part for parts in current().gather(parts) for part in parts])


def scan(source: FileDataset, unlabeled: object) -> Scan:
    """The labels there are, in one look at their column; ValueError names a row without one."""
    noted: dict[str, Scan] = source.files.noted
    if (key := repr(unlabeled)) in noted:
        return noted[key]
    own, partly = own_rows(source.files), False
    count: Counter[Any] = Counter()  # summed weight of each label
    for raw in own.pieces(labels_only=True):
        labels = _labels_of(source, raw, unlabeled)
        each = np.ones(len(raw.number)) if raw.weight is None else np.asarray(raw.weight, float)
        partly |= bool((labels.place == -1).any())
        names = [*labels.found.tolist(), *([OUT_OF_SCOPE] if labels.outside.any() else [])]
        place = np.where(labels.outside, len(labels.found), labels.place)
        mass = np.bincount(place[place >= 0], each[place >= 0], minlength=len(names))
        count.update(dict(zip(names, mass.tolist(), strict=True)))
    found = current().gather((count, partly))
    count = Counter()
    for own_count, _ in found:
        count.update(own_count)
    if not count:
        raise ValueError("every row is unlabeled: label some rows of each class")
    classes = class_index(list(count), None, _CPU)[0]
    total = [count[name] for name in classes.tolist()]
    noted[key] = Scan(classes, torch.tensor(total, dtype=torch.float64), any(p for _, p in found))
    return noted[key]


def _labels_of(source: FileDataset, raw: RawRows, unlabeled: object) -> Labels:
    """The labels of these rows; ValueError if one has none and nothing says that it may."""
    if raw.y is None or raw.y.ndim != 1:
        path, _ = source.files.where(int(raw.number[0]))
        raise ValueError(
            f"{path} has no column of labels: pass label= (soft labels are for rows in memory)"
        )
    labels = Labels.of(raw.y)
    if unlabeled is not None and unlabeled != unlabeled:  # NaN: whatever marks no value
        return labels
    none = np.flatnonzero(labels.place == -1)
    if none.size:
        path, row = source.files.where(int(raw.number[none[0]]))
        raise ValueError(
            f"{path}: row {row} has no label: drop the row, or mark rows without label by "
            "unlabeled=float('nan')"
        )
    return Labels.of(raw.y, unlabeled=unlabeled)


def learn_files(
    settings: Settings, source: FileDataset, progress: Progress, *, labeled: bool
) -> Ready[Any]:
    """Settle what is "auto" by a sample of the rows; all rows as training sees them.

    labeled: for a classifier; a clusterer looks at no labels.
    """
    given, owner = settings.given, settings.owner
    seed, callbacks = begin(given, owner, source, progress)
    device, n_numbers = device_of(source, given["device"]), source.n_rows * source.n_features
    if labeled:
        found = scan(source, given["unlabeled"])
        label, mass = _labeling(settings, found)
    else:
        found, (label, mass) = None, (no_labels(1), torch.zeros(1, dtype=torch.float64))
    sampled = sample_rows(source, seed)
    names = source.files.names
    features = Features(source.n_features, None if names is None else tuple(names), owner=owner)
    if is_frame(sampled.x):
        how = {name: given[name] for name in COLUMNS if name != "encoder"}
        features, _ = Features.learn(source.files.given(sampled).x, owner, labeled=labeled, **how)
        assert features.encoding is not None
        source = replace(source, files=replace(source.files, encoding=features.encoding))
        sampled = source.files.numbers_of(sampled)
    choice: Choice | Clusters
    raw = _in_order(sampled, label)
    stored = raw.rows.on(device).with_columns(features.encoding)
    targets, weight = label(raw)
    on_device = None if weight is None else weight.to(device)
    if found is not None:
        _, geometry, choice = class_training.prepare(
            settings, stored, targets.to(device), on_device, progress
        )
        classes, few = found.classes, class_training.FEW_NUMBERS
    else:
        _, geometry, clusters = cluster_training.prepare(
            settings, stored, on_device, seed, progress
        )
        choice, classes, few = clusters, np.arange(clusters.n_clusters), FEW_NUMBERS
    if (encoding := features.encoding) is not None and encoding.coded:
        sums = _count_levels(source, label, encoding.coded)
        tables, counts = odds.tables_of_folds(sums), [own.sum(0) for own in sums]
        encoding = with_counts(encoding, counts, classes)
        features = replace(features, encoding=encoding)
        raw = raw._replace(x=odds.in_folds(stored, raw.number, tables).values)
        stored = odds.with_odds(stored, counts)
        source = replace(source, files=replace(source.files, odds=tables))
    geometry = _of_all_rows(geometry, source, label, device)
    dataset = source.on_sphere(
        raw, geometry, label, mass, partly=found is None or found.unlabeled, device=device,
        dtype=precision_of(settings.precision, n_numbers, few),
    )  # fmt: skip
    return Ready(
        settings, features, stored, weight, classes, seed, callbacks, dataset, geometry, choice
    )


def _labeling(settings: Settings, found: Scan) -> tuple[LabelWeights, Tensor]:
    """(what gives rows their label weights and sample weights, label weights of all rows (C+1,))."""
    weighting, smoothing = settings.given["class_weight"], settings.smoothing
    n_classes = len(found.classes)
    each = torch.ones(n_classes, dtype=torch.float64)
    if weighting is not None:
        each = class_weights(weighting, found.classes, torch.arange(n_classes), found.mass)

    def label(raw: RawRows) -> tuple[Tensor, Tensor | None]:
        n = len(raw.number)
        coded = encode(
            raw.y, n, found.classes, unlabeled=settings.given["unlabeled"], smoothing=smoothing,
            require_label=False, device=_CPU,
        )  # fmt: skip
        weight = stored_weights(raw)
        if weighting is not None:
            weight = torch.ones(n, dtype=torch.float64) if weight is None else weight
            weight = torch.where(coded.index >= 0, weight * each[coded.index], weight)
        return coded.targets, weight

    soft = soft_labels(torch.arange(n_classes), n_classes, smoothing, dtype=torch.float64)
    return label, (found.mass * each) @ soft


def _count_levels(
    source: FileDataset, label: LabelWeights, levels: Mapping[int, int]
) -> list[NDArray[np.float64]]:
    """Label weights of each category, (folds, levels, classes), in one look at all rows."""
    found: list[Tensor] = []
    for raw in ahead(own_rows(source.files).pieces()):
        targets, weight = label(raw)
        rows = replace(raw.rows, levels=levels)
        sums = odds.counts_of_folds(rows, raw.number, label_shares(targets), weight)
        here = [torch.from_numpy(part) for part in sums]
        found = [a + b for a, b in zip(found, here, strict=True)] if found else here
    return [part.numpy() for part in current().sum(*found)]


def _in_order(raw: RawRows, label: LabelWeights) -> RawRows:
    """Sampled rows in the order that they would have in memory, where few are put in order."""
    _, (rows, *_) = in_order(raw.rows, *label(raw))
    if rows.n_rows < len(raw.number) or rows.number is None:
        return raw
    return raw.take(torch.searchsorted(raw.number, rows.number))


def _of_all_rows(
    geometry: Geometry, source: FileDataset, label: LabelWeights, device: torch.device
) -> Geometry:
    """Learned from all rows where a sample will not do."""
    if not geometry.needs_all_rows:
        return geometry
    own = own_rows(source.files)
    parts = (label(part)[1] for part in own.pieces(labels_only=True))
    weights = [weight for weight in parts if weight is not None]
    weight = torch.cat(weights) if weights else None
    return geometry.fit(replace(own, device=device), None, weight, current())


def batches_for(model: FittedModel, source: FileDataset) -> Iterator[Piece]:
    """The rows as a user passes them; ValueError at once if the columns are not the model's."""
    files = replace(source.files, gaps=True)
    nothing = RawRows(torch.full((1, source.n_features), torch.nan), torch.zeros(1))
    model.features.numbers_of(files.given(nothing).x)
    return map(files.given, ahead(files.pieces()))


def sample_for(source: FileDataset) -> Piece:
    """A sample of the rows as a user passes them."""
    source = replace(source, files=replace(source.files, gaps=True))
    return source.files.given(sample_rows(source, 0))


def share_right(model: FittedModel, parts: Iterable[Any], group: Sums = ALONE) -> float:
    """The accuracy on labeled rows; parts: (X, y, weights or None), of each process its own."""
    counts = torch.zeros(2, dtype=torch.float64)  # weight of the rows that are right, and of all
    for X, y, weight in parts:
        best = as_numpy(model.log_proba(X).argmax(1))
        labels = Labels.of(y, len(best), unlabeled=model.record.settings.get("unlabeled"))
        labels.check_like(model.classes)
        each = np.ones(len(best)) if weight is None else np.asarray(weight, float)
        each = each * (labels.labeled | labels.outside)
        right = best == labels.among(model.classes, unknown=True)
        counts += torch.tensor([(right * each).sum(), each.sum()])
    right, whole = group.sum(counts)[0].tolist()
    if not whole > 0:
        raise ValueError("no row of y has a label and a weight: pass labeled rows to score")
    return float(right / whole)
