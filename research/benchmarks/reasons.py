"""Do counterfactuals begin with what explanations name first? On ten tables, with default settings.

    python -m research reasons --data DIR --seeds 3

For rows that the models were not trained on: the share whose counterfactual begins with one of the three
strongest pulls of the explanation, how many columns it changes, and how long it takes on one core.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import mnemosphere as mn
from research import report
from research.benchmarks._options import add_data, parser
from research.field import sets
from research.jobs import finished

TABLES = ("iris", "wine", "breast-cancer", "pima", "vertebral", "crabs", "hepatic", "olive", "transfusion",
          "tissue")  # fmt: skip
_ROWS, _MOST, _TOP = 40, 1000, 3


def measure(name: str, seed: int, folder: Path | None) -> dict[str, float]:
    """One fit on half of a table, and reasons for rows of the other half."""
    table = sets.load(name, "table", folder)
    order = np.random.default_rng(seed).permutation(len(table.y))
    half = min(len(order) // 2, _MOST)
    clf = mn.DAMClassifier(random_state=seed).fit(*table.at(order[:half]))
    rows, _ = table.at(order[half : half + _ROWS])
    start = time.perf_counter()
    other = clf.counterfactual(rows)
    seconds = (time.perf_counter() - start) / len(rows)
    why, begun = clf.explain(rows), []
    for k, changes in enumerate(other.changes):
        strongest = {pull.column for pull in why.pulls(k)[:_TOP]}
        begun += [own.column in strongest for own in changes[:1]]
    return {
        "features": table.x.shape[1],
        "found": float(other.found.mean()),
        "begins with a strong pull": float(np.mean(begun)),
        "columns changed": float(np.mean([len(changes) for changes in other.changes if changes])),
        "seconds per row": seconds,
    }


def main(argv: list[str]) -> None:
    """Measure all tables, and say what came out."""
    made = parser(__doc__, "reasons")
    add_data(made)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    args = made.parse_args(argv)
    work = [(name, seed, args.data) for name in TABLES for seed in range(args.seeds)]
    runs = [
        {"set": name, "seed": seed, **found}
        for (name, seed, _), found in finished(measure, work, args.jobs)
    ]
    for key in ("found", "begins with a strong pull", "columns changed", "seconds per row"):
        print(key, np.round(np.mean([run[key] for run in runs]), 4), flush=True)
    command = report.command_line(["reasons", *argv])
    report.write(args.out, {**report.head(command, seeds=range(args.seeds)), "runs": runs})
