"""How well a fitted classifier does on labeled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mnemosphere.estimators.base import as_numpy

__all__ = ["calibration_error", "evaluate"]

_BINS = 15  # of the calibration error


def evaluate(model: Any, X: ArrayLike, y: NDArray[Any]) -> dict[str, Any]:
    """Accuracy, log-loss, calibration error, confusion, recall and precision of every class.

    A row of a class that the model does not know counts as wrong; log-loss, calibration error and
    confusion are of the other rows. "truth_probability" (n,) is that of the true class, 0 where it
    is not known; "prediction" (n,) the most probable class.
    """
    classes: NDArray[Any] = model.classes_
    if (classes.dtype.kind in "US") != (y.dtype.kind in "US"):
        raise ValueError(
            f"the labels are like {y[0].item()!r}, the model's like {classes[0].item()!r}: choose "
            "labels of the same kind"
        )
    proba, prediction = as_numpy(model.predict_proba(X)), as_numpy(model.predict(X))
    known = np.isin(y, classes)
    index = np.searchsorted(classes, y[known])
    best = np.searchsorted(classes, prediction[known])
    n = len(classes)
    confusion = np.bincount(index * n + best, minlength=n * n).reshape(n, n)
    own = proba[known, index]
    truth = np.zeros(len(y))
    truth[known] = own
    log_loss = float(-np.log(np.maximum(own, 1e-300)).mean()) + 0.0 if own.size else None
    return {
        "accuracy": float(np.trace(confusion) / len(y)),
        "log_loss": log_loss,
        "calibration_error": calibration_error(proba[known].max(axis=1), best == index),
        "most_frequent": float(np.unique(y, return_counts=True)[1].max() / len(y)),
        "rows": len(y),
        "unknown_labels": int((~known).sum()),
        "classes": classes.tolist(),
        "per_class": _per_class(confusion, classes),
        "confusion": confusion,
        "prediction": prediction,
        "truth_probability": truth,
    }


def calibration_error(sure: NDArray[Any], right: NDArray[np.bool_]) -> float | None:
    """Mean distance between confidence and accuracy, over equal bins of confidence."""
    if not len(sure):
        return None
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gap = np.bincount(place, weights=sure - right, minlength=_BINS)
    return float(np.abs(gap).sum() / len(sure))


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
