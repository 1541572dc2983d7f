"""What is known of a fitted model, as plain values: for the report of the page."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from mnemosphere.base.files import plain
from mnemosphere.base.machine import versions
from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.rows.labels import Labels
from mnemosphere.rows.rows import Rows

_BINS = 15  # of the largest probability, equally wide
_LEAST_LOG = -690.0  # of a probability that is 0 in double precision


def show(value: object) -> str:
    """A label as text."""
    return str(plain(value))


def facts(model: FittedModel) -> dict[str, Any]:
    """What the model is and how it was trained."""
    record, trained, encoder = model.record, model.trained, model.columns.encoder
    more = {} if encoder is None else {"encoder": encoder.name}
    return {
        "kind": model.kind,
        "n_columns": model.columns.n_columns,
        "classes": [show(name) for name in model.classes.tolist()],
        "choices": {
            "geometry": model.geometry.name,
            "beta": f"{float(trained.beta):.6g}",
            "varsigma": f"{float(trained.varsigma):.6g}",
            "temperature": f"{model.votes.temperature:.6g}",
            "training ended": f"{record.status} after {len(record.history)} passes",
            "mnemosphere": version("mnemosphere"),
            **versions(),
        },
        "settings": {name: str(plain(own)) for name, own in (record.settings | more).items()},
    }


def measure(model: FittedModel, stored: Rows, y: Labels) -> dict[str, Any]:
    """Figures of the rows of the model's classes."""
    place = y.among(model.classes, unknown=True)
    at = np.flatnonzero(place >= 0)
    if at.size == 0:
        raise ValueError("y has no label of the model's classes: pass labels like those of fit")
    truth = place[at]
    log_proba = as_numpy(model.log_proba(stored.take(torch.from_numpy(at))))
    best, sure = log_proba.argmax(1), np.exp(log_proba.max(1))
    counts = confusion_matrix(truth, best, labels=np.arange(len(model.classes)))
    curve = calibration_curve(sure, best == truth)
    return {
        "n": len(at),
        "accuracy": float((best == truth).mean()),
        "log_loss": float(-log_proba[np.arange(len(at)), truth].clip(_LEAST_LOG).mean()) + 0.0,
        "confusion": [[a, b, int(counts[a, b])] for a, b in np.argwhere(counts).tolist()],
        "calibration": curve,
        "calibration_error": sum(n * abs(said - was) for said, was, n in curve) / len(at),
    }


def calibration_curve(
    sure: NDArray[Any], right: NDArray[np.bool_]
) -> list[tuple[float, float, int]]:
    """(mean, how often right, rows) of the bins of the largest probability that have rows."""
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    parts = [place == k for k in np.unique(place)]
    return [(float(sure[own].mean()), float(right[own].mean()), int(own.sum())) for own in parts]
