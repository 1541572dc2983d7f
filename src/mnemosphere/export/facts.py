"""What is known of a fitted model, as plain values: for its card and for the page's report."""

from __future__ import annotations

import hashlib
from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from mnemosphere.estimators.base import as_numpy
from mnemosphere.estimators.evaluation import calibration_error
from mnemosphere.files import plain
from mnemosphere.machine import versions

if TYPE_CHECKING:
    from mnemosphere.estimators.portable_model import PortableModel

_BINS = 10
_PAIRS = 10  # most confused pairs that are named


def show(value: object) -> str:
    """A label as text."""
    return str(plain(value))


def label_columns(model: PortableModel, y: Any) -> NDArray[np.int64]:
    """The class of each label as its place among `classes_`; −1 where y has none of them."""
    place = {show(name): column for column, name in enumerate(model.classes_.tolist())}
    labels = as_numpy(y)
    if labels.ndim != 1:
        raise ValueError(f"y must be (n,) labels, got shape {labels.shape}: pass the plain labels")
    return np.array([place.get(show(v), -1) for v in labels.tolist()], dtype=np.int64)


def facts(model: PortableModel, X: Any = None, y: Any = None) -> dict[str, Any]:
    """Choices, how training ended, versions; with rows their checksum and what they measure."""
    settings = model.get_params()
    seed = settings.get("random_state")
    found: dict[str, Any] = {
        "kind": "classifier" if is_classifier(model) else "clusterer",
        "n_memories": int(model.n_memories_),
        "n_features": int(model.n_features_in_),
        "classes": [show(name) for name in model.classes_.tolist()],
        "beta": float(model.beta_),
        "varsigma": float(model.varsigma_),
        "normalize": model.normalize_,
        "temperature": float(getattr(model, "temperature_", 1.0)),
        "novelty_threshold": model.novelty_threshold_,
        "status": model.status_,
        "n_iter": int(model.n_iter_),
        "seed": seed if isinstance(seed, int) else None,
        "settings": {name: _short(value) for name, value in settings.items()},
        "levels": [] if model.lineage_ is None else [len(m) for m in model.lineage_.members],
        "versions": {"mnemosphere": version("mnemosphere"), **versions()},
    }
    if X is not None:
        found["rows"] = {"n": len(X), "checksum": checksum(model.encode(X), y)}
    if X is not None and y is not None and is_classifier(model):
        found["measured"] = _measure(model, X, y)
    return found


def checksum(X: Any, y: Any) -> str:
    """SHA-256 of the numbers of X in float64 and of the labels as text."""
    digest = hashlib.sha256(np.ascontiguousarray(as_numpy(X), dtype="<f8").tobytes())
    if y is not None:
        digest.update("\0".join(show(v) for v in as_numpy(y).tolist()).encode(errors="replace"))
    return digest.hexdigest()


def _measure(model: PortableModel, X: Any, y: Any) -> dict[str, Any]:
    """Accuracy, log-loss, confusion and calibration on the labeled rows."""
    truth = label_columns(model, y)
    proba = as_numpy(model.predict_proba(X))
    labeled = truth >= 0
    truth, proba = truth[labeled], proba[labeled]
    if truth.size == 0:
        raise ValueError("y has no label of the model's classes: pass labels like those of fit")
    found = proba.argmax(axis=1)
    pairs = Counter(zip(truth.tolist(), found.tolist(), strict=True))
    wrong = [(n, a, b) for (a, b), n in pairs.items() if a != b]
    wrong.sort(key=lambda item: (-item[0], item[1:]))
    share = np.clip(proba[np.arange(truth.size), truth], 1e-300, 1.0)
    return {
        "n": int(truth.size),
        "accuracy": float((truth == found).mean()),
        "log_loss": float(-np.log(share).mean()),
        "confusion": sorted([a, b, n] for (a, b), n in pairs.items()),
        "confused": [[a, b, n] for n, a, b in wrong[:_PAIRS]],
        **calibration_curve(proba.max(axis=1), truth == found),
    }


def calibration_curve(sure: NDArray[np.floating[Any]], right: NDArray[np.bool_]) -> dict[str, Any]:
    """Ten bins of the largest probability: its mean, how often it was right, rows; and the ECE."""
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    bins = []
    for k in range(_BINS):
        here = place == k
        if here.any():
            bins.append([float(sure[here].mean()), float(right[here].mean()), int(here.sum())])
    return {"calibration": bins, "calibration_error": calibration_error(sure, right)}


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(plain(value))
    return text if len(text) <= 120 else text[:119] + "…"
