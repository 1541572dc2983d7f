"""What would have to be different for another class: few columns, and values that rows have.

The row takes what is typical of the wanted class, column by column, the strongest pull first
(`fitted.pulls`), until the model gives it that class. If it never does, it takes what the nearest
memories of the class stand for. Then columns that are not needed go back, the weakest first, and the
others as far as the class stays, to values that other memories stand for. So every value is one of
real rows, and the order is that of `explain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mnemosphere.base.text import Shown, Table, middle_cut, percent
from mnemosphere.fitted.model import FittedModel, Floats, Placed, as_numpy, check_whole, row_names
from mnemosphere.fitted.pulls import (
    NUMBERS,
    changed_rows,
    furthest,
    known_values,
    scale,
    typical_of_classes,
)
from mnemosphere.geometry.base import on_sphere
from mnemosphere.interpret.explanation import familiar
from mnemosphere.interpret.rejection import familiarity
from mnemosphere.rows.columns import UserColumn, written
from mnemosphere.rows.rows import Rows

_MEMORIES = 4  # of the wanted class that a row goes over to
_SHOWN = 10
_AHEAD = 0.5  # probability for which being ahead of the others is enough
_LETTERS = 36  # of a value


class ColumnChange(NamedTuple):
    """One column that changes.

    Attributes
    ----------
    column : str
        Its name.
    before : float or str
        What the row has there.
    after : float or str
        What it would have.
    probability : float
        Of the wanted class, once this column and those before it have changed.

    Examples
    --------
    >>> clf.counterfactual(X_test[:1], 1)[0][0].column
    'alcohol'
    """

    column: str
    before: float | str
    after: float | str
    probability: float


@dataclass(frozen=True)
class Counterfactual(Shown):
    """Rows that got another class by a change of few columns.

    `counterfactual[row]` is a list of `ColumnChange`, the strongest pull first, and `print` shows tables.

    Attributes
    ----------
    rows : frame or ndarray of shape (n, N)
        Changed rows in the units of X; as given if no change was found.
    given : ndarray of shape (n, N)
        Rows as numbers.
    after : ndarray of shape (n, N)
        Changed rows as numbers.
    before : ndarray of shape (n,)
        Predicted classes of X.
    wanted : ndarray of shape (n,)
        Wanted classes.
    found : ndarray of bool of shape (n,)
        Whether `predict` gives the changed rows the wanted classes.
    further_out : ndarray of shape (n,)
        Share of the known rows that are more novel than the changed row: few for a row that hardly
        occurs. NaN without calibration.
    changes : list of n lists of ColumnChange
        The columns that change.
    names : list of n str
        What the rows are called: the index of a frame, or numbers.
    model : FittedModel
        The model that decides.

    Examples
    --------
    >>> other = clf.counterfactual(X_test[:1], 1)
    >>> other[0][0]._fields
    ('column', 'before', 'after', 'probability')
    """

    rows: Any
    given: NDArray[Any]
    after: NDArray[Any]
    before: NDArray[Any]
    wanted: NDArray[Any]
    found: NDArray[np.bool_]
    further_out: NDArray[np.float64]
    changes: list[list[ColumnChange]] = field(repr=False)
    names: list[str]
    model: FittedModel = field(repr=False)

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, row: int) -> list[ColumnChange]:
        """What changed in a row, the strongest pull first."""
        return self.changes[row]

    def title(self, row: int, name: str | None = None) -> str:
        """What became of a row, in a line."""
        name = f"row {self.names[row]}" if name is None else name
        ends = (self.model.called(label) for label in (self.before[row], self.wanted[row]))
        start = f"{name}: {' → '.join(ends)}"
        if not self.found[row]:
            return f"{start}: no such change was found"
        if not self.changes[row]:
            return f"{start}: nothing has to change"
        known = familiar(float(self.further_out[row]))
        return f"{start}, {known}, with" if known else f"{start} with"

    def table(self, row: int) -> Table:
        """The changes, for people."""
        changes, wanted = self.changes[row], self.model.called(self.wanted[row])
        heads = ("column", "this row", "change to", f"then {middle_cut(wanted, _LETTERS)}")
        lines: Table = [
            dict(zip(heads, [*map(_cell, told), percent(p)], strict=True))
            for *told, p in changes[:_SHOWN]
        ]
        others = f"{len(changes) - _SHOWN} others", "", ""
        if len(changes) > _SHOWN:
            lines.append(dict(zip(heads, [*others, percent(changes[-1].probability)], strict=True)))
        return lines

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """For each row what became of it, and the changes."""
        found: list[str | Table] = []
        for row in range(len(self))[:most]:
            changes = self.table(row)
            found += [self.title(row), changes] if changes else [self.title(row)]
        return found


def counterfactual(
    model: FittedModel,
    X: Any,
    y: ArrayLike | None = None,
    *,
    fixed: Sequence[object] = (),
    only_rise: Sequence[object] = (),
    only_fall: Sequence[object] = (),
    max_features: int | None = None,
    probability: float = 0.5,
) -> Counterfactual:
    """Find few columns, and values that occur in them, that give each row another class.

    `predict` confirms each change. Another one may need fewer columns.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.
    y : object or array-like of shape (n,), default None
        The wanted class, one for all rows or one each; None: the second most probable.
    fixed : sequence of int or str, default ()
        Columns that must stay, by number or name.
    only_rise : sequence of int or str, default ()
        Columns of numbers that may rise, but not fall.
    only_fall : sequence of int or str, default ()
        Columns of numbers that may fall, but not rise.
    max_features : int, default None
        Maximum number of columns to change; None: any number.
    probability : float in (0, 1), default 0.5
        What the wanted class must reach, besides being the most probable one. Changes that only just
        suffice may not do for another model.

    Returns
    -------
    Counterfactual
        The changed rows.

    Examples
    --------
    >>> print(mn.interpret.counterfactual(model, X_test[:1], 1, fixed=["hue"]))
    row 54: class 0 → class 1, unusual (2 of 100 known rows are more unusual), with
    column   this row  change to  then class 1
    ──────────────────────────────────────────
    alcohol     13.74      12.29           65%
    """
    if max_features is not None:
        check_whole(max_features, "max_features", 1)
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1, got {probability}")
    stored = model.stored(X)
    x, lines = as_numpy(stored.values).astype(np.float64), model.columns.user_columns
    named = {"fixed": fixed, "only_rise": only_rise, "only_fall": only_fall}
    limits = [_places(names, lines, argument) for argument, names in named.items()]
    order = as_numpy(model.log_proba(stored).argsort(dim=1, descending=True, stable=True))
    target = order[:, min(1, order.shape[1] - 1)]
    if y is not None:
        given = model.columns_of(y, len(x)) if np.ndim(y) else model.columns_of([y])
        target = np.resize(as_numpy(given), len(x))
    after, changes = x.copy(), [list[ColumnChange]()] * len(x)
    for k, typical in enumerate(typical_of_classes(model, stored, target[:, None])[:, 0]):
        search = _Search(model, x[k], int(target[k]), lines, probability, *limits)
        after[k], columns = search.changed(typical, max_features)
        changes[k] = search.told(after[k], columns)
        if not columns:
            after[k] = x[k]
    rows = _written_back(model, X, after)
    proba = as_numpy(model.log_proba(rows).exp())
    reached = proba[np.arange(len(x)), target] >= (probability if probability > _AHEAD else 0.0)
    hit = (proba.argmax(1) == target) & reached
    if not hit.all():
        after[~hit] = x[~hit]
        changes = [own if hit[k] else [] for k, own in enumerate(changes)]
        rows = _written_back(model, X, after)
    seen = Placed(*on_sphere(model.stored(rows), model.geometry, model.precise_votes.w.dtype))
    return Counterfactual(
        rows=rows,
        given=x,
        after=after,
        before=model.classes[order[:, 0]],
        wanted=model.classes[target],
        found=hit,
        further_out=familiarity(model, seen).further_out,
        changes=changes,
        names=row_names(X, len(x)),
        model=model,
    )


def _places(names: Sequence[object], lines: list[UserColumn], argument: str) -> set[int]:
    """Of columns called by name or number."""
    called: dict[object, int] = {line.name: k for k, line in enumerate(lines)}
    called |= {k: k for k in range(len(lines))}
    for name in names:
        if name not in called:
            raise ValueError(
                f"{argument} names {name!r}, which is no column: use names, or numbers below "
                f"{len(lines)}"
            )
        if argument != "fixed" and lines[called[name]].is_category:
            raise ValueError(f"{argument} names {name!r}, which is a category: pass it as fixed")
    return {called[name] for name in names}


class _Search(NamedTuple):
    """For what would give one row a class."""

    model: FittedModel
    row: Floats  # (N,)
    target: int
    lines: list[UserColumn]
    probability: float
    fixed: set[int]
    rising: set[int]  # must not fall
    falling: set[int]

    def changed(self, typical: Floats, most: int | None) -> tuple[Floats, list[int]]:
        """The row with the class, and the columns that changed; as it is if nothing gives it the class."""
        model, row = self.model, self.row
        if self.lead(row, [[]])[0] > 0:
            return row, []
        known = known_values(model, row)
        own = known[as_numpy(model.precise_votes.labels[1:, :-1].argmax(1)) == self.target]
        away = np.nansum(np.square((own - row) / scale(model)), axis=1)
        for end in (typical, *own[np.argsort(away, kind="stable")[:_MEMORIES]]):
            free = [j for j in furthest(model, row, end[None]) if self.may_change(j, end)]
            alone = self.lead(end, [[j] for j in free])
            columns = [free[k] for k in np.argsort(-alone, kind="stable")][:most]
            ahead = self.lead(end, [columns[: k + 1] for k in range(len(columns))]) > 0
            if ahead.any():
                return self.reduced(end, columns[: int(ahead.argmax()) + 1], known)
        return row, []

    def reduced(self, end: Floats, columns: list[int], known: Floats) -> tuple[Floats, list[int]]:
        """The same change with only the columns that it needs, each no further than it needs to go."""
        for j in columns[::-1]:
            fewer = [k for k in columns if k != j]
            columns = fewer if self.lead(end, [fewer])[0] > 0 else columns
        row = changed_rows(self.row, end, [[self.lines[j].place for j in columns]])[0]
        numbers = [j for j in columns[::-1] if not self.lines[j].is_category]
        for place in (self.lines[j].place.start for j in numbers):
            low, high = sorted((self.row[place], end[place]))
            values = np.unique(known[(known[:, place] > low) & (known[:, place] < high), place])
            nearest_first = values if end[place] > self.row[place] else values[::-1]
            tried = np.repeat(row[None], len(values) + 1, 0)
            tried[:-1, place] = nearest_first
            row = tried[int((self.lead_of(tried) > 0).argmax())]
        return row, columns

    def lead(self, end: Floats, changes: Sequence[Sequence[int]]) -> Floats:
        """`lead_of` the row, with each of these sets of columns as in `end`."""
        step = max(1, NUMBERS // len(end))
        parts: list[Floats] = [np.zeros(0)]
        for start in range(0, len(changes), step):
            places = [[self.lines[j].place for j in own] for own in changes[start : start + step]]
            parts.append(self.lead_of(changed_rows(self.row, end, places)))
        return np.concatenate(parts)

    def lead_of(self, rows: Floats) -> Floats:
        """Log-odds of the class against the best other one, less what rounding may take."""
        log_p = self.log_proba(rows)
        others = np.delete(log_p, self.target, axis=1).max(1, initial=-np.inf)
        margin = torch.finfo(self.model.votes.w.dtype).eps ** 0.5
        found: Floats = log_p[:, self.target] - others - margin
        if self.probability > _AHEAD:
            found = np.minimum(found, log_p[:, self.target] - np.log(self.probability))
        return found

    def log_proba(self, rows: Floats) -> Floats:
        """Of the classes, at rows (n, N)."""
        return as_numpy(self.model.log_proba(Rows.of(rows, self.model.device)))

    def told(self, after: Floats, columns: list[int]) -> list[ColumnChange]:
        """The columns that change, and how probable the class is once each has."""
        if not columns:
            return []
        lines = [self.lines[j] for j in columns]
        changes = [[line.place for line in lines[: k + 1]] for k in range(len(lines))]
        proba = np.exp(self.log_proba(changed_rows(self.row, after, changes))[:, self.target])
        return [
            ColumnChange(line.name, _value(line, self.row), _value(line, after), p)
            for line, p in zip(lines, proba.tolist(), strict=True)
        ]

    def may_change(self, j: int, end: Floats) -> bool:
        """Whether a column may take what `end` has there."""
        place = self.lines[j].place
        step = end[place] - self.row[place]
        return not (
            j in self.fixed
            or self.lines[j].kind == "text"  # no text has a changed vector
            or np.isnan(end[place]).any()
            or (j in self.rising and not step[0] > 0)
            or (j in self.falling and not step[0] < 0)
        )


def _written_back(model: FittedModel, X: Any, after: Floats) -> Any:
    """Rows of numbers as X has them: a frame of its columns, or an array."""
    given = as_numpy(model.stored(X).values)
    return model.columns.rewrite(X, after, (given != after) & ~np.isnan(after))


def _value(line: UserColumn, row: Floats) -> float | str:
    return float(row[line.place][0]) if line.kind == "number" else line.written(row)


def _cell(value: float | str) -> str:
    return written(value) if isinstance(value, float) else middle_cut(value, _LETTERS)
