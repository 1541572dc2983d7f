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
from mnemosphere.interpret.rejection import novelty_threshold
from mnemosphere.rows.labels import Labels
from mnemosphere.rows.rows import Rows

_BINS = 15  # of the largest probability, equally wide
_LEAST_LOG = -690.0  # of a probability that is 0 in double precision


def show(value: object) -> str:
    """A label as text."""
    return str(plain(value))


def facts(model: FittedModel, X: Any = None, y: Any = None) -> dict[str, Any]:
    """What the model is, how it was trained ("choices"), and with rows what they measure."""
    settings, params, record = model.record.settings, model.trained, model.record
    encoder, threshold, tree = model.columns.encoder, novelty_threshold(model), model.lineage
    if encoder is not None:
        settings = {**settings, "encoder": encoder.name}
    seed = settings.get("random_state")
    choices = {
        "memories": str(model.n_memories),
        "geometry": model.geometry.name,
        "beta": f"{float(params.beta):.6g}",
        "varsigma": f"{float(params.varsigma):.6g}",
        "temperature": f"{model.votes.temperature:.6g}",
        "novelty threshold": "not calibrated" if threshold is None else f"{threshold:.6g}",
        "training ended": f"{record.status} after {len(record.history)} passes",
        "seed": str(seed) if isinstance(seed, int) else "none given",
    }
    if tree is not None:
        choices["levels of growth"] = " → ".join(str(len(level)) for level in tree.members)
    found: dict[str, Any] = {
        "kind": model.kind,
        "n_columns": model.columns.n_columns,
        "classes": [show(name) for name in model.classes.tolist()],
        "choices": choices,
        "settings": {name: _short(value) for name, value in settings.items()},
    }
    if X is not None:
        X = model.stored(X)
        y = None if y is None else Labels.of(y, X.n_rows)
    choices |= {"mnemosphere": version("mnemosphere"), **versions()}
    if X is not None and y is not None and model.is_classifier:
        found["measured"] = _measure(model, X, y)
    return found


def _measure(model: FittedModel, stored: Rows, y: Labels) -> dict[str, Any]:
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


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(plain(value))
    return text if len(text) <= 120 else text[:119] + "…"
