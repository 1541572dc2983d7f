"""Does a metric of low rank help where there are many features? MNIST and Fashion-MNIST.

1000 memories and the conditional objective on whitened rows: they are seen along 149 principal
axes, among which the metric is learned. `python -m research conditional` has the same without one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import mnemosphere as mn
from mnemosphere import data
from research import report
from research.field import scores
from research.report import Json

SETS = ("mnist", "fashion-mnist")
MEMORIES = 1000


def measure(
    folder: Path, command: str, wanted: list[str] | None, seed: int, device: str, *, again: bool
) -> None:
    """Measure what is missing, and store each as it comes."""
    path = folder / "images.json"
    stored: Json = report.read_json(path, "delete it") if path.exists() else {"cells": {}}
    for name in (name for name in SETS if not wanted or name in wanted):
        key = f"{name}: low rank, seed {seed}"
        if key in stored["cells"] and not again:
            continue
        model = mn.DAMClassifier(
            MEMORIES, normalize="whitened", objective="conditional", random_state=seed,
            device=device,
        )  # fmt: skip
        cell = one(model, data.load(name))
        stored["cells"][key] = {"set": name, "seed": seed, **cell}
        print(f"{key} {cell}", flush=True)
        cells = dict(sorted(stored["cells"].items()))
        seeds = sorted({c["seed"] for c in cells.values()})
        stored = {
            **report.head(command, seeds=seeds, device=device),
            "memories": MEMORIES,
            "cells": cells,
        }
        report.write(path, stored)


def one(model: Any, table: Any) -> Json:
    """Accuracy and log-loss of the test rows, and seconds of the fit by the clock."""
    began = time.perf_counter()
    model.fit(table.x_train, table.y_train)
    seconds = time.perf_counter() - began
    p = np.asarray(model.predict_proba(table.x_test))
    return {
        "accuracy": round(float((model.classes_[p.argmax(1)] == table.y_test).mean()), 4),
        "log_loss": round(scores.log_loss(p, table.y_test), 4),
        "seconds": round(seconds, 2),
        "coordinates": int(model.params_.n_features),
    }
