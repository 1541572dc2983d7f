"""What would have to be different: the smallest change of a row that changes the predicted class.

Let δ be a change of the features in standard units (standard deviations of the training rows with
geometry='standard', 'whitened' and 'circles', else the root mean square of the row, so that a small
‖δ‖/√N is the angle along the sphere). Wanted is the shortest δ with

    g(δ) = log P(y|x+δ) − max over other classes of log P(·|x+δ) ≥ margin.

From the nearest memories of class y, the way to the row is cut where the predicted class changes; then the
border is taken for a plane, its nearest point tried, and the way from the row to there cut again,
as long as that is shorter: every point on the way changes the predicted class.

Categories and truth values are no numbers: they stay, or are switched one after the other, first
the one that brings the other class nearest, and the shortest of these changes is taken.

Features stay within the range of the training rows (or of the row itself, if it lies outside), and
those that were whole numbers in training stay whole: they are rounded in several ways, and the
others are sought anew with these held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mnemosphere.base.files import plain
from mnemosphere.base.text import Shown, Table
from mnemosphere.fitted.model import FittedModel, as_numpy, check_whole, row_names
from mnemosphere.geometry import Geometry
from mnemosphere.model.kernel import chunks, log_joint_differentiable
from mnemosphere.model.votes import Votes
from mnemosphere.rows.encoding import Column, Encoding, collected, is_frame, written

_FARTHEST = 20.0  # standard units that a feature may be changed by
_STARTS = 4  # memories of the wanted class that are tried
_WAY = (*(k / 10 for k in range(1, 11)), 1.5, 2.0, 4.0)  # shares of it that are looked at
_BEYOND = (0.5, 0.8, 1.0, 1.02, 1.1, 1.3, 2.0)  # and of the way to the plane
_PARTS = 4  # of the way between two shares of it
_CUTS, _LAST_CUTS = 4, 16
_ROUNDS = 25
_GAIN = 1e-4  # a smaller part of the length is none
_SMALLEST = 0.02  # step that is still taken
_SHOWN = 10
_SWITCHED = ("category", "boolean")
_SWITCHES = 3  # of categories and truth values that are tried one after the other
_STRETCHES = (1.0, 1.5, 2.5)  # of the change of whole numbers before it is rounded
_UNDONE = 30  # whole numbers of a row that may go back by one, the least changes first


@dataclass(frozen=True)
class Counterfactual(Shown):
    """Rows that got another class by a small change.

    `counterfactual[row]` is a list of dicts, the largest change first, and `print` shows tables. A change
    is in standard units: standard deviations of the features with geometry="standard", "whitened" and
    "circles", else the root mean square of the row.

    Attributes
    ----------
    rows : frame or ndarray of shape (n, N)
        Changed rows in the units of X; as given if no change was found.
    given : ndarray of shape (n, N)
        Rows as numbers, missing values filled in.
    after : ndarray of shape (n, N)
        Changed rows as numbers.
    before : ndarray of shape (n,)
        Predicted classes of X.
    wanted : ndarray of shape (n,)
        Wanted classes.
    found : ndarray of bool of shape (n,)
        Whether `predict` gives the changed rows the wanted classes.
    change : ndarray of shape (n, N)
        The change in standard units.
    lengths : ndarray of shape (n,)
        Length of each change, in the unit of `certified_radius`.
    columns : Encoding
        How columns became numbers.
    names : list of n str
        What the rows are called: the index of a frame, or numbers.

    Examples
    --------
    >>> other = clf.counterfactual(X_test[:1], 1)
    >>> sorted(other[0][0])
    ['change', 'feature', 'from', 'to']
    """

    rows: Any
    given: NDArray[Any]
    after: NDArray[Any]
    before: NDArray[Any]
    wanted: NDArray[Any]
    found: NDArray[np.bool_]
    change: NDArray[Any]
    lengths: NDArray[Any]
    columns: Encoding = field(repr=False)
    names: list[str]

    def length(self, row: int) -> float | None:
        """Compute how far the changed row is, in the unit of `certified_radius`.

        Parameters
        ----------
        row : int
            Number of the row.

        Returns
        -------
        float or None
            None if no change was found.

        Examples
        --------
        >>> bound = clf.certified_radius(X_test[:1]).radius[0]
        >>> bool(clf.counterfactual(X_test[:1]).length(0) >= bound)
        True
        """
        if not self.found[row] or not self.change[row].any():
            return None
        return float(self.lengths[row])

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, row: int) -> list[dict[str, Any]]:
        """What changed in a row, the largest changes first."""
        found: list[dict[str, Any]] = []
        pair = self.given[row], self.after[row]
        for column, place in self.columns.places():
            moved = self.change[row, place]
            if not moved.any():
                continue
            if column.kind in _SWITCHED:
                ends = (Encoding((column,)).decode(x[None, place]) for x in pair)
                values = [plain(end[column.name].to_numpy()[0]) for end in ends]
                found.append(_told(column.name, values, float(np.linalg.norm(moved))))
                continue
            for k in np.flatnonzero(moved):
                values = [float(x[place][k]) for x in pair]
                if column.kind == "date":
                    values = [written(value, "date") for value in values]
                found.append(_told(column.names[k], values, moved[k]))
        return sorted(found, key=lambda c: -abs(c["change"]))

    def title(self, row: int, name: str | None = None) -> str:
        """What became of a row, in a line."""
        name = f"row {self.names[row]}" if name is None else name
        start = f"{name}: {self.before[row]} → {self.wanted[row]}"
        if not self.found[row]:
            return f"{start}: no such change was found"
        if not self.change[row].any():
            return f"{start}: nothing has to change"
        return f"{start} with"

    def table(self, row: int) -> Table:
        """The largest changes, for people."""
        changes = self[row]
        lines = [
            {name: written(v) if isinstance(v, float) else str(v) for name, v in c.items()}
            | {"change": f"{c['change']:+.2f}"}
            for c in changes[:_SHOWN]
        ]
        if len(changes) > _SHOWN:
            rest = max(abs(c["change"]) for c in changes[_SHOWN:])
            others = f"others ({len(changes) - _SHOWN})"
            lines.append({"feature": others, "from": "", "to": "", "change": f"±{rest:.2f}"})
        return lines

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """For each row what became of it, and the changes."""
        found: list[str | Table] = []
        for row in range(len(self))[:most]:
            changes = self.table(row)
            found += [self.title(row), changes] if changes else [self.title(row)]
        return found


def _told(name: str, ends: Sequence[object], change: float) -> dict[str, Any]:
    return {"feature": name, "from": ends[0], "to": ends[1], "change": float(change)}


def counterfactual(
    model: FittedModel,
    X: Any,
    y: ArrayLike | None = None,
    *,
    hold: Sequence[object] = (),
    max_features: int | None = None,
    realistic: bool = True,
) -> Counterfactual:
    """Find a small change of each row that changes its class, in the units of X.

    The search is local: `predict` confirms the change, but it may not be the smallest one.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.
    y : object or array-like of shape (n,), default None
        The wanted class, one for all rows or one each; None: the second most probable.
    hold : sequence of int or str, default ()
        Features that must stay, by number or name.
    max_features : int, default None
        Change at most so many features; None: any number.
    realistic : bool, default True
        Whole numbers stay whole, and features stay within the range of the training rows.

    Returns
    -------
    Counterfactual
        The changed rows.

    Examples
    --------
    >>> print(mn.interpret.counterfactual(model, X_test[:1], 1, hold=["alcohol"]))
    row 54: 0 → 1 with
    feature          from      to  change
    ─────────────────────────────────────
    hue              0.92  0.7117   -0.90
    flavanoids        2.9   2.336   -0.58
    color_intensity  5.85   5.433   -0.18
    """
    X = collected(X)
    given = model.stored(X).dense()
    stored = model.completed(given)
    x = stored.values.to(stored.device).double()  # (n, N)
    names = model.features.shown_names
    columns = model.features.encoding or Encoding(tuple(Column(name, "number") for name in names))
    free = torch.ones_like(x, dtype=torch.bool)
    for name in hold:
        free[:, _places(name, names, columns)] = False
    for own, place in columns.places():
        if own.kind == "text":  # no text has a changed vector
            free[:, place] = False
    missing = given.values.to(x.device).isnan()
    switches = []
    for place, values in _switches(columns):
        # What memories expect for a missing value need be no category.
        x[:, place] = torch.where(missing[:, place], _nearest(x[:, place], values), x[:, place])
        switches += [(place, values)] if bool(free[:, place].all()) else []
        free[:, place] = False
    seen = model.features.observed if realistic and not model.geometry.takes_unit_rows else None
    low, high, whole = torch.tensor([[-torch.inf], [torch.inf], [0.0]]).to(x)
    if seen is not None:
        low, high, whole = torch.from_numpy(seen).to(x)
        x = torch.where(missing & (whole > 0), x.round(), x)  # nor a whole number
        x = torch.where(missing, x.clamp(low, high), x)
    proba = model.log_proba(given).exp()
    order = proba.argsort(dim=1, descending=True, stable=True)
    if y is None:
        target = order[:, min(1, proba.shape[1] - 1)]
    else:
        target = model.columns_of(y, len(x)) if np.ndim(y) else model.columns_of([y]).expand(len(x))
    if max_features is not None:
        check_whole(max_features, "max_features", 1)
    search = _Search(model.precise_votes, model.geometry.to(x.device))
    rows = _Rows(
        x, target, free, search.geometry.unit_at(x), low=torch.minimum(low, x), high=torch.maximum(high, x),
        whole=(whole > 0) & free & (x == x.round()),
    )  # fmt: skip
    after = _shortest(search, rows, switches, max_features)
    after = torch.where(after.isnan(), x, after)
    framed = is_frame(X) and model.features.encoder is None
    numbers = model.features.encoding is None or model.features.is_encoded(X)
    written_back = columns.rewrite(X, as_numpy(after)) if framed and not numbers else after
    hit = model.log_proba(written_back).argmax(1) == target
    after = torch.where(hit[:, None], after, x)
    moved = changed = as_numpy(after)
    if framed and not numbers:
        changed = columns.rewrite(X, moved)
    elif framed and hasattr(X, "iloc"):
        changed = type(X)(moved, X.index, X.columns)
    return Counterfactual(
        rows=changed,
        given=as_numpy(x),
        after=moved,
        before=model.classes[as_numpy(order[:, 0])],
        wanted=model.classes[as_numpy(target)],
        found=as_numpy(hit),
        change=as_numpy((after - x) / rows.unit),
        lengths=as_numpy(search.geometry.distance(x, after)),
        columns=columns,
        names=row_names(X, len(x)),
    )


class _Rows(NamedTuple):
    """Rows, and what they may become."""

    x: Tensor  # (n, N)
    target: Tensor  # (n,) the wanted class
    free: Tensor  # (n, N) whether a feature may change
    unit: Tensor  # (n, N) a standard unit of it
    low: Tensor  # (n, N) its least and largest value
    high: Tensor
    whole: Tensor  # (n, N) whether it stays a whole number

    def take(self, some: Tensor | slice) -> _Rows:
        """Some of them."""
        return _Rows(*(part[some] for part in self))

    def within(self, points: Tensor) -> Tensor:
        """Points (…, n, N) in the range of the features that may change."""
        return torch.where(self.free, points.clamp(self.low, self.high), points)

    def length(self, points: Tensor) -> Tensor:
        """How far points (n, N) are, in standard units, (n, 1); infinite for NaN."""
        away = (points - self.x) / self.unit
        length: Tensor = torch.linalg.vector_norm(away, dim=1, keepdim=True)
        return length.nan_to_num(torch.inf)

    def nearer(self, a: Tensor, b: Tensor) -> Tensor:
        """Row by row the nearer point; NaN is farther than anything."""
        return torch.where(self.length(b) < self.length(a), b, a)


def _shortest(
    search: _Search, rows: _Rows, switches: list[tuple[slice, Tensor]], max_features: int | None
) -> Tensor:
    """The nearest points (n, N) with nothing switched, one category switched, two, …"""
    n, n_features = rows.x.shape
    most = n_features if max_features is None else max_features
    best, state = torch.full_like(rows.x, torch.nan), rows
    used = torch.zeros(n, len(switches), dtype=torch.bool, device=rows.x.device)
    for n_switched in range(min(_SWITCHES, len(switches), most) + 1):
        if n_switched:
            state = _switched(search, state, switches, used)
        now, found = state, search.nearest(state)
        if max_features is not None:
            change = (found - state.x).abs() / state.unit
            kept = change.topk(min(most - n_switched, n_features), dim=1).indices
            few = torch.zeros_like(state.free).scatter(1, kept, value=True)
            now = state._replace(free=state.free & few, whole=state.whole & few)
            found = search.nearest(now)
        best = rows.nearer(best, search.whole(now, found))
    return best


def _places(name: object, names: list[str], columns: Encoding) -> slice | int:
    """The numbers of a column, or of a feature, called by its name or number."""
    for column, place in columns.places():
        if name == column.name:
            return place
    if isinstance(name, str) and name in names:
        return names.index(name)
    if isinstance(name, int | np.integer) and 0 <= name < len(names):
        return int(name)
    raise ValueError(
        f"hold names {name!r}, which is no feature: use names of columns or numbers below "
        f"{len(names)}"
    )


def _switches(columns: Encoding) -> list[tuple[slice, Tensor]]:
    """(where it stands, the values it can have (K, width)) of all that is no number."""
    found = []
    for column, place in columns.places():
        if column.kind in _SWITCHED:
            values = column.table[:-1] if column.levels else np.array([[0.0], [1.0]])
            found.append((place, torch.from_numpy(values)))
    return found


def _nearest(x: Tensor, values: Tensor) -> Tensor:
    """The nearest of the values (K, width) to each row (n, width)."""
    found: Tensor = values.to(x)[torch.cdist(x, values.to(x)).argmin(1)]
    return found


def _switched(
    search: _Search, rows: _Rows, switches: list[tuple[slice, Tensor]], used: Tensor
) -> _Rows:
    """Rows with one more of them switched: what brings the target nearest; `used` is told."""
    best, lead = rows.x, search.lead(rows.x, rows.target)
    taken = torch.full_like(rows.target, -1)
    for k, (place, values) in enumerate(switches):
        for value in values.to(best):
            other = rows.x.clone()
            other[:, place] = value
            ahead = search.lead(other, rows.target)
            better = (ahead > lead) & ~used[:, k]
            best, lead = torch.where(better[:, None], other, best), torch.where(better, ahead, lead)
            taken = torch.where(better, k, taken)
    switched = (taken >= 0).nonzero()[:, 0]
    used[switched, taken[switched]] = True
    return rows._replace(x=best)


class _Search:
    """The nearest points to rows that are the target's."""

    def __init__(self, votes: Votes, geometry: Geometry) -> None:
        # The new class must survive rounding in the precision of the model.
        self.margin = torch.finfo(votes.w.dtype).eps ** 0.5
        self.votes, self.geometry = votes.to(dtype=torch.float64), geometry
        self.own = self._log_proba(self.votes.w)  # (P, C) of the memories themselves

    def nearest(self, rows: _Rows) -> Tensor:
        """Points (n, N); NaN where none was found."""
        width = max(self.votes.n_memories, self.votes.n_features) * _STARTS * len(_WAY)
        parts = chunks(len(rows.x), width, rows.x.device)
        found = torch.cat([self._nearest(rows.take(part)) for part in parts])
        if self.geometry.takes_unit_rows:
            moved = torch.nn.functional.normalize(found, dim=1)
            found = torch.where((found == rows.x).all(1, keepdim=True), found, moved)
        return found

    def whole(self, rows: _Rows, points: Tensor) -> Tensor:
        """Points (n, N) whose whole numbers are whole; NaN where none was found.

        Whole numbers are rounded, to the nearest or away from the row, and the other features are
        sought anew. Then each goes back by one as long as the class stays.
        """
        bent = (rows.whole & (points != rows.x)).any(1) & ~points.isnan().any(1)
        if not bool(bent.any()):
            return points
        rows, given = rows.take(bent), (points - rows.x)[bent]
        moved = torch.stack([stretch * given for stretch in _STRETCHES])
        away = moved.sign() * (moved.abs() - 1e-6).ceil()
        steps = torch.where(rows.whole, torch.cat([moved.round(), away]), 0.0)  # (tries, n, N)
        many = rows.take(torch.arange(len(given)).repeat(len(steps)))
        start = rows.within(rows.x + steps).flatten(0, 1)
        tried = self.nearest(many._replace(x=start, free=many.free & ~many.whole))
        best = torch.full_like(given, torch.nan)
        for found in tried.view_as(steps):
            best = rows.nearer(best, found)
        size = torch.where(rows.whole, (best - rows.x).abs() / rows.unit, torch.inf)
        order = size.argsort(1)[:, :_UNDONE]
        for place in torch.cat([order, order], 1).T[..., None]:
            back = torch.where(rows.whole, (rows.x - best).sign(), 0.0).gather(1, place)
            tried = best.scatter_add(1, place, back)
            stays = self.lead(tried, rows.target) >= 0
            best = torch.where(stays[:, None], tried, best)
        return points.masked_scatter(bent[:, None], best)

    def _log_proba(self, u: Tensor) -> Tensor:
        scores = log_joint_differentiable(self.votes, u)
        return scores[:, :-1].log_softmax(1)

    def lead(self, x: Tensor, target: Tensor) -> Tensor:
        """Log-odds of the target against the best other class, less the margin, (…, n).

        x: (…, n, N). −∞ for NaN: the model would take it for missing values.
        """
        u, _ = self.geometry.place(x.flatten(0, -2))
        scores = self._log_proba(u).reshape(*x.shape[:-1], -1)
        place = target[:, None].expand(*x.shape[:-1], 1)
        own = scores.gather(-1, place)[..., 0]
        other = scores.scatter(-1, place, -torch.inf).amax(-1)
        lead: Tensor = own - other - self.margin
        return lead.masked_fill(x.isnan().any(-1), -torch.inf)

    def _nearest(self, rows: _Rows) -> Tensor:
        there = self.lead(rows.x, rows.target) >= -self.margin  # the target's already
        best = torch.where(there[:, None], rows.x, torch.nan)
        for found in self._cut(rows, self._starts(rows), _WAY):
            best = rows.nearer(best, found)
        step, onward = rows.free.any(1, keepdim=True).double(), rows.x.clone()
        for _ in range(_ROUNDS):
            left = (step[:, 0] >= _SMALLEST).nonzero()[:, 0]
            if not len(left):
                break
            some, before = rows.take(left), best[left]
            start = torch.where(before.isnan(), onward[left], before)
            onward[left] = self._toward_plane(some, start, step[left])
            best[left] = some.nearer(before, self._cut(some, onward[left], _BEYOND))
            # What hardly helped is tried again by half.
            hardly = some.length(best[left]) > some.length(before) * (1 - _GAIN)
            step[left] = torch.where(hardly, step[left] / 2, step[left])
        return self._cut(rows, best, (1.0,), _LAST_CUTS)

    def _toward_plane(self, rows: _Rows, start: Tensor, step: Tensor) -> Tensor:
        """Points, a step from `start` toward the nearest point of the plane that the border is taken for."""
        at = ((start - rows.x) / rows.unit).requires_grad_()
        value = self.lead(rows.within(rows.x + at * rows.unit), rows.target)
        (slope,) = torch.autograd.grad(value.sum(), at)
        at, slope = at.detach(), torch.where(rows.free, slope, 0.0)
        square = slope.square().sum(1, keepdim=True)
        plane = (slope * at).sum(1, keepdim=True) - value.detach()[:, None]
        nearest = slope * plane / torch.where(square > 0, square, 1.0)
        return rows.x + rows.unit * (at + step * (nearest - at)).clamp(-_FARTHEST, _FARTHEST)

    def _cut(
        self, rows: _Rows, end: Tensor, shares: Sequence[float], rounds: int = _CUTS
    ) -> Tensor:
        """The ways to `end` (…, n, N) cut where the target takes the lead; NaN where it never does.

        Looked at are these shares of a way, the first that leads and the one before it, then the same
        between them, in `_PARTS` steps, and so on.
        """
        way, zero = end - rows.x, torch.zeros_like(end[..., :1])
        tried = torch.stack([zero, *(zero + share for share in shares)])  # (tried, …, n, 1)
        steps = torch.linspace(0, 1, _PARTS + 1).to(end).reshape(-1, *[1] * end.ndim)
        with torch.no_grad():
            for _ in range(rounds):
                points = rows.within(rows.x + tried[1:] * way)
                leads = (self.lead(points, rows.target) >= 0)[..., None]
                first = leads.int().argmax(0, keepdim=True)
                low, high = tried.gather(0, first)[0], tried.gather(0, first + 1)[0]
                high = torch.where(leads.any(0), high, torch.nan)
                tried = low + (high - low) * steps
        return rows.within(rows.x + high * way)

    def _starts(self, rows: _Rows) -> Tensor:
        """Points (starts, n, N): the nearest memories that are the target's themselves."""
        u, _ = self.geometry.place(rows.x)
        # Memories that are the target's first, the nearest of them first; then those most like it.
        mine, best = self.own.T[rows.target], self.own.amax(1)  # (n, P), (P,)
        rank = torch.where(mine >= best - 1e-9, 1 + u @ self.votes.w.T, mine)
        chosen = rank.topk(min(_STARTS, self.votes.n_memories), dim=1).indices  # (n, starts)
        points = self.geometry.restore(self.votes.w).to(u)[chosen.T]
        if self.geometry.units is None:  # directions, at the length and mean of the row
            mean = rows.x - self.geometry.coordinates(rows.x)
            points = mean + points * rows.unit * rows.x.shape[1] ** 0.5
        return torch.where(rows.free, points, rows.x)
