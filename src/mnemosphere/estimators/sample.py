"""Some rows to choose by, which can be put on the sphere in one way or another."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import METRICS, SCALED, Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import has_gaps
from mnemosphere.model.metric import MAX_RANK

__all__ = ["Sample", "labeled_in_turn"]

_LOST = 0.05  # share of rows that a normalization may leave without direction
_PROBED = 500  # rows that tell it


@dataclass(frozen=True)
class Sample:
    """Some stored rows, to be put on the sphere in one way or another."""

    rows: StoredRows
    targets: Tensor
    weight: Tensor | None
    dtype: torch.dtype

    @functools.cached_property
    def has_gaps(self) -> bool:
        """Whether a feature of some row is not known."""
        return any(has_gaps(x) for _, x in self.rows.chunks())

    def usable(self, *, metrics: bool) -> list[str]:
        """The normalizations that leave hardly a row without direction, the paper's first."""
        kinds, some = [], self.first(_PROBED)
        for kind, least in (("center", 3), ("unit", 2)):
            if self.rows.n_features < least:
                continue
            lost = on_sphere(some.rows, Normalizer(kind), self.dtype)[1]
            weight = torch.ones_like(lost) if some.weight is None else some.weight
            if float(weight[lost].sum()) <= _LOST * float(weight.sum()):
                kinds.append(kind)
        kinds.append("standard")
        if metrics:
            # What each of very many coordinates tells is known too badly. A metric fills gaps,
            # which costs more than whitening gains.
            narrow = self.rows.n_features < MAX_RANK
            suited = {"whitened": not self.has_gaps, "weighted": narrow}
            kinds += [kind for kind in METRICS if suited[kind]]
        return kinds

    def first(self, number: int) -> Self:
        """The first rows, so many of them."""
        if number >= self.rows.n_rows:
            return self
        rows = self.rows.take(torch.arange(number))
        weight = None if self.weight is None else self.weight[:number]
        return replace(self, rows=rows, targets=self.targets[:number], weight=weight)

    def of_classes(self, number: int) -> Self:
        """The rows of so many classes, those of the first rows."""
        label = self.targets[:, :-1].argmax(1)
        first = list(dict.fromkeys(label.tolist()))[:number]
        columns = torch.tensor([*sorted(first), self.targets.shape[1] - 1], device=label.device)
        own = torch.isin(label, columns[:-1]).nonzero()[:, 0]
        weight = None if self.weight is None else self.weight[own]
        return replace(
            self, rows=self.rows.take(own), targets=self.targets[own][:, columns], weight=weight
        )

    def dataset(self, kind: str) -> ArrayDataset:
        """The rows that have a direction, on the sphere."""
        normalizer = Normalizer(kind)
        if kind in SCALED or self.has_gaps:
            normalizer = Normalizer.fit(kind, self.rows, self.weight)
        x, lost = on_sphere(self.rows, normalizer, self.dtype)
        batch = Batch(
            x,
            self.targets.to(self.dtype),
            None if self.weight is None else self.weight.to(self.dtype),
        )
        return ArrayDataset(batch.take(~lost) if bool(lost.any()) else batch)


def labeled_in_turn(order: Tensor, labeled: Tensor) -> Tensor:
    """The rows in that order, labeled ones and others by turns until one kind runs out."""
    known = labeled[order]
    turn = torch.where(known, known.cumsum(0).double(), (~known).cumsum(0) + 0.5)
    return order[turn.argsort(stable=True)]
