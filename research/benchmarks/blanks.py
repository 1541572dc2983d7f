"""Blanks: the model's own average over them against means filled in, 30% missing at random.

    python -m research blanks
    python -m research blanks --data DIR --sets wine cancer satellite

Rows are split in halves, blanks are drawn in both. "own" hands them to the classifier as NaN;
"mean" fills in the means of the training rows first. Everything else is the default. --data: a
folder of NAME.npz files with arrays x and y, for sets that scikit-learn does not bring.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit

from mnemosphere import DAMClassifier
from research import report
from research.benchmarks._options import parser

BUNDLED: dict[str, Any] = {
    "wine": load_wine,
    "cancer": load_breast_cancer,
    "digits": load_digits,
}


def rows_of(name: str, folder: Path | None, most: int) -> tuple[Any, Any]:
    """At most so many rows of a set, and their classes."""
    if name in BUNDLED:
        x, y = BUNDLED[name](return_X_y=True)
    elif folder is None:
        raise SystemExit(f"{name} is not among {', '.join(BUNDLED)}: give its folder with --data")
    else:
        with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
            found = {key.lower(): stored[key] for key in stored.files}
        x, y = found["x"].astype(np.float64), found["y"]
    order = np.random.default_rng(0).permutation(len(x))[:most]
    return x[order], y[order]


def compare(x: Any, y: Any, share: float, seed: int) -> dict[str, dict[str, float]]:
    """Accuracy and log-loss of both ways on one split."""
    split = StratifiedShuffleSplit(1, test_size=0.5, random_state=seed)
    train, test = next(split.split(x, y))
    hidden = np.random.default_rng(seed).random(x.shape) < share
    rows = np.where(hidden, np.nan, x)
    means = SimpleImputer().fit(rows[train])
    found = {}
    for way, given in (("own", rows), ("mean", means.transform(rows))):
        model = DAMClassifier(random_state=seed).fit(given[train], y[train])
        proba = model.predict_proba(given[test])
        found[way] = {
            "accuracy": float((model.classes_[proba.argmax(1)] == y[test]).mean()),
            "log_loss": float(log_loss(y[test], proba, labels=model.classes_)),
        }
    return found


def main(argv: list[str]) -> None:
    options = parser(__doc__, "blanks")
    options.add_argument("--sets", nargs="+", default=list(BUNDLED))
    options.add_argument("--data", type=Path, help="folder of further sets")
    options.add_argument("--rows", type=int, default=600, help="rows of a set at most")
    options.add_argument("--share", type=float, default=0.3, help="share of blanks")
    options.add_argument("--seeds", type=int, default=3)
    args = options.parse_args(argv)
    sets = {}
    for name in args.sets:
        x, y = rows_of(name, args.data, args.rows)
        runs = [compare(x, y, args.share, seed) for seed in range(args.seeds)]
        means = {
            way: {m: float(np.mean([run[way][m] for run in runs])) for m in runs[0][way]}
            for way in runs[0]
        }
        sets[name] = {"rows": len(x), "features": x.shape[1], "mean": means, "runs": runs}
        print(name, means, flush=True)
    command = report.command_line(["blanks", *argv])
    content = {
        **report.head(command, device="cpu", seeds=range(args.seeds)),
        "share": args.share,
        "sets": sets,
    }
    report.write(args.out, content)
