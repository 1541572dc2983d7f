"""Levels of a category as the log-odds of the classes that go with them.

Of the levels of a category, `counts` (L, C) are summed label weights. A level has the classes of its rows and of
m rows more that are like all rows, by the m for which the counts are likeliest (Dirichlet and multinomial): an
uninformative category comes out as zeros. What is told is log P(y | level) − log P(y), of two classes the
difference.

Training rows must not see their own labels, so they are cross-fitted: a row has the log-odds of the other folds
(Micci-Barreca 2001; scikit-learn's `TargetEncoder`). Other rows have those of all training rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor

from mnemosphere.rows.stored import StoredRows

Floats = NDArray[np.float64]
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
    found: Floats = whole / whole.sum()
    return found


def _rows_more(counts: Floats) -> float:
    """The m for which the counts are likeliest."""
    prior, n = _prior(counts), counts.sum(1)

    def log_likelihood(m: float) -> float:
        of_classes = gammaln(counts + m * prior) - gammaln(m * prior)
        return float((gammaln(m) - gammaln(n + m)).sum() + of_classes.sum())

    return float(max(_MORE_ROWS, key=log_likelihood))


def counts_of_folds(
    rows: StoredRows, number: Tensor, labels: Tensor, weight: Tensor | None
) -> list[Floats]:
    """Of each category, the counts (folds, L, C) of training rows, of which some are here.

    number: of the rows, by which they have a fold. labels: (n, C), zeros for a row without label.
    """
    each = labels.double() if weight is None else labels.double() * weight.double()[:, None]
    mass, fold, found = each.cpu().numpy(), _fold(number), []
    for n, code in zip(rows.levels.values(), _codes(rows), strict=True):
        known = code >= 0
        sums = np.zeros((_FOLDS, n + 1, mass.shape[1]))
        np.add.at(sums, (fold[known], code[known]), mass[known])
        found.append(sums[:, :-1])  # but for levels that are not known
    return found


def tables_of_folds(sums: Iterable[Floats]) -> list[Floats]:
    """The log-odds (folds, L+1, K) of each category, as the rows of the other folds have them."""

    def tables(own: Floats) -> Floats:
        whole = own.sum(0)
        more = _rows_more(whole)
        return np.stack([log_odds(whole - part, more) for part in own])

    return [tables(own) for own in sums]


def in_folds(rows: StoredRows, number: Tensor, tables: Sequence[Floats]) -> StoredRows:
    """Training rows with log-odds of other folds in place of levels."""
    fold = _fold(number)
    return _in_place(
        rows, [own[fold, code] for own, code in zip(tables, _codes(rows), strict=True)]
    )


def _fold(number: Tensor) -> NDArray[np.int64]:
    """The fold of rows with these numbers, neighbors in unlike ones."""
    mixed = number.cpu().numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(_FOLDS)).astype(np.int64)


def cross_fitted(
    rows: StoredRows, labels: Tensor, weight: Tensor | None
) -> tuple[StoredRows, list[Floats]]:
    """(training rows with log-odds in place of levels, the counts (L, C) of each category)."""
    number = torch.arange(rows.n_rows)
    sums = counts_of_folds(rows, number, labels, weight)
    return in_folds(rows, number, tables_of_folds(sums)), [own.sum(0) for own in sums]


def with_odds(rows: StoredRows, counts: Sequence[Floats]) -> StoredRows:
    """Other rows with the log-odds of these counts in place of levels."""
    return _in_place(
        rows, [log_odds(own)[code] for own, code in zip(counts, _codes(rows), strict=True)]
    )


def _codes(rows: StoredRows) -> list[NDArray[np.int64]]:
    """The level of each row (n,), of each category; −1 for none."""
    columns = (rows.values[:, k].double().nan_to_num(-1.0) for k in rows.levels)
    return [column.long().cpu().numpy() for column in columns]


def _in_place(rows: StoredRows, found: Sequence[Floats]) -> StoredRows:
    """Rows whose columns of levels are replaced."""
    if not rows.levels:
        return rows
    parts, first = [], 0
    for k, block in zip(rows.levels, found, strict=True):
        known = ~rows.values[:, k : k + 1].isnan()
        own = torch.from_numpy(block).to(rows.values)
        parts += [rows.values[:, first:k], torch.where(known, own, torch.nan)]
        first = k + 1
    width = {k: block.shape[1] for k, block in zip(rows.levels, found, strict=True)}
    before = [k for k in range(rows.n_features) for _ in range(width.get(k, 1))]
    vectors = tuple(j for j, k in enumerate(before) if k in rows.vectors)
    shares = tuple(rows.shares[k] for k in before) if rows.shares else ()
    values = torch.cat([*parts, rows.values[:, first:]], 1)
    return replace(rows, values=values, levels={}, vectors=vectors, shares=shares)
