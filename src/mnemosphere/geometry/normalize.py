"""How rows are put on the unit sphere, batch by batch, where they are needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from mnemosphere.base.schema import Array, check_tensors
from mnemosphere.geometry.circles import Circles
from mnemosphere.geometry.sparse_normalize import (
    constant_left,
    counts,
    sparse_unit_rows,
    squares,
    sums,
)
from mnemosphere.gpu import on_gpu
from mnemosphere.model.gaps import has_gaps
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.model.sums import ALONE, Sums
from mnemosphere.rows.stored import largest
from mnemosphere.rows.streams import Chunks

# Simplest first.
NORMALIZATIONS = ("unit", "center", "standard", "whitened", "circles", "none")
_LEARNED = {  # what a model file may hold
    "mean": Array("N", optional=True),
    "scale": Array("N", low=math.ulp(0.0), optional=True),
    "energy": Array("N", low=0.0, optional=True),
    "metric": Array("D M", optional=True),
    "knots": Array("N K", optional=True),
    "ranks": Array("N K", low=math.ulp(0.0), optional=True),
    "mass": Array("N K", low=0.0, optional=True),
    "harmonics": Array("N", low=0.0, optional=True),
}
_CIRCLES = ("knots", "ranks", "mass", "harmonics")
_LOOKED_AT = 8  # chunks
_SMALL, _HUGE = 1e-100, 1e100  # numbers between them have squares
SCALED = ("standard", "whitened")
DENSE = ("whitened", "circles")  # of which sparse rows come out dense
_DENSE_NUMBERS = 1 << 20  # numbers of sparse rows that are held dense at a time


@dataclass(frozen=True)
class Normalizer:
    """Puts rows on the unit sphere, in float64; sparse rows stay sparse unless a metric mixes them.

    center    minus the row's mean, over the row's norm (images, spectra, counts)
    unit      over the row's norm (embeddings)
    standard  each feature to mean 0 and variance 1 over the training rows, one constant
              coordinate √N appended, over the norm (tables of unlike features): keeps the length
              of a row as well as its direction, and no row is ever zero
    whitened  the same, then a metric that makes the rows of each class vary alike in every
              direction (`model.metric.start`)
    circles   each feature as points on circles, by its rank among the training rows (`data.circles`)
    none      the rows are unit vectors already

    With a metric A, a row that came out as v is put at Av/‖Av‖.
    """

    kind: str
    mean: Tensor | None = None  # (N,) float64, with 'standard' and 'whitened'
    scale: Tensor | None = None
    energy: Tensor | None = None  # (N,) each feature's mean share of a row's squared norm; else
    metric: Tensor | None = None  # (D, M) float64
    circles: Circles | None = field(default=None, kw_only=True)

    @classmethod
    def fit(
        cls, kind: str, rows: Chunks, sample_weight: Tensor | None = None, sums_of: Sums = ALONE
    ) -> Self:
        """Learn what the kind needs from the training rows: for 'standard', in two sweeps.

        What is not known (NaN) counts as the mean of its feature, so that the known part of a row
        is about as long as a whole row would be. A metric needs labels: it is put in
        afterwards, by `with_metric`. `sums_of`: the processes that share the rows.
        """
        weight = None if sample_weight is None else sample_weight.double().to(rows.device)
        if kind == "circles":
            return cls(kind, circles=Circles.fit(rows, weight))
        if kind not in SCALED:
            return cls(kind, energy=_energy(cls(kind), rows, weight))
        n = rows.n_features
        peak, mean, square = (
            torch.zeros(n, dtype=torch.float64, device=rows.device) for _ in range(3)
        )
        total = torch.zeros_like(peak)
        for part, x in rows.chunks():
            peak = torch.maximum(peak, largest(x))
            total += counts(x, None if weight is None else weight[part])
        whole = torch.as_tensor(rows.n_rows if weight is None else weight.sum()).to(total)
        peak, (total, whole) = sums_of.largest(peak), sums_of.sum(total, whole)
        total.clamp_min_(torch.finfo(total.dtype).tiny)  # of a feature that no row has
        # In units of the power of two below the largest number: squares stay finite.
        unit = torch.ldexp(torch.ones_like(peak), torch.frexp(peak).exponent - 1)
        unit = torch.where(peak > 0, unit, 1.0)
        for part, x in rows.chunks():
            mean += sums(x, unit, None if weight is None else weight[part]) / total
        (mean,) = sums_of.sum(mean)
        for part, x in rows.chunks():
            each = None if weight is None else weight[part]
            square += squares(x, unit, mean, each) / whole
        scale = sums_of.sum(square)[0].sqrt()
        # A constant feature tells nothing: any scale does.
        scale = torch.where(scale > 1e-12 * mean.abs(), scale, 1.0) * unit
        return cls(kind, mean * unit, torch.where(scale > 0, scale, unit))

    def to_tensors(self) -> dict[str, Tensor]:
        """What was learned, as named tensors."""
        circles = {} if self.circles is None else vars(self.circles)
        found = {name: circles.get(name, getattr(self, name, None)) for name in _LEARNED}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    @classmethod
    def from_tensors(cls, kind: str, tensors: Mapping[str, Tensor], n_features: int) -> Self:
        """Undo `to_tensors`; ValueError where they are not for this kind and size."""
        check_tensors(tensors, _LEARNED, {"N": n_features, "M": n_features + (kind in SCALED)})
        needed = ("mean", "scale") if kind in SCALED else _CIRCLES if kind == "circles" else ()
        if {"mean", "scale", *_CIRCLES} & tensors.keys() != {*needed}:
            raise ValueError(f"normalize={kind!r} does not go with {sorted(tensors)}")
        metric = tensors.get("metric")
        if metric is not None and not (metric.numel() and 1e-30 < float(metric.abs().max()) < 1e30):
            raise ValueError("normalizer.metric is no map that a row could be seen through")
        found = cls.of(kind, tensors)
        if found.circles is not None:
            found.circles.check()
        return found

    @classmethod
    def of(cls, kind: str, tensors: Mapping[str, Tensor]) -> Self:
        """The same of tensors that need no check, in double precision."""
        every = {name: tensor.double() for name, tensor in tensors.items()}
        own = {name: every.pop(name) for name in _CIRCLES if name in every}
        return cls(kind, **every, circles=Circles(**own) if own else None)

    @property
    def extra(self) -> int:
        """How many coordinates are appended to a row of features."""
        return 1 if self.kind in SCALED else 0

    def n_coordinates(self, n_features: int) -> int:
        """How many coordinates a row of so many features has on the sphere."""
        if self.circles is not None:
            return self.circles.n_coordinates
        return n_features + self.extra if self.metric is None else self.metric.shape[0]

    @property
    def is_dense(self) -> bool:
        """Whether sparse rows come out dense."""
        return self.metric is not None or self.circles is not None

    def with_metric(self, metric: Tensor) -> Self:
        """A copy that puts rows at Av/‖Av‖, v where they are put now; metrics multiply."""
        a = metric.double()
        return replace(self, metric=a if self.metric is None else a @ self.metric)

    @property
    def no_direction(self) -> str:
        """What a row without direction is, for messages."""
        empty = self.extra or self.circles is not None
        return {"center": "constant"}.get(self.kind, "empty" if empty else "all zeros")

    def check_some_left(self, lost: Tensor) -> None:
        """Raise ValueError if no row has a direction."""
        if bool(lost.all()):
            raise ValueError(
                f"every row of X is {self.no_direction}, so none has a direction: use "
                "normalize='standard'"
            )

    def to(self, device: torch.device | str) -> Self:
        """The same with its numbers on a device."""
        tensors = self.to_tensors()
        if all(t.device == torch.device(device) for t in tensors.values()):
            return self
        return self.of(self.kind, {name: t.to(device) for name, t in tensors.items()})

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(unit rows (B, N'), which rows have no direction (B,)); such rows come out as zeros."""
        if isinstance(x, SparseRows):
            if not self.is_dense:
                return sparse_unit_rows(x, self.kind, self.mean, self.scale)
            # Few rows at a time become dense.
            step = max(1, _DENSE_NUMBERS // x.shape[1])
            parts = [self(x[k : k + step].to_dense()) for k in range(0, x.shape[0], step)]
            return torch.cat([unit for unit, _ in parts]), torch.cat([lost for _, lost in parts])
        x, norm, lost = self._directions(x.double())
        if self.metric is not None:
            x = x @ self.metric.T
            norm = torch.linalg.vector_norm(x, dim=1)
            lost = lost | (norm == 0)
        if not _occurs(lost):
            return x / norm[:, None], lost
        keep = torch.where(lost, 1.0, norm)[:, None]
        return torch.where(lost[:, None], 0.0, x / keep), lost

    def coordinates(self, x: Tensor) -> Tensor:
        """Rows (B, M) before the metric and before they are divided by their norms.

        Linear in the features, or each a function of one feature.
        """
        return self._directions(x.double())[0]

    def per_feature(self, parts: Tensor) -> tuple[Tensor, Tensor]:
        """Parts (…, M) of coordinates as those of features (…, N), and of none of them (…,)."""
        if self.circles is not None:
            return self.circles.sums(parts), parts.new_zeros(parts.shape[:-1])
        n = parts.shape[-1] - self.extra
        return parts[..., :n], parts[..., n:].sum(-1)

    def reference(self, x: Tensor) -> Tensor | None:
        """What contributions of coordinates (B, M) of rows are measured from: the average row.

        None: from what memories have there, since they are rows that could occur.
        """
        if self.circles is None:
            return None
        return self.circles.center * self.per_coordinate(~x.isnan())

    def per_coordinate(self, of_features: Tensor, appended: float = 1) -> Tensor:
        """What is said of features (B, N), of their coordinates (B, M)."""
        if self.circles is not None:
            return of_features[:, self.circles.column.to(of_features.device)]
        return torch.nn.functional.pad(of_features, (0, self.extra), value=appended)

    def pull_back(self, w: Tensor) -> Tensor:
        """Points w of the sphere seen from `coordinates` v: ⟨pull_back(w), v⟩ = ⟨w, Av⟩.

        So an overlap ⟨w, Av⟩/‖Av‖ is a sum over coordinates, and over features.
        """
        return w.double() if self.metric is None else w.double() @ self.metric.to(w.device)

    def preimage(self, w: Tensor) -> Tensor:
        """What becomes these points of the sphere, in `coordinates`, up to its length."""
        if self.metric is None:
            return w.double()
        inverse: Tensor = torch.linalg.pinv(self.metric.to(w.device))
        return w.double() @ inverse.T

    def _directions(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows that only need to be divided by their norms, the norms, which have no direction."""
        if self.circles is not None:
            return self._lengths(self.circles(x))
        if self.mean is not None and self.scale is not None:
            root = x.new_full((x.shape[0], 1), x.shape[1] ** 0.5)
            z = (x - self.mean) / self.scale
            if _occurs(torch.isinf(z)):  # two huge numbers apart: their halves are not
                z = torch.where(torch.isinf(z), (x / 2 - self.mean / 2) / self.scale * 2, z)
            x = torch.cat([z, root], dim=1)
        found = self._lengths(x)
        if _extreme(found[1]):
            return self._lengths(_rescale_extreme_rows(x))
        return found

    def _lengths(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.kind != "center":
            norm = torch.linalg.vector_norm(x, dim=1)
            return x, norm, norm == 0
        mean = x.mean(1, keepdim=True)
        x = x - mean
        left = torch.linalg.vector_norm(x, dim=1)
        return x, left, constant_left(left, mean[:, 0], x.shape[1])

    def fill(self, x: Tensor, unknown: Tensor) -> Tensor:
        """Rows with a neutral value where `unknown`: one that becomes 0 on the sphere."""
        if self.circles is not None:
            return torch.where(unknown, torch.nan, x.double())  # which these are
        value = torch.zeros((), dtype=torch.float64, device=x.device)
        if self.kind == "center":  # the mean of the row is that of the features that are known
            known = torch.where(unknown, 0.0, x.double())
            value = known.sum(1, keepdim=True) / (~unknown).sum(1, keepdim=True).clamp_min(1)
        elif self.mean is not None:
            value = self.mean
        filled = torch.where(unknown, value, x.double())
        if self.kind == "none":
            norm = torch.linalg.vector_norm(filled, dim=1, keepdim=True)
            filled = filled / torch.where(norm > 0, norm, 1.0)
        return filled

    def average(self, x: Tensor) -> Tensor:
        """Rows with an ordinary number in place of NaN."""
        if self.circles is not None:
            return torch.where(x.isnan(), self.circles.middle, x.double())
        return self.fill(x, x.isnan())

    def with_gaps(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """As `__call__` of rows with NaN: these stay, and the rest has the norm it is likely to.

        On the sphere a row is known only where the norm of its unknown part is. With "standard"
        that is √m, since features have variance 1; with "unit" and "center" features have their
        mean shares of the squared norm; with "none" it is what the known part leaves of 1. A metric
        mixes features, so there gaps are filled in neutrally; on circles they are zeros. A row of
        nothing but NaN has no direction.
        """
        if self.circles is not None:
            return self(x)
        gaps = x.isnan()
        unit, lost = self(self.fill(x, gaps))
        empty = gaps.all(1)
        unit, lost = torch.where(empty[:, None], 0.0, unit), lost | empty
        if self.metric is not None:
            return unit, lost
        n = x.shape[1]
        if self.kind in SCALED:
            share = 1 / (1 + gaps.sum(1) * unit[:, -1].square() / n)
            gaps = torch.nn.functional.pad(gaps, (0, 1))
        elif self.kind == "none":
            share = x.double().nan_to_num(0.0).square().sum(1).clamp_max(1.0)
        else:
            energy = unit.new_full((n,), 1 / n) if self.energy is None else self.energy
            share = torch.where(gaps, 0.0, energy).sum(1)
        unit = unit * torch.where(gaps.any(1), share, 1.0).sqrt()[:, None]
        return torch.where(gaps & ~lost[:, None], torch.nan, unit), lost

    @property
    def units(self) -> Tensor | None:
        """Standard deviations of the features (N,), about, if the kind knows them."""
        return self.scale if self.circles is None else self.circles.scale

    def positions(self, x: Tensor) -> Tensor:
        """Where rows (n, N) in the features' units lie: their ranks on circles, else standard units."""
        if self.circles is not None:
            return self.circles.rank(x)
        if self.mean is None or self.scale is None:
            raise ValueError(f"normalize={self.kind!r} knows no standard units")
        return (x - self.mean.to(x.device)) / self.scale.to(x.device)

    def distance(self, x: Tensor, other: Tensor) -> Tensor:
        """How far rows are apart (n,): in ranks on circles, else in standard units or those of X."""
        apart = other - x if self.units is None else self.positions(other) - self.positions(x)
        found: Tensor = torch.linalg.vector_norm(apart, dim=1)
        return found

    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """Points of the sphere as a user would read them: in the features' units if possible.

        categories: features of which one is 1, the others 0.
        """
        if self.circles is not None:
            found = self.circles.values(w.reshape(-1, w.shape[-1]), categories)
            return found.reshape(*w.shape[:-1], -1)
        if self.metric is not None:
            w = self.preimage(w)
        if self.mean is None or self.scale is None:
            return w if self.metric is None else torch.nn.functional.normalize(w, dim=-1)
        n = w.shape[-1] - 1
        # The last coordinate is √N over the norm, so it gives the norm back; a memory on the far
        # side of the sphere has no counterpart, and its direction is shown at unit length.
        last = torch.where(w[..., -1:] > 1e-6, w[..., -1:] / n**0.5, 1.0)
        mean, scale = self.mean.to(w.device), self.scale.to(w.device)
        most = torch.finfo(torch.float64).max  # of numbers near it, a memory may lie beyond
        return (mean + scale * (w[..., :-1] / last).double()).clamp(-most, most)


def _energy(normalizer: Normalizer, rows: Chunks, weight: Tensor | None) -> Tensor | None:
    """Mean squares (N,) of the coordinates of unit rows, as far as these are known, of sum 1.

    From the first rows, a few chunks of them: it is an average. None of sparse rows. A feature that
    no row has gets next to nothing, not 0: a row that has nothing else still has a direction.
    """
    energy, total = (
        torch.zeros(rows.n_features, dtype=torch.float64, device=rows.device) for _ in range(2)
    )
    for part, x in itertools.islice(rows.chunks(), _LOOKED_AT):
        if isinstance(x, SparseRows):
            return None
        each = None if weight is None else weight[part]
        if not has_gaps(x):
            # Times N, as below: all features are known.
            square = normalizer(x)[0].square_().mul_(rows.n_features)
            energy += square.sum(0) if each is None else each @ square
            total += x.shape[0] if each is None else each.sum()
            continue
        gaps = x.isnan()
        unit = normalizer(normalizer.fill(x, gaps))[0]
        # Of k known features, a unit row has 1/k of its square in each, where others have 1/N.
        unit = unit * (~gaps).sum(1, keepdim=True).double().sqrt()
        unit = torch.where(gaps, torch.nan, unit)  # what is filled in is 0 up to rounding
        energy += squares(unit, torch.ones_like(energy), torch.zeros_like(energy), each)
        total += counts(x, each)
    energy = energy / total.clamp_min(torch.finfo(total.dtype).tiny)
    energy = energy / energy.sum().clamp_min(torch.finfo(energy.dtype).tiny)
    return energy.clamp_min(torch.finfo(energy.dtype).eps)


def _extreme(norm: Tensor) -> bool:
    """Whether squares of a row may have left the range of numbers."""
    if torch.compiler.is_compiling() or on_gpu(norm) or norm.numel() == 0:
        return _occurs(~((norm > _SMALL) & (norm < _HUGE)))
    low, high = norm.detach().aminmax()  # for one row, half of the time of the line above
    return not (float(low) > _SMALL and float(high) < _HUGE)


def _occurs(rare: Tensor) -> bool:
    """Whether anything rare is to be dealt with; in an exported graph, always: it cannot branch."""
    return torch.compiler.is_compiling() or bool(rare.any())


def _rescale_extreme_rows(x: Tensor) -> Tensor:
    """Rows of huge or tiny numbers times a power of 2, so that squares are finite."""
    low, high = x.detach().aminmax(dim=1, keepdim=True)
    peak = torch.maximum(-low, high)
    far = (peak > _HUGE) | ((peak < _SMALL) & (peak > 0))
    if not _occurs(far):
        return x
    largest = torch.finfo(x.dtype).max  # infinite where a number was divided by a tiny scale
    x, peak = x.clamp(-largest, largest), peak.clamp(max=largest)
    exponent = torch.where(far, torch.frexp(peak).exponent, 0)
    # In two steps: 2^-1074 has no inverse.
    half = exponent // 2
    return torch.ldexp(torch.ldexp(x, -half), half - exponent)
