"""A metric: rows x are seen as Ax/‖Ax‖, so that coordinates that tell classes apart count more."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.numerics import sphere

__all__ = ["MAX_RANK", "apply", "relevances", "strongest_pairs", "whitening", "whitenings"]

MAX_RANK = 150  # rows of a metric: the largest matrix that is learned
_NO_AXIS = 1e-12  # of the strongest: squares of rounding errors
_MOST_ROWS = 5000  # a covariance of so many coordinates needs no more


def apply(metric: Tensor, batch: Batch) -> Batch:
    """The rows as the metric sees them, Ax/‖Ax‖."""
    x = sphere.project(batch.filled().x.double() @ metric.T)
    return Batch(x.to(batch.x.dtype), batch.targets, batch.sample_weight)


def whitening(batch: Batch, shrinkage: float) -> Tensor:
    """The metric of one shrinkage: see `whitenings`."""
    return whitenings(batch, (shrinkage,))[0]


def whitenings(batch: Batch, shrinkages: Sequence[float]) -> list[Tensor]:
    """The metric (D, N) in which rows of one class vary alike in every direction, in float64.

    Rows (B, N) of 'standard': their last coordinate gives their length back. Its part of the metric
    is 1. With S the covariance within classes, the rest is ((1−s)S + s·mean(diag S))^(−1/2), s the
    shrinkage, scaled so that rows keep their mean square length. With more than MAX_RANK
    coordinates that happens among the MAX_RANK − 1 principal axes. One metric per shrinkage.
    """
    batch = batch.filled().take((batch.targets.sum(1) > 0).nonzero()[:_MOST_ROWS, 0])
    x, given = batch.x.double(), batch.sample_weight
    weight = torch.ones_like(x[:, 0]) if given is None else given.double()
    n = x.shape[1] - 1
    z = x[:, :-1] * (n**0.5 / x[:, -1:])
    axes = torch.eye(n, dtype=x.dtype, device=x.device)
    if n >= MAX_RANK:
        axes = _principal_axes(z * weight.sqrt()[:, None], MAX_RANK - 1)
        z = z @ axes.T
    label = batch.targets.argmax(1)
    by_class = torch.nn.functional.one_hot(label).to(x) * weight[:, None]  # (B, C)
    means = by_class.T @ z / by_class.sum(0).clamp_min(torch.finfo(x.dtype).tiny)[:, None]
    rest = z - means[label]
    s = (rest.T * weight) @ rest / weight.sum()
    typical = s.diagonal().mean()
    own, vectors = torch.linalg.eigh(s)
    found = []
    for shrinkage in shrinkages:
        values = (1 - shrinkage) * own + shrinkage * typical
        # Directions without any variation within classes must not drown all others.
        values = values.clamp_min(torch.maximum(1e-6 * typical, values.new_tensor(1e-100)))
        root = (vectors * values.rsqrt()) @ vectors.T
        before, after = ((weight * r.square().sum(1)).sum() for r in (z, z @ root))
        length = torch.where(after > 0, before / after, 1.0)
        metric = torch.zeros(len(s) + 1, n + 1, dtype=x.dtype, device=x.device)
        metric[:-1, :-1] = length.sqrt() * root @ axes
        metric[-1, -1] = 1.0
        found.append(metric)
    return found


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
    kept = values > _NO_AXIS * values[-1]
    axes: Tensor = vectors[:, kept]
    if rows_are_fewer:
        axes = z.T @ (axes / values[kept].sqrt())
    return axes.mT.flip(0)


def relevances(metric: Tensor) -> Tensor:
    """How much each coordinate counts, (M,): the diagonal of AᵀA, scaled to mean 1."""
    diagonal = metric.double().square().sum(0)
    return diagonal / diagonal.mean()


def strongest_pairs(metric: Tensor, most: int) -> list[tuple[int, int, float]]:
    """Pairs of coordinates that count together, (i, j, entry of AᵀA in the scale of `relevances`).

    The largest first, by modulus. Above zero the sum of the two counts for more than each alone,
    below zero their difference.
    """
    a = metric.double()
    form = a.T @ a
    form = form / form.diagonal().mean()
    first, second = torch.ones_like(form).triu(1).nonzero(as_tuple=True)
    value = form[first, second]
    best = value.abs().topk(min(most, len(value))).indices
    parts = (first[best].tolist(), second[best].tolist(), value[best].tolist())
    return [*zip(*parts, strict=True)]
