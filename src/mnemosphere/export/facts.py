"""What is known of a fitted model, as plain values: for its card and for the page's report."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Any

import numpy as np

from mnemosphere.data.rows import StoredRows
from mnemosphere.files import plain
from mnemosphere.fitted import FittedModel, as_numpy, dense_parts
from mnemosphere.interpret.decision import decision_summary
from mnemosphere.interpret.evaluation import measures
from mnemosphere.interpret.rejection import novelty_threshold
from mnemosphere.labels import Labels
from mnemosphere.machine import versions

_PAIRS = 10  # most confused pairs that are named


def show(value: object) -> str:
    """A label as text."""
    return str(plain(value))


def facts(model: FittedModel, X: Any = None, y: Any = None) -> dict[str, Any]:
    """Choices, how training ended, versions; with rows their checksum and what they measure."""
    settings, params, record = model.record.settings, model.trained, model.record
    encoder = model.features.encoder
    if encoder is not None:
        settings = {**settings, "encoder": encoder.name}
    seed = settings.get("random_state")
    found: dict[str, Any] = {
        "kind": model.kind,
        "n_memories": model.n_memories,
        "n_features": model.features.n_columns,
        "encoder": None if encoder is None else encoder.name,
        "classes": [show(name) for name in model.classes.tolist()],
        "beta": float(params.beta),
        "varsigma": float(params.varsigma),
        "normalize": model.normalizer.kind,
        "temperature": model.votes.temperature,
        "novelty_threshold": novelty_threshold(model),
        "status": record.status,
        "n_iter": len(record.history),
        "seed": seed if isinstance(seed, int) else None,
        "settings": {name: _short(value) for name, value in settings.items()},
        "levels": [] if model.lineage is None else [len(m) for m in model.lineage.members],
        "versions": {"mnemosphere": version("mnemosphere"), **versions()},
    }
    if X is not None:
        X = model.stored(X)
        y = None if y is None else Labels.of(y, X.n_rows)
        found["rows"] = {"n": X.n_rows, "checksum": checksum(X, y)}
    if X is not None and y is not None and model.is_classifier:
        found["measured"] = _measure(model, X, y)
    return found


def checksum(X: StoredRows, y: Labels | None) -> str:
    """SHA-256 of the numbers of X in float64, dense, and of the labels as text."""
    digest = hashlib.sha256()
    for _, chunk in X.chunks():
        for _, x in dense_parts(chunk):
            digest.update(as_numpy(x).astype("<f8").tobytes())
    if y is not None:
        digest.update("\0".join(show(v) for v in y.tolist()).encode(errors="replace"))
    return digest.hexdigest()


def _measure(model: FittedModel, stored: StoredRows, y: Labels) -> dict[str, Any]:
    """Accuracy, log-loss, confusion, calibration and how few memories decide."""
    truth = y.among(model.classes, unknown=True)
    proba = as_numpy(model.log_proba(stored).exp())
    labeled = truth >= 0
    truth, proba = truth[labeled], proba[labeled]
    if truth.size == 0:
        raise ValueError("y has no label of the model's classes: pass labels like those of fit")
    best, sure = proba.argmax(axis=1), proba.max(axis=1)
    found = measures(truth, best, proba[np.arange(truth.size), truth], sure, len(model.classes))
    pairs = [[int(a), int(b), int(found["confusion"][a, b])]
             for a, b in zip(*found["confusion"].nonzero(), strict=True)]  # fmt: skip
    wrong = sorted((pair for pair in pairs if pair[0] != pair[1]), key=lambda p: (-p[2], p[:2]))
    return {
        "n": int(truth.size),
        "accuracy": float((truth == best).mean()),
        "log_loss": found["log_loss"],
        "decision": decision_summary(model, stored).facts(),
        "confusion": pairs,
        "confused": wrong[:_PAIRS],
        "calibration": found["calibration"],
        "calibration_error": found["calibration_error"],
    }


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(plain(value))
    return text if len(text) <= 120 else text[:119] + "…"
