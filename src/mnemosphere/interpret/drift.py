"""How new rows differ from those that the fit held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, fisher_exact, ks_2samp

from mnemosphere.base.text import Shown, Table
from mnemosphere.fitted.exemplars import middle
from mnemosphere.fitted.model import FittedModel, Floats, as_numpy
from mnemosphere.interpret.rejection import (
    UNLIKE,
    held_out,
    known_rows,
    novelty_threshold,
    owners,
)
from mnemosphere.model.mixture import memory_name

_LEVEL = 0.01  # at which a difference counts
_WIDE = 100  # numbers of a column, a text, say, from which its values are not compared
_HEADS = {  # of a table, and how its cells are written
    "label": ("label", ""), "known": ("known rows", ".1%"), "new": ("new rows", ".1%"),
    "typical_known": ("typical before", ""), "typical_new": ("typical now", ""),
    "missing_known": ("missing before", ".1%"), "missing_new": ("missing now", ".1%"),
}  # fmt: skip
_PLURAL = {"memory": "memories", "column": "columns"}


@dataclass(frozen=True)
class Drift(Shown):
    """How new rows differ from those that the fit held out.

    Attributes
    ----------
    memories : list of dicts
        "memory", "label", "known" and "new" (its shares of the rows), "p" (Fisher's exact test,
        corrected by Holm's method), smallest p first.
    columns : list of dicts
        "column", "missing_known" and "missing_new" (shares of the rows without a known value there),
        "typical_known" and "typical_new" (the median, or the commonest level), and "p", smallest first:
        the lesser one of two tests, whether a value is known and, of those that are, Kolmogorov and
        Smirnov's (of categories, chi-square), corrected alike. Empty if the model keeps no rows of a table.
    unlike : dict
        The same as of memories for rows unlike all known ones.

    Examples
    --------
    >>> clf = mn.DAMClassifier(random_state=0).fit(X_train, y_train)
    >>> mn.interpret.compare(clf.model_, X_test).drifted
    False
    """

    memories: list[dict[str, Any]]
    columns: list[dict[str, Any]]
    unlike: dict[str, Any]

    @property
    def changed(self) -> list[dict[str, Any]]:
        """The memories whose share has changed."""
        return [own for own in self.memories if own["p"] < _LEVEL]

    @property
    def changed_columns(self) -> list[dict[str, Any]]:
        """The columns whose values have changed."""
        return [own for own in self.columns if own["p"] < _LEVEL]

    @property
    def drifted(self) -> bool:
        """Whether anything has changed."""
        return bool(self.changed or self.changed_columns) or self.unlike["p"] < _LEVEL

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """What has changed."""
        parts: list[str | Table] = []
        for name, kind, every, lines in (
            ("column", "values", self.columns, self.changed_columns), ("memory", "a share", self.memories, self.changed)
        ):  # fmt: skip
            parts.append(f"{len(lines)} of {len(every)} {_PLURAL[name]} have {kind} unlike before")
            table: Table = [
                {
                    "": own[name],
                    **{
                        head: format(own[k], form) for k, (head, form) in _HEADS.items() if k in own
                    },
                    "p": f"{own['p']:.2g}",
                }
                for own in [*[self.unlike] * (name == "memory"), *lines[:most]]
            ]
            parts += [table] * bool(table)
        return parts


def compare(model: FittedModel, X: Any) -> Drift:
    """Compare new rows with those that the fit held out, memory by memory, and column by column.

    By exact tests, corrected for the number of all of them (Holm 1979): without drift, anything is
    reported for at most about 1% of sets of rows.

    Parameters
    ----------
    model : FittedModel
        A calibrated classifier that holds rows of its fit.
    X : array-like of shape (n, N)
        New rows.

    Returns
    -------
    Drift
        Shares of memories and of rows unlike all known ones, and columns.

    Examples
    --------
    >>> clf = mn.DAMClassifier(random_state=0).fit(X_train, y_train)
    >>> found = mn.interpret.compare(clf.model_, X_test * [1, 1, 9, 1])
    >>> found.drifted, found.unlike["new"] > 0.9
    (True, True)
    """
    novelty, limit = held_out(model).novelty, novelty_threshold(model, UNLIKE)
    held = known_rows(model)
    if held is None or limit is None:
        raise ValueError("the model holds no rows of its fit to compare with: fit again")
    stored, labels = model.stored(X), [*model.classes.tolist(), None]
    strange = as_numpy(model.novelty_score(stored)) > limit
    known, new = (
        np.bincount(owners(model, rows), minlength=model.n_memories) for rows in (held, stored)
    )
    shown = as_numpy(model.distinct)
    counts = [(int((novelty > limit).sum()), len(novelty), int(strange.sum()), len(strange))]
    counts += [(int(known[m]), held.n_rows, int(new[m]), len(strange)) for m in shown]
    columns = _columns(model, as_numpy(stored.values).astype(np.float64))
    p = _corrected([_p_value(*own) for own in counts] + [float(own["p"]) for own in columns])
    columns = [own | {"p": p} for own, p in zip(columns, p[len(counts) :], strict=True)]
    best = as_numpy(model.votes.p[1:].argmax(1))
    names = [("unlike all known rows", ""), *((memory_name(m), labels[best[m]]) for m in shown)]
    lines = [
        {"memory": name, "label": label, "known": a / n, "new": b / k, "p": own}
        for (name, label), (a, n, b, k), own in zip(names, counts, p, strict=False)
    ]
    memories, columns = (sorted(own, key=lambda own: own["p"]) for own in (lines[1:], columns))
    return Drift(memories, columns, lines[0])


def _columns(model: FittedModel, new: NDArray[np.float64]) -> list[dict[str, Any]]:
    """How new rows (n, N) differ from those that the model keeps in each column, p not yet corrected."""
    kept, found = None if model.exemplars is None else model.exemplars.sample, []
    if kept is None:
        return []
    typical = [
        middle(rows, np.ones(len(rows)), model.columns.multi_number_categories)
        for rows in (kept, new)
    ]
    for column in model.columns.user_columns:
        known, own = ([*_known(rows[:, column.place])] for rows in (kept, new))
        counts = [(len(rows) - len(some), len(rows)) for some, rows in ((known, kept), (own, new))]
        p = [_p_value(*counts[0], *counts[1])]
        if known and own and not column.is_category and len(known[0]) == 1:
            p.append(float(ks_2samp(np.ravel(known), np.ravel(own)).pvalue))
        elif known and own and len(known[0]) < _WIDE:
            level = np.unique([*known, *own], axis=0, return_inverse=True)[1].ravel()
            table = [np.bincount(part, minlength=level.max() + 1)
                     for part in (level[: len(known)], level[len(known) :])]  # fmt: skip
            p.append(float(chi2_contingency(table).pvalue))
        missing = [gone / n for gone, n in counts]
        found.append({
            "column": column.name, "missing_known": missing[0], "missing_new": missing[1],
            "typical_known": column.written(typical[0]), "typical_new": column.written(typical[1]),
            "p": min(1.0, len(p) * min(p)),
        })  # fmt: skip
    return found


def _known(column: Floats) -> Floats:
    found: Floats = column[~np.isnan(column).any(1)]
    return found


def _p_value(a: int, n: int, b: int, k: int) -> float:
    """Of a of n and b of k, if both are draws with one share."""
    return float(fisher_exact([[a, n - a], [b, k - b]]).pvalue) if a + b else 1.0


def _corrected(p: list[float]) -> list[float]:
    """Holm's."""
    order = np.argsort(p, kind="stable")
    several = np.maximum.accumulate(np.array(p)[order] * (len(p) - np.arange(len(p))))
    found = np.empty(len(p))
    found[order] = np.minimum(several, 1.0)
    return [float(own) for own in found]
