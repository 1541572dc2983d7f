"""Rows as directions: over their norms, with or without their means."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.geometry.base import Geometry, extreme, rescale_extreme_rows
from mnemosphere.geometry.graph import Given, Graph
from mnemosphere.model.gaps import has_gaps
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.rows.stored import ALONE, Sums
from mnemosphere.rows.streams import Chunks

_LOOKED_AT = 8  # chunks
_CONSTANT = 1e-9  # what is left of a constant row after its mean is rounding


@dataclass(frozen=True)
class _Direction(Geometry):
    """A row over its norm: what is lost is the norm."""

    keeps_sparse: ClassVar[bool] = True
    scales_gaps: ClassVar[bool] = True
    least_features: ClassVar[int] = 2
    no_direction: ClassVar[str] = "all zeros"
    unit_name: ClassVar[str] = "units of X"

    def coordinates(self, x: Tensor) -> Tensor:
        """The row itself."""
        return x.double()

    def _place_sparse(self, x: SparseRows) -> tuple[Tensor, Tensor]:
        value = _scaled(x)
        norm = x.sum_rows(value.square()).sqrt()
        lost = norm == 0
        return x.with_values(value / torch.where(lost, 1.0, norm)[x.row]), lost

    def fill(self, x: Tensor, unknown: Tensor) -> Tensor:
        """Zeros."""
        return torch.where(unknown, 0.0, x.double())

    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """The directions."""
        return w

    def onnx_coordinates(self, g: Graph, rows: Given) -> str:
        """The row, 0 where unknown."""
        return g("Where", rows.unknown, 0.0, rows.x)


@dataclass(frozen=True)
class AsIs(_Direction):
    """The rows are unit vectors already: a row with gaps has in them what is left of 1."""

    name: ClassVar[str] = "none"
    takes_unit_rows: ClassVar[bool] = True

    @classmethod
    def fit(
        cls, rows: Chunks, targets: Tensor | None = None, weight: Tensor | None = None,
        sums: Sums = ALONE,
    ) -> Self:  # fmt: skip
        """Learn nothing."""
        return cls()

    def _known_share(self, x: Tensor, unit: Tensor, gaps: Tensor) -> Tensor:
        return x.nan_to_num(0.0).square().sum(1).clamp_max(1.0)

    def _onnx_share(self, g: Graph, rows: Given, unit: str, length: str) -> str:
        return g("Min", g("Mul", length, length), 1.0)

    def fill(self, x: Tensor, unknown: Tensor) -> Tensor:
        """Zeros, and the rest at unit length."""
        filled = super().fill(x, unknown)
        norm = torch.linalg.vector_norm(filled, dim=1, keepdim=True)
        return filled / torch.where(norm > 0, norm, 1.0)


@dataclass(frozen=True)
class Unit(_Direction):
    """Over the row's norm (embeddings).

    A row with gaps has in what is known the features' mean shares of a squared norm.
    """

    name: ClassVar[str] = "unit"
    keeps_unit_rows: ClassVar[bool] = True

    # (N,) each feature's mean share of a row's squared norm; None: they are equal
    energy: Tensor | None = None

    @classmethod
    def fit(
        cls, rows: Chunks, targets: Tensor | None = None, weight: Tensor | None = None,
        sums: Sums = ALONE,
    ) -> Self:  # fmt: skip
        """Learn the shares from the first rows, a few chunks of them: they are averages.

        None of sparse rows. A feature that no row has gets next to nothing, not 0: a row that has nothing
        else still has a direction.
        """
        geometry = cls()
        energy, total = (
            torch.zeros(rows.n_features, dtype=torch.float64, device=rows.device) for _ in range(2)
        )
        for part, x in itertools.islice(rows.chunks(), _LOOKED_AT):
            if isinstance(x, SparseRows):
                return geometry
            gaps = x.isnan()
            known = (~gaps).double()
            # Of k known features, a unit row has 1/k of its square in each, where others have 1/N.
            if has_gaps(x):
                unit = geometry.place(geometry.fill(x, gaps))[0] * known.sum(1, keepdim=True).sqrt()
                square = torch.where(gaps, 0.0, unit).square()
            else:
                square = geometry.place(x)[0].square_().mul_(rows.n_features)
            each = None if weight is None else weight[part].to(x)
            energy += square.sum(0) if each is None else each @ square
            total += known.sum(0) if each is None else each @ known
        energy = energy / total.clamp_min(torch.finfo(total.dtype).tiny)
        energy = energy / energy.sum().clamp_min(torch.finfo(energy.dtype).tiny)
        return cls(energy.clamp_min(torch.finfo(energy.dtype).eps))

    def _known_share(self, x: Tensor, unit: Tensor, gaps: Tensor) -> Tensor:
        return torch.where(gaps, 0.0, self._shares(x.shape[1]).to(x.device)).sum(1)

    def _onnx_share(self, g: Graph, rows: Given, unit: str, length: str) -> str:
        return g.total(g("Where", rows.unknown, 0.0, g.stored(self._shares(rows.n))))

    def _shares(self, n_features: int) -> Tensor:
        even = torch.full((n_features,), 1 / n_features, dtype=torch.float64)
        return even if self.energy is None else self.energy

    def complete(self, rows: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
        """As `Geometry.complete`, with the length, and mean, that fit the known features best."""
        rows = np.array(rows, dtype=np.float64)
        known = ~np.isnan(rows)
        mean, base = self._known_mean(rows, known), self._known_mean(found, known)
        given, pattern = np.where(known, rows - mean, 0.0), np.where(known, found - base, 0.0)
        square = (pattern * pattern).sum(1, keepdims=True)
        scale = (given * pattern).sum(1, keepdims=True) / np.where(square > 0, square, 1.0)
        return np.where(known, rows, mean + scale * (found - base))

    def _known_mean(self, rows: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
        """What is taken off rows (n, N), (n, 1)."""
        return np.zeros((len(rows), 1))


@dataclass(frozen=True)
class Center(Unit):
    """Minus the row's mean, over the row's norm (images, spectra, counts)."""

    name: ClassVar[str] = "center"
    keeps_unit_rows: ClassVar[bool] = False
    no_direction: ClassVar[str] = "constant"
    fixed: ClassVar[int] = 1  # along (1, …, 1)

    def coordinates(self, x: Tensor) -> Tensor:
        """The row without its mean."""
        return x.double() - x.double().mean(1, keepdim=True)

    def _directions(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, left, lost = self._centered(x)
        return self._centered(rescale_extreme_rows(x)) if extreme(left) else (v, left, lost)

    def _centered(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = x.mean(1, keepdim=True)
        x = x - mean
        left = torch.linalg.vector_norm(x, dim=1)
        return x, left, _constant(left, mean[:, 0], x.shape[1])

    def _place_sparse(self, x: SparseRows) -> tuple[Tensor, Tensor]:
        value, n = _scaled(x), x.shape[1]
        mean = x.sum_rows(value) / n
        empty = n - x.start.diff()
        square = x.sum_rows((value - mean[x.row]).square()) + empty * mean.square()
        left = square.sqrt()
        lost = _constant(left, mean, n)
        share = torch.where(lost, 0.0, 1 / torch.where(lost, 1.0, left))
        return x.with_values(value * share[x.row], -mean * share, value.new_ones(n)), lost

    def fill(self, x: Tensor, unknown: Tensor) -> Tensor:
        """The mean of the row, which is that of the features that are known."""
        known = torch.where(unknown, 0.0, x.double())
        value = known.sum(1, keepdim=True) / (~unknown).sum(1, keepdim=True).clamp_min(1)
        return torch.where(unknown, value, x.double())

    def _onnx_directions(self, g: Graph, rows: Given) -> tuple[str, str, str]:
        x = self.onnx_coordinates(g, rows)
        mean = g("Div", g.total(x), g("Max", g("Sub", float(rows.n), rows.missing), 1.0))
        limit = g("Mul", g.norms(g("Where", rows.unknown, mean, x), 1), _CONSTANT)
        x = g("Where", rows.unknown, 0.0, g("Sub", x, mean))
        length = g.norms(x, 1)
        return x, length, g("LessOrEqual", length, limit)

    def _known_mean(self, rows: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
        total = np.where(known, rows, 0.0).sum(1, keepdims=True)
        found: NDArray[Any] = total / np.maximum(known.sum(1, keepdims=True), 1)
        return found


def _constant(left: Tensor, mean: Tensor, n_features: int) -> Tensor:
    """Which rows were constant, by the norm that is left without their mean: that is rounding."""
    # Measured against the row as it came.
    return left <= _CONSTANT * torch.hypot(left, n_features**0.5 * mean)


def _scaled(x: SparseRows) -> Tensor:
    """Values over the largest of their row: so a row of huge or tiny numbers has a norm."""
    value = x.value.double()
    peak = value.new_zeros(x.shape[0]).scatter_reduce(0, x.row, value.abs(), "amax")
    return value / torch.where(peak > 0, peak, 1.0)[x.row]
