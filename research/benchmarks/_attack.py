"""The shortest change of a row that changes its class: an attack, to compare certificates with.

Let δ be a change of the features in standard units (`Geometry.unit_at`). Wanted is the shortest δ with

    g(δ) = log P(y|x+δ) − max over other classes of log P(·|x+δ) ≥ margin.

From the nearest memories of class y, the way to the row is cut where the predicted class changes; then the
border is taken for a plane, its nearest point tried, and the way from the row to there cut again,
as long as that is shorter: every point on the way changes the predicted class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.fitted.model import FittedModel
from mnemosphere.geometry import Geometry
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import chunks, log_joint

_FARTHEST = 20.0  # standard units that a feature may be changed by
_STARTS = 4  # memories of the wanted class that are tried
_WAY = (*(k / 10 for k in range(1, 11)), 1.5, 2.0, 4.0)  # shares of it that are looked at
_BEYOND = (0.5, 0.8, 1.0, 1.02, 1.1, 1.3, 2.0)  # and of the way to the plane
_PARTS = 4  # of the way between two shares of it
_CUTS, _LAST_CUTS = 4, 16
_ROUNDS = 25
_GAIN = 1e-4  # a smaller part of the length is none
_SMALLEST = 0.02  # step that is still taken


def shortest_change(model: FittedModel, x: Tensor, target: Tensor) -> Tensor:
    """The nearest points (n, N) to rows x that have the classes (n,); NaN where none was found."""
    search = _Search(model.precise_votes, model.geometry)
    return search.nearest(_Rows(x, target, search.geometry.unit_at(x)))


class _Rows(NamedTuple):
    """Rows, and what they may become."""

    x: Tensor  # (n, N)
    target: Tensor  # (n,) the wanted class
    unit: Tensor  # (n, N) a standard unit of it

    def take(self, some: Tensor | slice) -> _Rows:
        """Some of them."""
        return _Rows(*(part[some] for part in self))

    def length(self, points: Tensor) -> Tensor:
        """How far points (n, N) are, in standard units, (n, 1); infinite for NaN."""
        away = (points - self.x) / self.unit
        length: Tensor = torch.linalg.vector_norm(away, dim=1, keepdim=True)
        return length.nan_to_num(torch.inf)

    def nearer(self, a: Tensor, b: Tensor) -> Tensor:
        """Row by row the nearer point; NaN is farther than anything."""
        return torch.where(self.length(b) < self.length(a), b, a)


class _Search:
    """The nearest points to rows that are the target's."""

    def __init__(self, votes: Mixture, geometry: Geometry) -> None:
        # The new class must survive rounding in the precision of the model.
        self.margin = torch.finfo(votes.w.dtype).eps ** 0.5
        self.votes, self.geometry = votes.to(dtype=torch.float64), geometry
        self.own = self._log_proba(self.votes.w)  # (P, C) of the memories themselves

    def nearest(self, rows: _Rows) -> Tensor:
        """Points (n, N); NaN where none was found."""
        width = max(self.votes.n_memories, self.votes.n_features) * _STARTS * len(_WAY)
        parts = chunks(len(rows.x), width, rows.x.device)
        return torch.cat([self._nearest(rows.take(part)) for part in parts])

    def _log_proba(self, u: Tensor) -> Tensor:
        scores = log_joint(self.votes, u)
        return scores[:, :-1].log_softmax(1)

    def lead(self, x: Tensor, target: Tensor) -> Tensor:
        """Log-odds of the target against the best other class, less the margin, (…, n).

        x: (…, n, N). −∞ for NaN: the model would take it for missing values.
        """
        u, _ = self.geometry.place(x.flatten(0, -2))
        scores = self._log_proba(u).reshape(*x.shape[:-1], -1)
        place = target[:, None].expand(*x.shape[:-1], 1)
        own = scores.gather(-1, place)[..., 0]
        other = scores.scatter(-1, place, -torch.inf).amax(-1)
        lead: Tensor = own - other - self.margin
        return lead.masked_fill(x.isnan().any(-1), -torch.inf)

    def _nearest(self, rows: _Rows) -> Tensor:
        there = self.lead(rows.x, rows.target) >= -self.margin  # the target's already
        best = torch.where(there[:, None], rows.x, torch.nan)
        for found in self._cut(rows, self._starts(rows), _WAY):
            best = rows.nearer(best, found)
        step, onward = torch.ones_like(rows.x[:, :1]), rows.x.clone()
        for _ in range(_ROUNDS):
            left = (step[:, 0] >= _SMALLEST).nonzero()[:, 0]
            if not len(left):
                break
            some, before = rows.take(left), best[left]
            start = torch.where(before.isnan(), onward[left], before)
            onward[left] = self._toward_plane(some, start, step[left])
            best[left] = some.nearer(before, self._cut(some, onward[left], _BEYOND))
            # What hardly helped is tried again by half.
            hardly = some.length(best[left]) > some.length(before) * (1 - _GAIN)
            step[left] = torch.where(hardly, step[left] / 2, step[left])
        return self._cut(rows, best, (1.0,), _LAST_CUTS)

    def _toward_plane(self, rows: _Rows, start: Tensor, step: Tensor) -> Tensor:
        """Points, a step from `start` toward the nearest point of the plane that the border is taken for."""
        at = ((start - rows.x) / rows.unit).requires_grad_()
        value = self.lead(rows.x + at * rows.unit, rows.target)
        (slope,) = torch.autograd.grad(value.sum(), at)
        at = at.detach()
        square = slope.square().sum(1, keepdim=True)
        plane = (slope * at).sum(1, keepdim=True) - value.detach()[:, None]
        nearest = slope * plane / torch.where(square > 0, square, 1.0)
        return rows.x + rows.unit * (at + step * (nearest - at)).clamp(-_FARTHEST, _FARTHEST)

    def _cut(
        self, rows: _Rows, end: Tensor, shares: Sequence[float], rounds: int = _CUTS
    ) -> Tensor:
        """The ways to `end` (…, n, N) cut where the target takes the lead; NaN where it never does.

        Looked at are these shares of a way, the first that leads and the one before it, then the same
        between them, in `_PARTS` steps, and so on.
        """
        way, zero = end - rows.x, torch.zeros_like(end[..., :1])
        tried = torch.stack([zero, *(zero + share for share in shares)])  # (tried, …, n, 1)
        steps = torch.linspace(0, 1, _PARTS + 1).to(end).reshape(-1, *[1] * end.ndim)
        with torch.no_grad():
            for _ in range(rounds):
                points = rows.x + tried[1:] * way
                leads = (self.lead(points, rows.target) >= 0)[..., None]
                first = leads.int().argmax(0, keepdim=True)
                low, high = tried.gather(0, first)[0], tried.gather(0, first + 1)[0]
                high = torch.where(leads.any(0), high, torch.nan)
                tried = low + (high - low) * steps
        return rows.x + high * way

    def _starts(self, rows: _Rows) -> Tensor:
        """Points (starts, n, N): the nearest memories that are the target's themselves."""
        u, _ = self.geometry.place(rows.x)
        # Memories that are the target's first, the nearest of them first; then those most like it.
        mine, best = self.own.T[rows.target], self.own.amax(1)  # (n, P), (P,)
        rank = torch.where(mine >= best - 1e-9, 1 + u @ self.votes.w.T, mine)
        chosen = rank.topk(min(_STARTS, self.votes.n_memories), dim=1).indices  # (n, starts)
        points = self.geometry.restore(self.votes.w).to(u)[chosen.T]
        if self.geometry.units is None:  # directions, at the length and mean of the row
            mean = rows.x - self.geometry.coordinates(rows.x)
            points = mean + points * rows.unit * rows.x.shape[1] ** 0.5
        return points
