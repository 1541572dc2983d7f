"""Labels needed for most of the accuracy of all labels: rows chosen by weak memories, by score, and at random.

    python -m research labels_needed --vectors DIR --jobs 16

--vectors holds the npz files of `open_world`. A fit starts with two rows per class. In each round as many more
rows are labeled, and the default fit is done again. "weak memories": from the list of `weak_spots`, the row with the
highest rejection score of each memory in turn. "score": the highest rejection scores. The figure is how many
labels an accuracy of 95% of that with all training labels takes, linear between rounds.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import mnemosphere as mn
from mnemosphere.fitted.model import FittedModel, Floats
from research.benchmarks._options import run_parts
from research.benchmarks.open_world import load
from research.report import Json

SETS = ("banking-minilm",)
WAYS = ("weak memories", "score", "random")
SHARE = 0.95
_EACH, _ROUNDS = 2, 16


def ranked(model: FittedModel, x: Floats, way: str, rng: np.random.Generator) -> list[int]:
    """Numbers of rows of x, those first that are labeled first."""
    if way == "random":
        return rng.permutation(len(x)).tolist()
    if way == "score":
        return np.argsort(-mn.interpret.rejection_score(model, x), kind="stable").tolist()
    lists = [spot["to_label"] for spot in mn.interpret.weak_spots(model, x, len(x))]
    return [row for turn in zip_longest(*lists) for row in turn if row is not None]


def measure(vectors: Path, name: str, way: str, seed: int) -> Json:
    """Accuracy after each round, and the labels needed; null if all rounds are too few."""
    data, rng = load(vectors / f"{name}.npz"), np.random.default_rng(seed)
    x, y = data["x_train"], data["y_train"]

    def fitted(rows: NDArray[np.int64]) -> tuple[mn.DAMClassifier, float]:
        clf = mn.DAMClassifier(random_state=seed).fit(x[rows], y[rows])
        return clf, float(clf.score(data["x_test"], data["y_test"]))

    wanted = SHARE * fitted(np.arange(len(y)))[1]
    rows = np.concatenate(
        [rng.permutation(np.flatnonzero(y == own))[:_EACH] for own in np.unique(y)]
    )
    n, counts, accuracy = len(rows), [], []
    for _ in range(_ROUNDS):
        clf, found = fitted(rows)
        counts.append(len(rows))
        accuracy.append(found)
        if found >= wanted:
            break
        rest = np.setdiff1d(np.arange(len(y)), rows)
        rows = np.append(rows, rest[ranked(clf.model_, x[rest], way, rng)[:n]])
    needed = float(np.interp(wanted, accuracy[-2:], counts[-2:])) if found >= wanted else None
    return {"wanted": wanted, "labels": counts, "accuracy": accuracy, "needed": needed}


def main(argv: list[str]) -> None:
    """Measure all parts, several at a time, and gather them."""
    run_parts(argv, __doc__, "labels_needed", measure, SETS, 5, way=WAYS)
