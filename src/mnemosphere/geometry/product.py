"""The vector of a text, or an embedding, and all other columns: each in a geometry of its own.

A row is the pair of its two places, each at the root of its share of the squared length: so the exponent is a sum
of one term for the text and one for the columns. A part that is missing, or has no direction, is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.geometry.base import KINDS, Geometry, Kind, with_gaps
from mnemosphere.geometry.circles import Circles
from mnemosphere.geometry.direction import Unit
from mnemosphere.geometry.graph import Graph, OnnxUnitRows
from mnemosphere.geometry.standard import Standard
from mnemosphere.rows.rows import Rows

SHARES = (0.5, 0.2, 0.8)  # of the squared length, of texts


@dataclass(frozen=True)
class Product(Geometry):
    """A direction for texts, another geometry for columns."""

    _scales_gaps: ClassVar[bool] = True

    order: Tensor  # the features, those of texts first
    n_text: int
    share: float  # of the squared length, of texts
    text: Geometry
    columns: Geometry

    @classmethod
    def fit(
        cls, rows: Rows, targets: Tensor | None = None, weight: Tensor | None = None,
        *, columns: type[Geometry] = Standard, share: float = SHARES[0],
    ) -> Self:  # fmt: skip
        """Learn both parts from rows that know which of their features are the vector of a text."""
        if not 0 < len(rows.vectors) < rows.n_features:
            raise ValueError(
                f"geometry={_name(columns, share)!r} needs a column of texts, or of lists of numbers, and others: "
                "pass a frame that has both"
            )
        others = [j for j in range(rows.n_features) if j not in {*rows.vectors}]
        order = torch.tensor([*rows.vectors, *others], device=rows.device)
        text = Unit.fit(rows.part(vectors=True), targets, weight)
        others_of = columns.fit(rows.part(vectors=False), targets, weight)
        return cls(order, len(rows.vectors), share, text, others_of)

    @property
    def name(self) -> str:  # type: ignore[override]
        """As `geometry=` has it."""
        return _name(type(self.columns), self.share)

    # The two parts.

    @property
    def _parts(self) -> list[tuple[Geometry, float]]:
        """Both geometries, and how long rows are in them."""
        return [(self.text, self.share**0.5), (self.columns, (1 - self.share) ** 0.5)]

    def _split(self, x: Any) -> list[Any]:
        """What is said of features (…, N), of those of each part."""
        order = self.order.to(x.device) if isinstance(x, Tensor) else self.order.cpu().numpy()
        return [x[..., order[: self.n_text]], x[..., order[self.n_text :]]]

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Undo `_split`."""
        return torch.cat([*parts], -1)[..., self.order.argsort().to(parts[0].device)]

    def _cut(self, w: Tensor) -> list[Tensor]:
        """Coordinates (…, ·) of the text, and of the columns."""
        return [w[..., : self.n_text], w[..., self.n_text :]]

    def _each(self, what: Callable[..., Tensor], *of_features: Tensor) -> Tensor:
        """What a function of geometry and features says of the features of both."""
        own = zip(*map(self._split, of_features), strict=True)
        return self._joined(
            [what(kind, *some) for (kind, _), some in zip(self._parts, own, strict=True)]
        )

    def tensors(self, *, derived: bool = False) -> dict[str, Tensor]:
        """What was learned, by the names of the parts."""
        found = {"order": self.order}
        for part, (kind, _) in zip(("text", "columns"), self._parts, strict=True):
            own = kind.tensors(derived=derived)
            found |= {f"{part}_{name}": tensor for name, tensor in own.items()}
        return found

    def with_tensors(self, tensors: dict[str, Tensor]) -> Self:
        """The same with these."""
        both: dict[str, Any] = {}
        for part, (kind, _) in zip(("text", "columns"), self._parts, strict=True):
            own = {k.removeprefix(f"{part}_"): t for k, t in tensors.items() if k.startswith(part)}
            both[part] = kind.with_tensors(own)
        return replace(self, order=tensors["order"], **both)

    # Onto the sphere.

    def n_coordinates(self, n_features: int) -> int:
        """Those of both."""
        return self.n_text + self.columns.n_coordinates(n_features - self.n_text)

    def place(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """As `Geometry.place`: a part without direction is not known."""
        units, losts = [], []
        for (kind, length), own in zip(self._parts, self._split(x), strict=True):
            unit, undirected = kind.place(own)
            units.append(torch.where(undirected[:, None], torch.nan, length * unit))
            losts.append(undirected)
        undirected = losts[0] & losts[1]
        return torch.where(undirected[:, None], 0.0, torch.cat(units, 1)), undirected

    def coordinates(self, x: Tensor) -> Tensor:
        """Those of both."""
        parts = zip(self._parts, self._split(x), strict=True)
        return torch.cat([kind.coordinates(own) for (kind, _), own in parts], 1)

    def onnx(self, g: Graph, x: str, n_features: int) -> OnnxUnitRows:
        """`place` in a graph."""
        units, losts, gaps = [], [], []
        split = self._split(np.arange(n_features))
        for (kind, length), own in zip(self._parts, split, strict=True):
            some = g("Gather", x, g.constant(own, np.int64), axis=1)
            at = kind.onnx(g, some, len(own))
            units.append(g("Mul", at.unit, length))
            losts.append(at.undirected)
            unknown = g("Mul", at.unit, 0.0) if at.gaps is None else at.gaps
            gaps.append(g("Where", at.undirected, 1.0, unknown))
        unit, missing = (g("Concat", *parts, axis=1) for parts in (units, gaps))
        return with_gaps(g, unit, g("And", *losts), missing)

    # Gaps.

    def fill(self, x: Tensor) -> Tensor:
        """An ordinary number of each part."""
        return self._each(lambda kind, own: kind.fill(own), x)

    def complete(self, rows: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
        """As `Geometry.complete`."""
        done = np.array(rows, dtype=np.float64)
        for (kind, _), own in zip(self._parts, self._split(np.arange(done.shape[1])), strict=True):
            gone = np.isnan(done[:, own]).all(1, keepdims=True)
            whole = kind.complete(done[:, own], found[:, own])
            done[:, own] = np.where(gone, found[:, own], whole)
        return done

    # Back.

    def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
        """Directions of texts, and columns as their geometry restores them."""
        text, columns = self._cut(w)
        before = [int((self.order[: self.n_text] < own.start).sum()) for own in categories]
        own = [slice(a.start - k, a.stop - k) for a, k in zip(categories, before, strict=True)]
        text = torch.nn.functional.normalize(text, dim=-1)
        return self._joined([text.double(), self.columns.restore(columns, own)])

    # Features and coordinates.

    def per_coordinate(self, of_features: Tensor, constant: float = 1) -> Tensor:
        """As `Geometry.per_coordinate`."""
        text, columns = self._split(of_features)
        return torch.cat([text, self.columns.per_coordinate(columns, constant)], 1)

    def strengths(self, w: Tensor) -> Tensor:
        """As `Geometry.strengths`."""
        text, columns = self._cut(w)
        return self._joined([self.text.strengths(text), self.columns.strengths(columns)])

    # Units.

    @property
    def units(self) -> Tensor | None:
        """Those of the columns; numbers of a text have that of a direction."""
        columns = self.columns.units
        assert columns is not None
        return self._joined([columns.new_full((self.n_text,), self.n_text**-0.5), columns])


def _name(columns: type[Geometry], share: float) -> str:
    return f"text{100 * share:.0f}+{columns.name}"


KINDS.update({
    _name(columns, share): Kind(Product, {"columns": columns, "share": share})
    for columns in (Standard, Circles) for share in SHARES
})  # fmt: skip
