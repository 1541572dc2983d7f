"""Few labels: test accuracy with 100, 1000 and 6000 labels of MNIST and the other rows unlabelled.

    python -m benchmarks.semi_supervised --data DIR --device cuda
    python -m benchmarks.semi_supervised --data DIR --rows 10000 --memories 300 --seeds 1

Beside it, the same model trained on the labelled rows alone, and on all rows with every label.
Labelled rows are drawn at random, so classes are as frequent among them as chance has it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import mnemosphere as mn
from benchmarks._mnist import SETTINGS, parser, write
from mnemosphere import datasets


def main() -> None:
    options = parser(__doc__.splitlines()[0], "semi_supervised.json", seeds=3)
    options.add_argument("--labels", type=int, nargs="+", default=[100, 1000, 6000])
    options.add_argument("--rows", type=int, default=60_000, help="training rows")
    args = options.parse_args()
    data = datasets.load("mnist", args.data)
    x, y = data.x_train[: args.rows], data.y_train[: args.rows]

    def accuracy(rows: Any, labels: Any, seed: int) -> tuple[float, float]:
        model = mn.DAMClassifier(
            args.memories, unlabeled=-1, random_state=seed, device=args.device, **SETTINGS
        )
        began = time.perf_counter()
        model.fit(rows, labels)
        seconds = time.perf_counter() - began
        return round(100 * model.score(data.x_test, data.y_test), 2), round(seconds, 1)

    rows = []
    for seed in range(args.seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        for n_labels in args.labels:
            chosen = order[:n_labels]
            partly = np.full(len(y), -1, dtype=np.int64)
            partly[chosen] = y[chosen]
            alone, _ = accuracy(x[chosen], y[chosen], seed)
            both, seconds = accuracy(x, partly, seed)
            row = {"seed": seed, "labels": n_labels, "labelled rows alone": alone}
            row |= {"all rows": both, "gain": round(both - alone, 2), "seconds": seconds}
            rows.append(row)
            print(row, flush=True)
        full, seconds = accuracy(x, y, seed)
        rows.append({"seed": seed, "labels": len(y), "all rows": full, "seconds": seconds})
        print(rows[-1], flush=True)
    args.labels = " ".join(map(str, args.labels))
    write(args, "semi_supervised", {"runs": rows})


if __name__ == "__main__":
    main()
