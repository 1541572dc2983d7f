"""What each column does in a decision: how the odds would change with it, everything else as it is.

Let a be the predicted class, b the runner-up, f(x) = log P(a|x)/P(b|x), and x[j→v] the row with another
value v in column j. The pull of a column is what the row would lose with the average effect of the column:

    pull_j = f(x) − 1/K Σ_k f(x[j→v_kj])

The K values v_kj are those of training rows, at ranks evenly spaced: as they occur, where the column is
known. (A model that keeps no rows takes what its memories stand for.) So a value between those of two
classes pulls little, and what is missing in x has a pull like any value. The pull of all columns together
is the same with all of them changed at once; values of several columns are paired at random. The model
answers for every changed row, so a pull is exact whatever the geometry and whichever other values are
missing. A category is changed as a whole. Pulls do not add up.

Beside it stand typical values of both classes: the weighted median, or commonest level, of what the memories
of a class stand for, by their shares in the vote on this row. A memory is that of its likeliest class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.fitted.exemplars import middle
from mnemosphere.fitted.model import FittedModel, Floats, Placed, as_numpy
from mnemosphere.model.gaps import overlaps
from mnemosphere.model.one_pass import scores
from mnemosphere.model.soft_labels import prior_share
from mnemosphere.rows.rows import Rows

NUMBERS = 1 << 21  # of changed rows that are held at a time
_ROWS, _FEW_ROWS = 60, 10  # whose pulls are averaged
_CURVE_ROWS = 50  # that are moved through a column
_RANKS = 32  # values of a column by which its average effect is found
_VALUES, _FEW = 30, 8  # of a column; that are named
_WORDS = 100  # of a text
_MOST = 500  # columns that are changed alone, those furthest from typical


class Pull(NamedTuple):
    """What one column of a row pulls to: see `Explanation.pulls`.

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
    '2.9'
    """

    column: str
    value: str
    predicted: str
    runner_up: str
    pull: float


class Pulls(NamedTuple):
    """What columns do in the decision about a row, for every column as a user has it."""

    pull: Floats  # (L,)
    together: float  # the pull of all columns at once
    odds: Floats  # (L,) with the runner-up's typical value: below 0, that would put it ahead
    typical: Floats  # (2, N) numbers typical of the predicted class and of the runner-up

    def order(self) -> list[int]:
        """The columns, the strongest pull first."""
        return [int(j) for j in np.argsort(-np.abs(self.pull), kind="stable")]


def column_pulls(
    model: FittedModel, X: Rows, classes: NDArray[np.intp], placed: Placed | None = None
) -> Pulls:
    """Pulls of the columns of one row between two classes (2,), the predicted one first."""
    (typical,) = typical_of_classes(model, X, classes[None], placed)
    (row,) = as_numpy(X.values).astype(np.float64)
    values, n = values_of_columns(model), len(model.columns.user_columns)
    values = known_values(model, row) if values is None else values
    values = np.where(np.isnan(values), row, values)
    tried = furthest(model, row, typical) if n > _MOST else [*range(n)]
    places = [model.columns.user_columns[j].place for j in tried]
    found = Pulls(np.zeros(n), 0.0, np.zeros(n), typical)
    step, odds = max(1, NUMBERS // ((len(values) + 1) * len(row))), []
    for start in range(0, len(places) + 1, step):
        changed = []
        for place in [*places, slice(None)][start : start + step]:
            rows = np.tile(row, (len(values) + 1, 1))
            rows[:-1, place], rows[-1, place] = values[:, place], typical[1, place]
            changed.append(rows)
        odds.append(log_odds(model, np.concatenate([*changed, row[None]]), classes))
    own = odds[0][-1]
    every = np.concatenate([part[:-1] for part in odds]).reshape(-1, len(values) + 1)
    mean = every[:, :-1].mean(1)
    found.pull[tried], found.odds[:], found.odds[tried] = own - mean[:-1], own, every[:-1, -1]
    return found._replace(together=float(own - mean[-1]))


def word_pulls(
    model: FittedModel, row: Floats, text: str, classes: NDArray[np.intp]
) -> list[tuple[str, float]]:
    """What the log-odds of two classes lose without each word of the text of a row (N,), the most first.

    f(x) − f(x with the text less this word), for at most 100 words; one word alone has no pull.
    """
    words, encoder = text.split(), model.columns.encoder
    places = [own.place for own in model.columns.user_columns if own.kind == "text"]
    place = slice(None) if model.columns.is_texts else places[0]
    if encoder is None or not 1 < len(words) <= _WORDS:
        return []
    less = [" ".join([*words[:k], *words[k + 1 :]]) for k in range(len(words))]
    rows = np.tile(row, (len(words) + 1, 1))
    rows[:, place] = encoder([*less, text])
    odds = log_odds(model, rows, classes)
    found = [(word, float(odds[-1] - own)) for word, own in zip(words, odds, strict=False)]
    return sorted(found, key=lambda own: -abs(own[1]))


def values_of_columns(model: FittedModel) -> Floats | None:
    """(K, N) values of each column of training rows, at the ranks (k+½)/K of those that are known.

    In random order, each column by itself; NaN: never known. None: the model keeps no rows.
    """
    rows = None if model.exemplars is None else model.exemplars.sample
    if rows is None:
        return None
    found, rng = np.full((_RANKS, rows.shape[1]), np.nan), np.random.default_rng(0)
    for place in [column.place for column in model.columns.user_columns]:
        values = rows[~np.isnan(rows[:, place]).any(1), place]
        if len(values):
            ordered = values[np.lexsort(values.T[::-1])]
            at = ((np.arange(_RANKS) + 0.5) / _RANKS * len(values)).astype(int)
            found[:, place] = ordered[at][rng.permutation(_RANKS)]
    return found


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
    pairs = order[:, [0, 1 % order.shape[1]]]
    pulls = [column_pulls(model, X.take(slice(k, k + 1)), own).pull for k, own in enumerate(pairs)]
    found: Floats = np.abs(pulls).mean(axis=0)
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
        most = np.sort(np.argsort(-counts, kind="stable")[:_VALUES])
        most = most if column.shape[1] == 1 else most[::-1]
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


def log_odds(model: FittedModel, rows: Floats, pair: NDArray[np.intp]) -> Floats:
    """Log P(a|x)/P(b|x) of rows (n, N)."""
    scores = model.class_log_joint(Rows.of(rows, model.device))[:, pair.tolist()].double()
    found: Floats = as_numpy(scores[:, 0] - scores[:, 1])
    return found


def typical_of_classes(
    model: FittedModel, X: Rows, classes: NDArray[np.intp], placed: Placed | None = None
) -> Floats:
    """(n, k, N) what is typical of classes (n, k) among the memories that answer for each row."""
    votes, rows = model.precise_votes, X.values.double()
    rest = prior_share(votes)[1][1:]  # (P, C), without what repeats the class frequencies
    own = torch.nn.functional.one_hot(rest.argmax(1), rest.shape[1])
    rest = torch.where(own.sum(0) > 0, rest * own, votes.labels[1:, :-1]).log().T  # (C, P)
    found, start = np.empty((*classes.shape, rows.shape[1])), 0
    for x, lost in model.unit_rows(placed or X, votes.w.dtype):
        part = slice(start, start := start + len(lost))
        said = scores(votes, overlaps(votes, x))[:, 1:]  # (B, P)
        said = torch.where(lost[:, None], votes.weights[1:].log(), said).double()
        weight = as_numpy((said[:, None] + rest.to(said)[classes[part]]).softmax(2))  # (B, k, P)
        for b, each in enumerate(weight, part.start):
            known = known_values(model, as_numpy(rows[b]))
            found[b] = [middle(known, own, model.columns.multi_number_categories) for own in each]
    return found
