"""Few labels: test accuracy with 100, 1000 and 6000 labels of MNIST and the other rows unlabeled.

    python -m research semi_supervised --data DIR --device cuda
    python -m research semi_supervised --data DIR --rows 10000 --memories 300 --seeds 1

Beside it, the same model trained on the labeled rows alone, and on all rows with every label.
Labeled rows are drawn at random, so classes are as frequent among them as chance has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mnemosphere.data import load
from research import report
from research.benchmarks._options import digits_parser
from research.fits import CLASSIFIER, fit_classifier


def main(argv: list[str]) -> None:
    options = digits_parser(__doc__, "semi_supervised", seeds=3)
    options.add_argument("--labels", type=int, nargs="+", default=[100, 1000, 6000])
    options.add_argument("--rows", type=int, default=60_000, help="training rows")
    args = options.parse_args(argv)
    data = load("mnist", args.data)
    x, y = data.x_train[: args.rows], data.y_train[: args.rows]

    def accuracy(rows: Any, labels: Any, seed: int) -> tuple[float, float]:
        model, seconds = fit_classifier(
            rows, labels, n_memories=args.memories, seed=seed, device=args.device, unlabeled=-1,
            **CLASSIFIER,
        )  # fmt: skip
        return round(100 * model.score(data.x_test, data.y_test), 2), seconds

    rows = []
    for seed in range(args.seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        for n_labels in args.labels:
            chosen = order[:n_labels]
            partly = np.full(len(y), -1, dtype=np.int64)
            partly[chosen] = y[chosen]
            alone, _ = accuracy(x[chosen], y[chosen], seed)
            both, seconds = accuracy(x, partly, seed)
            row = {"seed": seed, "labels": n_labels, "labeled rows alone": alone}
            row |= {"all rows": both, "gain": round(both - alone, 2), "seconds": seconds}
            rows.append(row)
            print(row, flush=True)
        full, seconds = accuracy(x, y, seed)
        rows.append({"seed": seed, "labels": len(y), "all rows": full, "seconds": seconds})
        print(rows[-1], flush=True)
    command = report.command_line(["semi_supervised", *argv])
    content = {
        **report.head(command, device=args.device, seeds=range(args.seeds)),
        "settings": {"memories": args.memories, **CLASSIFIER},
        "runs": rows,
    }
    report.write(args.out, content)
