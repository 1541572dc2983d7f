"""The settings of an estimator, parsed once, and the rows that they are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from mnemosphere.geometry import Geometry
from mnemosphere.geometry.base import on_sphere
from mnemosphere.model.batch import Batch
from mnemosphere.model.soft_labels import label_shares
from mnemosphere.rows.odds import Odds
from mnemosphere.rows.rows import Rows
from mnemosphere.training.adam import Adam
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD

_ADAM = Adam()
SOLVERS: dict[str, FixedPoint | SGD | Adam] = {
    "fixed-point": FixedPoint(), "sgd": SGD(), "adam": _ADAM
}  # fmt: skip
FEW_KINDS, OFTEN = 50, 5  # distinct rows at most, and how often: a table of few kinds of rows


@dataclass(frozen=True)
class Settings:
    """The settings of an estimator of rows, parsed once; None stands for "auto", of β for "learn"."""

    given: Mapping[str, Any]  # its parameters
    n_memories: int | None
    varsigma: float | None
    beta: float | None
    uniform_weight: float | None
    objective: str  # "joint", "conditional", or "auto": by whether all rows have labels
    solver: FixedPoint | SGD | Adam | None
    adam: Adam  # the solver of the conditional likelihood
    geometry: str
    growth: int | None
    search: str | None
    max_iter: int | None
    smoothing: float  # of labels, for the joint objective
    precision: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From the parameters of a `DAMClassifier` or a `DAMClusterer`."""
        numbers = ("n_memories", "varsigma", "beta", "uniform_weight")
        known = {name: None if isinstance(given[name], str) else given[name] for name in numbers}
        solver, objective = given["solver"], given.get("objective", "joint")
        solver = SOLVERS.get(solver) if isinstance(solver, str) else solver
        adam = solver if isinstance(solver, Adam) else None
        if objective == "auto" and (solver is not None or given["growth"] is not None):
            # A solver, or a tree of splits, belongs to one of them.
            objective = "joint" if adam is None else "conditional"
        smoothing = float(given.get("label_smoothing", given.get("smoothing", 0.0)))
        return cls(
            given, solver=solver, adam=adam or _ADAM,
            objective=objective, geometry=given["geometry"], growth=given["growth"], search=given.get("search"),
            max_iter=given["max_iter"], precision=given["precision"],
            smoothing=smoothing if smoothing > 1e-30 else 0.0,  # less would vanish in products
            **known,
        )  # fmt: skip

    def for_rows(self, sample: Sample) -> Self:
        """With the objective for these rows; ValueError if settings contradict each other."""
        auto = "conditional" if bool(sample.labeled.all()) else "joint"
        own = replace(self, objective=auto if self.objective == "auto" else self.objective)
        conditional = own.objective == "conditional"
        if conditional and self.growth is not None:
            raise ValueError(
                "growth splits memories of the joint likelihood: use objective='joint' or "
                "growth=None"
            )
        if isinstance(self.solver, FixedPoint if conditional else Adam):
            raise ValueError(
                f"{type(self.solver).__name__} does not train the {own.objective} likelihood: use "
                "solver='auto', or another objective"
            )
        return own


def has_few_kinds(n_rows: int, n_distinct: int) -> bool:
    """Whether a table has so few kinds of rows, each so often, that a new row is one of them.

    There copies are held out like other rows. Elsewhere a copy of a fitted row tells nothing of new rows.
    """
    return n_distinct <= FEW_KINDS and n_rows >= OFTEN * n_distinct


@dataclass(frozen=True)
class Sample:
    """Stored rows with label weights, to be put on the sphere in one way or another."""

    rows: Rows
    targets: Tensor  # (n, C+1) float64; zeros: a row without label
    weight: Tensor | None
    dtype: torch.dtype

    @property
    def n_classes(self) -> int:
        """C."""
        return self.targets.shape[1] - 1

    @cached_property
    def labeled(self) -> Tensor:
        """Which rows have a label, (n,)."""
        return self.targets.sum(1) > 0

    def label_mass(self) -> Tensor:
        """Summed label weights (C+1,), by sample weight."""
        return self.targets.sum(0) if self.weight is None else self.weight @ self.targets

    def take(self, index: Tensor) -> Self:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[index]
        return replace(self, rows=self.rows.take(index), targets=self.targets[index], weight=weight)

    @cached_property
    def odds(self) -> Odds:
        """What its rows tell of the levels of categories."""
        return Odds.learn(self.rows, label_shares(self.targets), self.weight)

    def cross_fitted(self) -> Self:
        """The sample with log-odds in place of levels, each row by the rows of other folds."""
        return replace(self, rows=self.odds.of_training(self.rows)) if self.rows.levels else self

    def on_sphere(self, geometry: Geometry) -> tuple[Batch, Tensor]:
        """(unit rows with their labels, which of them have no direction)."""
        x, lost = on_sphere(self.rows, geometry, self.dtype)
        weight = None if self.weight is None else self.weight.to(self.dtype)
        return Batch(x, self.targets.to(self.dtype), weight), lost
