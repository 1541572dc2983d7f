"""Curves of cost: processor time of fit and of predicting 1,000 rows, on drawn mixtures.

Ten Gaussian clumps per class; one of rows, features, classes and memories is changed at a time. A
curve ends where a fit has taken more than LIMIT seconds.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import mnemosphere as mn
from research import report
from research.field import methods
from research.field.parts import stopwatch
from research.field.peers import LVQ, KMeansPrototypes
from research.report import Json

BASE = {"rows": 2000, "features": 20, "classes": 5}
AXES = {
    "rows": (250, 1000, 4000, 16_000),
    "features": (5, 20, 80, 320),
    "classes": (2, 10, 50, 200),
    "memories": (10, 40, 160, 640),
}
LIMIT = 15.0
NAMES = (
    methods.OURS, methods.NEIGHBORS, methods.LOGISTIC, methods.SVM, "random forest",
    "gradient boosting", "GMLVQ",
)  # fmt: skip
# With a given number of memories or prototypes.
SIZED = {
    methods.OURS: lambda n, c: mn.DAMClassifier(objective="joint", n_memories=n, random_state=0),
    "k-means prototypes": lambda n, c: methods.scaled(KMeansPrototypes(n)),
    "GLVQ": lambda n, c: methods.scaled(LVQ(per_class=n // c)),
}


def mixture(rows: int, features: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows and classes."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(10 * classes, features))
    clump = rng.integers(10 * classes, size=rows)
    clump[: 10 * classes] = np.arange(10 * classes)[:rows]  # no class without a row
    return centers[clump] + 0.7 * rng.normal(size=(rows, features)), clump % classes


def measure(folder: Path, command: str, wanted: list[str] | None, *, again: bool) -> None:
    """Measure the curves that are missing, and store each as it comes."""
    path = folder / "cost.json"
    stored: Json = report.read_json(path, "delete it") if path.exists() else {"curves": {}}
    for axis, values in AXES.items():
        makes: dict[str, Any] = SIZED if axis == "memories" else dict.fromkeys(NAMES)
        for name in makes:
            key = f"{axis}: {name}"
            left_out = (wanted and name not in wanted) or not methods.installed(name)
            if left_out or (key in stored["curves"] and not again):
                continue
            points = []
            for value in values:
                shape = BASE | ({axis: value} if axis in BASE else {})
                case = methods.Case(shape["rows"], shape["features"], shape["classes"], 0)
                make = makes[name]
                model = make(value, case.n_classes) if make else methods.CLASSIFIERS[name](case)
                points.append({axis: value, **one(model, shape)})
                print(f"{key} {points[-1]}", flush=True)
                if points[-1]["fit_seconds"] > LIMIT:
                    break
            stored["curves"][key] = points
            stored = {**report.head(command), "threads": 1, "base": BASE, **_curves(stored)}
            report.write(path, stored)


def _curves(stored: Json) -> Json:
    return {"curves": dict(sorted(stored["curves"].items()))}


def one(model: Any, shape: dict[str, int]) -> Json:
    """Seconds of one fit and of predicting 1,000 rows."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    x, y = mixture(**shape)
    new, _ = mixture(1000, shape["features"], min(shape["classes"], 100), seed=1)
    fit: list[float] = []
    predict: list[float] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with stopwatch(fit):
            model.fit(x, y)
        with stopwatch(predict):
            model.predict(new)
    return {"fit_seconds": fit[0], "predict_seconds": predict[0]}
