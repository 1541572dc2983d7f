"""Standard units, mixed so that coordinates that tell classes apart count more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import torch
from torch import Tensor

from mnemosphere.base.schema import Array
from mnemosphere.geometry.base import lengths
from mnemosphere.geometry.standard import Standard
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.rows.stored import ALONE, StoredRows, Sums
from mnemosphere.rows.streams import Chunks

__all__ = ["MAX_RANK", "SHRINKAGE", "Whitened", "whitening"]

MAX_RANK = 150  # rows of a metric: the largest matrix that is learned
SHRINKAGE = 0.5  # of a metric: halfway between the covariance within classes and its mean
_NO_AXIS = 1e-12  # of the strongest: squares of rounding errors
_MOST_ROWS = 5000  # a covariance of so many coordinates needs no more


@dataclass(frozen=True)
class Whitened(Standard):
    """Standard units, then a metric that lets the rows of each class vary alike in every direction.

    A metric mixes features, so gaps are filled in neutrally.
    """

    name: ClassVar[str] = "whitened"
    needs_labels: ClassVar[bool] = True
    needs_all_rows: ClassVar[bool] = False
    keeps_sparse: ClassVar[bool] = False
    scales_gaps: ClassVar[bool] = False
    measured: ClassVar[str] = f"{Standard.measured}, a lower bound through the metric"

    metric: Annotated[Tensor, Array("D M")]

    @classmethod
    def fit(
        cls, rows: Chunks, targets: Tensor | None = None, weight: Tensor | None = None,
        sums: Sums = ALONE,
    ) -> Self:  # fmt: skip
        """Learn standard units, and the metric from some of the rows that have a label and a direction."""
        assert targets is not None
        assert isinstance(rows, StoredRows)
        standard = Standard.fit(rows, targets, weight, sums)
        known = torch.cat([~x.isnan().all(1) for _, x in rows.chunks()])
        known = (known & (targets.sum(1) > 0).to(known.device)).nonzero()[:, 0]
        # From beginning to end: rows may be sorted by class.
        index = known[:: max(1, -(-len(known) // _MOST_ROWS))]
        x = torch.cat([part for _, part in rows.take(index).chunks()])
        unit = fill_neutrally(standard.place(x)[0])
        each = torch.ones_like(unit[:, 0]) if weight is None else weight[index].to(unit)
        label = targets[index].argmax(1).to(unit.device)
        metric = whitening(unit, label, each, SHRINKAGE)
        return cls(standard.mean, standard.scale, metric)

    def check(self, n_features: int | None = None) -> Self:
        """As `Geometry.check`."""
        super().check(n_features)
        if not (self.metric.numel() and 1e-30 < float(self.metric.abs().max()) < 1e30):
            raise ValueError("its metric is no map that a row could be seen through")
        return self

    @property
    def mixing(self) -> Tensor | None:
        """The metric."""
        return self.metric

    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """Rows in the features' units."""
        return super().restore(self.preimage(w), categories)

    def _radius(self, x: Tensor, angle: Tensor) -> Tensor:
        """A bound: how far a change turns a row depends on its direction."""
        length, stretch = self.linear(x)
        stretched: Tensor = torch.linalg.matrix_norm(stretch, 2)
        return length * angle.clamp_max(math.pi / 2).sin() / stretched

    def linear(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(‖Av‖ (n,), A without the column of the constant coordinate)."""
        return lengths(self.coordinates(x) @ self.metric.T), self.metric[:, :-1]


def whitening(x: Tensor, label: Tensor, weight: Tensor, shrinkage: float) -> Tensor:
    """The metric (D, N) that rows with labels suggest, in double precision.

    x (B, N): standard rows; their last coordinate gives their length back. Its part of the metric
    is 1. The rest lets rows of one class vary alike in every direction: with S the covariance
    within classes it is ((1−s)S + s·mean(diag S))^(−1/2), s the shrinkage. Rows keep their mean
    square length. With more than MAX_RANK coordinates all this happens among the MAX_RANK − 1
    principal axes.
    """
    n = x.shape[1] - 1
    z = x[:, :-1] * (n**0.5 / x[:, -1:])
    if n < MAX_RANK:
        axes = torch.eye(n, dtype=x.dtype, device=x.device)
    else:
        axes = _principal_axes(z * weight.sqrt()[:, None], MAX_RANK - 1)
    y = z @ axes.T
    own, vectors = torch.linalg.eigh(_covariance_within(y, label, weight))
    typical = own.mean()
    values = (1 - shrinkage) * own + shrinkage * typical
    # Directions without any variation within classes must not drown all others.
    values = values.clamp_min(torch.maximum(1e-6 * typical, values.new_tensor(1e-100)))
    form = (vectors * values.rsqrt()) @ vectors.T
    before, after = ((weight * seen.square().sum(1)).sum() for seen in (z, y @ form.T))
    found = torch.zeros(len(form) + 1, n + 1, dtype=x.dtype, device=x.device)
    found[:-1, :-1] = torch.where(after > 0, before / after, 1.0).sqrt() * (form @ axes)
    found[-1, -1] = 1.0
    return found


def _covariance_within(z: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    by_class = torch.nn.functional.one_hot(label).to(z) * weight[:, None]  # (B, C)
    means = by_class.T @ z / by_class.sum(0).clamp_min(torch.finfo(z.dtype).tiny)[:, None]
    rest = z - means[label]
    return (rest.T * weight) @ rest / weight.sum()


def _principal_axes(z: Tensor, most: int) -> Tensor:
    """The strongest right singular vectors of z (B, n), those that vary at all.

    By the smaller of zᵀz and zzᵀ: several times as fast as the decomposition of z, and axes that
    squares hide are not among the strongest.
    """
    rows_are_fewer = z.shape[0] < z.shape[1]
    values, vectors = torch.linalg.eigh(z @ z.T if rows_are_fewer else z.T @ z)
    values, vectors = values[-most:], vectors[:, -most:]
    if not bool(values[-1] > 0):  # nothing varies
        return torch.eye(z.shape[1], dtype=z.dtype, device=z.device)[:most]
    kept = values > max(_NO_AXIS, 10 * torch.finfo(z.dtype).eps) * values[-1]
    axes: Tensor = vectors[:, kept]
    if rows_are_fewer:
        axes = z.T @ (axes / values[kept].sqrt())
    return axes.mT.flip(0)
