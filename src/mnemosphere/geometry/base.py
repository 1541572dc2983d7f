"""What a geometry is: how rows get on the unit sphere, and back.

A row x has coordinates v(x), each of which belongs to one feature or to none. The row lies at Av/‖Av‖; the matrix A
is the identity in most geometries. So an overlap ⟨w, Av⟩/‖Av‖ is a sum over coordinates, and over features.

A new geometry is one class in one file: `fit`, `coordinates`, `restore`, `_neutral` and `_onnx_coordinates`, and what of
the rest is another than here.
Its fields are what it has learned: they are checked, saved and moved by their annotations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.warnings import warn_user
from mnemosphere.geometry.graph import Graph, OnnxRows, OnnxUnitRows
from mnemosphere.gpu import on_gpu
from mnemosphere.model.gaps import has_gaps
from mnemosphere.rows.rows import Rows

_SMALL, _HUGE = 1e-100, 1e100  # numbers between them have squares
_NAMED = 5  # rows that a warning names


class Curves(NamedTuple):
    """What each feature adds to overlaps, as functions of its value."""

    values: Tensor  # (N, K) ascending
    overlaps: Tensor  # (P, N, K) less their mean over the training rows
    mass: Tensor  # (N, K) shares of the training rows


class Kind(NamedTuple):
    """A geometry that can be learned: its class, and what else its `fit` is told."""

    of: type[Geometry]
    settings: Mapping[str, Any] = {}

    def fit(self, *known: Any, **named: Any) -> Geometry:
        """Learn from training rows, as `Geometry.fit`."""
        return partial(self.of.fit, **self.settings)(*known, **named)


KINDS: dict[str, Kind] = {}  # all there are, by name


@dataclass(frozen=True)
class Geometry(ABC):
    """How rows get on the unit sphere, and back, in double precision."""

    name: ClassVar[str]
    needs_labels: ClassVar[bool] = False  # to be learned
    has_curves: ClassVar[bool] = False  # memories are functions of each feature, not directions
    n_unused_directions: ClassVar[int] = 0  # directions of the sphere in which no row lies
    no_direction: ClassVar[str] = "empty"  # what a row without direction is
    _keeps_unit_rows: ClassVar[bool] = False  # a unit row is where it lies
    _scales_gaps: ClassVar[bool] = False  # else gaps are filled in
    _least_features: ClassVar[int] = 1
    _n_constant: ClassVar[int] = 0  # coordinates of no feature, the last ones

    def __init_subclass__(cls) -> None:
        if isinstance(vars(cls).get("name"), str):
            KINDS[cls.name] = Kind(cls)

    # Learning.

    @classmethod
    @abstractmethod
    def fit(cls, rows: Rows, targets: Tensor | None = None, weight: Tensor | None = None) -> Self:
        """Learn from training rows, their label weights (n, C+1) and sample weights (n,)."""

    def tensors(self, *, derived: bool = False) -> dict[str, Tensor]:
        """What was learned; derived: with all that `place` makes of it."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def with_tensors(self, tensors: dict[str, Tensor]) -> Self:
        """The same with these in place of `tensors`."""
        return replace(self, **tensors)

    # Onto the sphere.

    @abstractmethod
    def coordinates(self, x: Tensor) -> Tensor:
        """Coordinates v (B, M) of rows (B, N), at the length that the row has."""

    @property
    def mixing(self) -> Tensor | None:
        """A (D, M), by which coordinates are mixed; None: not at all."""
        return None

    def n_coordinates(self, n_features: int) -> int:
        """How many coordinates rows of so many features have on the sphere."""
        return n_features + self._n_constant if self.mixing is None else len(self.mixing)

    def place(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(unit rows (B, D), which rows have no direction (B,)); such rows come out as zeros.

        What is not known (NaN) stays NaN, and the rest has the norm that it is likely to have, unless gaps are
        filled in. A row of nothing but NaN has no direction.
        """
        x = x.double()
        if not (torch.compiler.is_compiling() or has_gaps(x)):
            return self._place_whole(x)
        gaps = x.isnan()
        unit, undirected = self._place_whole(self._neutral(x, gaps))
        empty = gaps.all(1)
        unit, undirected = torch.where(empty[:, None], 0.0, unit), undirected | empty
        if not self._scales_gaps:
            return unit, undirected
        share = torch.where(gaps.any(1), self._known_share(x, unit, gaps), 1.0)
        unit = unit * share.sqrt()[:, None]
        gaps = self.per_coordinate(gaps, constant=0)
        return torch.where(gaps & ~undirected[:, None], torch.nan, unit), undirected

    def _place_whole(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`place` of rows without NaN."""
        v, norm, undirected = self._directions(x)
        if self.mixing is not None:
            v = v @ self.mixing.T
            norm = torch.linalg.vector_norm(v, dim=1)
            undirected = undirected | (norm == 0)
        if not any_rare(undirected):
            return v / norm[:, None], undirected
        keep = torch.where(undirected, 1.0, norm)[:, None]
        return torch.where(undirected[:, None], 0.0, v / keep), undirected

    def _directions(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Coordinates up to their length, the length, which rows have no direction."""
        v = self.coordinates(x)
        norm = torch.linalg.vector_norm(v, dim=1)
        if v.shape[1] and extreme(norm):
            v = rescale_extreme_rows(v)
            norm = torch.linalg.vector_norm(v, dim=1)
        return v, norm, norm == 0

    def _known_share(self, x: Tensor, unit: Tensor, gaps: Tensor) -> Tensor:
        """The share (B,) of its squared norm that a row is likely to have in what is known of it.

        On the sphere a row with gaps is known only where the norm of its unknown part is.
        """
        raise NotImplementedError

    # The same in a graph.

    def onnx(self, g: Graph, x: str, n_features: int) -> OnnxUnitRows:
        """`place` of rows x (batch, N) in double precision, NaN for missing values."""
        unknown = g("IsNaN", x)
        gaps = g("Cast", unknown, to=g.double)
        count = g.total(gaps)
        rows = OnnxRows(x, unknown, count, n_features)
        v, length, undirected = self._onnx_directions(g, rows)
        undirected = g("Or", g("GreaterOrEqual", count, float(n_features)), undirected)
        if self.mixing is not None:
            v = g("MatMul", v, g.stored(self.mixing.T.contiguous()))
            length = g.norms(v)
            undirected = g("Or", undirected, g("LessOrEqual", length, 0.0))
        quotient = g("Div", v, g("Where", undirected, 1.0, length))
        unit = g("Where", undirected, 0.0, quotient)
        if not self._scales_gaps:
            return OnnxUnitRows(unit, undirected)
        share = self._onnx_share(g, rows, unit, length)
        share = g("Where", g("Greater", count, 0.0), share, 1.0)
        unit = g("Mul", unit, g("Sqrt", share))
        return with_gaps(g, unit, undirected, self._onnx_gaps(g, gaps))

    def _onnx_coordinates(self, g: Graph, rows: OnnxRows) -> str:
        """`coordinates` of rows that are filled in where something is missing."""
        raise NotImplementedError

    def _onnx_directions(self, g: Graph, rows: OnnxRows) -> tuple[str, str, str]:
        v = self._onnx_coordinates(g, rows)
        length = g.norms(v)
        return v, length, g("LessOrEqual", length, 0.0)

    def _onnx_share(self, g: Graph, rows: OnnxRows, unit: str, length: str) -> str:
        """`_known_share` (batch, 1); length (batch, 1): of the coordinates."""
        raise NotImplementedError

    def _onnx_gaps(self, g: Graph, gaps: str) -> str:
        """Gaps in features (batch, N) as those in coordinates (batch, M)."""
        return g("Pad", gaps, [0, 0, 0, self._n_constant], 0.0)

    # Gaps.

    def _neutral(self, x: Tensor, unknown: Tensor) -> Tensor:
        """Rows with a neutral value where `unknown`: one that becomes 0 on the sphere."""
        raise NotImplementedError

    def fill(self, x: Tensor) -> Tensor:
        """Rows with an ordinary number in place of NaN."""
        return self._neutral(x, x.isnan())

    def complete(self, rows: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
        """Rows (n, N) whose NaN are filled in from `found` (n, N), the same rows as completed."""
        rows = np.array(rows, dtype=np.float64)
        return np.where(np.isnan(rows), found, rows)

    # Back.

    @abstractmethod
    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """Points of the sphere as a user would read them: in the features' units if possible.

        categories: features of which one is 1, the others 0.
        """

    # Features and coordinates.

    def _per_feature(self, parts: Tensor) -> Tensor:
        """Parts (…, M) of coordinates summed by feature (…, N), without those of no feature."""
        return parts[..., : parts.shape[-1] - self._n_constant]

    def per_coordinate(self, of_features: Tensor, constant: float = 1) -> Tensor:
        """What is said of features (B, N), of their coordinates (B, M)."""
        return torch.nn.functional.pad(of_features, (0, self._n_constant), value=constant)

    def strengths(self, w: Tensor) -> Tensor:
        """How much each feature counts in memories w (P, D), (P, N)."""
        w = w.double()
        return self._per_feature(w if self.mixing is None else w @ self.mixing.to(w.device))

    # Units.

    @property
    def units(self) -> Tensor | None:
        """Standard deviations of the features (N,), about, if it knows them."""
        return None

    def in_units(self, x: Tensor) -> tuple[Tensor, str]:
        """(where rows (n, N) lie, in the units in which distances are measured; what these are called)."""
        return x, "units of X"


def learn(name: str, rows: Rows, targets: Tensor | None, weight: Tensor | None) -> Geometry:
    """The geometry of that name; ValueError if rows of so few features have no place in it."""
    kind = KINDS[name]
    least = kind.of._least_features
    if rows.n_features < least:
        raise ValueError(
            f"X has {rows.n_features} feature(s) after geometry={name!r}, the sphere needs {least}: use "
            "geometry='standard'"
        )
    return kind.fit(rows, targets, weight)


def on_device(geometry: Geometry, device: torch.device | str) -> Geometry:
    """The same with its numbers on a device."""
    tensors = geometry.tensors()
    if all(tensor.device == torch.device(device) for tensor in tensors.values()):
        return geometry
    return geometry.with_tensors({name: t.to(device) for name, t in tensors.items()})


def check_some_left(geometry: Geometry, undirected: Tensor) -> None:
    """Raise ValueError if no row has a direction."""
    if bool(undirected.all()):
        raise ValueError(
            f"every row of X is {geometry.no_direction}, so none has a direction: use "
            "geometry='standard'"
        )


def with_gaps(g: Graph, unit: str, undirected: str, gaps: str) -> OnnxUnitRows:
    """Unit rows with 0 in their gaps, and what is known of these."""
    room, count = g("Max", g("Sub", 1.0, g.total(g("Mul", unit, unit))), 0.0), g.total(gaps)
    return OnnxUnitRows(unit, undirected, gaps, count, room)


def lengths(v: Tensor) -> Tensor:
    """Norms of rows (n,), without overflow."""
    peak = v.abs().amax(1, keepdim=True)
    peak = torch.where(peak > 0, peak, 1.0)
    norms: Tensor = peak[:, 0] * torch.linalg.vector_norm(v / peak, dim=1)
    return norms


def any_rare(rare: Tensor) -> bool:
    """Whether anything rare is to be dealt with; in an exported graph, always: it cannot branch."""
    return torch.compiler.is_compiling() or bool(rare.any())


def extreme(norm: Tensor) -> bool:
    """Whether squares of a row may have left the range of numbers."""
    if torch.compiler.is_compiling() or on_gpu(norm) or norm.numel() == 0:
        return any_rare(~((norm > _SMALL) & (norm < _HUGE)))
    low, high = norm.detach().aminmax()  # for one row, half of the time of the line above
    return not (float(low) > _SMALL and float(high) < _HUGE)


def rescale_extreme_rows(x: Tensor) -> Tensor:
    """Rows of huge or tiny numbers times a power of 2, so that squares are finite."""
    low, high = x.detach().aminmax(dim=1, keepdim=True)
    peak = torch.maximum(-low, high)
    far = (peak > _HUGE) | ((peak < _SMALL) & (peak > 0))
    if not any_rare(far):
        return x
    largest = torch.finfo(x.dtype).max  # infinite where a number was divided by a tiny scale
    x, peak = x.clamp(-largest, largest), peak.clamp(max=largest)
    exponent = torch.where(far, torch.frexp(peak).exponent, 0)
    # In two steps: 2^-1074 has no inverse.
    half = exponent // 2
    return torch.ldexp(torch.ldexp(x, -half), half - exponent)


# Stored rows, chunk by chunk.


def unit_chunks(
    rows: Rows, geometry: Geometry, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """(unit rows, which of them have no direction and came out as zeros), chunk by chunk."""
    geometry = on_device(geometry, rows.device)
    for _, x in rows.chunks():
        unit, undirected = geometry.place(x)
        yield unit.to(dtype), undirected


def on_sphere(rows: Rows, geometry: Geometry, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(all unit rows (n, N'), which have no direction (n,)) on the device of `rows`."""
    if geometry._keeps_unit_rows and _are_unit_rows(rows, dtype):
        return rows.values, torch.zeros(rows.n_rows, dtype=torch.bool, device=rows.device)
    n_features = geometry.n_coordinates(rows.n_features)
    x = torch.empty(rows.n_rows, n_features, dtype=dtype, device=rows.device)
    undirected = torch.zeros(rows.n_rows, dtype=torch.bool, device=rows.device)
    first = 0
    for unit, without in unit_chunks(rows, geometry, dtype):
        part = slice(first, first + unit.shape[0])
        x[part], undirected[part] = unit, without
        first = part.stop
    return x, undirected


def _are_unit_rows(rows: Rows, dtype: torch.dtype) -> bool:
    """Whether they are on the sphere as they are stored, so that no second copy is needed."""
    stored = rows.values
    as_needed = stored.dtype == dtype and stored.device == rows.device and stored.is_contiguous()
    if not as_needed:
        return False
    most = 4 * torch.finfo(dtype).eps
    return all(bool(((x.norm(dim=1) - 1).abs() <= most).all()) for _, x in rows.chunks())


def warn_set_aside(geometry: Geometry, given: Rows, weight: Tensor | None) -> None:
    """Count and name the rows of X that have no direction, all copies of them."""
    undirected = torch.cat([without for _, without in unit_chunks(given, geometry, torch.float64)])
    if weight is not None:
        undirected &= weight > 0
    hint = "" if geometry.no_direction == "empty" else "; geometry='standard' would keep them"
    numbers = given.row_ids(undirected.nonzero()[:, 0])
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = ", …" if len(numbers) > _NAMED else ""
    warn_user(
        f"{len(numbers)} of {given.n_rows} rows of X are {geometry.no_direction}, so they have "
        f"no direction and were set aside: row {named}{more}{hint}",
    )
