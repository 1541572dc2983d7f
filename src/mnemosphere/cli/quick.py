"""`predict` in NumPy: to import torch and scikit-learn takes longer than to predict some rows.

What a model file holds of a classifier is enough for probabilities, novelty and the memories that
decided, the formulas of `model.class_reading`, `model.retrieval` and `model.gaps`. Rows
without direction or of extreme size, other models, and many rows are left to the estimators.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemosphere.data.encoding import Encoding, is_frame
from mnemosphere.files import opened
from mnemosphere.schema import maybe, number

Floats = NDArray[np.float64]

FORMAT, VERSION = "mnemosphere-model", 3  # of `estimators.persistence`
_MOST = 1 << 27  # products of rows, memories and coordinates
_LARGEST, _SMALLEST = 1e100, 1e-100
_FLAT = 1e-9  # a centered row that short is constant, perhaps


class QuickModel:
    """A classifier read from its file, for rows as most are."""

    def __init__(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        own, classes = header["own"], header["classes"]
        _check(own, len(classes["values"]), arrays)
        self.classes_ = np.array(classes["values"], dtype=np.dtype(classes["dtype"]))
        self.n_features_in_ = header["n_features_in"]
        self.novelty_threshold_ = own["novelty_threshold"]
        if header["feature_names"]:
            self.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        self._encoding = Encoding.from_json(header["columns"]) if header["columns"] else None
        self._kind = header["normalize"]
        self._found = {name: array for name, array in arrays.items() if "lineage" not in name}
        self._w = arrays["params.w"].astype(np.float64)
        self._beta_eff = float(arrays["params.beta"]) * float(arrays["params.varsigma"])
        self._log_ratio = float(arrays["own.log_ratio"])
        self._temperature = own["temperature"]

    def unit_rows(self, X: Any) -> Floats | None:
        """Rows on the sphere, (n, N'), NaN in gaps; None where they are not for this class."""
        try:
            x: Floats = self._encoding(X) if self._encoding is not None else _numbers(X)
        except (TypeError, ValueError):
            return None
        if len(x) * self._w.size > _MOST or x.shape[1] < 1:
            return None
        gaps, n = np.isnan(x), x.shape[1]
        learned = ("mean", "scale", "energy", "metric")
        mean, scale, energy, metric = (self._found.get(f"normalizer.{name}") for name in learned)
        if mean is not None and scale is not None:
            z = np.where(gaps, 0.0, (x - mean) / scale)
            x = np.hstack([z, np.full((len(x), 1), n**0.5)])
        elif gaps.any():  # a neutral value: one that becomes 0 on the sphere
            known = np.where(gaps, 0.0, x)
            middle = known.sum(1, keepdims=True) / np.maximum((~gaps).sum(1, keepdims=True), 1)
            x = np.where(gaps, middle if self._kind == "center" else 0.0, x)
        peak = np.abs(x).max(axis=1)
        if not ((peak < _LARGEST) & (peak > _SMALLEST)).all():  # NaN is neither
            return None
        if self._kind == "center":
            x = x - x.mean(axis=1, keepdims=True)
            if not (np.abs(x).max(axis=1) > _FLAT * peak).all():
                return None
        if metric is not None:
            x = x @ metric.T
        norm = np.linalg.norm(x, axis=1, keepdims=True)
        if x.shape[1] != self._w.shape[1] or not norm.all():
            return None
        x = x / norm
        if metric is not None or not gaps.any():
            return x
        if mean is not None:  # the norm of what is known, as `Normalizer.with_gaps` has it
            known = 1 / (1 + gaps.sum(1) * x[:, -1] ** 2 / n)
            gaps = np.hstack([gaps, np.zeros((len(x), 1), bool)])
        else:
            known = np.where(gaps, 0.0, 1 / n if energy is None else energy).sum(1)
        x = x * np.sqrt(np.where(gaps.any(1), known, 1.0))[:, None]
        return np.where(gaps, np.nan, x)

    def _overlaps(self, x: Floats, beta_eff: float) -> Floats:
        """β_eff⟨w, x⟩ (n, P), over the gaps the mean of its exponential, as `model.gaps` has it."""
        unknown = np.isnan(x)
        known = np.where(unknown, 0.0, x)
        h: Floats = beta_eff * (known @ self._w.T)
        if not unknown.any():
            return h
        m = unknown.sum(1, keepdims=True)
        a, b = np.maximum((m - 1) / 2, 0.0), (m + 1) / 2
        room = np.maximum(1 - (known**2).sum(1, keepdims=True), 0.0) * (m > 0)
        root = np.hypot(beta_eff * np.sqrt(room * (unknown @ self._w.T**2)), b)
        h += root - b - a * np.log((a + root) / (a + b))
        return h

    def predictions(self, x: Floats, n_memories: int) -> tuple[Floats, dict[str, NDArray[Any]]]:
        """(probabilities (n, C), novelty, whether a row is novel, deciding memories) of unit rows.

        The columns are those of `predict`; their names too.
        """
        h = self._overlaps(x, self._beta_eff) - self._log_ratio  # (n, P)
        prior = self._found["params.p_h"].astype(np.float64)
        density = _log_sum(np.log(np.maximum(prior[1:], 1e-300)) + h)
        with np.errstate(over="ignore"):
            novelty = prior[0] / (prior[0] + np.exp(density)) if prior[0] > 0 else 0 * density
        columns: dict[str, NDArray[Any]] = {"novelty": novelty}
        if self.novelty_threshold_ is not None:
            columns["novel"] = -density > self.novelty_threshold_
        net = self._found["own.net_class_weights"].astype(np.float64)  # (P+1, C+1)
        weight = np.maximum(net.sum(1), np.finfo(np.float64).tiny)
        t = self._temperature
        h = self._overlaps(x, self._beta_eff / t) - self._log_ratio / t
        score = np.hstack([np.zeros((len(x), 1)), h]) + np.log(weight)
        share = np.exp(score - _log_sum(score)[:, None])
        proba = share @ (net[:, :-1] / weight[:, None])
        best = np.argsort(-share[:, 1:], axis=1, kind="stable")[:, :n_memories]
        for k in range(best.shape[1]):
            columns[f"memory_{k + 1}"] = np.array([f"#{m}" for m in best[:, k]])
            columns[f"share_{k + 1}"] = np.take_along_axis(share, best[:, k : k + 1] + 1, 1)[:, 0]
        return proba / proba.sum(axis=1, keepdims=True), columns


def read_quick(path: Path) -> QuickModel | None:
    """The classifier in a model file; None where the file is for the estimators to judge."""
    try:
        with opened(path, FORMAT, VERSION) as (header, arrays):
            if header["estimator"] != "DAMClassifier" or header["normalize"] == "none":
                return None
            return QuickModel(header, arrays())
    except (AttributeError, IndexError, KeyError, MemoryError, OSError, OverflowError,
            RecursionError, SyntaxError, TypeError, ValueError):  # fmt: skip
        return None


def _check(own: dict[str, Any], n_classes: int, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise ValueError where a file with the right checksum holds no sound model all the same."""
    number(0, _LARGEST, above=True)(own["temperature"], "temperature")
    maybe(number(-_LARGEST, _LARGEST))(own["novelty_threshold"], "novelty_threshold")
    p, n = arrays["params.w"].shape
    shapes = {"params.w": (p, n), "params.p_h": (p + 1,), "params.beta": (),
              "params.varsigma": (), "own.log_ratio": (),
              "own.net_class_weights": (p + 1, n_classes + 1)}  # fmt: skip
    for name in [*shapes, *(name for name in arrays if name.startswith("normalizer."))]:
        array = arrays[name]
        if array.dtype.kind != "f" or array.shape != shapes.get(name, array.shape):
            raise ValueError(f"{name} is {array.shape} of {array.dtype}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has numbers that are not finite")
    net = arrays["own.net_class_weights"]
    if net.min() < 0 or np.abs(net.sum(1) - arrays["params.p_h"]).max() > 1e-3:
        raise ValueError("net_class_weights and the weights of memories differ")


def _numbers(X: Any) -> Floats:
    return np.asarray(X.to_numpy() if is_frame(X) else X).astype(np.float64)


def _log_sum(x: Floats) -> Floats:
    top: Floats = x.max(axis=1)
    found: Floats = top + np.log(np.exp(x - top[:, None]).sum(axis=1))
    return found
