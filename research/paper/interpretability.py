"""Fig. (DAM_memories): memories with their soft labels, and how far the nearest one decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from research.paper.classification import (
    SOLVERS,
    compared,
    cost,
    galleries,
    key,
    learned,
    settings,
    train_and_gather,
)
from research.paper.experiment import Experiment, load_arrays, save_picture
from research.plots.gallery import memory_gallery
from research.report import Comparison, Json

_SIDE = (28, 28)
_DIGITS = tuple(range(10))
# "Approximately": the paper's number, and what agrees with it. Of wrong rows there are few.
_FIDELITY = {"all": (98, 97.0, 99.0), "correct": (99, 98.0, 100.0), "wrong": (70, 62.0, 78.0)}


def _settings(quick: bool) -> Json:
    cases = [learned(0.25, start=20.0 if quick else 1.0)]
    return settings(cases, 2000, quick=quick, quick_memories=64, quick_passes=8)


def _compare(measured: Json) -> list[Comparison]:
    found = []
    for solver in SOLVERS:
        note = cost(measured["rows"], "varsigma=0.25", solver)
        found += compared(measured, "varsigma=0.25", solver, "accuracy", "accuracy", note=note)
        for rows, (paper, low, high) in _FIDELITY.items():
            bounds = {"paper": f"{paper}%", "low": low, "high": high} if solver == "sgd" else {}
            what = f"fidelity, {rows} rows"
            found += compared(measured, "varsigma=0.25", solver, what, "fidelity", rows, **bounds)
    return found


def _draw(result: Json, folder: Path) -> list[Path]:
    arrays, rows = load_arrays(folder), galleries(result)
    found = []
    for solver, name in (("sgd", "fig3"), ("fixed-point", "fig3-fixed-point")):
        row = rows["varsigma=0.25", solver]
        w = arrays[f"w {key(row)}"].astype(np.float64)
        soft = arrays[f"soft {key(row)}"].astype(np.float64)
        # The gallery leaves out a first row for the uniform component.
        p = np.concatenate([soft[:1], soft])
        figure = memory_gallery(w, p, classes=_DIGITS, image_shape=_SIDE)
        found.append(save_picture(figure, folder, name, result))
    return found


EXPERIMENTS = (
    Experiment(
        "fig3",
        "Fig. (DAM_memories): memories and soft labels at ς = 0.25; nearest-memory fidelity",
        _settings,
        train_and_gather,
        _draw,
        _compare,
        seeds=5,
    ),
)
