"""What each column does in a decision: how the odds would change with it, everything else as it is.

Let a be the predicted class, b the runner-up, f(x) = log P(a|x)/P(b|x), and x[j→v] the row with another
value v in column j. With the typical values v_a and v_b of the two classes

    for_j     = f(x) − f(x[j→v_b])      what the row would lose if it were typical of b there
    against_j = f(x[j→v_a]) − f(x)      what it would gain if it were typical of a there

The pull of a column is for_j, or −against_j if that is larger; a column with neither has none, nor has
one without a value. The model answers for every changed row, so a pull is exact whatever the geometry
and whichever other values are missing. A category is changed as a whole. Pulls do not add up: what all other columns do together is
the same with all of them changed at once.

The typical value of a class is the weighted median, or commonest level, of what its memories stand for,
by their shares in the vote on this row: a value of real rows. A memory is that of its likeliest class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.fitted.exemplars import middle
from mnemosphere.fitted.model import FittedModel, Floats, as_numpy
from mnemosphere.model.gaps import overlaps
from mnemosphere.model.one_pass import scores
from mnemosphere.model.soft_labels import prior_share
from mnemosphere.rows.rows import Rows

NUMBERS = 1 << 21  # of changed rows that are held at a time
_ROWS, _FEW_ROWS = 200, 20  # whose pulls are averaged
_CURVE_ROWS = 50  # that are moved through a column
_VALUES, _FEW = 30, 8  # of a column; that are named
_MOST = 500  # columns that are changed alone, those furthest from typical; the others together


class Pull(NamedTuple):
    """What one column of a row pulls to.

    Attributes
    ----------
    column : str
        Its name.
    value : str
        What the row has there; "missing" for a missing value.
    predicted : str
        What is typical of the predicted class.
    runner_up : str
        What is typical of the runner-up.
    pull : float
        How much the log-odds would change; above 0, the column speaks for the predicted class.

    Examples
    --------
    >>> clf.explain(X_test[:1]).pulls()[0].value
    '13.74'
    """

    column: str
    value: str
    predicted: str
    runner_up: str
    pull: float


class Pulls(NamedTuple):
    """What columns do in the decisions about rows, for every column as a user has it."""

    pull: Floats  # (n, L)
    lost: Floats  # (n, L) for_j alone: where it exceeds f(x), the runner-up would be ahead
    typical: Floats  # (n, 2, N) numbers typical of the predicted class and of the runner-up

    def order(self, row: int) -> list[int]:
        """The columns, the strongest pull first."""
        return [int(j) for j in np.argsort(-np.abs(self.pull[row]), kind="stable")]


def column_pulls(model: FittedModel, X: Rows, classes: NDArray[np.intp]) -> Pulls:
    """Pulls of the columns between two classes (n, 2) of each row, the predicted one first."""
    typical = typical_of_classes(model, X, classes)
    rows = as_numpy(X.values).astype(np.float64)
    places = [line.place for line in model.columns.user_columns]
    found = np.zeros((2, len(rows), len(places)))
    for k, row in enumerate(rows):
        tried = furthest(model, row, typical[k])
        found[:, k, tried] = _pull(model, row, typical[k], [[places[j]] for j in tried], classes[k])
    return Pulls(found[0], found[1], typical)


def furthest(model: FittedModel, row: Floats, ends: Floats) -> list[int]:
    """The columns in which a row (N,) is not at all of these ends (k, N), the furthest first.

    A missing value says nothing: it is at all ends.
    """
    away = np.abs((row - ends) / scale(model)).max(0)  # NaN: missing here or there
    first = [line.place.start for line in model.columns.user_columns]
    far = np.maximum.reduceat(np.nan_to_num(away), first)
    return [int(j) for j in np.argsort(-far, kind="stable")[:_MOST] if far[j] > 0]


def scale(model: FittedModel) -> Any:
    """One unit of each feature (N,), or 1."""
    return 1.0 if model.geometry.units is None else as_numpy(model.geometry.units)


def changed_rows(row: Floats, end: Floats, changes: Sequence[Sequence[slice]]) -> Floats:
    """(n, N) a row with each of these sets of places as in `end`."""
    rows = np.tile(row, (len(changes), 1))
    for changed, together in zip(rows, changes, strict=True):
        for place in together:
            changed[place] = end[place]
    return rows


def known_values(model: FittedModel, row: Floats) -> Floats:
    """(P, N) what memories stand for; if rows have lost their units, at the length of this one."""
    values = model.typical_values
    if values is not None:
        return values
    return model.columns.in_range(model.memories * np.linalg.norm(np.nan_to_num(row)))


def importance(model: FittedModel, X: Rows) -> Floats:
    """Mean absolute pull of each column (L,) between the two likeliest classes of each row.

    Of more than 200 rows so many are taken, evenly spaced; fewer of wide rows.
    """
    tried = X.values.shape[1] * min(len(model.columns.user_columns), _MOST)
    X = some_rows(X, min(_ROWS, max(_FEW_ROWS, 20 * NUMBERS // tried)))
    order = np.argsort(-as_numpy(model.log_proba(X)), axis=1, kind="stable")
    pull = column_pulls(model, X, order[:, [0, 1 % order.shape[1]]]).pull
    found: Floats = np.abs(pull).mean(axis=0)
    return found


class Curve(NamedTuple):
    """What the values of one column say for each class."""

    name: str
    size: float  # its mean absolute pull
    at: Floats  # (K,) values that occur, or their places if they are named
    names: list[str] | None  # of few values, or of a category
    said: Floats  # (K, C) see `column_curve`
    deciles: Floats  # (9,) of the column


def column_curves(model: FittedModel, X: Rows, n_columns: int) -> list[Curve]:
    """Curves of the columns of the largest mean absolute pull, by samples of the rows."""
    size, sample = importance(model, X), some_rows(X, _CURVE_ROWS)
    table, found = as_numpy(X.values).astype(np.float64), []
    known = [~np.isnan(table[:, line.place]).all() for line in model.columns.user_columns]
    order = [j for j in np.argsort(-size, kind="stable") if known[j]]
    for j in order[:n_columns]:
        line = model.columns.user_columns[j]
        values, share = _values(table[:, line.place])
        said = column_curve(model, sample, line.place, values, share)
        whole = np.full((len(values), table.shape[1]), np.nan)
        whole[:, line.place] = values
        named = len(values) <= _FEW or values.shape[1] > 1 or line.kind in ("category", "boolean")
        names = [line.written(own) for own in whole] if named else None
        at = np.arange(float(len(values))) if named else values[:, 0]
        deciles = np.nanquantile(table[:, line.place], np.arange(1, 10) / 10)
        found.append(Curve(line.name, float(size[j]), at, names, said, deciles))
    return found


def some_rows(X: Rows, most: int) -> Rows:
    """At most so many of the rows, evenly spaced."""
    at = torch.linspace(0, X.n_rows - 1, min(most, X.n_rows), dtype=torch.float64).long()
    return X.take(at.to(X.values.device))


def _values(column: Floats) -> tuple[Floats, Floats]:
    """(values (K, width) that occur in a column (n, width), how many rows are nearest to each)."""
    known = column[~np.isnan(column).any(1)]
    values, counts = np.unique(known, axis=0, return_counts=True)
    if len(values) <= _VALUES or column.shape[1] > 1:
        most = np.sort(np.argsort(-counts, kind="stable")[:_VALUES])[
            :: 1 if column.shape[1] == 1 else -1
        ]
        return values[most], counts[most].astype(float)
    at = np.quantile(known[:, 0], np.linspace(0, 1, _VALUES), method="inverted_cdf")
    values = np.unique(at)
    nearest = np.abs(known[:, :1] - values).argmin(1)
    return values[:, None], np.bincount(nearest, minlength=len(values)).astype(float)


def column_curve(
    model: FittedModel, X: Rows, place: slice, values: Floats, weight: Floats
) -> Floats:
    """(K, C) what values (K, width) of one column say for each class, as the mean over these rows.

    Log P(y|x) less its mean over classes, and over the values by weight (K,): 0 is the average.
    """
    rows = np.tile(as_numpy(X.values).astype(np.float64), (len(values), 1))
    rows[:, place] = values.repeat(X.n_rows, axis=0)
    said = as_numpy(model.log_proba(Rows.of(rows, model.device)))
    said = (said - said.mean(1, keepdims=True)).reshape(len(values), X.n_rows, -1).mean(1)
    found: Floats = said - weight / weight.sum() @ said
    return found


def _pull(
    model: FittedModel, row: Floats, typical: Floats, changes: list[list[slice]],
    pair: NDArray[np.intp],
) -> Floats:  # fmt: skip
    """(pull, for_j) (2, k) of each change, a list of places that are made typical (2, N) together."""
    step = max(1, NUMBERS // (2 * len(row)))
    parts = [np.zeros((2, 0))]
    for start in range(0, len(changes), step):
        own = changes[start : start + step]
        changed = np.concatenate([*(changed_rows(row, end, own) for end in typical), row[None]])
        odds = log_odds(model, changed, pair)
        against, for_ = odds[: len(own)] - odds[-1], odds[-1] - odds[len(own) : -1]
        found = np.where(for_ >= against, for_, -against)
        parts.append(np.stack([np.where(np.maximum(for_, against) > 0, found, 0.0), for_]))
    return np.concatenate(parts, 1)


def rest_pull(
    model: FittedModel, row: Floats, typical: Floats, columns: Sequence[int], pair: NDArray[np.intp]
) -> float:
    """The pull of several columns together."""
    lines = model.columns.user_columns
    return float(_pull(model, row, typical, [[lines[j].place for j in columns]], pair)[0, 0])


def log_odds(model: FittedModel, rows: Floats, pair: NDArray[np.intp]) -> Floats:
    """Log P(a|x)/P(b|x) of rows (n, N)."""
    scores = model.class_log_joint(Rows.of(rows, model.device))[:, pair.tolist()].double()
    found: Floats = as_numpy(scores[:, 0] - scores[:, 1])
    return found


def typical_of_classes(model: FittedModel, X: Rows, classes: NDArray[np.intp]) -> Floats:
    """(n, k, N) what is typical of classes (n, k) among the memories that answer for each row."""
    votes, rows = model.precise_votes, X.values.double()
    rest = prior_share(votes)[1][1:]  # (P, C), without what repeats the class frequencies
    own = torch.nn.functional.one_hot(rest.argmax(1), rest.shape[1])
    rest = torch.where(own.sum(0) > 0, rest * own, votes.labels[1:, :-1]).log().T  # (C, P)
    found, categories = (
        np.empty((*classes.shape, rows.shape[1])),
        model.columns.multi_number_categories,
    )
    start = 0
    for x, lost in model.unit_rows(X, votes.w.dtype):
        part = slice(start, start := start + len(lost))
        said = scores(votes, overlaps(votes, x))[:, 1:]  # (B, P)
        said = torch.where(lost[:, None], votes.weights[1:].log(), said).double()
        weight = as_numpy((said[:, None] + rest.to(said)[classes[part]]).softmax(2))  # (B, k, P)
        for b, each in enumerate(weight, part.start):
            known = known_values(model, as_numpy(rows[b]))
            found[b] = [middle(known, own, categories) for own in each]
    return found
