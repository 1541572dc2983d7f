"""Features in standard units, with one constant coordinate that keeps the length of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from mnemosphere.geometry.base import Geometry, any_rare
from mnemosphere.geometry.graph import Graph, OnnxRows
from mnemosphere.rows.rows import Rows, largest


@dataclass(frozen=True)
class Standard(Geometry):
    """Each feature to mean 0 and variance 1 over the training rows, √N appended, over the norm.

    For tables of unlike features: it keeps the length of a row as well as its direction, and no row is ever zero.
    """

    name: ClassVar[str] = "standard"
    _scales_gaps: ClassVar[bool] = True
    _n_constant: ClassVar[int] = 1

    mean: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, rows: Rows, targets: Tensor | None = None, weight: Tensor | None = None) -> Self:
        """Learn means and standard deviations, in two sweeps.

        What is not known (NaN) counts as the mean of its feature, so that the known part of a row
        is about as long as a whole row would be.
        """
        weight = None if weight is None else weight.double().to(rows.device)
        n = rows.n_features
        peak, mean, square = (
            torch.zeros(n, dtype=torch.float64, device=rows.device) for _ in range(3)
        )
        total = torch.zeros_like(peak)
        for part, x in rows.chunks():
            peak = torch.maximum(peak, largest(x))
            total += _over_rows((~x.isnan()).double(), None if weight is None else weight[part])
        whole = torch.as_tensor(rows.n_rows if weight is None else weight.sum()).to(total)
        total.clamp_min_(torch.finfo(total.dtype).tiny)  # of a feature that no row has
        # In units of the power of two below the largest number: squares stay finite.
        unit = torch.ldexp(torch.ones_like(peak), torch.frexp(peak).exponent - 1)
        unit = torch.where(peak > 0, unit, 1.0)
        for part, x in rows.chunks():
            mean += _over_rows(x / unit, None if weight is None else weight[part]) / total
        for part, x in rows.chunks():
            each = None if weight is None else weight[part]
            square += _over_rows((x / unit - mean).square(), each) / whole
        scale = square.sqrt()
        # A constant feature tells nothing: any scale does.
        scale = torch.where(scale > 1e-12 * mean.abs(), scale, 1.0) * unit
        return cls(mean * unit, torch.where(scale > 0, scale, unit))

    def coordinates(self, x: Tensor) -> Tensor:
        """Standard units, and √N."""
        x = x.double()
        root = x.new_full((x.shape[0], 1), x.shape[1] ** 0.5)
        z = self.standardized(x)
        if any_rare(torch.isinf(z)):  # two huge numbers apart: their halves are not
            z = torch.where(torch.isinf(z), (x / 2 - self.mean / 2) / self.scale * 2, z)
        return torch.cat([z, root], dim=1)

    def _known_share(self, x: Tensor, unit: Tensor, gaps: Tensor) -> Tensor:
        """The unknown part of m features has the norm √m, since features have variance 1."""
        return 1 / (1 + gaps.sum(1) * unit[:, -1].square() / x.shape[1])

    def _neutral(self, x: Tensor, unknown: Tensor) -> Tensor:
        """The mean of the feature."""
        return torch.where(unknown, self.mean, x.double())

    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """Rows in the features' units."""
        n = w.shape[-1] - 1
        # The last coordinate is √N over the norm, so it gives the norm back; a memory on the far
        # side of the sphere has no counterpart, and its direction is shown at unit length.
        last = torch.where(w[..., -1:] > 1e-6, w[..., -1:] / n**0.5, 1.0)
        mean, scale = self.mean.to(w.device), self.scale.to(w.device)
        most = torch.finfo(torch.float64).max  # of numbers near it, a memory may lie beyond
        return (mean + scale * (w[..., :-1] / last).double()).clamp(-most, most)

    @property
    def units(self) -> Tensor | None:
        """Standard deviations of the features, (N,)."""
        return self.scale

    def in_units(self, x: Tensor) -> tuple[Tensor, str]:
        """Standard units."""
        return self.standardized(x), "standard units"

    def standardized(self, x: Tensor) -> Tensor:
        """Rows (n, N) in standard units."""
        return (x - self.mean.to(x.device)) / self.scale.to(x.device)

    def _onnx_coordinates(self, g: Graph, rows: OnnxRows) -> str:
        """Standard units, 0 where unknown, and √N."""
        mean = g.stored(self.mean)
        x = g("Where", rows.unknown, mean, rows.x)
        z = g("Div", g("Sub", x, mean), g.stored(self.scale))
        return g("Pad", z, [0, 0, 0, 1], float(rows.n) ** 0.5)

    def _onnx_share(self, g: Graph, rows: OnnxRows, unit: str, length: str) -> str:
        last = g("Slice", unit, [rows.n], [rows.n + 1], [1])
        left = g("Mul", g("Mul", last, last), g("Div", rows.missing, float(rows.n)))
        return g("Div", 1.0, g("Add", 1.0, left))


def _over_rows(terms: Tensor, weight: Tensor | None) -> Tensor:
    """Σ_b weight_b terms_b, (N,); what is not known (NaN) adds nothing."""
    terms = terms.nan_to_num(0.0)
    return terms.sum(0) if weight is None else weight @ terms
