"""Labels that a cross-fitted model contradicts, with the memories and rows that say so.

Rows are held out in folds. Each fold is predicted by a model that was trained on the others with the
settings that `fit` chose on all rows, so nothing is searched again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.base.files import plain
from mnemosphere.base.text import Shown, Table
from mnemosphere.estimators.choice import Candidate, Choice, Sample, Settings
from mnemosphere.estimators.class_training import prepare, train
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.setup import Ready, learn_features
from mnemosphere.fitted.exemplars import find_exemplars
from mnemosphere.fitted.model import (
    FittedModel,
    as_numpy,
    check_whole,
    draw_seed,
    row_labels,
)
from mnemosphere.model.kernel import operands
from mnemosphere.rows.encoding import is_frame
from mnemosphere.rows.features import Features
from mnemosphere.rows.labels import Encoded, encode
from mnemosphere.rows.stored import StoredRows

_SHOWN = 20  # rows of a printed table


@dataclass(frozen=True)
class LabelIssues(Shown):
    """Rows whose label is contradicted by a model that did not see them, least probable labels first.

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
    share : ndarray of shape (k,)
        What the memory that says most for the suggested class contributes to its probability.
    memories : ndarray of shape (k, N)
        That memory, in the features' units if rows are standardized or on circles.
    typical_rows : list of k lists of int or str
        Names of the rows that it stands for, most typical first.
    proba : ndarray of shape (n, C)
        Probabilities of the classes, in sorted order, of each row as it was held out; NaN for rows
        without label and for the only row of a class.
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
    share: NDArray[np.float64]
    memories: NDArray[Any]
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
            One for each row: "row", "given", "suggested", "self_confidence", "margin", "share" and
            "typical_rows".

        Examples
        --------
        >>> sorted(clf.label_issues(X_train, y_train).as_dicts()[0])[:3]
        ['given', 'margin', 'row']
        """
        names = ("given", "suggested", "self_confidence", "margin", "share", "typical_rows")
        columns = [self.names, *(plain(getattr(self, name)) for name in names)]
        return [
            dict(zip(("row", *names), line, strict=True)) for line in zip(*columns, strict=True)
        ]

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """How many there are, and the first of them."""
        told = f"{len(self)} of {len(self.scores)} labels are contradicted"
        lines = [
            {
                "row": str(own["row"]), "label": str(own["given"]), "suggested": str(own["suggested"]),
                "P(label)": f"{own['self_confidence']:.1%}", "margin": f"{own['margin']:.2f}",
                "memory's share": f"{own['share']:.0%}",
                "its typical rows": ", ".join(map(str, own["typical_rows"])),
            }
            for own in self.as_dicts()[: most or _SHOWN]
        ]  # fmt: skip
        return [told, lines] if lines else [told]


def label_issues(
    settings: Settings, model: FittedModel | None, X: Any, y: Any, n_folds: int
) -> LabelIssues:
    """Cross-fit with the settings of a fitted model, or with those that a search finds."""
    check_whole(n_folds, "n_folds", 2)
    if model is None:
        features, stored = learn_features(X, settings.given, labeled=True)
    else:
        features, stored = _leveled(model, X)
    if n_folds > stored.n_rows:
        raise ValueError(f"n_folds must be at most the {stored.n_rows} rows of X, got {n_folds}")
    coded = encode(
        y, stored.n_rows, None, unlabeled=settings.given["unlabeled"],
        smoothing=settings.smoothing, require_label=True, device=stored.device,
    )  # fmt: skip
    seed = draw_seed(settings.given["random_state"])
    with operands(settings.precision), Progress(settings.given["verbose"]) as progress:
        chosen = _chosen(settings, model, stored, coded, progress)
        index = as_numpy(coded.index)
        fold = _folds(index, n_folds)
        proba = np.full((len(index), len(coded.classes)), np.nan)
        evidence: dict[int, tuple[float, NDArray[Any], list[int]]] = {}
        for k in range(n_folds):
            held = np.flatnonzero(fold == k)
            if not len(held):
                continue
            fitted = np.flatnonzero(fold != k)
            made = _fit(settings, features, stored, coded, fitted, chosen, seed)
            progress.show("fitting folds", k + 1, n_folds)
            unseen = _sample(stored, coded, fitted).cross_fitted(_take(stored, held))[1]
            proba[held] = as_numpy(made.log_proba(unseen).exp())
            wrong = np.flatnonzero(proba[held, index[held]] < proba[held].max(1))
            some = held[wrong]
            if len(some):
                said = _evidence(made, _take(unseen, wrong), proba[some].argmax(1))
                evidence |= zip(some.tolist(), said, strict=True)
    own = np.where(fold >= 0, proba[np.arange(len(index)), index], np.nan)
    rows = np.array(sorted(evidence), dtype=np.int64)
    rows = rows[np.argsort(own[rows], kind="stable")]
    told = [evidence[row] for row in rows.tolist()]
    memories = np.array([memory for _, memory, _ in told])
    labels = row_labels(X, stored.n_rows)
    return LabelIssues(
        rows, coded.classes[index[rows]], coded.classes[proba[rows].argmax(1)], own[rows],
        own[rows] - proba[rows].max(1), np.array([share for share, _, _ in told]),
        memories.reshape(len(rows), made.memories.shape[1]),
        [[labels[k] for k in near] for _, _, near in told], proba,
        own, [labels[row] for row in rows.tolist()],
    )  # fmt: skip


def _leveled(model: FittedModel, X: Any) -> tuple[Features, StoredRows]:
    """Columns and rows with levels as numbers, where log-odds would tell labels."""
    encoding = model.features.encoding
    if encoding is None or not is_frame(X) or model.features.is_encoded(X):
        return model.features, model.stored(X).with_columns(encoding)
    encoding = encoding.without_odds()
    features = replace(model.features, encoding=encoding)
    stored = StoredRows.of(features.numbers_of(X), model.device)
    return features, stored.with_columns(encoding)


def _take(stored: StoredRows, rows: NDArray[np.int64]) -> StoredRows:
    return stored.take(torch.from_numpy(rows).to(stored.device))


def _sample(stored: StoredRows, coded: Encoded, rows: NDArray[np.int64]) -> Sample:
    at = torch.from_numpy(rows).to(stored.device)
    return Sample(stored.take(at), coded.targets[at], None, torch.float64)


def _folds(index: NDArray[np.int64], n_folds: int) -> NDArray[np.int64]:
    """The fold of each row, (n,), classes in proportion.

    −1, which takes part in every fit: a row without label, or the only one of its class.
    """
    order = np.random.default_rng(0).permutation(len(index))
    order = order[np.argsort(index[order], kind="stable")]
    counts = np.bincount(index[index >= 0], minlength=1)
    order = order[(index[order] >= 0) & (counts[index[order]] > 1)]
    fold = np.full(len(index), -1)
    fold[order] = np.arange(len(order)) % n_folds
    return fold


def _chosen(
    settings: Settings, model: FittedModel | None, stored: StoredRows, coded: Encoded,
    progress: Progress,
) -> Choice:  # fmt: skip
    """What a fit to all rows would train, or has trained."""
    trials = [] if model is None else [own for own in model.record.search if own.get("chosen")]
    if model is not None and trials:
        names = [field.name for field in fields(Candidate)]
        candidate = Candidate(**{name: trials[-1][name] for name in names})
        return Choice(candidate, model.votes.temperature)
    return prepare(settings, stored, coded.targets, None, progress)[-1]


def _fit(
    settings: Settings, features: Features, stored: StoredRows, coded: Encoded,
    rows: NDArray[np.int64], chosen: Choice, seed: int,
) -> FittedModel:  # fmt: skip
    """A model of some of the rows; its typical rows are numbers among all rows."""
    own = _sample(stored, coded, rows)
    placed = prepare(settings, own.rows, own.targets, None, Progress(0), chosen=chosen)
    model = train(Ready(settings, features, own.rows, None, coded.classes, seed, [], *placed))
    seen = own.cross_fitted(own.rows)[1]
    return model.replace(exemplars=find_exemplars(model.votes, model.geometry, seen))


def _evidence(
    model: FittedModel, rows: StoredRows, suggested: NDArray[np.int64]
) -> Iterator[tuple[float, NDArray[Any], list[int]]]:
    """(share, memory, typical rows) of the memory that says most for the class suggested."""
    said = model.shares(rows) * model.precise_votes.labels[1:, suggested].T
    assert model.exemplars is not None
    for share, memory in zip(*(part.tolist() for part in said.max(1)), strict=True):
        near = model.exemplars.typical[memory]
        yield share, model.memories[memory], near[near >= 0].tolist()
