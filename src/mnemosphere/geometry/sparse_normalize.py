"""The normalizations in closed form for sparse rows, which stay sparse, and sums over features."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.sparse_rows import SparseRows

_CONSTANT = 1e-9  # what is left of a constant row after its mean is rounding


def constant_left(left: Tensor, mean: Tensor, n_features: int) -> Tensor:
    """Which rows were constant, by the norm that is left without their mean: that is rounding."""
    # Measured against the row as it came.
    return left <= _CONSTANT * torch.hypot(left, n_features**0.5 * mean)


def counts(x: Tensor, weight: Tensor | None) -> Tensor:
    """Σ_b weight_b over the rows in which each feature is known, (N,)."""
    known = x.new_ones(x.shape[0], 1) if isinstance(x, SparseRows) else (~x.isnan()).double()
    total = known.sum(0) if weight is None else weight @ known
    return total.expand(x.shape[1])


def sums(x: Tensor, unit: Tensor, weight: Tensor | None) -> Tensor:
    """Σ_b weight_b x_b / unit, (N,)."""
    if not isinstance(x, SparseRows):
        x = (x / unit).nan_to_num(0.0)
        return x.sum(0) if weight is None else weight @ x
    value = x.value / unit[x.column]
    return _by_column(x, value if weight is None else value * weight[x.row])


def squares(x: Tensor, unit: Tensor, mean: Tensor, weight: Tensor | None) -> Tensor:
    """Σ_b weight_b (x_b / unit − mean)², (N,)."""
    if not isinstance(x, SparseRows):
        square = (x / unit - mean).nan_to_num(0.0).square()
        return square.sum(0) if weight is None else weight @ square
    each = torch.ones_like(x.value) if weight is None else weight[x.row]
    away = _by_column(x, each * (x.value / unit[x.column] - mean[x.column]).square())
    total = x.shape[0] if weight is None else weight.sum()
    # Where every row has an entry, what is left of the difference is rounding.
    full = torch.bincount(x.column, minlength=x.shape[1]) == x.shape[0]
    zeros = torch.where(full, 0.0, (total - _by_column(x, each)).clamp_min(0))
    return away + zeros * mean.square()


def _by_column(x: SparseRows, value: Tensor) -> Tensor:
    return value.new_zeros(x.shape[1]).index_add_(0, x.column, value)


def sparse_unit_rows(
    x: SparseRows, kind: str, mean: Tensor | None, scale: Tensor | None
) -> tuple[SparseRows, Tensor]:
    """What `Normalizer` makes of sparse rows: (unit rows, which have no direction)."""
    value, n = x.value.double(), x.shape[1]
    if mean is not None and scale is not None:
        middle = mean / scale
        z = value / scale[x.column]
        # ‖z − middle‖² with the entries that are zero counted first, and the one appended.
        square = x.sum_rows(z * (z - 2 * middle[x.column])) + middle.square().sum() + n
        norm = square.clamp_min(n).sqrt()
        v = torch.cat([-middle, middle.new_full((1,), n**0.5)])
        unit = x.with_values(z / norm[x.row], 1 / norm, v)
        return unit, torch.zeros_like(norm, dtype=torch.bool)
    # Divided by its largest entry first, a row of huge or tiny numbers has a norm.
    peak = value.new_zeros(x.shape[0]).scatter_reduce(0, x.row, value.abs(), "amax")
    peak = torch.where(peak > 0, peak, 1.0)
    value = value / peak[x.row]
    if kind != "center":
        norm = x.sum_rows(value.square()).sqrt()
        lost = norm == 0
        return x.with_values(value / torch.where(lost, 1.0, norm)[x.row]), lost
    row_mean = x.sum_rows(value) / n
    empty = n - x.start.diff()
    square = x.sum_rows((value - row_mean[x.row]).square()) + empty * row_mean.square()
    left = square.sqrt()
    lost = constant_left(left, row_mean, n)
    share = torch.where(lost, 0.0, 1 / torch.where(lost, 1.0, left))
    return x.with_values(value * share[x.row], -row_mean * share, value.new_ones(n)), lost
