"""Examples of a known class, added without training: what its rows gain, what other classes lose.

    python -m research add_examples --data DIR

DIR holds the folders texts (banking-minilm.npz) and tables. In each seed another class has five rows in
training. Then 1, 5 or 20 more are added. Fresh rows are those of the other half.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import mnemosphere as mn
from research import report
from research.benchmarks._options import parser

SETS = ("digits", "banking", "satellite", "olive")
COUNTS = (1, 5, 20)
_KNOWN = 5  # training rows of the class
_ROWS = 3000  # of a set, at most


def load(data: Path, name: str, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and labels, at most so many, drawn by seed."""
    if name == "digits":
        x, y = load_digits(return_X_y=True)
    elif name == "banking":
        found = report.read_arrays(data / "texts" / "banking-minilm.npz")
        x, y = found["x_train"], found["y_train"]
    else:
        found = report.read_arrays(data / "tables" / f"{name}.npz")
        x, y = found["X"], found["y"]
    if len(x) > _ROWS:
        x, _, y, _ = train_test_split(x, y, train_size=_ROWS, random_state=seed, stratify=y)
    return x, y


def measure(x: NDArray[Any], y: NDArray[Any], seed: int) -> dict[str, Any]:
    """One seed: accuracy on fresh rows of the class, share of correct rows of others that are lost."""
    x, x_new, y, y_new = train_test_split(x, y, test_size=0.5, random_state=seed, stratify=y)
    names = [name for name in np.unique(y) if np.sum(y == name) >= _KNOWN + 5]
    wanted = np.random.default_rng(seed).permutation(names)[0]
    own = np.flatnonzero(y == wanted)
    kept = np.setdiff1d(np.arange(len(y)), own[_KNOWN:])
    clf = mn.DAMClassifier(random_state=seed).fit(x[kept], y[kept])
    is_own, before = y_new == wanted, clf.predict(x_new)
    right = (before == y_new) & ~is_own
    found: dict[str, Any] = {"before": float(np.mean(before[is_own] == wanted))}
    for count in COUNTS:
        rows = own[_KNOWN : _KNOWN + count]
        began = time.perf_counter()
        wider = mn.interpret.add_examples(clf.model_, x[rows], y[rows])
        seconds = time.perf_counter() - began
        after = mn.as_estimator(wider).predict(x_new)
        found[str(count)] = {
            "after": float(np.mean(after[is_own] == wanted)),
            "lost": float(np.mean(after[right] != y_new[right])),
            "given": float(np.mean(mn.as_estimator(wider).predict(x[rows]) == wanted)),
            "seconds": seconds,
        }
    both = np.union1d(kept, rows)
    again = mn.DAMClassifier(random_state=seed).fit(x[both], y[both])
    after = again.predict(x_new)
    found["fit again"] = {
        "after": float(np.mean(after[is_own] == wanted)),
        "lost": float(np.mean(after[right] != y_new[right])),
    }
    return found


def main(argv: list[str]) -> None:
    """Measure all sets and seeds."""
    made = parser(__doc__, "add_examples")
    made.add_argument("--data", type=Path, required=True, help="folder with texts and tables")
    made.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    made.add_argument("--seeds", type=int, default=10)
    args = made.parse_args(argv)
    parts = report.Parts(args.out.with_suffix(""))
    report.make_folder(args.out.with_suffix(""))
    sets: dict[str, Any] = {}
    warnings.simplefilter("ignore")  # of rare classes
    for name in args.sets:
        for seed in range(args.seeds):
            run = parts.step(
                f"{name}-{seed}", lambda n=name, s=seed: measure(*load(args.data, n, s), s)
            )
            sets.setdefault(name, []).append(run)
    command = report.command_line(["add_examples", *argv])
    report.write(args.out, {**report.head(command, seeds=range(args.seeds)), "sets": sets})
