"""Few examples of each class: default fit, logistic regression with a tuned C, nearest centroid.

    python -m research few_examples --vectors DIR --jobs 16

--vectors holds the npz files of `open_world`. Of each class as many training rows are drawn as named, by seed;
accuracy is that of all test rows of known classes. C is chosen by five folds of the examples, or two if there are
as few; with one example it is 10.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestCentroid

import mnemosphere as mn
from research import report
from research.benchmarks._options import add_vectors, all_parts, parser
from research.benchmarks.open_world import load

SETS = ("banking-minilm", "banking-wordllama", "clinc-minilm", "clinc-wordllama")
SHOTS = (1, 5, 10)


def measure(vectors: Path, name: str, shots: int, seed: int) -> dict[str, float]:
    """Accuracy of each method."""
    data = load(vectors / f"{name}.npz")
    rng, y = np.random.default_rng(seed), data["y_train"]
    few = np.concatenate([
        rng.permutation(np.flatnonzero(y == own))[:shots] for own in np.unique(y) if own != "oos"
    ])  # fmt: skip
    known = data["y_test"] != "oos"
    plain: Any = LogisticRegression(C=10, max_iter=1000)
    if shots > 1:
        grid = {"C": [0.1, 1, 10, 100, 1000]}
        plain = GridSearchCV(plain, grid, cv=min(5, shots), scoring="neg_log_loss")
    methods: dict[str, Any] = {
        "ours": mn.DAMClassifier(random_state=seed),
        "logistic regression": plain,
        "nearest centroid": NearestCentroid(),
    }
    found = {}
    for method, made in methods.items():
        said = made.fit(data["x_train"][few], y[few]).predict(data["x_test"][known])
        found[method] = float(np.mean(said == data["y_test"][known]))
    return found


def main(argv: list[str]) -> None:
    """Measure all parts, several at a time, and gather them."""
    made = parser(__doc__, "few_examples")
    add_vectors(made, SETS, 10)
    args = made.parse_args(argv)
    seeds, each = range(args.seeds), [(n, k) for n in args.sets for k in SHOTS]
    runs = all_parts(measure, args, [(n, k, s) for n, k in each for s in seeds])
    found = [
        {"set": n, "shots": k, "accuracy": runs[i * len(seeds) : (i + 1) * len(seeds)]}
        for i, (n, k) in enumerate(each)
    ]
    head = report.head(report.command_line(["few_examples", *argv]), seeds=seeds)
    report.write(args.out, {**head, "results": found})
