"""Columns on circles: each number becomes its rank among the training rows, and the rank points on circles.

With the rank u in (0, 1) of a value, a column has the coordinates cos(kπu)/k and sin(kπu)/k, k = 1..H. All
values of all columns have the same length, so nothing is lost on the way to the sphere; outliers and
monotone transforms do not matter; of a missing value, the length is known. The overlap of a row with a memory
is a sum over columns of a smooth function of one column. The n columns of zeros and ones that a category
becomes are as long together as one column: each has a share 1/n of its squared length.

A column with d different values has d − 1 harmonics at most: a category, which comes as columns of zeros
and ones, has one for each of them.

Between two values of a column, the squared distance depends on the difference of their ranks alone. Values beyond
the training rows have ranks down to −½ and up to 1½, on the half of each circle where no training row lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.geometry.base import Curves, Geometry, any_rare
from mnemosphere.geometry.graph import Graph, OnnxRows
from mnemosphere.rows.rows import Rows

Floats = NDArray[np.float64]
KNOTS = 128  # values of a column between which ranks are interpolated
_NUMBERS = 1 << 16  # that are sorted at a time
_ROWS = 20_000  # ranks among so many rows are good to a percent
# Finer functions of a column need more rows: 4 harmonics for hundreds, 16 for ten thousand.
_LEAST, _MOST, _ROOTS_EACH = 4, 24, 6.0
_COORDINATES = 512  # of all columns together, at most: two harmonics each are always there


class Tables(NamedTuple):
    """Coordinate m of a row whose ranks are u is amplitude sin(frequency u_column + phase)."""

    column: Tensor  # (M,)
    amplitude: Tensor  # (M,)
    frequency: Tensor  # (M,)
    phase: Tensor  # (M,)
    weight: Tensor  # (N,) of each column in the squared length of a row, of sum 1


@dataclass(frozen=True)
class Circles(Geometry):
    """Ranks of the values of each column, and how many harmonics it has."""

    name: ClassVar[str] = "circles"
    _scales_gaps: ClassVar[bool] = True
    has_curves: ClassVar[bool] = True

    # values, ascending; the last one again if a column has fewer
    knots: Tensor
    ranks: Tensor  # their ranks, in (0, 1)
    mass: Tensor  # shares of the training rows nearest to each knot
    harmonics: Tensor  # whole; 0: a constant column
    # of the squared length that columns have: below 1 for those of a category
    shares: Tensor

    @classmethod
    def fit(cls, rows: Rows, targets: Tensor | None = None, weight: Tensor | None = None) -> Self:
        """Learn the ranks from dense rows, NaN for missing values, some of them if there are many."""
        step = max(1, -(-rows.n_rows // _ROWS))
        x = torch.cat([part[(-span.start) % step :: step].double() for span, part in rows.chunks()])
        each = x.new_ones(len(x)) if weight is None else weight[::step].to(x)
        x = torch.where(each[:, None] > 0, x, torch.nan)
        few = torch.split(x.T.contiguous().cpu(), max(1, _NUMBERS // len(x)))
        found = zip(*(_knots(own.numpy(), each.cpu().numpy()) for own in few), strict=True)
        *tables, count = (torch.from_numpy(np.concatenate(own)).to(x.device) for own in found)
        knots, ranks, mass = (own[:, : int(count.max())].contiguous() for own in tables)
        degrees = count - 1
        most = min(_MOST, max(_LEAST, int(rows.n_rows**0.5 / _ROOTS_EACH)))
        several = max(1, int((degrees > 1).sum()))
        most = max(2, min(most, _COORDINATES // 2 // several))
        shares = x.new_tensor(rows.columns.shares if rows.columns else [1.0] * rows.n_features)
        return cls(knots, ranks, mass, degrees.clamp_max(most).double(), shares)

    @cached_property
    def tables(self) -> Tables:
        """What rows are placed by, made of the harmonics and shares."""
        count = self.harmonics.long()
        column = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
        first = count.cumsum(0) - count
        k = (torch.arange(len(column), device=count.device) - first[column] + 1).double()
        # Columns with fewer harmonics are as long as the others.
        square = torch.cat([k.new_zeros(1), k.reciprocal().square().cumsum(0)])
        own = (square[first + count] - square[first])[column]
        amplitude = (self.shares[column] * own.max() / own).sqrt() / k if len(k) else own
        square = amplitude.square()
        length = square.new_zeros(len(count)).index_add_(0, column, square)
        phase = torch.tensor([math.pi / 2, 0.0], dtype=torch.float64, device=k.device)
        column, amplitude, frequency = (
            t.repeat_interleave(2) for t in (column, amplitude, math.pi * k)
        )
        return Tables(column, amplitude, frequency, phase.repeat(len(k)), length / length.sum())

    def tensors(self, *, derived: bool = False) -> dict[str, Tensor]:
        """What was learned, and what rows are placed by."""
        return super().tensors() | (self.tables._asdict() if derived else {})

    def with_tensors(self, tensors: dict[str, Tensor]) -> Self:
        """The same with these."""
        found = super().with_tensors({name: tensors[name] for name in super().tensors()})
        if all(name in tensors for name in Tables._fields):
            found.__dict__["tables"] = Tables(*(tensors[name] for name in Tables._fields))
        return found

    def n_coordinates(self, n_features: int) -> int:
        """M, two for each harmonic of each column."""
        return 2 * int(self.harmonics.sum())

    @staticmethod
    def least_and_most(n_features: int) -> tuple[int, int]:
        """Between what their number lies for so many columns: two values have one harmonic."""
        return 2 * n_features, max(4 * n_features, _COORDINATES)

    @property
    def length(self) -> float:
        """The length of a row without missing values."""
        return float((self.tables.amplitude.square().sum() / 2).sqrt())

    def in_units(self, x: Tensor) -> tuple[Tensor, str]:
        """Ranks."""
        return self.positions(x), "ranks"

    def positions(self, x: Tensor) -> Tensor:
        """Ranks (B, N) of values, linear between knots; NaN stays.

        Beyond the knots a rank goes on, by t/(1+t) half a rank of a value that is t ranges beyond.
        """
        unknown, knots = x.isnan(), self.knots / 2  # the difference of two huge numbers is one too
        value = (torch.where(unknown, 0.0, x.double()) / 2).T.contiguous()  # (N, B)
        low, high, last = knots[:, :1], knots[:, -1:], knots.shape[1] - 1
        inside = value.clamp(low, high)
        right = torch.searchsorted(knots, inside.detach()).clamp_min(min(1, last))
        left = (right - 1).clamp_min(0)
        (a, b), (u, v) = (
            (own.gather(1, left), own.gather(1, right)) for own in (knots, self.ranks)
        )
        found = torch.lerp(u, v, (inside - a) / torch.where(b > a, b - a, 1.0))
        beyond = (value - inside) / torch.where(high > low, high - low, torch.inf)
        found = found + beyond.sign() * (1 - 1 / (1 + beyond.abs())) / 2
        return torch.where(unknown, torch.nan, found.T)

    def coordinates(self, x: Tensor) -> Tensor:
        """Coordinates (B, M) of rows (B, N); zeros for NaN."""
        return self.at(self.positions(x))

    def _known_share(self, x: Tensor, unit: Tensor, gaps: Tensor) -> Tensor:
        """That of the columns that are known, exactly."""
        return torch.where(gaps, 0.0, self.tables.weight).sum(1)

    def _neutral(self, x: Tensor, unknown: Tensor) -> Tensor:
        """NaN, which has zeros as coordinates."""
        return torch.where(unknown, torch.nan, x.double())

    def fill(self, x: Tensor) -> Tensor:
        """The value in the middle of each column in place of NaN."""
        at = (self.ranks - 0.5).abs().argmin(1, keepdim=True)
        return torch.where(x.isnan(), self.knots.gather(1, at)[:, 0], x.double())

    def at(self, rank: Tensor) -> Tensor:
        """Coordinates (B, M) of ranks (B, N); zeros for NaN."""
        unknown, t = rank.isnan(), self.tables
        turned = torch.where(unknown, 0.0, rank)[:, t.column]
        found = t.amplitude * torch.addcmul(t.phase, turned, t.frequency).sin()
        return found.masked_fill(unknown[:, t.column], 0.0) if any_rare(unknown) else found

    @cached_property
    def _at_knots(self) -> list[tuple[slice, Tensor]]:
        """Of each column, where its coordinates lie and what they are at its knots (K, ·)."""
        ends, at_knots = (2 * self.harmonics.long()).cumsum(0).tolist(), self.at(self.ranks.T)
        places = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
        return [(own, at_knots[:, own]) for own in places]

    @cached_property
    def center(self) -> Tensor:
        """Mean coordinates (M,) of the training rows, in each column of those that have a value."""
        return torch.cat([m @ z for m, (_, z) in zip(self.mass, self._at_knots, strict=True)])

    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """The value of each column (…, N) that resembles w (…, M) most, of those at the knots."""
        shape, w = w.shape[:-1], w.reshape(-1, w.shape[-1])
        parts = [(w[:, own].double() @ z.to(w.device).T).argmax(1) for own, z in self._at_knots]
        best = torch.stack(parts, 1)
        for place in categories:
            own = self._at_knots[place]
            gain = torch.stack(
                [w[:, at].double() @ (z[-1] - z[0]).to(w.device) for at, z in own], 1
            )
            chosen = torch.zeros_like(best[:, place]).scatter_(1, gain.argmax(1, keepdim=True), 1)
            best[:, place] = chosen * (self.knots.shape[1] - 1)
        knots = self.knots.to(w.device).expand(len(w), -1, -1)
        return knots.gather(2, best[:, :, None]).reshape(*shape, -1)

    @property
    def units(self) -> Tensor | None:
        """About the standard deviation of each column in the training rows, above 0, (N,)."""
        peak = self.knots.abs().amax(1).clamp_min(1e-300)
        value = self.knots / peak[:, None]
        spread = (value - (self.mass * value).sum(1, keepdim=True)).square()
        found = (self.mass * spread).sum(1).sqrt() * peak
        return torch.where(found > 0, found, 1.0)

    def strengths(self, w: Tensor) -> Tensor:
        """How long the part of each column is in w (P, M): how much it matters, (P, N)."""
        return self._per_feature(w.double().square()).sqrt()

    def _per_feature(self, parts: Tensor) -> Tensor:
        """Parts (…, M) of coordinates summed by column (…, N)."""
        found = parts.new_zeros(*parts.shape[:-1], len(self.harmonics))
        return found.index_add_(-1, self.tables.column.to(parts.device), parts)

    def per_coordinate(self, of_features: Tensor, constant: float = 1) -> Tensor:
        """What is said of features (B, N), of their coordinates (B, M)."""
        return of_features[:, self.tables.column.to(of_features.device)]

    def _onnx_coordinates(self, g: Graph, rows: OnnxRows) -> str:
        """A rank is a sum over the spaces between knots, each filled from 0 to 1."""
        knots = self.knots.cpu() / 2  # halves: the difference of two huge numbers is one too
        width, rise = (t.diff(dim=1) for t in (knots, self.ranks.cpu()))
        safe = torch.where(width > 0, width, 1.0)
        each = g("Unsqueeze", g("Mul", rows.x, 0.5), [2])
        filled = g("Div", g("Sub", each, g.stored(knots[:, :-1])), g.stored(safe))
        filled = g("Min", g("Max", filled, 0.0), 1.0)  # (batch, N, K−1)
        rise = torch.where(width > 0, rise, 0.0)
        rank = g("ReduceSum", g("Mul", filled, g.stored(rise)), [2], keepdims=0)
        rank = g("Add", rank, g.stored(self.ranks[:, 0]))
        first, last = knots[:, 0], knots[:, -1]
        width, half = torch.where(last > first, last - first, torch.inf), g("Mul", rows.x, 0.5)
        away = g("Sub", half, g.stored(last)), g("Sub", g.stored(first), half)
        over, under = (g("Div", g("Max", t, 0.0), g.stored(width)) for t in away)
        near, far = (g("Div", 0.5, g("Add", 1.0, t)) for t in (under, over))
        rank = g("Add", rank, g("Sub", near, far))
        column = g.constant(self.tables.column.cpu().numpy(), np.int64)
        amplitude, frequency, phase = (g.stored(t) for t in self.tables[1:4])
        angle = g("Add", g("Mul", g("Gather", rank, column, axis=1), frequency), phase)
        unknown = g("Gather", rows.unknown, column, axis=1)
        return g("Where", unknown, 0.0, g("Mul", g("Sin", angle), amplitude))

    def _onnx_share(self, g: Graph, rows: OnnxRows, unit: str, length: str) -> str:
        gaps = g("Cast", rows.unknown, to=g.double)
        return g(
            "Max", g("Sub", 1.0, g("MatMul", gaps, g.stored(self.tables.weight[:, None]))), 0.0
        )

    def _onnx_gaps(self, g: Graph, gaps: str) -> str:
        return g("Gather", gaps, g.constant(self.tables.column.cpu().numpy(), np.int64), axis=1)


def curves(geometry: Geometry, w: Tensor) -> Curves:
    """What each feature adds to the overlaps with w (P, D), at its knots; 0 is what it adds on average."""
    if not isinstance(geometry, Circles):
        raise ValueError(f"curves need geometry='circles', got {geometry.name!r}: use memories")
    w, center = w.double(), geometry.center.to(w.device)
    parts = [w[:, own] @ (z.to(w) - center[own]).T for own, z in geometry._at_knots]
    return Curves(geometry.knots, torch.stack(parts, 1) / geometry.length, geometry.mass)


def _knots(x: Floats, weight: Floats) -> tuple[Floats, Floats, Floats, NDArray[np.intp]]:
    """(values, ascending, their ranks, shares of rows) (N, KNOTS) of columns (N, n), and how many (N,).

    A rank is the middle of the ranks of all values that are equal. Of many values only some are here.
    """
    order = None if (weight == weight[0]).all() else x.argsort(1)  # what is not known comes last
    value = np.sort(x, 1) if order is None else np.take_along_axis(x, order, 1)
    unknown = np.isnan(value)
    value[unknown] = 0.0
    mass = np.where(unknown, 0.0, weight if order is None else weight[order])
    mass[:, 0] += mass.sum(1) == 0
    new = np.ones_like(unknown)
    new[:, 1:] = (value[:, 1:] != value[:, :-1]) & ~unknown[:, 1:]
    at, real = _places(new, new.sum(1).max())
    mass = np.where(real, np.bincount(new.cumsum() - 1, mass.ravel())[at], 0.0)
    mass /= mass.sum(1, keepdims=True)
    value, rank = value[new][at], (mass.cumsum(1) - mass / 2).clip(1e-9, 1 - 1e-9)
    # Evenly by rank, the first and the last among them.
    count = real.sum(1, keepdims=True)
    kept = (np.diff(np.floor(rank * (KNOTS - 1)), prepend=-1) > 0) | (count <= KNOTS)
    np.put_along_axis(kept, count - 1, True, 1)
    kept &= real
    at, real = _places(kept, KNOTS)
    own, group, count = rank[kept], kept.cumsum() - 1, real.sum(1)
    middle = (own + np.roll(own, -1)) / 2  # between two that are kept
    middle[count.cumsum() - 1] = np.inf
    nearest = group + (rank.ravel() > middle[group])
    mass = np.where(real, np.bincount(nearest, mass.ravel())[at], 0.0)
    return value[kept][at], own[at], mass, count


def _places(kept: NDArray[np.bool_], size: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where the values that are kept stand among all that are, (N, size), the last of a column again and again.

    And which of them are not repeated.
    """
    count, k = kept.sum(1, keepdims=True), np.arange(size)
    return count.cumsum()[:, None] - count + np.minimum(k, count - 1), k < count
