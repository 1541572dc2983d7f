"""Table (accuracy_table): test accuracy at fixed β, and with β trained at ς = 0.25."""

from __future__ import annotations

from research.paper.classification import (
    cost,
    deviation,
    gather,
    held,
    label,
    learned,
    mean,
    settings,
    train_all,
    values,
)
from research.paper.experiment import Experiment, Run
from research.report import Comparison, Json

PAPER = {"beta=6": 79, "beta=10": 85, "beta=14": 89, "beta=18": 91, "varsigma=0.25": 96}
BETAS = (6, 10, 14, 18)


def _settings(quick: bool) -> Json:
    betas = BETAS[::3] if quick else BETAS
    cases = [*(held(beta) for beta in betas), learned(0.25, start=20.0 if quick else 1.0)]
    return settings(cases, 1000, quick=quick, quick_memories=36, quick_passes=8)


def _run(run: Run) -> Json:
    rows = train_all(run)
    gather(run, rows)
    return {"rows": rows}


def _compare(measured: Json) -> list[Comparison]:
    """79% is 78.5 to 79.5; another half point on both sides is for the seeds."""
    found = []
    cases = {row["case"] for row in measured["rows"]}
    known = {case: paper for case, paper in PAPER.items() if case in cases}
    for solver in ("sgd", "fixed-point"):
        for case, paper in known.items():
            accuracy = values(measured["rows"], case, solver, "accuracy")
            ours = solver == "sgd"
            found.append(
                Comparison(
                    what=f"{'SGD' if ours else 'fixed point'}, {label(case)}",
                    measured=round(mean(accuracy), 3),
                    spread=deviation(accuracy),
                    paper=f"{paper}%" if ours else "",
                    low=paper - 1.0 if ours else None,
                    high=paper + 1.0 if ours else None,
                    note=cost(measured["rows"], case, solver),
                )
            )
    return found


EXPERIMENTS = (
    Experiment(
        "table1",
        "Table (accuracy_table): accuracy at fixed β and with β trained at ς = 0.25",
        _settings,
        _run,
        compare=_compare,
        seeds=5,
    ),
)
