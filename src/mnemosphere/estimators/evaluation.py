"""How well a fitted classifier does on labeled rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemosphere.estimators.base import as_numpy

_BINS = 15  # of the calibration error
Labeled = tuple[Any, NDArray[Any], Any]  # rows, their labels and their names


def evaluate(model: Any, parts: Iterable[Labeled], n_worst: int = 10) -> dict[str, Any]:
    """Accuracy, log-loss, calibration error, confusion, recall and precision of every class.

    parts: labeled rows (X, y, names), which need not fit in memory together. A row of a class that
    the model does not know counts as wrong; log-loss, calibration error and confusion are of the
    other rows. "worst_rows" are those with the least probability of the true class.
    """
    classes: NDArray[Any] = model.classes_
    n = len(classes)
    confusion, gap = np.zeros(n * n, dtype=np.int64), np.zeros(_BINS)
    n_rows, n_known, loss = 0, 0, 0.0
    counts: dict[Any, int] = {}
    worst: list[tuple[float, Any, Any, Any]] = []
    for X, y, names in parts:
        if (classes.dtype.kind in "US") != (y.dtype.kind in "US"):
            raise ValueError(
                f"the labels are like {y[0].item()!r}, the model's like {classes[0].item()!r}: "
                "choose labels of the same kind"
            )
        proba, prediction = as_numpy(model.predict_proba(X)), as_numpy(model.predict(X))
        known = np.isin(y, classes)
        index = np.searchsorted(classes, y[known])
        best = np.searchsorted(classes, prediction[known])
        own = proba[known, index]
        truth = np.zeros(len(y))
        truth[known] = own
        confusion += np.bincount(index * n + best, minlength=n * n)
        gap += _gaps(proba[known].max(axis=1), best == index)
        loss -= float(np.log(np.maximum(own, 1e-300)).sum())
        n_rows, n_known = n_rows + len(y), n_known + len(own)
        for label, count in zip(*np.unique(y, return_counts=True), strict=True):
            counts[label.item()] = counts.get(label.item(), 0) + int(count)
        at = np.argsort(truth, kind="stable")[:n_worst]
        worst += [(float(truth[k]), names[k], y[k].item(), prediction[k].item()) for k in at]
        worst = sorted(worst, key=lambda row: row[0])[:n_worst]
    if n_rows == 0:
        raise ValueError("no row has a label: name the column with --label")
    square = confusion.reshape(n, n)
    return {
        "accuracy": float(np.trace(square) / n_rows),
        "log_loss": loss / n_known + 0.0 if n_known else None,
        "calibration_error": float(np.abs(gap).sum() / n_known) if n_known else None,
        "most_frequent": max(counts.values()) / n_rows,
        "rows": n_rows,
        "unknown_labels": n_rows - n_known,
        "classes": classes.tolist(),
        "per_class": _per_class(square, classes),
        "confusion": square,
        "worst_rows": [
            {"row": name, "truth": label, "prediction": found, "probability_of_truth": truth}
            for truth, name, label, found in worst
        ],
    }


def calibration_error(sure: NDArray[Any], right: NDArray[np.bool_]) -> float | None:
    """Mean distance between confidence and accuracy, over equal bins of confidence."""
    return float(np.abs(_gaps(sure, right)).sum() / len(sure)) if len(sure) else None


def _gaps(sure: NDArray[Any], right: NDArray[np.bool_]) -> NDArray[Any]:
    """Confidence less accuracy, summed over the rows of each bin of confidence."""
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    return np.bincount(place, weights=sure - right, minlength=_BINS)


def _per_class(confusion: NDArray[Any], classes: NDArray[Any]) -> list[dict[str, Any]]:
    right, rows, predicted = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    wrong = confusion - np.diag(right)
    return [
        {
            "class": label,
            "rows": int(rows[k]),
            "recall": float(right[k] / rows[k]) if rows[k] else None,
            "precision": float(right[k] / predicted[k]) if predicted[k] else None,
            "most_mistaken_for": classes[wrong[k].argmax()].item() if wrong[k].any() else None,
        }
        for k, label in enumerate(classes.tolist())
    ]
