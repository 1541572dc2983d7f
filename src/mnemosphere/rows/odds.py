"""Levels of a category as the log-odds of the classes that go with them.

Of the levels of a category, `counts` (L, C) are summed label weights. A level has the classes of its rows and of
m rows more that are like all rows, by the m for which the counts are likeliest (Dirichlet and multinomial): an
uninformative category comes out as zeros. What is told is log P(y | level) − log P(y), of two classes the
difference.

Training rows must not see their own labels, so they are cross-fitted: a row has the log-odds of the other folds
(Micci-Barreca 2001; scikit-learn's `TargetEncoder`). Other rows have those of all training rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor

from mnemosphere.rows.columns import Columns, Floats
from mnemosphere.rows.rows import Rows

_FOLDS = 5  # a row is encoded by the rows of the others
_MORE_ROWS = 2.0 ** np.arange(-1, 13)


def log_odds(counts: Floats, more: float | None = None) -> Floats:
    """Numbers (L+1, K) of each level, at last of one never seen; K: 1 of two classes, else C."""
    prior = _prior(counts)
    more = _rows_more(counts) if more is None else more
    share = (counts + more * prior) / (counts.sum(1, keepdims=True) + more)
    ratio = np.log(share / prior)
    ratio = ratio[:, 1:] - ratio[:, :1] if counts.shape[1] == 2 else ratio
    return np.vstack([ratio, np.zeros_like(ratio[:1])])


def _prior(counts: Floats) -> Floats:
    whole: Floats = counts.sum(0) + 0.5
    return whole / float(whole.sum())


def _rows_more(counts: Floats) -> float:
    """The m for which the counts are likeliest."""
    prior, n = _prior(counts), counts.sum(1)

    def log_likelihood(m: float) -> float:
        of_classes = gammaln(counts + m * prior) - gammaln(m * prior)
        return float((gammaln(m) - gammaln(n + m)).sum() + of_classes.sum())

    return float(max(_MORE_ROWS, key=log_likelihood))


@dataclass(frozen=True)
class Odds:
    """What training rows tell of the levels of each category that has log-odds."""

    counts: list[Floats]  # (L, C) of each
    # (folds+1, L+1, K) log-odds by the rows of the other folds; at last, by all rows
    tables: list[Floats]

    @classmethod
    def learn(
        cls, rows: Rows, labels: Tensor, weight: Tensor | None = None, number: Tensor | None = None
    ) -> Self:
        """From rows with label weights (n, C), zeros for a row without label.

        number: of the rows (n,), by which they have a fold; None: their places.
        """
        each = labels.double() if weight is None else labels.double() * weight.double()[:, None]
        mass, fold, counts, tables = each.cpu().numpy(), _fold(rows, number), [], []
        for n, code in zip(rows.levels.values(), _codes(rows), strict=True):
            known = code >= 0
            sums = np.zeros((_FOLDS, n + 1, mass.shape[1]))
            np.add.at(sums, (fold[known], code[known]), mass[known])
            sums = sums[:, :-1]  # but for levels that are not known
            whole = sums.sum(0)
            more = _rows_more(whole)
            others = [whole - part for part in sums]
            counts.append(whole)
            tables.append(np.stack([log_odds(part, more) for part in [*others, whole]]))
        return cls(counts, tables)

    def columns(self, columns: Columns, classes: Sequence[Any] = ()) -> Columns:
        """The columns with log-odds in place of levels as numbers."""
        return columns.with_odds([own[-1, :-1] for own in self.tables], self.counts, classes)

    def of_training(self, rows: Rows, number: Tensor | None = None) -> Rows:
        """Training rows with the log-odds of other folds in place of levels."""
        return self._in_place(rows, _fold(rows, number))

    def of_others(self, rows: Rows) -> Rows:
        """Other rows with the log-odds of all training rows in place of levels."""
        return self._in_place(rows, np.full(rows.n_rows, _FOLDS))

    def _in_place(self, rows: Rows, fold: NDArray[np.int64]) -> Rows:
        if rows.columns is None or not rows.levels:
            return rows
        parts, first = [], 0
        for k, table, code in zip(rows.levels, self.tables, _codes(rows), strict=True):
            own = torch.from_numpy(table[fold, code]).to(rows.values)
            known = ~rows.values[:, k : k + 1].isnan()
            parts += [rows.values[:, first:k], torch.where(known, own, torch.nan)]
            first = k + 1
        values = torch.cat([*parts, rows.values[:, first:]], 1)
        return replace(rows, values=values, columns=self.columns(rows.columns))


def _fold(rows: Rows, number: Tensor | None) -> NDArray[np.int64]:
    """The fold of each row (n,), by its number: neighbors are in unlike ones."""
    number = torch.arange(rows.n_rows) if number is None else number
    mixed = number.cpu().numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(_FOLDS)).astype(np.int64)


def _codes(rows: Rows) -> list[NDArray[np.int64]]:
    """The level of each row (n,), of each category; −1 for none."""
    columns = (rows.values[:, k].double().nan_to_num(-1.0) for k in rows.levels)
    return [column.long().cpu().numpy() for column in columns]
