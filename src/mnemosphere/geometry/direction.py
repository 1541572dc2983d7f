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
from mnemosphere.geometry.graph import Graph, OnnxRows
from mnemosphere.model.gaps import has_gaps
from mnemosphere.rows.rows import Rows

_LOOKED_AT = 8  # chunks
_CONSTANT = 1e-9  # what is left of a constant row after its mean is rounding


@dataclass(frozen=True)
class Unit(Geometry):
    """A row over its norm (embeddings): what is lost is the norm.

    A row with gaps has in what is known the features' mean shares of a squared norm.
    """

    name: ClassVar[str] = "unit"
    _keeps_unit_rows: ClassVar[bool] = True
    _scales_gaps: ClassVar[bool] = True
    _least_features: ClassVar[int] = 2
    no_direction: ClassVar[str] = "all zeros"

    # (N,) each feature's mean share of a row's squared norm; None: they are equal
    energy: Tensor | None = None

    @classmethod
    def fit(cls, rows: Rows, targets: Tensor | None = None, weight: Tensor | None = None) -> Self:
        """Learn the shares from the first rows, a few chunks of them: they are averages.

        A feature that no row has gets next to nothing, not 0: a row that has nothing
        else still has a direction.
        """
        geometry = cls()
        energy, total = (
            torch.zeros(rows.n_features, dtype=torch.float64, device=rows.device) for _ in range(2)
        )
        for part, x in itertools.islice(rows.chunks(), _LOOKED_AT):
            gaps = x.isnan()
            known = (~gaps).double()
            # Of k known features, a unit row has 1/k of its square in each, where others have 1/N.
            if has_gaps(x):
                unit = (
                    geometry.place(geometry._neutral(x, gaps))[0]
                    * known.sum(1, keepdim=True).sqrt()
                )
                square = torch.where(gaps, 0.0, unit).square()
            else:
                square = geometry.place(x)[0].square_().mul_(rows.n_features)
            each = None if weight is None else weight[part].to(x)
            energy += square.sum(0) if each is None else each @ square
            total += known.sum(0) if each is None else each @ known
        energy = energy / total.clamp_min(torch.finfo(total.dtype).tiny)
        energy = energy / energy.sum().clamp_min(torch.finfo(energy.dtype).tiny)
        return cls(energy.clamp_min(torch.finfo(energy.dtype).eps))

    def coordinates(self, x: Tensor) -> Tensor:
        """The row itself."""
        return x.double()

    def _neutral(self, x: Tensor, unknown: Tensor) -> Tensor:
        """Zeros."""
        return torch.where(unknown, 0.0, x.double())

    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """The directions."""
        return w

    def _onnx_coordinates(self, g: Graph, rows: OnnxRows) -> str:
        """The row, 0 where unknown."""
        return g("Where", rows.unknown, 0.0, rows.x)

    def _known_share(self, x: Tensor, unit: Tensor, gaps: Tensor) -> Tensor:
        return torch.where(gaps, 0.0, self._shares(x.shape[1]).to(x.device)).sum(1)

    def _onnx_share(self, g: Graph, rows: OnnxRows, unit: str, length: str) -> str:
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
    _keeps_unit_rows: ClassVar[bool] = False
    no_direction: ClassVar[str] = "constant"
    n_unused_directions: ClassVar[int] = 1  # along (1, …, 1)

    def coordinates(self, x: Tensor) -> Tensor:
        """The row without its mean."""
        return x.double() - x.double().mean(1, keepdim=True)

    def _directions(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, left, undirected = self._centered(x)
        return self._centered(rescale_extreme_rows(x)) if extreme(left) else (v, left, undirected)

    def _centered(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = x.mean(1, keepdim=True)
        x = x - mean
        left = torch.linalg.vector_norm(x, dim=1)
        # Against the row as it came: what is left of a constant one is rounding.
        return x, left, left <= _CONSTANT * torch.hypot(left, x.shape[1] ** 0.5 * mean[:, 0])

    def _neutral(self, x: Tensor, unknown: Tensor) -> Tensor:
        """The mean of the row, which is that of the features that are known."""
        known = torch.where(unknown, 0.0, x.double())
        value = known.sum(1, keepdim=True) / (~unknown).sum(1, keepdim=True).clamp_min(1)
        return torch.where(unknown, value, x.double())

    def _onnx_directions(self, g: Graph, rows: OnnxRows) -> tuple[str, str, str]:
        x = self._onnx_coordinates(g, rows)
        mean = g("Div", g.total(x), g("Max", g("Sub", float(rows.n), rows.missing), 1.0))
        limit = g("Mul", g.norms(g("Where", rows.unknown, mean, x)), _CONSTANT)
        x = g("Where", rows.unknown, 0.0, g("Sub", x, mean))
        length = g.norms(x)
        return x, length, g("LessOrEqual", length, limit)

    def _known_mean(self, rows: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
        total = np.where(known, rows, 0.0).sum(1, keepdims=True)
        found: NDArray[Any] = total / np.maximum(known.sum(1, keepdims=True), 1)
        return found
