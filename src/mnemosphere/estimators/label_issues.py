"""Labels that are probably wrong, by models which have not seen them.

Rows are held out in folds. Each fold is predicted by the estimator, with the settings that its search has
chosen, fitted to the other rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from mnemosphere.base.files import plain
from mnemosphere.base.text import Shown, Table
from mnemosphere.fitted.model import FittedModel, as_numpy, check_whole, row_labels
from mnemosphere.rows.labels import Labels
from mnemosphere.rows.rows import Rows, distinct_numbers

_SHOWN = 20  # rows of a printed table
_ROUNDING = 1e-6  # of probabilities


@dataclass(frozen=True)
class LabelIssues(Shown):
    """Rows whose label is probably wrong, by models that did not see them, least probable labels first.

    How many there are is counted as by confident learning (Northcutt et al. 2021): the rows in which another
    class is at least as probable as it is on average in the rows that have its label.

    Attributes
    ----------
    rows : ndarray of int of shape (k,)
        Their numbers.
    given : ndarray of shape (k,)
        Their labels.
    suggested : ndarray of shape (k,)
        The most probable class.
    self_confidence : ndarray of shape (k,)
        The probability of the label.
    margin : ndarray of shape (k,)
        That less the probability of the suggested class.
    typical_rows : list of k lists of int or str
        Names of the rows most typical of the memory that contributes most to the suggested class.
    proba : ndarray of shape (n, C)
        Probabilities of the classes, in sorted order, of each row as it was held out; NaN for rows
        without label and for those of a class with no other distinct row.
    scores : ndarray of shape (n,)
        The probability of the label of each row: the lower, the sooner it is wrong.
    names : list of k int or str
        What the rows are called: the index of a frame, or their numbers.

    Examples
    --------
    >>> wrong = y_train.copy()
    >>> wrong.iloc[0] = 2 - wrong.iloc[0]
    >>> issues = clf.label_issues(X_train, wrong)
    >>> len(issues) > 0, issues.scores.shape
    (True, (118,))
    """

    rows: NDArray[np.int64]
    given: NDArray[Any]
    suggested: NDArray[Any]
    self_confidence: NDArray[np.float64]
    margin: NDArray[np.float64]
    typical_rows: list[list[int | str]]
    proba: NDArray[np.float64]
    scores: NDArray[np.float64]
    names: list[int | str]

    def __len__(self) -> int:
        return len(self.rows)

    def as_dicts(self) -> list[dict[str, Any]]:
        """List the rows as dicts, for a data frame or JSON.

        Returns
        -------
        list of k dicts
            One for each row: "row", "given", "suggested", "self_confidence", "margin" and "typical_rows".

        Examples
        --------
        >>> sorted(clf.label_issues(X_train, y_train).as_dicts()[0])[:3]
        ['given', 'margin', 'row']
        """
        names = ("given", "suggested", "self_confidence", "margin", "typical_rows")
        columns = [self.names, *(plain(getattr(self, name)) for name in names)]
        return [
            dict(zip(("row", *names), line, strict=True)) for line in zip(*columns, strict=True)
        ]

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """How many there are, and the first of them."""
        told = f"{len(self)} of {len(self.scores)} labels are probably wrong"
        lines = [
            {
                "row": str(own["row"]), "label": str(own["given"]), "suggested": str(own["suggested"]),
                "P(label)": f"{own['self_confidence']:.1%}", "margin": f"{own['margin']:.2f}",
                "rows like it": ", ".join(map(str, own["typical_rows"])),
            }
            for own in self.as_dicts()[: most or _SHOWN]
        ]  # fmt: skip
        return [told, lines] if lines else [told]


def label_issues(estimator: Any, X: Any, y: Any, sample_weight: Any, n_folds: int) -> LabelIssues:
    """Hold rows out in folds; the estimator, fitted or not, stays as it is."""
    check_whole(n_folds, "n_folds", 2)
    labels = Labels.of(y, unlabeled=estimator.unlabeled)
    classes, place = labels.found, labels.place
    model = estimator.__dict__.get("model_") or clone(estimator).fit(X, y, sample_weight).model_
    stored, names = model.stored(X), row_labels(X, len(place))
    fold = _folds(place, stored, n_folds)
    chosen = _with_chosen(estimator, model)
    if model.columns.is_texts:  # texts are encoded once
        chosen, X = chosen.set_params(encoder=None), as_numpy(stored.values)
    proba = np.full((len(place), len(classes)), np.nan)
    typical: dict[int, list[int | str]] = {}
    for k in np.unique(fold[fold >= 0]).tolist():
        fitted, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        given = [
            part if part is None else _safe_indexing(part, fitted) for part in (X, y, sample_weight)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of all rows they have been given
            model = clone(chosen).fit(*given).model_
        unseen = model.stored(_safe_indexing(X, held))
        likely = as_numpy(model.log_proba(unseen).exp())
        proba[held] = 0.0
        proba[np.ix_(held, np.searchsorted(classes, model.classes))] = likely
        said = model.shares(unseen) * model.precise_votes.labels[1:, likely.argmax(1)].T
        near = model.exemplars.typical[as_numpy(said.argmax(1))]
        typical |= {
            row: [names[fitted[number]] for number in line if number >= 0]
            for row, line in zip(held.tolist(), near.tolist(), strict=True)
        }
    scores = np.where(fold >= 0, proba[np.arange(len(place)), place], np.nan)
    margin = scores - proba.max(1)
    rows = np.flatnonzero(margin < 0)
    rows = rows[np.argsort(scores[rows], kind="stable")][
        : _n_wrong(proba[fold >= 0], place[fold >= 0])
    ]
    return LabelIssues(
        rows, classes[place[rows]], classes[proba[rows].argmax(1)], scores[rows], margin[rows],
        [typical[row] for row in rows.tolist()], proba, scores, [names[row] for row in rows.tolist()],
    )  # fmt: skip


def _n_wrong(proba: NDArray[np.float64], place: NDArray[np.int64]) -> int:
    """How many of the labels are probably wrong, by held-out probabilities (n, C)."""
    mean = [
        proba[place == k, k].mean() if (place == k).any() else np.inf for k in range(proba.shape[1])
    ]
    sure = np.where(proba >= np.array(mean) - _ROUNDING, proba, -1.0)
    return int(((sure.max(1) >= 0) & (sure.argmax(1) != place)).sum())


def _with_chosen(estimator: Any, model: FittedModel) -> Any:
    """A clone with the settings that the search of a model has chosen."""
    trials = [own for own in model.record.search if own["chosen"]]
    names = ("n_memories", "geometry", "objective")
    settings = {name: own[name] for own in trials for name in names}
    return clone(estimator).set_params(callbacks=(), verbose=0, **settings)


def _folds(place: NDArray[np.int64], stored: Rows, n_folds: int) -> NDArray[np.int64]:
    """The fold of each row (n,), classes in proportion, and copies of a row in one.

    −1, which takes part in every fit: a row without label, or of a class with no other distinct row.
    """
    if stored.n_rows != len(place):
        raise ValueError(
            f"X has {stored.n_rows} rows but y has {len(place)}: pass one label per row"
        )
    number = as_numpy(distinct_numbers(stored))
    pairs = np.unique(np.stack([place, number])[:, place >= 0], axis=1)
    several = np.append(np.bincount(pairs[0], minlength=1) > 1, False)  # the last: no class
    held = (place >= 0) & several[place]
    if not held.any():
        raise ValueError(
            "no class of y has two distinct rows, so no row can be held out: pass more rows"
        )
    kinds, first, kind = np.unique(number[held], return_index=True, return_inverse=True)
    order = np.random.default_rng(0).permutation(len(kinds))
    order = order[np.argsort(place[held][first][order], kind="stable")]
    turn = np.empty_like(kinds)
    turn[order] = np.arange(len(kinds)) % n_folds
    fold = np.full(len(place), -1)
    fold[held] = turn[kind]
    return fold
