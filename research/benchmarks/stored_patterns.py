"""Patterns stored without training: how many of them come back if half of each is missing.

    python -m research stored_patterns --data DIR

DIR holds the IDX files of MNIST and images/cifar10-features.npz. Half of the columns, drawn for each row, are missing.
A row comes back if of all stored patterns its own is the nearest to what is recalled.
"""

from __future__ import annotations

import numpy as np

import mnemosphere as mn
from research import report
from research.benchmarks._options import add_data, parser
from research.data import load_data

COUNTS, BETAS, _ASKED = (10, 100, 1000, 5000), (20.0, 100.0, 500.0, 2500.0), 200


def main(argv: list[str]) -> None:
    """Share of errors for each set, number of patterns and β."""
    made = parser(__doc__, "stored_patterns")
    add_data(made)
    args, found = made.parse_args(argv), []
    features = report.read_arrays(args.data / "images" / "cifar10-features.npz")["x_train"]
    sets = {"MNIST": load_data("mnist", args.data).x_train, "CIFAR-10 features": features}
    for name, all_rows in sets.items():
        x = all_rows[: max(COUNTS)].astype(np.float64)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        damaged = np.where(np.random.default_rng(0).random(x.shape) < 0.5, np.nan, x)[:_ASKED]
        for n in COUNTS:
            wrong = {}
            for beta in BETAS:
                memory = mn.DAMClusterer.from_memories(x[:n], beta=beta)
                nearest = (memory.recall(damaged[:n]) @ x[:n].T).argmax(1)
                wrong[f"β {beta:.0f}"] = float((nearest != np.arange(len(nearest))).mean())
            found.append({"set": name, "patterns": n, **wrong})
    command = report.command_line(["stored_patterns", *argv])
    report.write(args.out, {**report.head(command), "results": found})
