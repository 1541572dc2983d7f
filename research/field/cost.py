"""Curves of cost: processor time of fit and of predicting 1,000 rows, and the largest memory of a fit.

On synthetic mixtures of ten Gaussian clusters per class; one of rows, features, classes and memories is
changed at a time. A curve ends where a fit has taken more than LIMIT seconds.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import mnemosphere as mn
from research import jobs, report
from research.field import methods
from research.field.parts import Seconds
from research.report import Json

BASE = {"rows": 2000, "features": 20, "classes": 5}
AXES = {
    "rows": (250, 1000, 4000, 16_000, 64_000, 250_000),
    "features": (5, 20, 80, 320, 2000),
    "classes": (2, 10, 50, 200, 500),
    "memories": (10, 40, 160, 640),
}
LIMIT = {True: 150.0, False: 5.0}  # of ours, of others


def mixture(rows: int, features: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows and classes."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(10 * classes, features))
    cluster = rng.integers(10 * classes, size=rows)
    cluster[: 10 * classes] = np.arange(10 * classes)[:rows]  # no class without a row
    return centers[cluster] + 0.7 * rng.normal(size=(rows, features)), cluster % classes


def measure(folder: Path, command: str, wanted: list[str] | None, n_jobs: int) -> None:
    """Measure all curves, or those of some methods, and store them."""
    # Explainable boosting would take hours.
    names = [n for n in methods.CLASSIFIERS if n != methods.EXPLAINABLE and n in (wanted or [n])]
    work = [(axis, n) for axis in AXES for n in names if axis in BASE or n == methods.OURS]
    curves = {
        f"{axis}: {name}": points for (axis, name), points in jobs.finished(curve, work, n_jobs)
    }
    head = {**report.head(command), "threads": jobs.threads(n_jobs), "base": BASE}
    report.write(folder / "cost.json", {**head, "curves": dict(sorted(curves.items()))})


def curve(axis: str, name: str) -> list[Json]:
    """Along one axis. With a given number of memories, ours has the joint objective."""
    points: list[Json] = []
    for value in AXES[axis]:
        shape = BASE | ({axis: value} if axis in BASE else {})
        shape["rows"] = max(shape["rows"], 10 * shape["classes"])  # 500 classes need more
        model = methods.CLASSIFIERS[name](methods.Case(*shape.values(), seed=0))
        if axis == "memories":
            model = mn.DAMClassifier(objective="joint", n_memories=value, random_state=0)
        points.append({axis: value, **one(model, shape)})
        print(f"{axis}: {name} {points[-1]}", flush=True)
        if points[-1]["fit_seconds"] > LIMIT[name == methods.OURS]:
            break
    return points


def one(model: Any, shape: dict[str, int]) -> Json:
    """Seconds of one fit and of predicting 1,000 rows."""
    x, y = mixture(**shape)
    new, _ = mixture(1000, shape["features"], min(shape["classes"], 100), seed=1)
    seconds = Seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _forget_largest_memory()
        with seconds.of("fit_seconds"):
            model.fit(x, y)
        memory = _largest_memory()
        with seconds.of("predict_seconds"):
            model.predict(new)
    return dict(seconds.spent) | ({} if memory is None else {"megabytes": memory})


def _forget_largest_memory() -> None:
    """Let the system count the largest memory of this process anew (Linux)."""
    place = Path("/proc/self/clear_refs")
    if place.exists():
        place.write_text("5", encoding="ascii")


def _largest_memory() -> int | None:
    """Megabytes that this process has held at most since then; None: the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = status.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) // 1000 for line in lines if line.startswith("VmHWM"))
