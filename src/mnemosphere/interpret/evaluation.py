"""How well a fitted classifier does on labeled rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_fscore_support

from mnemosphere.fitted import FittedModel, as_numpy
from mnemosphere.interpret.decision import Spread, spread, summarize
from mnemosphere.labels import Labels

_BINS = 15  # of confidence, equally wide
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
        "accuracy", "log_loss", "calibration_error", "decision" (how few memories decide), "confusion"
        (C, C), "per_class", "worst_rows" (least probability of the true class) and counts.

    Examples
    --------
    >>> found = mn.interpret.evaluate(model, [(X_test, y_test, X_test.index)])
    >>> found["rows"], found["confusion"].shape, found["accuracy"] > 0.9
    (60, (3, 3), True)
    """
    classes = model.classes
    seen: list[tuple[NDArray[Any], ...]] = []  # truth, prediction, probabilities of both
    worst: list[tuple[float, Any, Any, Any]] = []
    voted: list[Spread] = []
    for X, given, names in parts:
        stored = model.stored(X)
        told = Labels.of(given, stored.n_rows)
        told.check_like(classes)
        truth, y = told.among(classes, unknown=True), np.array(told.tolist(), dtype=object)
        proba = as_numpy(model.log_proba(stored).exp())
        voted.append(spread(model, stored))
        best = proba.argmax(axis=1)
        own = np.where(truth >= 0, proba[np.arange(len(y)), truth], 0.0)
        seen.append((y, truth, best, own, proba.max(axis=1)))
        at = np.argsort(own, kind="stable")[:n_worst]
        worst += [(float(own[k]), names[k], y[k], classes[best[k]].item()) for k in at]
        worst = sorted(worst, key=lambda row: row[0])[:n_worst]
    if not seen:
        raise ValueError("no row has a label: name the column with --label")
    labels, truth, best, own, sure = (np.concatenate(part) for part in zip(*seen, strict=True))
    known = truth >= 0
    found = measures(truth[known], best[known], own[known], sure[known], len(classes))
    return {
        "accuracy": float(np.mean(truth == best)),
        "log_loss": found["log_loss"],
        "calibration_error": found["calibration_error"],
        "decision": summarize(model, voted).as_dict(),
        "most_frequent": max(Counter(labels.tolist()).values()) / len(labels),
        "rows": len(labels),
        "unknown_labels": int((~known).sum()),
        "classes": classes.tolist(),
        "per_class": _per_class(truth[known], best[known], found["confusion"], classes),
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


def calibration_curve(
    sure: NDArray[np.floating[Any]], right: NDArray[np.bool_]
) -> list[tuple[float, float, int]]:
    """(mean, how often right, rows) of the bins of the largest probability that have rows."""
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    parts = [(sure[place == k], right[place == k]) for k in range(_BINS)]
    return [(float(s.mean()), float(r.mean()), len(s)) for s, r in parts if len(s)]


def _per_class(
    truth: NDArray[Any], best: NDArray[Any], confusion: NDArray[Any], classes: NDArray[Any]
) -> list[dict[str, Any]]:
    """Recall and precision of every class; None where there is nothing to divide by."""
    precision, recall, _, rows = precision_recall_fscore_support(
        truth, best, labels=np.arange(len(classes)), zero_division=np.nan
    )
    wrong = confusion - np.diag(np.diag(confusion))
    return [
        {
            "class": label,
            "rows": int(rows[k]),
            "recall": None if np.isnan(recall[k]) else float(recall[k]),
            "precision": None if np.isnan(precision[k]) else float(precision[k]),
            "most_mistaken_for": classes[wrong[k].argmax()].item() if wrong[k].any() else None,
        }
        for k, label in enumerate(classes.tolist())
    ]
