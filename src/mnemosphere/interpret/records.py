"""What held-out rows say of each memory: how often it is right, and how new rows differ from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from mnemosphere.base.text import Shown, Table
from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.interpret.discovery import ProposedClass, discover
from mnemosphere.interpret.rejection import (
    UNLIKE,
    held_out,
    known_rows,
    novelty_threshold,
    owners,
    rejection_score,
)
from mnemosphere.model.mixture import memory_name

_LEVEL = 0.01  # at which a difference counts
_FEWEST = 20  # rows that are grouped


def records(model: FittedModel) -> NDArray[np.int64]:
    """(P, 3) as `Calibration` has them; zeros if nothing is known."""
    found = model.calibration
    return np.zeros((model.n_memories, 3), np.int64) if found is None else found.record


def weak_spots(model: FittedModel, X: Any = None, n_rows: int = 3) -> list[dict[str, Any]]:
    """List the memories, those first that were least often right on held-out rows.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    X : array-like of shape (n, N), default None
        Rows without labels, of which some could be labeled.
    n_rows : int, default 3
        How many of them to name for each memory.

    Returns
    -------
    list of dicts
        "memory", "label", "held_out" (rows), "right", "confused_with", "typical_rows", and with X
        "to_label": numbers of its rows with the highest rejection scores.

    Examples
    --------
    >>> spots = mn.interpret.weak_spots(model)
    >>> sorted(spots[0])
    ['confused_with', 'held_out', 'label', 'memory', 'right', 'typical_rows']
    """
    count, right, other = records(model).T
    # One row of the mean accuracy is added, so that few rows do not decide.
    mean = (right.sum() + 1) / (count.sum() + 1)
    order = np.argsort((right + mean) / (count + 1), kind="stable")
    labels = [*model.classes.tolist(), None]
    best = as_numpy(model.votes.p[1:].argmax(1))
    typical = None if model.exemplars is None else model.exemplars.as_lists()
    lines: list[dict[str, Any]] = [
        {"memory": memory_name(m), "label": labels[best[m]], "held_out": int(count[m]),
         "right": int(right[m]), "confused_with": labels[other[m]] if count[m] > right[m] else None,
         "typical_rows": [] if typical is None else typical[m]}
        for m in order.tolist() if model.standing[m] == m
    ]  # fmt: skip
    if X is not None:
        owner, score = owners(model, X), as_numpy(rejection_score(model, X))
        ranked = np.argsort(-score, kind="stable")
        for line in lines:
            own = ranked[owner[ranked] == int(line["memory"][1:])]
            line["to_label"] = own[:n_rows].tolist()
    return lines


@dataclass(frozen=True)
class Drift(Shown):
    """How new rows differ from those that the fit held out.

    Attributes
    ----------
    memories : list of dicts
        "memory", "label", "known" and "new" (its shares of the rows), "p" (Fisher's exact test,
        corrected by Holm's method), smallest p first.
    unlike : dict
        The same for rows unlike all known ones.
    proposed : list of ProposedClass
        Groups among those rows, if there are more of them than expected; numbers are those of X.
    level : float
        The level of the tests, 0.01.

    Examples
    --------
    >>> clf = mn.DAMClassifier(random_state=0).fit(X_train, y_train)
    >>> mn.interpret.compare(clf.model_, X_test).drifted
    False
    """

    memories: list[dict[str, Any]]
    unlike: dict[str, Any]
    proposed: list[ProposedClass]
    level: float = _LEVEL

    @property
    def changed(self) -> list[dict[str, Any]]:
        """The memories whose share has changed."""
        return [own for own in self.memories if own["p"] < self.level]

    @property
    def drifted(self) -> bool:
        """Whether anything has changed."""
        return bool(self.changed) or self.unlike["p"] < self.level

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """What has changed, and proposals."""
        lines = [self.unlike, *self.changed[:most]]
        shown = [
            {"": own["memory"], "label": str(own["label"] or ""), "known rows": f"{own['known']:.1%}",
             "new rows": f"{own['new']:.1%}", "p": f"{own['p']:.2g}"}
            for own in lines
        ]  # fmt: skip
        told = (
            f"{len(self.changed)} of {len(self.memories)} memories have another share of the rows"
        )
        groups = [
            f"{len(own.rows)} rows may be a new class, nearest to {own.nearest}: rows "
            + ", ".join(map(str, own.rows[:3].tolist()))
            for own in self.proposed
        ]
        return [told, shown, *groups]


def compare(model: FittedModel, X: Any) -> Drift:
    """Compare new rows with those that the fit held out, memory by memory.

    By Fisher's exact test, corrected for the number of memories (Holm 1979): without drift, anything is
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
        Shares of memories and of rows unlike all known ones, and proposals for new classes.

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
    p = _corrected([_p_value(*own) for own in counts])
    best = as_numpy(model.votes.p[1:].argmax(1))
    names = [("unlike all known rows", None), *((memory_name(m), labels[best[m]]) for m in shown)]
    lines = [
        {"memory": name, "label": label, "known": a / n, "new": b / k, "p": own}
        for (name, label), (a, n, b, k), own in zip(names, counts, p, strict=True)
    ]
    proposed: list[ProposedClass] = []
    rows = np.flatnonzero(strange)
    if p[0] < _LEVEL and len(rows) >= _FEWEST:
        for own in discover(model, stored.take(torch.from_numpy(rows))):
            proposed.append(ProposedClass(rows[own.rows], own.overlap, own.nearest))
    return Drift(sorted(lines[1:], key=lambda own: float(own["p"])), lines[0], proposed)


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
