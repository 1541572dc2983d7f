"""A stream of texts in which classes appear: false alarms, rows until an alarm, groups that are proposed.

    python -m research drift --vectors DIR --jobs 16

--vectors holds the npz files of `open_world`. Three quarters of the classes are known, drawn by seed; batches are
drawn from test and dev rows. Without drift: batches of known classes alone. Rows until an alarm: a batch of known
rows, and five more rows of one new class at a time. Groups: a batch of known rows and all rows of five new classes
among test and dev rows; purity is the share of rows of a group that are of its commonest class.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import mnemosphere as mn
from research.benchmarks._options import run_parts
from research.benchmarks.open_world import load
from research.report import Json

SETS = ("clinc-minilm", "clinc-wordllama")
KNOWN = 0.75
_BATCH, _BATCHES, _MORE, _MOST, _NEW, _TOGETHER = 200, 100, 5, 50, 10, 5


def measure(vectors: Path, name: str, seed: int) -> Json:
    """One seed."""
    data, rng = load(vectors / f"{name}.npz"), np.random.default_rng(seed)
    classes = rng.permutation(np.unique(data["y_train"]))
    known, new = np.split(classes, [round(KNOWN * len(classes))])
    own = np.isin(data["y_train"], known)
    clf = mn.DAMClassifier(random_state=seed).fit(data["x_train"][own], data["y_train"][own])
    x, y = (np.concatenate([data[f"{part}_dev"], data[f"{part}_test"]]) for part in "xy")
    usual = np.flatnonzero(np.isin(y, known))

    def rows_of(labels: NDArray[np.str_]) -> NDArray[np.int64]:
        return rng.permutation(np.flatnonzero(np.isin(y, labels)))

    def batch(more: NDArray[np.int64]) -> tuple[NDArray[np.int64], mn.interpret.Drift]:
        rows = np.append(rng.choice(usual, _BATCH, replace=False), more)
        return rows, clf.compare(x[rows])

    nothing = usual[:0]
    alarms = [batch(nothing)[1].drifted for _ in range(_BATCHES)]
    until = []
    for label in new[:_NEW]:
        rows = rows_of(np.array([label]))
        steps = range(_MORE, _MOST + 1, _MORE)
        until.append(next((n for n in steps if batch(rows[:n])[1].drifted), None))
    rows, found = batch(rows_of(new[:_TOGETHER]))
    pure, said = [], []
    for group in found.proposed:
        labels, counts = np.unique(y[rows[group.rows]], return_counts=True)
        pure.append((int(counts.max()), len(group.rows)))
        said.append(str(labels[counts.argmax()]))
    return {
        "false_alarms": float(np.mean(alarms)), "rows_until_alarm": until,
        "purity": sum(n for n, _ in pure) / max(1, sum(n for _, n in pure)),
        "groups": len(pure), "new_classes_found": len({*said} & {*new[:_TOGETHER].tolist()}),
    }  # fmt: skip


def main(argv: list[str]) -> None:
    """Measure all parts, several at a time, and gather them."""
    run_parts(argv, __doc__, "drift", measure, SETS, 10)
