"""A metric: rows x are seen as Ax/‖Ax‖, so that coordinates that tell classes apart count more."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch

__all__ = ["MAX_RANK", "start"]

MAX_RANK = 150  # rows of a metric: the largest matrix that is learned
_NO_AXIS = 1e-12  # of the strongest: squares of rounding errors
_MOST_ROWS = 5000  # a covariance of so many coordinates needs no more


def start(batch: Batch, shrinkage: float) -> Tensor:
    """The metric (D, N) that rows with labels suggest, in double precision.

    Rows (B, N) of 'standard': their last coordinate gives their length back. Its part of the metric
    is 1. The rest lets rows of one class vary alike in every direction: with S the covariance
    within classes it is ((1−s)S + s·mean(diag S))^(−1/2), s the shrinkage. Rows keep their mean square length. With more than MAX_RANK
    coordinates all this happens among the MAX_RANK − 1 principal axes.
    """
    rows = _evenly((batch.targets.sum(1) > 0).nonzero()[:, 0], _MOST_ROWS)
    batch = batch.take(rows).filled()
    x, given = batch.x.double(), batch.sample_weight
    weight = torch.ones_like(x[:, 0]) if given is None else given.double()
    label, n = batch.targets.argmax(1), x.shape[1] - 1
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


def _evenly(index: Tensor, most: int) -> Tensor:
    """At most so many of them, from beginning to end: rows may be sorted by class."""
    return index[:: max(1, -(-len(index) // most))]


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
