"""Fits to rows in files: the choice by a sample of them, training by passes over all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.estimators.choice import Settings
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.setup import Ready
from mnemosphere.geometry.base import on_sphere
from mnemosphere.model.batch import Batch
from mnemosphere.model.objectives import soft_labels
from mnemosphere.model.soft_labels import label_shares
from mnemosphere.rows.batches import Dataset, Piece
from mnemosphere.rows.columns import Columns
from mnemosphere.rows.labels import OUT_OF_SCOPE, Labels, class_index, class_weights, encode_labels
from mnemosphere.rows.odds import Odds
from mnemosphere.rows.rows import Rows, row_keys, sort_and_merge_duplicates
from mnemosphere.training.dataset import ArrayDataset, FileDataset
from mnemosphere.training.distributed import current

SAMPLED = 1 << 15  # rows at most that starts and "auto" choices look at
_CPU = torch.device("cpu")
# Label weights (n, C+1) and sample weights of rows.
LabelWeights = Callable[[Piece], tuple[Tensor, Tensor | None]]


class Survey(NamedTuple):
    """What one look at all rows tells."""

    sample: Piece
    classes: NDArray[Any]
    mass: Tensor  # (C,) summed weight of each class


def check_alone(y: object, sample_weight: object) -> None:
    """ValueError if labels or weights are passed beside a `Dataset`."""
    if y is not None or sample_weight is not None:
        raise ValueError(
            "a Dataset has labels and weights of its own: leave y and sample_weight out, and name "
            "them in Dataset.open"
        )


def survey(
    source: Dataset, settings: Settings, seed: int, progress: Progress, *, labeled: bool
) -> Survey:
    """A random sample of the rows, and the classes of all; rank 0 looks for all processes."""
    if settings.given["encoder"] is not None:
        raise TypeError("encoder takes texts in memory, got a Dataset: encode its texts first")

    def look() -> Survey:
        parts, count = [], Counter[Any]()
        for piece, some in source.sampling(SAMPLED, seed):
            if labeled:
                count.update(_label_weights(piece, settings.given["unlabeled"]))
            parts.append(some)
            progress.show("reading rows", int(piece.number[-1]) + 1, source.n_rows)
        if labeled and not count:
            raise ValueError("every row is unlabeled: label some rows of each class")
        classes = class_index(list(count), None, _CPU)[0] if labeled else np.empty(0)
        mass = torch.tensor([count[name] for name in classes.tolist()], dtype=torch.float64)
        return Survey(Piece.join([part for part in parts if len(part.number)]), classes, mass)

    return current().on_rank0(look)


def _label_weights(piece: Piece, unlabeled: object) -> dict[Any, float]:
    """The summed weight of each label."""
    if piece.y is None:
        raise ValueError("the Dataset has no labels: pass label= to Dataset.open")
    try:
        labels = Labels.of(piece.y, unlabeled=unlabeled)
    except ValueError as error:
        raise ValueError(f"from row {piece.number[0]} of the files on: {error}") from error
    names = [*labels.found.tolist(), *([OUT_OF_SCOPE] if labels.outside.any() else [])]
    place = np.where(labels.outside, len(labels.found), labels.place)
    each = np.ones(len(place)) if piece.weight is None else np.asarray(piece.weight, float)
    mass = np.bincount(place[place >= 0], each[place >= 0], minlength=len(names))
    return dict(zip(names, mass.tolist(), strict=True))


def weights_of_classes(setting: Any, found: Survey) -> dict[Any, float] | None:
    """`class_weight` of each class, by all rows."""
    if setting is None:
        return None
    places = torch.arange(len(found.classes))
    each = class_weights(setting, found.classes, places, found.mass)
    return dict(zip(found.classes.tolist(), each.tolist(), strict=True))


def labeling(
    settings: Settings, found: Survey, weighting: dict[Any, float] | None
) -> tuple[LabelWeights, Tensor]:
    """(what gives rows their label weights and sample weights, label weights of all rows (C+1,))."""
    names, smoothing = found.classes.tolist(), settings.smoothing
    each = torch.tensor([(weighting or {}).get(name, 1.0) for name in names], dtype=torch.float64)

    def label(piece: Piece) -> tuple[Tensor, Tensor | None]:
        coded = encode_labels(
            piece.y, len(piece.number), found.classes, unlabeled=settings.given["unlabeled"],
            smoothing=smoothing, require_label=False, device=_CPU,
        )  # fmt: skip
        weight = stored_weights(piece)
        if weighting is not None:
            weight = torch.ones(len(piece.number)).double() if weight is None else weight
            weight = torch.where(coded.index >= 0, weight * each[coded.index], weight)
        return coded.targets, weight

    n_classes = len(names)
    soft = soft_labels(torch.arange(n_classes), n_classes, smoothing, dtype=torch.float64)
    return label, (found.mass * each) @ soft


def no_labels(piece: Piece) -> tuple[Tensor, Tensor | None]:
    """Label weights of zero in one column."""
    return torch.zeros(len(piece.number), 1, dtype=torch.float64), stored_weights(piece)


def stored_weights(piece: Piece) -> Tensor | None:
    """Sample weights (n,) float64, if the files have them."""
    return None if piece.weight is None else torch.from_numpy(np.array(piece.weight, float))


def over_files(
    ready: Ready[Any], source: Dataset, columns: Columns, sample: Rows, targets: Tensor,
    label: LabelWeights, mass: Tensor, *, unlabeled: bool = True,
) -> Ready[Any]:  # fmt: skip
    """What was decided on a sample, to be trained on all rows.

    columns, sample: with levels of categories as numbers; targets: label weights of the sample; label,
    mass: of all rows. unlabeled: whether rows without label take part.
    """
    assert isinstance(ready.dataset, ArrayDataset)
    geometry, device = ready.geometry, ready.dataset.device
    dtype = ready.dataset.whole.x.dtype
    folded = torch.from_numpy(row_keys(sample))  # copies of a row are in one fold
    odds = Odds.learn(sample, label_shares(targets), ready.weight, folded)

    def unit_rows(
        rows: Rows, targets: Tensor, weight: Tensor | None
    ) -> tuple[Batch, NDArray[np.int64]]:
        keys = row_keys(rows)
        rows = odds.of_training(rows, torch.from_numpy(keys))
        x, lost = on_sphere(rows, geometry, dtype)
        batch = Batch(x, targets.to(x), None if weight is None else weight.to(x))
        keep = ~lost if weight is None else ~lost & (weight > 0).to(device)
        keep = keep if unlabeled else keep & (targets.sum(1) > 0).to(device)
        return (batch, keys) if bool(keep.all()) else (batch.take(keep), keys[keep.cpu().numpy()])

    def place(piece: Piece) -> tuple[Batch, NDArray[np.int64]]:
        x = columns.encode_frame(piece.x, warn=False) if columns.each else columns.numbers(piece.x)
        rows = Rows.of(x, device, columns)
        return unit_rows(replace(rows, ids=torch.from_numpy(piece.number)), *label(piece))

    _, distinct = sort_and_merge_duplicates(sample, targets, ready.weight)
    batch, keys = unit_rows(*distinct)
    dataset = FileDataset(
        batch, files=source, place=place, keys=keys, held=keys[:0], mass=mass.to(device)
    )
    return ready._replace(dataset=dataset)
