"""Columns on circles: each number becomes its rank among the training rows, and the rank points on circles.

With the rank u in (0, 1) of a value, a column has the coordinates cos(kπu)/k and sin(kπu)/k, k = 1..H. All
values of all columns have the same length, so nothing is lost on the way to the sphere; outliers and
monotone transforms do not matter; a missing value is the zero vector. The overlap of a row with a memory is
a sum over columns of a smooth function of one column.

A column with d different values has d − 1 harmonics at most: a category, which comes as columns of zeros
and ones, has one for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

__all__ = ["Circles"]

KNOTS = 128  # values of a column between which ranks are interpolated
_ROWS = 20_000  # ranks among so many rows are good to a percent
# Finer functions of a column need more rows: 4 harmonics for hundreds, 16 for ten thousand.
_LEAST, _MOST, _ROOTS_EACH = 4, 24, 6.0
_COORDINATES = 768  # of all columns together, at most: two harmonics each are always there


class _Chunks(Protocol):
    @property
    def n_rows(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def chunks(self) -> Iterator[tuple[slice, Tensor]]: ...


@dataclass(frozen=True)
class Circles:
    """Ranks of the values of each column, and how many harmonics it has."""

    knots: Tensor  # (N, K) float64 values, ascending; the last one again if a column has fewer
    ranks: Tensor  # (N, K) float64 their ranks, in (0, 1)
    harmonics: Tensor  # (N,) float64, whole; 0: a constant column

    @classmethod
    def fit(cls, rows: _Chunks, weight: Tensor | None = None) -> Self:
        """Learn the ranks from dense rows, NaN for missing values, some of them if there are many."""
        step = max(1, -(-rows.n_rows // _ROWS))
        x = torch.cat([part[(-span.start) % step :: step] for span, part in rows.chunks()])
        each = x.new_ones(len(x)) if weight is None else weight[::step].to(x)
        columns = [_ranks(own, each) for own in x.T]
        size = max((len(value) for value, _ in columns), default=1)
        knots, ranks = (
            torch.stack(
                [torch.cat([own[i], own[i][-1:].expand(size - len(own[i]))]) for own in columns]
            )
            for i in (0, 1)
        )
        degrees = torch.tensor([len(value) - 1 for value, _ in columns], device=x.device)
        most = min(_MOST, max(_LEAST, int(rows.n_rows**0.5 / _ROOTS_EACH)))
        several = max(1, int((degrees > 1).sum()))
        most = max(2, min(most, _COORDINATES // 2 // several))
        return cls(knots, ranks, degrees.clamp_max(most).double())

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Column, harmonic k and amplitude of each pair (cos, sin), (M/2,)."""
        count = self.harmonics.long()
        column = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
        first = count.cumsum(0) - count
        k = torch.arange(len(column), device=count.device) - first[column] + 1
        # Columns with fewer harmonics are as long as the others.
        square = torch.cat([k.new_zeros(1), k.double().reciprocal().square().cumsum(0)]).double()
        own = (square[first + count] - square[first])[column]
        return column, k, (own.max() / own).sqrt() / k if len(k) else own

    @property
    def n_coordinates(self) -> int:
        """M, two for each harmonic of each column."""
        return 2 * int(self.harmonics.sum())

    @property
    def column(self) -> Tensor:
        """The column that each coordinate belongs to, (M,)."""
        return self._pairs[0].repeat_interleave(2)

    def rank(self, x: Tensor) -> Tensor:
        """Ranks (B, N) of values, linear between knots; NaN stays."""
        value = x.double().T.contiguous()  # (N, B)
        right = torch.searchsorted(self.knots, value.nan_to_num(0.0)).clamp(
            1, max(1, self.knots.shape[1] - 1)
        )
        if self.knots.shape[1] == 1:
            right = torch.zeros_like(right)
        left = (right - 1).clamp_min(0)
        (a, b), (u, v) = (
            (table.gather(1, left), table.gather(1, right)) for table in (self.knots, self.ranks)
        )
        # Halves: the difference of two huge numbers is one too.
        share = (value / 2 - a / 2) / torch.where(b > a, b / 2 - a / 2, 1.0)
        found: Tensor = torch.lerp(u, v, torch.where(b > a, share, 1.0).clamp(0.0, 1.0)).T
        return torch.where(x.isnan(), torch.nan, found)

    def __call__(self, x: Tensor) -> Tensor:
        """Coordinates (B, M) of rows (B, N)."""
        return self.at(self.rank(x))

    def at(self, rank: Tensor) -> Tensor:
        """Coordinates (B, M) of ranks (B, N)."""
        column, k, amplitude = self._pairs
        angle = math.pi * k * rank[:, column]
        found = torch.stack([angle.cos(), angle.sin()], 2) * amplitude[:, None]
        return found.flatten(1).nan_to_num_(0.0)

    def curves(self, w: Tensor) -> Tensor:
        """Contributions (P, N, K) of each column to the products with w (P, M), at the knots."""
        found = w.new_zeros(len(w), *self.ranks.shape, dtype=torch.float64)
        for j, own in enumerate(
            self.column == torch.arange(len(self.harmonics)).to(w.device)[:, None]
        ):
            if bool(own.any()):
                at = self.ranks.new_full((self.ranks.shape[1], len(self.harmonics)), torch.nan)
                at[:, j] = self.ranks[j]
                found[:, j] = w[:, own].double() @ self.at(at)[:, own].T
        return found

    def values(self, w: Tensor) -> Tensor:
        """The value of each column (P, N) that resembles w (P, M) most, of those at the knots."""
        best = self.curves(w).argmax(2)  # (P, N)
        return self.knots.expand(len(w), -1, -1).gather(2, best[:, :, None])[:, :, 0]

    def lengths(self, w: Tensor) -> Tensor:
        """How long the part of each column is in w (P, M): how much it matters, (P, N)."""
        square = w.new_zeros(len(w), len(self.harmonics), dtype=torch.float64)
        return square.index_add_(1, self.column, w.double().square()).sqrt()

    def check(self) -> Self:
        """Raise ValueError unless these are circles; return self."""
        whole = (self.harmonics == self.harmonics.round()).all() and (self.harmonics >= 0).all()
        order = (self.knots.diff(dim=1) >= 0).all() and (self.ranks.diff(dim=1) >= 0).all()
        if not bool(whole and order and (self.ranks > 0).all() and (self.ranks < 1).all()):
            raise ValueError("knots and ranks of circles must ascend, ranks between 0 and 1")
        if not 0 < int(self.harmonics.sum()) <= len(self.harmonics) * max(2, _MOST):
            raise ValueError(f"no circles with {int(self.harmonics.sum())} harmonics")
        return self


def _ranks(column: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """(values, ascending, their ranks) of one column: the middle of the ranks of all that are equal."""
    known = ~column.isnan()
    value, place = torch.unique(column[known], return_inverse=True)
    if len(value) == 0:
        return column.new_zeros(1), column.new_full((1,), 0.5)
    mass = torch.zeros_like(value).index_add_(0, place, weight[known])
    mass = mass / mass.sum()
    rank = (mass.cumsum(0) - mass / 2).clamp(1e-9, 1 - 1e-9)
    if len(value) > KNOTS:  # evenly by rank, the first and the last among them
        at = torch.searchsorted(
            rank, torch.linspace(0, 1, KNOTS, dtype=rank.dtype, device=rank.device)
        )
        at = torch.unique(at.clamp(0, len(value) - 1))
        value, rank = value[at], rank[at]
    return value, rank
