"""How well a fitted classifier does on labeled rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from mnemosphere.base.text import Shown, Table
from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.rows.labels import OUT_OF_SCOPE, Labels

_BINS = 15  # of confidence, equally wide
REJECTED = "rejected"
Labeled = tuple[Any, NDArray[Any], Any]  # rows, their labels and their names


def evaluate(model: FittedModel, parts: Iterable[Labeled], n_worst: int = 10) -> dict[str, Any]:
    """Evaluate a classifier on labeled rows, which need not fit in memory together.

    A row of a class that the model does not know counts as wrong. Log-loss, calibration error and
    confusion matrix are about the other rows.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    parts : iterable of (X, y, names)
        Rows (n, N), their labels (n,) and what they are called (n,).
    n_worst : int, default 10
        Rows to list under "worst_rows".

    Returns
    -------
    dict
        "accuracy", "log_loss", "calibration" (mean of the largest probability, how often right, rows, in
        bins), "calibration_error", "ranking" (of two classes, see `ranking`), "confusion" (C, C),
        "per_class", "worst_rows" (least probability of the true class) and counts.

    Examples
    --------
    >>> found = mn.interpret.evaluate(model, [(X_test, y_test, X_test.index)])
    >>> found["rows"], found["confusion"].shape, found["accuracy"] > 0.9
    (60, (3, 3), True)
    """
    classes = model.classes
    seen: list[tuple[NDArray[Any], ...]] = []  # truth, prediction, probabilities of both
    worst: list[tuple[float, Any, Any, Any]] = []
    for X, given, names in parts:
        stored = model.stored(X)
        told = Labels.of(given, stored.n_rows)
        told.check_like(classes)
        truth, y = told.among(classes, unknown=True), np.array(told.tolist(), dtype=object)
        proba = as_numpy(model.log_proba(stored).exp())
        best = proba.argmax(axis=1)
        own = np.where(truth >= 0, proba[np.arange(len(y)), truth], 0.0)
        seen.append((y, truth, best, own, proba.max(axis=1), proba[:, -1]))
        at = np.argsort(own, kind="stable")[:n_worst]
        worst += [(float(own[k]), names[k], y[k], classes[best[k]].item()) for k in at]
        worst = sorted(worst, key=lambda row: row[0])[:n_worst]
    if not seen:
        raise ValueError("no row has a label: name the column with --label")
    labels, truth, best, own, sure, last = (
        np.concatenate(part) for part in zip(*seen, strict=True)
    )
    known = truth >= 0
    found = measures(truth[known], best[known], own[known], sure[known], len(classes))
    return {
        "accuracy": float(np.mean(truth == best)),
        "log_loss": found["log_loss"],
        "calibration": found["calibration"],
        "calibration_error": found["calibration_error"],
        "ranking": ranking(truth[known], last[known], classes.tolist()),
        "most_frequent": max(Counter(labels.tolist()).values()) / len(labels),
        "rows": len(labels),
        "unknown_labels": int((~known).sum()),
        "classes": classes.tolist(),
        "per_class": _per_class(found["confusion"], classes.tolist()),
        "confusion": found["confusion"],
        "worst_rows": [
            {"row": name, "truth": label, "prediction": said, "probability_of_truth": share}
            for share, name, label, said in worst
        ],
    }


def measures(
    truth: NDArray[Any], best: NDArray[Any], own: NDArray[Any], sure: NDArray[Any], n_classes: int
) -> dict[str, Any]:
    """Confusion, mean log-loss and calibration of rows whose classes are known.

    truth, best (n,): places of the true and the predicted class; own, sure (n,): probabilities.
    """
    confusion = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(confusion, (truth, best), 1)
    curve = calibration_curve(sure, best == truth)
    gaps = sum(n * abs(said - was) for said, was, n in curve)
    return {
        "confusion": confusion,
        "log_loss": float(-np.log(np.maximum(own, 1e-300)).mean()) + 0.0 if len(own) else None,
        "calibration": curve,
        "calibration_error": gaps / len(own) if len(own) else None,
    }


def ranking(
    truth: NDArray[Any], last: NDArray[Any], classes: Sequence[Any]
) -> dict[str, Any] | None:
    """How well the probability of the rarer of two classes ranks its rows before the others.

    truth (n,): places of the true classes; last (n,): probabilities of the second. "threshold": where the
    classes have the same recall, about. None: other numbers of classes, or rows of one alone.
    """
    counts = np.bincount(truth, minlength=2)
    if len(classes) != 2 or not counts.all():
        return None
    rarer = int(counts[1] <= counts[0])
    own, score = truth == rarer, last if rarer else 1 - last
    missed, found, at = roc_curve(own, score, drop_intermediate=False)
    return {
        "class": classes[rarer],
        "auroc": float(roc_auc_score(own, score)),
        "average_precision": float(average_precision_score(own, score)),
        "threshold": float(min(at[np.abs(1 - missed - found).argmin()], 1.0)),
    }


def calibration_curve(
    sure: NDArray[np.floating[Any]], right: NDArray[np.bool_]
) -> list[tuple[float, float, int]]:
    """(mean, how often right, rows) of the bins of the largest probability that have rows."""
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    parts = [(sure[place == k], right[place == k]) for k in range(_BINS)]
    return [(float(s.mean()), float(r.mean()), len(s)) for s, r in parts if len(s)]


def _per_class(confusion: NDArray[Any], names: list[Any]) -> list[dict[str, Any]]:
    """Recall and precision of every class; None where there is nothing to divide by."""
    right, given, answered = np.diagonal(confusion), confusion.sum(1), confusion.sum(0)
    wrong = confusion - np.diag(right)
    return [
        {
            "class": name,
            "rows": int(given[k]),
            "recall": _share(right[k], given[k]),
            "precision": _share(right[k], answered[k]),
            "most_mistaken_for": names[wrong[k].argmax()] if wrong[k].any() else None,
        }
        for k, name in enumerate(names)
    ]


@dataclass(frozen=True)
class ClassificationReport(Shown):
    """How answers that may be rejections compare with the true classes.

    Attributes
    ----------
    truths : list
        Rows of the matrix: the classes, and "out of scope" if there are such rows.
    answers : list
        Columns of the matrix: the classes, and "rejected".
    confusion : ndarray of int of shape (len(truths), len(answers))
        Numbers of rows.

    Examples
    --------
    >>> report = mn.interpret.classification_report([0, 1, 1, 2], [0, 1, None, 1])
    >>> report.confusion.tolist()
    [[1, 0, 0, 0], [0, 1, 0, 1], [0, 1, 0, 0]]
    """

    truths: list[Any]
    answers: list[Any]
    confusion: NDArray[np.int64]

    def as_dict(self) -> dict[str, Any]:
        """Compute the figures, in plain values.

        Rejection is the right answer to a row out of scope. A row of a class that is rejected counts as
        missed, not as a mistake for another class. None: there is nothing to divide by.

        Returns
        -------
        dict
            "rows", "answered" (share), "accuracy_of_answers", "accuracy" (rejected rows out of scope count
            as right), "macro_f1", and "per_class": "class", "rows", "precision", "recall", "f1",
            "rejected" (share).

        Examples
        --------
        >>> report = mn.interpret.classification_report([0, 1, 1, 2], [0, 1, None, 1])
        >>> report.as_dict()["answered"]
        0.75
        """
        counts, n = self.confusion, len(self.answers) - 1
        right = np.diagonal(counts)
        given, answered = counts.sum(1), int(counts[:, :n].sum())
        each = [
            {
                "class": name,
                "rows": int(given[k]),
                "precision": _share(right[k], counts[:, k].sum()),
                "recall": _share(right[k], given[k]),
                "f1": _share(2 * right[k], counts[:, k].sum() + given[k]),
                "rejected": _share(counts[k, n], given[k]),
            }
            for k, name in enumerate(self.truths)
        ]
        scores = [own["f1"] for own in each if own["rows"]]
        return {
            "rows": int(counts.sum()),
            "answered": _share(answered, counts.sum()),
            "accuracy_of_answers": _share(right[:n].sum(), answered),
            "accuracy": _share(right.sum(), counts.sum()),
            "macro_f1": float(np.mean(scores)) if scores else None,
            "per_class": each,
        }

    def table(self) -> list[dict[str, str]]:
        """List the figures of each class as texts.

        Returns
        -------
        list of dicts
            One for each class.

        Examples
        --------
        >>> mn.interpret.classification_report([0, 1], [0, None]).table()[1]["rejected"]
        '100.0%'
        """
        return [
            {name: _percent(value) for name, value in own.items()}
            for own in self.as_dict()["per_class"]
        ]

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """The classes, then all answers."""
        found = self.as_dict()
        told = (
            f"{_percent(found['answered'])} of {found['rows']} rows answered, "
            f"{_percent(found['accuracy_of_answers'])} of the answers right"
        )
        return [self.table(), told]


def _share(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None


def _percent(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.1%}" if isinstance(value, float) else str(value)


def classification_report(y: Any, answers: Any, classes: Any = None) -> ClassificationReport:
    """Compare answers that may be rejections with the true classes.

    Parameters
    ----------
    y : array-like of shape (n,)
        True labels. `mnemosphere.OUT_OF_SCOPE` and labels that are not among `classes` are out of scope.
    answers : array-like of shape (n,)
        Labels, None for a rejected row: what `predict_or_reject` returns.
    classes : array-like of shape (C,), default None
        The classes that the model knows; None: those of y and of the answers.

    Returns
    -------
    ClassificationReport
        A confusion matrix with a column "rejected", precision, recall and share of rejected rows of each
        class. It prints as a table.

    Examples
    --------
    >>> answers = clf.predict_or_reject(X_test, rate=0.1)
    >>> report = mn.interpret.classification_report(y_test, answers, clf.classes_)
    >>> report.confusion.shape
    (3, 4)
    """
    said = Labels.of(answers)
    truth = Labels.of(y, len(said.place), unlabeled=None)
    if len(said.found):
        truth.check_like(said.found)
    if said.outside.any():
        raise ValueError(f"an answer is {OUT_OF_SCOPE!r}: pass None for rejected rows")
    found = [own.found for own in (truth, said) if len(own.found)]
    if classes is not None:
        found = [Labels.of(classes, unlabeled=None).found]
    if not found:
        raise ValueError("y and the answers have no class: pass classes")
    names: NDArray[Any] = np.unique(np.concatenate(found))
    n = len(names)
    rows, columns = truth.among(names, unknown=True), said.among(names)
    counts = np.zeros((n + 1, n + 1), dtype=np.int64)
    np.add.at(counts, (np.where(rows < 0, n, rows), np.where(columns < 0, n, columns)), 1)
    known = names.tolist()
    truths = [*known, OUT_OF_SCOPE] if counts[n].any() else known
    return ClassificationReport(truths, [*known, REJECTED], counts[: len(truths)])
