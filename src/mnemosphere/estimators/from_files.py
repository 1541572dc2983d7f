"""Rows in files: passes over all of them, with what was decided on a sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.estimators.inputs import FitInputs
from mnemosphere.geometry import Geometry
from mnemosphere.geometry.base import on_sphere
from mnemosphere.model.batch import Batch
from mnemosphere.model.objectives import soft_labels
from mnemosphere.model.soft_labels import label_shares
from mnemosphere.rows.batches import Piece
from mnemosphere.rows.labels import encode_labels
from mnemosphere.rows.odds import Odds
from mnemosphere.rows.rows import Rows, row_keys, sort_and_merge_duplicates
from mnemosphere.training.dataset import FileDataset

_CPU = torch.device("cpu")


def over_files(
    inputs: FitInputs, geometry: Geometry, dtype: torch.dtype, *, unlabeled: bool
) -> FileDataset:
    """All rows, with what was decided on the sample; unlabeled: whether those without label take part."""
    found, settings, (columns, sample) = inputs.survey, inputs.settings, inputs.leveled
    assert found is not None
    device, names = sample.device, found.classes.tolist()
    weights = found.class_weight or {}
    each = torch.tensor([weights.get(name, 1.0) for name in names], dtype=torch.float64)
    folded = torch.from_numpy(row_keys(sample))  # copies of a row are in one fold
    odds = Odds.learn(sample, label_shares(inputs.targets), inputs.weight, folded)

    def label(piece: Piece) -> tuple[Tensor, Tensor | None]:
        weight = None if piece.weight is None else torch.from_numpy(np.array(piece.weight, float))
        if not names:
            return torch.zeros(len(piece.number), 1, dtype=torch.float64), weight
        coded = encode_labels(
            piece.y, len(piece.number), found.classes, unlabeled=settings.given["unlabeled"],
            smoothing=settings.smoothing, require_label=False, device=_CPU,
        )  # fmt: skip
        if weights:
            own = torch.where(coded.index >= 0, each[coded.index], 1.0)
            weight = own if weight is None else weight * own
        return coded.targets, weight

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

    mass = torch.zeros(1, dtype=torch.float64)
    if names:
        mass = (found.mass * each) @ soft_labels(
            torch.arange(len(names)), len(names), settings.smoothing, dtype=torch.float64
        )
    batch, keys = unit_rows(*sort_and_merge_duplicates(sample, inputs.targets, inputs.weight)[1])
    return FileDataset(
        batch, files=inputs.source, place=place, keys=keys, held=keys[:0], mass=mass.to(device)
    )
