"""Sec. (DAM_model): weights p_h of the hidden units other than equal ones.

The paper's runs without splitting hold p_h equal. Splitting does not: it halves the weight of what
it splits, so that in the end some memories weigh half of others. Here equal weights stand beside
such halves and beside weights that fall as 1/rank.
"""

from __future__ import annotations

from research.paper.classification import (
    SOLVERS,
    compared,
    cost,
    label,
    learned,
    mean,
    settings,
    train_and_gather,
    values,
)
from research.paper.experiment import Experiment
from research.report import Comparison, Json

SHARES = {"equal": "equal weights", "halved": "half of them halved", "falling": "weights by rank"}


def _name(shares: str) -> str:
    return f"varsigma=0.25, {SHARES[shares]}"


def _settings(quick: bool) -> Json:
    start = learned(0.25, start=20.0 if quick else 1.0)
    cases = [{**start, "name": _name(shares), "shares": shares} for shares in SHARES]
    return settings(cases, 1000, quick=quick, quick_memories=16, quick_passes=2)


def _compare(measured: Json) -> list[Comparison]:
    found, rows = [], measured["rows"]
    for solver in SOLVERS:
        equal = mean(values(rows, _name("equal"), solver, "accuracy"))
        for shares in SHARES:
            case = _name(shares)
            note = cost(rows, case, solver)
            found += compared(measured, case, solver, label(case), "accuracy", note=note)
            if shares == "halved" and solver == "sgd":  # "similar accuracy" with splitting
                gap = mean(values(rows, case, solver, "accuracy")) - equal
                found.append(
                    Comparison(
                        "SGD: points lost where half of the weights are halved",
                        -gap, "about 0", -0.2, 0.2, "",
                    )
                )  # fmt: skip
    return found


EXPERIMENTS = (
    Experiment(
        "prior",
        "Sec. (DAM_model): weights of hidden units other than equal",
        _settings,
        train_and_gather,
        compare=_compare,
        seeds=3,
    ),
)
