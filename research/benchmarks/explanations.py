"""Explanations on ten tables: are they true, stable, and of use?

    python -m research explanations --data DIR --jobs 2

Of each table up to 1,500 rows; a fifth is explained, two default models are fitted to nine tenths of the
others. *Stable*: both models have the same strongest column, for the same class. *As Shapley values*: so do
the pulls and Shapley values of the same log-odds, by permutations against training rows. *Alike*: distance on
the sphere to the known rows shown, beside the nearest of all and random ones; how often one of three has the
true label. *Answered*: share answered at a quarter of the mistakes, by the order of `accuracy=` and by the
largest probability. *Held*: counterfactuals at a probability that the second model confirms.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mnemosphere as mn
from mnemosphere.interpret.rejection import NEVER
from research import report
from research.benchmarks._options import parser
from research.jobs import finished

TABLES = (
    "pima", "votes", "satellite", "crabs", "olive", "credit", "vertebral", "transfusion", "scat", "sonar",
)  # fmt: skip
_MOST, _EXPLAINED, _PERMUTATIONS = 1500, 20, 40
_PROBABILITIES = (0.5, 0.9)
Floats = NDArray[np.float64]


def shapley(clf: mn.DAMClassifier, x: Floats, pair: list[int], known: Floats) -> Floats:
    """Shapley values of the log-odds of two classes at a row (N,), by permutations and their reverses."""
    rng, steps, orders = np.random.default_rng(7), [], []
    for _ in range(_PERMUTATIONS):
        order = rng.permutation(len(x))
        for own in (order, order[::-1]):
            row = known[rng.integers(len(known))].copy()
            steps.append(row.copy())
            for j in own:
                row[j] = x[j]
                steps.append(row.copy())
            orders.append(own)
    said = clf.predict_log_proba(np.array(steps))[:, pair]
    odds = (said[:, 0] - said[:, 1]).reshape(len(orders), -1)
    found = np.zeros(len(x))
    for own, line in zip(orders, odds, strict=True):
        found[own] += np.diff(line)
    return found / len(orders)


def strongest(why: Any, row: int) -> tuple[str, Any]:
    """The column that pulls most, and the class that it speaks for."""
    pull = why.pulls(row)[0]
    return pull.column, (why.predicted if pull.pull > 0 else why.runner_up)[row]


def answered(doubt: Floats, right: NDArray[np.bool_], target: float) -> float:
    """The largest share of the rows that can be answered, surest first, at this accuracy."""
    order = np.argsort(doubt, kind="stable")
    accuracy = right[order].cumsum() / np.arange(1, len(order) + 1)
    kept = (accuracy >= target) & np.isfinite(doubt[order])
    return float((np.flatnonzero(kept).max() + 1) / len(order)) if kept.any() else 0.0


def measure(data: Path, name: str) -> report.Json:
    """What was found on one table."""
    warnings.simplefilter("ignore")
    with np.load(data / "tables" / f"{name}.npz", allow_pickle=True) as stored:
        x, y = stored["X"], stored["y"]
    some = np.random.default_rng(1).permutation(len(x))[:_MOST]
    x, y, n = x[some], y[some], int(0.8 * len(some))
    parts = [np.random.default_rng(k).permutation(n)[: int(0.9 * n)] for k in (10, 11)]
    one, two = (mn.DAMClassifier(random_state=k).fit(x[own], y[own]) for k, own in enumerate(parts))
    new, truth, known = x[n:], y[n:], x[parts[0]]
    asked = new[:_EXPLAINED]
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
    proba = one.predict_proba(new)
    right = one.classes_[proba.argmax(1)] == truth
    told = mn.interpret.rejections(model, new)
    novel = told.tails[:, 0] > -np.log(NEVER)
    target = 1 - (1 - right.mean()) / 4
    by_probability = answered(-proba.max(1), right, target)
    by_accuracy = answered(np.where(novel, np.inf, -proba.max(1)), right, target)
    note("answered by probability", by_probability)
    note("answered by accuracy", by_accuracy)
    for probability in _PROBABILITIES:
        other = one.counterfactual(asked, probability=probability)
        changed = np.flatnonzero(other.found)
        if len(changed):
            held = two.predict(other.rows[changed]) == other.wanted[changed]
            note(f"held at {probability}", held.mean())
    return {"set": name, "memories": one.n_memories_, "geometry": one.geometry_} | {
        what: float(np.mean(values)) for what, values in found.items()
    }


def main(argv: list[str]) -> None:
    """Measure every table."""
    made = parser(__doc__, "explanations")
    made.add_argument("--data", type=Path, required=True, help="folder with tables/*.npz")
    made.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    args = made.parse_args(argv)
    runs = []
    for _, run in finished(measure, [(args.data, name) for name in TABLES], args.jobs):
        print(run, flush=True)
        runs.append(run)
    runs.sort(key=lambda run: TABLES.index(run["set"]))
    head = report.head(report.command_line(["explanations", *argv]), seeds=range(2))
    report.write(args.out, {**head, "results": runs})
