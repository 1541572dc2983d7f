"""Standard units, mixed so that coordinates that tell classes apart count more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from mnemosphere.geometry.base import any_rare
from mnemosphere.geometry.graph import Graph, OnnxRows
from mnemosphere.geometry.standard import Standard
from mnemosphere.rows.rows import Rows

MAX_RANK = 150  # rows of a metric: the largest matrix that is learned
SHRINKAGE = 0.5  # of a metric: halfway between the covariance within classes and its mean
_NO_AXIS = 1e-12  # of the strongest: squares of rounding errors
_MOST_ROWS = 5000  # a covariance of so many coordinates needs no more
_OWN = 0.05  # of the variance of a column, at least, no other column knows
_STEPS = 32  # of conjugate gradients
_CLOSE = 1e-34  # squares of rests that further steps do not change
_TINY = 1e-200  # squares that are taken for 0


@dataclass(frozen=True)
class Whitened(Standard):
    """Standard units, then a metric that lets the rows of each class vary alike in every direction.

    A metric mixes features, so gaps are filled in: by the mean that the known features suggest.
    """

    name: ClassVar[str] = "whitened"
    needs_labels: ClassVar[bool] = True
    _scales_gaps: ClassVar[bool] = False

    metric: Tensor
    # L: in standard units the covariance is LᵀL and, of each column alone, what is left of its variance
    common: Tensor

    @classmethod
    def fit(cls, rows: Rows, targets: Tensor | None = None, weight: Tensor | None = None) -> Self:
        """Learn standard units, and the metric from some of the rows that have a label and a direction."""
        assert targets is not None
        standard = Standard.fit(rows, targets, weight)
        known = torch.cat([~x.isnan().all(1) for _, x in rows.chunks()])
        known = (known & (targets.sum(1) > 0).to(known.device)).nonzero()[:, 0]
        # From beginning to end: rows may be sorted by class.
        index = known[:: max(1, -(-len(known) // _MOST_ROWS))]
        x = torch.cat([part for _, part in rows.take(index).chunks()])
        z = standard.standardized(x.double()).nan_to_num(0.0)
        each = torch.ones_like(z[:, 0]) if weight is None else weight[index].to(z)
        common = _common(z, each)
        unit = standard.place(_filled(standard, common, x, x.isnan()))[0]
        metric = whitening(unit, targets[index].argmax(1).to(unit.device), each, SHRINKAGE)
        return cls(standard.mean, standard.scale, metric, common)

    @property
    def mixing(self) -> Tensor | None:
        """The metric."""
        return self.metric

    def _neutral(self, x: Tensor, unknown: Tensor) -> Tensor:
        """The mean given what is known."""
        return _filled(self, self.common, x, unknown)

    def _onnx_coordinates(self, g: Graph, rows: OnnxRows) -> str:
        """As those of standard units, `likely` where unknown."""
        v = super()._onnx_coordinates(g, rows)
        z, back = g("Slice", v, [0], [rows.n], [1]), g.stored(self.common)
        mix = g.stored(self.common.T)
        own, known = g.stored(_own(self.common)), g("Cast", g("Not", rows.unknown), to=g.double)

        def spread(p: str) -> str:
            return g("Add", g("MatMul", g("MatMul", p, mix), back), g("Mul", own, p))

        def square(p: str, q: str) -> str:
            return g("Max", g.total(g("Mul", p, q)), _TINY)

        found, rest, step, size = g("Mul", z, 0.0), z, z, square(z, z)
        for _ in range(_STEPS):
            to = g("Mul", known, spread(step))
            share = g("Div", size, square(step, to))
            found = g("Add", found, g("Mul", share, step))
            rest = g("Sub", rest, g("Mul", share, to))
            before, size = size, square(rest, rest)
            step = g("Add", rest, g("Mul", g("Div", size, before), step))
        guess = g("Where", rows.unknown, spread(found), 0.0)
        return g("Add", v, g("Pad", guess, [0, 0, 0, 1], 0.0))

    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """Rows in the features' units."""
        return super().restore(
            w.double() @ torch.linalg.pinv(self.metric.to(w.device)).T, categories
        )


def _common(z: Tensor, weight: Tensor) -> Tensor:
    """L (R, N) of rows in standard units (B, N), along their strongest axes."""
    axes = _principal_axes(z * weight.sqrt()[:, None], min(z.shape[1], MAX_RANK - 1))
    variance = weight @ (z @ axes.T).square() / weight.sum()
    found: Tensor = ((1 - _OWN) * variance).sqrt()[:, None] * axes
    return found.contiguous()  # as a file has it, to the last bit


def _own(common: Tensor) -> Tensor:
    """What is left of the variance of each column, (N,)."""
    return (1 - common.square().sum(0)).clamp_min(_OWN)


def _filled(standard: Standard, common: Tensor, x: Tensor, unknown: Tensor) -> Tensor:
    """Rows (B, N) with what is `likely` where unknown."""
    x = torch.where(unknown, standard.mean, x.double())
    some = unknown.any(1).nonzero()[:, 0]
    own, gaps = x[some], unknown[some]
    guess = standard.mean + standard.scale * likely(common, standard.standardized(own), gaps)
    return x.index_copy(0, some, torch.where(gaps, guess, own))


def likely(common: Tensor, z: Tensor, unknown: Tensor) -> Tensor:
    """The mean of what is unknown of rows (B, N) in standard units, 0 there, given the rest of them.

    With S the covariance it is S_UK a for S_KK a = z_K, by conjugate gradients: the same few products here, in an
    ONNX graph and on a page, exact after as many steps as there are known features.
    """
    peak = z.abs().amax(1, keepdim=True).clamp(1.0, torch.finfo(z.dtype).max)
    rest, own = z / peak, _own(common)

    def spread(p: Tensor) -> Tensor:
        return p @ common.T @ common + own * p

    def square(p: Tensor, q: Tensor) -> Tensor:
        return (p * q).sum(1, keepdim=True).clamp_min(_TINY)

    found, step, size = torch.zeros_like(rest), rest, square(rest, rest)
    for _ in range(_STEPS):
        if not any_rare(size > _CLOSE):
            break
        to = spread(step).masked_fill(unknown, 0.0)
        share = size / square(step, to)
        found, rest = found + share * step, rest - share * to
        before, size = size, square(rest, rest)
        step = rest + size / before * step
    return spread(found) * peak


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
