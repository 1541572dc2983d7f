"""Explanations on ten tables: are they true, stable, and of use?

    python -m research explanations --vectors DIR --jobs 2

Of each table up to 1,500 rows; a fifth is explained, two default models are fitted to nine tenths of the
others. *Stable*: both models have the same strongest column, for the same class. *As Shapley values*: so do
the pulls and Shapley values of the same log-odds, by permutations against training rows. *Alike*: distance on
the sphere to the known rows shown, beside the nearest of all and random ones; how often one of three has the
true label. *Held*: rows with a counterfactual that the second model confirms, for a probability of 0.5 and 0.9.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mnemosphere as mn
from research import report
from research.benchmarks._options import run_parts

TABLES = (
    "pima", "votes", "satellite", "crabs", "olive", "credit", "vertebral", "transfusion", "scat", "sonar",
)  # fmt: skip
_MOST, _EXPLAINED, _PERMUTATIONS = 1500, 20, 40
Floats = NDArray[np.float64]


def shapley(clf: mn.DAMClassifier, x: Floats, pair: list[int], known: Floats) -> Floats:
    """Shapley values of the log-odds of two classes at a row (N,), by permutations and their reverses."""
    rng, n, found = np.random.default_rng(7), len(x), np.zeros(len(x))
    for order in (rng.permutation(n) for _ in range(_PERMUTATIONS)):
        row = known[rng.integers(len(known))]
        for own in (order, order[::-1]):
            steps = np.tile(row, (n + 1, 1))
            for k, j in enumerate(own):
                steps[k + 1 :, j] = x[j]
            said = clf.predict_log_proba(steps)[:, pair]
            found[own] += np.diff(said[:, 0] - said[:, 1])
    return found / (2 * _PERMUTATIONS)


def strongest(why: Any, row: int) -> tuple[str, Any]:
    """The column that pulls most, and the class that it speaks for."""
    pull = why.pulls(row)[0]
    return pull.column, (why.predicted if pull.pull > 0 else why.runner_up)[row]


def measure(data: Path, name: str, _: int) -> report.Json:
    """What was found on one table."""
    with np.load(data / f"{name}.npz", allow_pickle=True) as stored:
        x, y = stored["X"], stored["y"]
    some = np.random.default_rng(1).permutation(len(x))[:_MOST]
    x, y, n = x[some], y[some], int(0.8 * len(some))
    parts = [np.random.default_rng(k).permutation(n)[: int(0.9 * n)] for k in (10, 11)]
    one, two = (mn.DAMClassifier(random_state=k).fit(x[own], y[own]) for k, own in enumerate(parts))
    asked, truth, known = x[n:][:_EXPLAINED], y[n:], x[parts[0]]
    why, again = one.explain(asked), two.explain(asked)
    found: dict[str, list[float]] = {}

    def note(what: str, value: float) -> None:
        found.setdefault(what, []).append(float(value))

    model = one.model_
    placed = model.on_sphere(known)[0].nan_to_num(0.0).double().numpy()
    unit = model.on_sphere(asked)[0].nan_to_num(0.0).double().numpy()
    rng = np.random.default_rng(0)
    for row in range(len(asked)):
        top = strongest(why, row)
        note("stable", top == strongest(again, row))
        pair = np.argsort(-why.proba[row], kind="stable")[:2].tolist()
        value = shapley(one, asked[row], pair, known)
        j = int(np.abs(value).argmax())
        note("as Shapley values", top == (f"x{j}", one.classes_[pair[int(value[j] <= 0)]]))
        rows = why.similar_rows(row)
        away = np.sqrt(np.maximum(2 - 2 * placed @ unit[row], 0))
        note("shown", np.mean([np.sqrt(max(2 - 2 * own.similarity, 0)) for own in rows]))
        note("nearest", np.sort(away)[:3].mean())
        note("random", rng.choice(away, 3).mean())
        note("a label is true", truth[row] in [own.label for own in rows])
    for what, probability in (("held", 0.5), ("held surely", 0.9)):
        other = one.counterfactual(asked, probability=probability)
        note(what, np.mean(other.found & (two.predict(other.rows) == other.wanted)))
    return {what: float(np.mean(values)) for what, values in found.items()}


def main(argv: list[str]) -> None:
    """Measure every table."""
    run_parts(argv, __doc__, "explanations", measure, TABLES, 1)
