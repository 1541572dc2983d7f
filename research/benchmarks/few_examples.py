"""Few examples of each class: default fit, logistic regression with a tuned C, nearest centroid.

    python -m research few_examples --vectors DIR --jobs 16

--vectors holds the npz files of `open_world`. Of each class as many training rows are drawn as named, by seed;
accuracy is that of all test rows of known classes. C is chosen by five folds of the examples, or two if there are
as few; with one example it is 10.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestCentroid

import mnemosphere as mn
from research import report
from research.benchmarks._options import parser
from research.benchmarks.open_world import load
from research.jobs import finished

SETS = ("banking-minilm", "banking-wordllama", "clinc-minilm", "clinc-wordllama")
SHOTS = (1, 5, 10)


def measure(vectors: Path, folder: Path, name: str, shots: int, seed: int) -> None:
    """One part."""

    def run() -> dict[str, float]:
        warnings.simplefilter("ignore")
        data = load(vectors / f"{name}.npz")
        rng, y = np.random.default_rng(seed), data["y_train"]
        few = np.concatenate([
            rng.permutation(np.flatnonzero(y == own))[:shots] for own in np.unique(y) if own != "oos"
        ])  # fmt: skip
        known = data["y_test"] != "oos"
        rows: tuple[NDArray[Any], ...] = (data["x_train"][few], y[few])
        asked = data["x_test"][known], data["y_test"][known]
        plain: Any = LogisticRegression(C=10, max_iter=1000)
        if shots > 1:
            grid = {"C": [0.1, 1, 10, 100, 1000]}
            plain = GridSearchCV(plain, grid, cv=min(5, shots), scoring="neg_log_loss")
        methods: dict[str, Any] = {
            "ours": mn.DAMClassifier(random_state=seed),
            "logistic regression": plain,
            "nearest centroid": NearestCentroid(),
        }
        return {method: float(made.fit(*rows).score(*asked)) for method, made in methods.items()}

    report.Parts(folder).step(f"{name}-{shots}-{seed}", run)


def main(argv: list[str]) -> None:
    """Measure all parts, several at a time, and gather them."""
    made = parser(__doc__, "few_examples")
    made.add_argument("--vectors", type=Path, required=True, help="folder with the npz files")
    made.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    made.add_argument("--seeds", type=int, default=10)
    made.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    args = made.parse_args(argv)
    folder = args.out.with_suffix("")
    report.make_folder(folder)
    parts = [(n, k, s) for s in range(args.seeds) for n in args.sets for k in SHOTS]
    work = [(args.vectors, folder, *part) for part in parts]
    for done, ((_, _, *part), _) in enumerate(finished(measure, work, args.jobs), 1):
        print(f"{done} of {len(parts)}:", *part, flush=True)
    stored = report.Parts(folder)
    found = [
        {"set": n, "shots": k, "accuracy": [stored.step(f"{n}-{k}-{s}", dict) for s in range(args.seeds)]}
        for n in args.sets for k in SHOTS
    ]  # fmt: skip
    command = report.command_line(["few_examples", *argv])
    report.write(args.out, {**report.head(command, seeds=range(args.seeds)), "results": found})
