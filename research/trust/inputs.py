"""Rows of every type and size, settings alone and in pairs: a sound model or a clear error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse

import mnemosphere as mn
from research.trust import Attempt

SCALES = [1.0, 1.0, 1.0, 5e-324, 1e-300, 1e-160, 1e-30, 1e-6, 1e6, 1e30, 1e150, 1e160, 1e300, 1e308]
TYPES = ["float16", "float32", "float64", "longdouble", "int8", "int16", "int32", "int64", "uint8",
         "uint16", "uint32", "uint64", "bool"]  # fmt: skip
SMALL = {"n_memories": 4, "normalize": "unit", "varsigma": 0.9, "max_iter": 2, "random_state": 0}
IMAGES = {"image_shape": (4, 4), "patch": 2, "grid": 2, "n_memories": 3, "max_iter": 2,
          "random_state": 0}  # fmt: skip
_KINDS = ["auto", "center", "unit", "standard", "whitened", "weighted", "none", "sideways", "",
          3, None]  # fmt: skip
_REALS = [0, 0.0, 1, 1.0, 0.5, 2, -1, 1e-300, 1e-12, 1e12, 1e300, math.nan, math.inf, -math.inf,
          True, "auto", "", None, [1.0], np.float32(0.3), np.array(0.5), 5e-324]  # fmt: skip
_COUNTS = [0, 1, 2, 3, 5, 50, 10**6, 10**30, -1, 2.0, 2.5, math.nan, True, "auto", "", None, [2],
           np.int8(3), np.float64(3.0)]  # fmt: skip
_SOLVERS = ["fixed-point", "sgd", "adam", None, 3, mn.FixedPoint(None), mn.FixedPoint(1),
            mn.FixedPoint(7), mn.FixedPoint(7, half_life=1e-300), mn.FixedPoint(7, half_life=1e300),
            mn.FixedPoint(None, learn_beta=False, learn_weights=True), mn.SGD(batch_size=3),
            mn.SGD(1e30), mn.SGD(1e-300, 0.0),
            mn.SGD(0.1, 0.999999, validation_fraction=0.999999), mn.SGD.paper(),
            mn.SGD(validation_fraction=1e-12, batch_size=5), mn.Adam(), mn.Adam(noise=1e300),
            mn.Adam(noise=0.0, batch_size=1), mn.Adam(angle=1e300, learning_rate=1e-300),
            mn.Adam(decay=(0.0, 0.0), batch_size=10**30)]  # fmt: skip
COMMON = {
    "n_memories": _COUNTS, "growth": _COUNTS, "varsigma": _REALS, "beta": [*_REALS, "learn"],
    "normalize": _KINDS, "solver": _SOLVERS, "max_iter": [1, 2, 3, 0, -1, 2.5, None, "many"],
    "tol": _REALS, "uniform_weight": _REALS,
    "precision": ["auto", "float32", "float64", "float16", None, torch.float32],
    "device": ["auto", "cpu", "cuda:99", "tpu", "", None, "meta"],
    "random_state": [0, 1, 2**32 - 1, 2**32, 2**63, -1, 1.5, "x", None, np.random.RandomState(0)],
    "callbacks": [(), [], None, [3], "ab", mn.Callback()], "encoder": [None, 3, "x"],
}  # fmt: skip
_NO_IMAGES = {"growth", "varsigma", "solver", "uniform_weight", "callbacks"}
CHANGES: dict[str, dict[str, list[Any]]] = {
    "DAMClassifier": COMMON | {
        "objective": ["joint", "conditional", "auto", 0, 0.5, math.nan, None, "x"],
        "search": ["auto", None, 1, 2, 10**30, 0, -1, 2.5, math.nan, "x", [1]],
        "label_smoothing": _REALS, "unlabeled": [None, 0, -1, "a", math.nan, object()],
        "class_weight": [None, "balanced", {}, {0: 1.0}, {0: 0.0, 1: 0.0}, {0: 1e300, 1: 1e-300},
                         {"a": math.nan}, {0: -1}, "x", 3],
    },
    "DAMClusterer": COMMON | {
        "n_clusters": _COUNTS, "smoothing": _REALS,
        "class_prior": ["auto", [], [1.0], [0.5, 0.5], [1e300, 1e-300], [0.0, 1.0], [math.nan],
                        "x", None, 3, [[0.5, 0.5]], np.ones(2)],
    },
    "PatchEncoder": {key: values for key, values in COMMON.items() if key not in _NO_IMAGES} | {
        "image_shape": [(4, 4), [4, 4], (16,), (2, 2, 4), (16, 1), (3, 5), (0, 16), (-4, -4),
                        (4.0, 4), ("a", 4), (), 16, None, (10**30, 1)],
        "patch": [*_COUNTS, (1, 3), [2, (3, 1)], (0, 2), [], [[]], ("a",), (2.5, 2), 10**30],
        "stride": _COUNTS, "grid": [*_COUNTS, (1, 3), (0, 1), (), (2, 2, 2)], "power": _REALS,
        "n_patches": _COUNTS,
    },
}  # fmt: skip


def table(rng: np.random.Generator, features: int) -> Any:
    """Rows of some type, size, scale and shape, all of them finite; some have gaps."""
    n = int(rng.choice([1, 2, 5, 17, 29]))
    x = rng.normal(size=(n, features)) + 3 * rng.integers(0, 3, size=(n, 1))
    with np.errstate(all="ignore"):
        if rng.random() < 0.5:
            x = x * rng.choice(SCALES)
        if rng.random() < 0.2:
            x = x * rng.choice(SCALES, size=features)
        if rng.random() < 0.2:
            x = x + rng.choice(SCALES) * rng.choice([-1, 1])
        if rng.random() < 0.15:
            x[:, int(rng.integers(features))] = rng.choice(SCALES)
        if rng.random() < 0.15:
            x[int(rng.integers(n))] = 0.0
        if rng.random() < 0.15:
            x = x[rng.integers(0, n, size=n)]
        kind = np.dtype(str(rng.choice(TYPES)))
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            at_the_ends = rng.random() < 0.5
            low, high = (limits.min, limits.max) if at_the_ends else (0, 100)
            x = rng.integers(low, high, size=x.shape, dtype=kind, endpoint=True)
        elif kind.kind == "f":
            top = float(np.finfo(kind).max) if kind.itemsize <= 8 else 1e308
            x = np.clip(np.nan_to_num(x), -top, top).astype(kind)
        else:
            x = x > 0
    form = rng.choice(["array", "array", "list", "frame", "tensor", "order", "turned", "locked",
                       "sparse", "gaps", "mixed"])  # fmt: skip
    if form == "list":
        return x.tolist()
    if form == "frame" and kind.itemsize <= 8:
        return pd.DataFrame(x, columns=[f"c{i}" for i in range(features)])
    if form == "tensor" and kind.name in ("float32", "float64", "int64", "uint8", "bool"):
        return torch.from_numpy(x.copy())
    if form == "sparse" and kind.itemsize <= 8 and kind.name not in ("float16", "bool"):
        return sparse.csr_matrix(np.where(rng.random(x.shape) < 0.5, x, x.dtype.type(0)))
    if form == "gaps" and kind.kind == "f":
        return np.where(rng.random(x.shape) < 0.1, np.array(np.nan, dtype=kind), x)
    if form == "mixed" and kind.itemsize <= 8 and features < 16:
        words = np.array(["a", "b", None, "[red]"], dtype=object)[rng.integers(0, 4, size=n)]
        days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, size=n), "D")
        return pd.DataFrame(x).set_axis([f"c{i}" for i in range(features)], axis=1).assign(
            word=words, day=days, kind=pd.Categorical(words)
        )  # fmt: skip
    if form == "order":
        return np.asfortranarray(x)
    if form == "turned":
        return x[::-1]
    if form == "locked":
        x.flags.writeable = False
    return x


def labels(n: int, rng: np.random.Generator) -> Any:
    """Labels of some type."""
    index = rng.integers(0, int(rng.integers(1, 4)), size=n)
    kinds: list[Any] = [
        index, index, index, np.array(["a", "b", "c"])[index], index.astype(bool),
        index.astype(np.float64), index.tolist(), np.array([2**62, -(2**62), 7])[index],
        np.eye(3)[index], np.full((n, 2), 0.4), pd.Series(index).astype("category"),
    ]  # fmt: skip
    return kinds[int(rng.integers(len(kinds)))]


def weights(n: int, rng: np.random.Generator) -> Any:
    """Sample weights, most of the time none."""
    kinds: list[Any] = [None] * 6 + [
        np.ones(n), rng.random(n) * 1e300, rng.random(n) * 1e-300, (np.arange(n) % 2).astype(float),
        10.0 ** rng.uniform(-300, 300, size=n), np.full(n, 5e-324),
    ]  # fmt: skip
    return kinds[int(rng.integers(len(kinds)))]


def sound(model: Any, x: Any) -> str:
    """Whether all numbers of a fitted model are finite and its answers are what they must be."""
    if isinstance(model, mn.PatchEncoder):
        counts = np.asarray(model.transform(x))
        fine = np.isfinite(counts).all() and (counts >= 0).all()
        return "a sound model" if fine else "not finite"
    answers = [np.asarray(model.transform(x)), np.asarray(mn.interpret.novelty(model.model_, x)),
               np.asarray(mn.interpret.score_samples(model.model_, x)),
               np.asarray(model.predict_proba(x))]  # fmt: skip
    model.predict(x)
    numbers = [model.memories_, model.class_weights_, np.array(model.beta_), *answers]
    if not all(np.isfinite(a).all() for a in numbers):
        return "not finite"
    share, novel, _, proba = answers
    ranges = (share >= 0).all() and (share <= 1.001).all() and (novel >= 0).all()
    sums = np.abs(proba.sum(1) - 1).max() < 1e-4
    return "a sound model" if ranges and sums and (novel <= 1).all() else "another result"


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """Half of them rows, with the settings alone; half settings in pairs, on plain rows."""
    rng = np.random.default_rng(seed)
    plain = np.random.default_rng(0).normal(size=(23, 4)) + 3 * np.arange(23)[:, None] % 3
    pictures = np.random.default_rng(0).random((11, 16))
    for _ in range(n):
        name = str(rng.choice(list(CHANGES)))
        rows_drawn = rng.random() < 0.5
        images = name == "PatchEncoder"
        x = table(rng, 16 if images else int(rng.choice([1, 2, 3, 7]))) if rows_drawn else plain
        x = pictures if images and not rows_drawn else x
        count = x.shape[0] if hasattr(x, "shape") else len(x)
        y, weight = labels(count, rng), weights(count, rng) if rows_drawn else None
        settings: dict[str, Any] = dict(IMAGES if images else SMALL)
        if rows_drawn and not images:
            settings["normalize"] = str(rng.choice(_KINDS[:5]))
            settings["n_memories"] = "auto" if name == "DAMClusterer" else min(4, count)
        changed = rng.choice(list(CHANGES[name]), size=1 if rows_drawn else 2, replace=False)
        for key in changed if not rows_drawn or rng.random() < 0.3 else []:
            values = CHANGES[name][key]
            settings[str(key)] = values[int(rng.integers(len(values)))]

        def attempt(
            name: str = name, settings: Any = settings, x: Any = x, y: Any = y, weight: Any = weight
        ) -> str:
            model = getattr(mn, name)(**settings)
            try:
                more = {} if name == "PatchEncoder" else {"sample_weight": weight}
                model.fit(x, y, **more)
            except (TypeError, ValueError) as error:
                known = [*settings, "X", "y", "sample_weight", "row", "label", "weights", "class"]
                if not any(word in str(error) for word in known):
                    raise RuntimeError(f"names no parameter: {error}") from error
                raise ValueError(str(error)) from error
            return sound(model, x)

        kind = f"{type(x).__name__} {getattr(x, 'dtype', '')} {np.shape(x)}"
        yield f"{name} {settings} on {kind}, y {str(y)[:40]}, weight {str(weight)[:30]}", attempt
