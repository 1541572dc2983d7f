"""A batch of rows: what every pass takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from mnemosphere.model.gaps import fill_neutrally, has_gaps
from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import sphere


@dataclass(frozen=True)
class Batch:
    """Unit rows with their label weights and, where they differ, their sample weights."""

    x: Tensor  # (B, N) unit rows; NaN where a feature is not known, see `model.gaps`
    targets: Tensor  # (B, C+1) label weights, at most 1 per row; zeros: the row has no label
    sample_weight: Tensor | None = None  # (B,)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.x.shape[-2]

    @property
    def total_weight(self) -> float:
        """Summed sample weight: the number of rows where they all weigh 1."""
        return float(self.weights.double().sum())

    @property
    def weights(self) -> Tensor:
        """Sample weights (B,), 1 where none are given."""
        return (
            self.x.new_ones(self.x.shape[:-1]) if self.sample_weight is None else self.sample_weight
        )

    def take(self, rows: Tensor | slice | tuple[slice, Tensor]) -> Self:
        """A part of the rows."""
        if isinstance(rows, Tensor) and rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]
        if self.x.ndim > 2:  # of each problem of a stack
            rows = (slice(None), rows)  # type: ignore[assignment]
        targets = take_rows(self.targets, rows)
        weight = None if self.sample_weight is None else take_rows(self.sample_weight, rows)
        taken = type(self)(take_rows(self.x, rows), targets, weight)
        if self.__dict__.get("has_gaps") is False:  # known already, and no need to look again
            taken.__dict__["has_gaps"] = False
        return taken

    def to(self, *, dtype: torch.dtype) -> Self:
        """The same in another precision."""
        weight = None if self.sample_weight is None else self.sample_weight.to(dtype)
        return type(self)(self.x.to(dtype), self.targets.to(dtype), weight)

    @classmethod
    def stack(cls, several: Sequence[Self]) -> Self:
        """Rows of several problems, as many each, along a leading axis: see `one_pass`."""
        weights = [one.sample_weight for one in several if one.sample_weight is not None]
        return cls(
            torch.stack([one.x for one in several]),
            torch.stack([one.targets for one in several]),
            torch.stack(weights) if weights else None,
        )

    @cached_property
    def has_gaps(self) -> bool:
        """Whether a feature of some row is not known; looked at once."""
        return has_gaps(self.x)

    def label_mass(self) -> Tensor:
        """Summed label weights (..., C+1), by sample weight."""
        if self.sample_weight is None:
            return self.targets.sum(-2)
        return (self.sample_weight[..., None, :] @ self.targets)[..., 0, :]

    def filled(self) -> Self:
        """The same rows with 0 in their gaps, of unit norm."""
        return replace(self, x=fill_neutrally(self.x)) if self.has_gaps else self

    def mean(self, values: Tensor) -> float:
        """Mean of one value per row, by sample weight, in float64."""
        weight = self.weights.double()
        return float((values.double() * weight).sum() / weight.sum())

    def check(self, params: Mixture) -> Self:
        """Return self; raise ValueError unless the rows fit the parameters."""
        x, weight, n_rows = self.x, self.sample_weight, self.n_rows
        if x.ndim != 2 or x.shape[1] != params.n_features:
            wanted = f"(B, {params.n_features})"
            raise ValueError(f"x must be {wanted} to match the memories, got {tuple(x.shape)}")
        _check_kind(params, "x", x)
        # A row with gaps has some norm below 1.
        sphere.check(x[~x.isnan().any(1)] if self.has_gaps else x, "x")
        if n_rows == 0:
            raise ValueError("x has no rows: pass at least one")
        shapes = {"targets": (n_rows, params.n_columns), "sample_weight": (n_rows,)}
        for name, shape in shapes.items():
            values = getattr(self, name)
            if values is None:
                continue
            _check_kind(params, name, values)
            if values.shape != shape:
                raise ValueError(f"{name} must be {shape}, got {tuple(values.shape)}")
            if not ((values >= 0) & values.isfinite()).all():
                raise ValueError(f"{name} must be finite and >= 0")
        if (self.targets.sum(1) > 1 + 1e-4).any():
            raise ValueError("targets must be label weights: at most 1 per row")
        if weight is not None and not weight.sum() > 0:
            raise ValueError("sample_weight is zero everywhere: nothing to learn from")
        return self


def take_rows(values: Tensor, rows: Tensor | slice | tuple[slice, Tensor]) -> Tensor:
    """`values[rows]`; rows by their numbers in a third of the time that brackets take."""
    axis, own = (1, rows[1]) if isinstance(rows, tuple) else (0, rows)
    if isinstance(own, Tensor) and own.dtype == torch.long:
        return values.index_select(axis, own)
    return values[rows]


def _check_kind(params: Mixture, name: str, tensor: Tensor) -> None:
    if tensor.dtype != params.w.dtype or tensor.device != params.w.device:
        raise ValueError(
            f"{name} is {tensor.dtype} on {tensor.device} but the parameters are "
            f"{params.w.dtype} on {params.w.device}: convert one of them"
        )
