"""Labels flipped at random: how many of them `label_issues` ranks first, compared with cleanlab.

    python -m research label_issues --data DIR

DIR holds the folders texts (banking-minilm.npz) and tables. A tenth of the labels are replaced by other
classes. The figure is the share of flipped labels among as many rows as were flipped, those ranked
first. cleanlab (`pip install cleanlab`) ranks by its scores of the same cross-fitted probabilities, and of
those of logistic regression.
"""

from __future__ import annotations

import time
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mnemosphere as mn
from research import report
from research.benchmarks._options import parser
from research.benchmarks.add_examples import load

SETS = ("digits", "olive", "ts_japanesevowels", "satellite", "banking")
SHARE = 0.1
_METHODS = ("self_confidence", "normalized_margin")


def measure(x: NDArray[Any], y: NDArray[Any], seed: int) -> dict[str, Any]:
    """One seed."""
    from cleanlab.rank import get_label_quality_scores

    classes, truth = np.unique(y, return_inverse=True)
    rng = np.random.default_rng(seed)
    flipped = np.zeros(len(y), dtype=bool)
    flipped[rng.permutation(len(y))[: round(SHARE * len(y))]] = True
    moved = (truth + rng.integers(1, len(classes), len(y))) % len(classes)
    label = np.where(flipped, moved, truth)

    def precision(score: NDArray[Any]) -> float:
        return float(flipped[np.argsort(score, kind="stable")[: flipped.sum()]].mean())

    began = time.perf_counter()
    issues = mn.DAMClassifier(random_state=seed).label_issues(x, label)
    ours, began = time.perf_counter() - began, time.perf_counter()
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    proba = cross_val_predict(plain, x, label, cv=5, method="predict_proba")
    theirs = time.perf_counter() - began
    found: dict[str, Any] = {"label_issues": precision(issues.scores)}
    for name, given in (("same probabilities", issues.proba), ("logistic regression", proba)):
        for method in _METHODS:
            score = get_label_quality_scores(label, given, method=method)
            found[f"cleanlab, {name}, {method}"] = precision(score)
    right = flipped[issues.rows]
    return {
        "precision": found,
        "contradicted": len(issues),
        "flipped": int(flipped.sum()),
        "flipped and contradicted": int(right.sum()),
        "suggestion is right": float(np.mean(issues.suggested[right] == truth[issues.rows][right])),
        "seconds": {"label_issues": ours, "logistic regression": theirs},
    }


def main(argv: list[str]) -> None:
    """Measure all sets and seeds."""
    made = parser(__doc__, "label_issues")
    made.add_argument("--data", type=Path, required=True, help="folder with texts and tables")
    made.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    made.add_argument("--seeds", type=int, default=5)
    args = made.parse_args(argv)
    parts = report.Parts(args.out.with_suffix(""))
    report.make_folder(args.out.with_suffix(""))
    sets: dict[str, Any] = {name: [] for name in args.sets}
    for seed in range(args.seeds):
        for name in args.sets:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of rare classes
                run = parts.step(
                    f"{name}-{seed}", lambda n=name, s=seed: measure(*load(args.data, n, s), s)
                )
            sets[name].append(run)
            print(name, seed, run, flush=True)
    command = report.command_line(["label_issues", *argv])
    head = report.head(command, seeds=range(args.seeds))
    head["versions"]["cleanlab"] = metadata.version("cleanlab")
    report.write(args.out, {**head, "sets": sets})
