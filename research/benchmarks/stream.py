"""A stream whose classes come and go: digits 0 to 4 first, then only 5 to 9.

With rehearsal, and without.
"""

from __future__ import annotations

import time

import numpy as np

import mnemosphere as mn
from mnemosphere.data import load
from research import report
from research.benchmarks._options import digits_parser

BATCH, VARSIGMA = 500, 0.25


def main(argv: list[str]) -> None:
    """Measure, print, store."""
    args = digits_parser(__doc__, "stream", seeds=1).parse_args(argv)
    data = load("mnist", args.data)
    x, y = data.x_train.astype(np.float32), data.y_train
    early, early_test = y < 5, data.y_test < 5
    runs = []
    for seed in range(args.seeds):
        order = np.random.default_rng(seed).permutation(len(x))
        first, second = order[early[order]], order[~early[order]]
        for rehearses in (True, False):
            began = time.perf_counter()
            model = mn.DAMClassifier(
                args.memories, objective="joint", varsigma=VARSIGMA, normalize="center",
                random_state=seed, device=args.device, precision="float32",
            )  # fmt: skip

            def evaluate(model: mn.DAMClassifier = model) -> dict[str, float]:
                right = model.predict(data.x_test.astype(np.float32)) == data.y_test
                return {"0-4": float(right[early_test].mean()),
                        "5-9": float(right[~early_test].mean()),
                        "all": float(right.mean())}  # fmt: skip

            start = first[: 4 * BATCH]  # memories start on rows, more of them than one batch has
            model.partial_fit(x[start], y[start], rehearse=rehearses)
            for part in np.array_split(first[4 * BATCH :], len(first) // BATCH - 4):
                model.partial_fit(x[part], y[part], rehearse=rehearses)
            before = evaluate()
            for part in np.array_split(second, len(second) // BATCH):
                model.partial_fit(x[part], y[part], rehearse=rehearses)
            run = {"seed": seed, "rehearse": rehearses, "before": before, "after": evaluate(),
                   "seconds": time.perf_counter() - began}  # fmt: skip
            print(run, flush=True)
            runs.append(run)
    settings = {"memories": args.memories, "batch": BATCH, "varsigma": VARSIGMA}
    command = report.command_line(["stream", *argv])
    head = report.head(command, device=args.device, seeds=range(args.seeds))
    report.write(args.out, {**head, "settings": settings, "runs": runs})
