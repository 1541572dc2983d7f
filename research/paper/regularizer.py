"""Sec. (learning_eff_loss): why ς; β learned at ς = 1, and effective against true predictions.

At ς = 1 the paper finds that "β increases so quickly that many memories still stay stuck in noisy
states", and with ς < 1 it predicts by the effective density, exponent ςβ, instead of the true one.
"""

from __future__ import annotations

from research.paper.classification import (
    NAMES,
    SOLVERS,
    compared,
    cost,
    label,
    learned,
    settings,
    train_and_gather,
)
from research.paper.experiment import Experiment
from research.report import Comparison, Json

_CASES = ("varsigma=1", "varsigma=0.25")


def _settings(quick: bool) -> Json:
    cases = [learned(varsigma, start=20.0 if quick else 1.0) for varsigma in (1.0, 0.25)]
    return settings(cases, 1000, quick=quick, quick_memories=16, quick_passes=2)


def _compare(measured: Json) -> list[Comparison]:
    found = []
    for solver in SOLVERS:
        for case in _CASES:
            name, ours = label(case), solver == "sgd"
            bounds: Json = {}
            if ours:  # "many" against hardly any
                bounds = {"paper": "many", "low": 20.0, "high": 100.0}
                if case != _CASES[0]:
                    bounds = {"paper": "few", "low": 0.0, "high": 2.0}
            note = cost(measured["rows"], case, solver)
            found += compared(measured, case, solver, f"{name}: accuracy", "accuracy", note=note)
            found += compared(
                measured, case, solver, f"{name}: noisy memories", "memory", "noisy", digits=1,
                **bounds,
            )  # fmt: skip
        found += compared(
            measured, _CASES[1], solver, f"{label(_CASES[1])}: accuracy of true predictions",
            "accuracy_true",
        )  # fmt: skip
    return found


EXPERIMENTS = (
    Experiment(
        "regularizer",
        f"Sec. (learning_eff_loss): β learned at ς = 1 and ς = 0.25, {NAMES['sgd']}",
        _settings,
        train_and_gather,
        compare=_compare,
        seeds=2,
    ),
)
