"""Log-loss with all classes known: on the split that a set of texts comes with, and on random ones.

    python -m research resplit --vectors DIR --jobs 8

--vectors holds the npz files of `open_world`. Seed 0 is the split of the set. For other seeds its rows are
shuffled among training, dev and test. Both methods are those of `open_world`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from research.benchmarks._options import run_parts
from research.benchmarks.open_world import baselines, load, measures, ours, split
from research.report import Json

SETS = ("banking-minilm", "banking-wordllama", "clinc-minilm", "clinc-wordllama")
PARTS = ("train", "dev", "test")


def measure(vectors: Path, name: str, seed: int) -> Json:
    """Log-loss and accuracy of ours and of logistic regression."""
    data = load(vectors / f"{name}.npz")
    known = {part: np.isin(data[f"y_{part}"], data["y_train"]) for part in PARTS}
    x, y = (np.concatenate([data[f"{k}_{part}"][known[part]] for part in PARTS]) for k in "xy")
    order = np.random.default_rng(seed).permutation(len(y)) if seed else np.arange(len(y))
    cuts = np.cumsum([known[part].sum() for part in PARTS])[:-1]
    for part, rows in zip(PARTS, np.split(order, cuts), strict=True):
        data |= {f"x_{part}": x[rows], f"y_{part}": y[rows]}
    own = split(data, 1.0, 0)
    said = {"ours": ours(own, seed)[1]} | baselines(own)
    return {
        method: {key: measures(own, said[method])[key] for key in ("log_loss", "known_accuracy")}
        for method in ("ours", "logistic regression")
    }


def main(argv: list[str]) -> None:
    """Measure all parts, several at a time, and gather them."""
    run_parts(argv, __doc__, "resplit", measure, SETS, 4)
