"""Probabilities before and after calibration: log-loss, calibration error, accuracy.

    python -m research calibration --data DIR

The sets are the eight with the most rows of those of `python -m research field`: a calibration
error of few rows is mostly noise. At most 4000 rows of each, and predictions of rows left out by
three folds, pooled before they are measured: 15 bins of equal width of the highest probability.
"after" is what `DAMClassifier()` says by default; "before" are the same memories with soft labels
as trained, smoothing and all, at temperature 1.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from mnemosphere import DAMClassifier
from mnemosphere.interpret.evaluation import calibration_error
from mnemosphere.model.votes import Votes
from research import report
from research.benchmarks._options import add_data, parser
from research.field.sets import load

SETS = ("shuttle", "satellite", "income", "churn", "credit", "digits", "attrition",
        "ts_italypowerdemand")  # fmt: skip


def uncalibrated(model: DAMClassifier) -> DAMClassifier:
    """The same memories, read as they were trained."""
    plain = copy.copy(model)
    plain.model_ = plain.model_.replace(votes=Votes.of(model.model_.trained))
    return plain


def measured(proba: NDArray[Any], y: NDArray[Any]) -> dict[str, float | None]:
    """Of probabilities (n, C) of classes 0 to C − 1."""
    right = proba.argmax(1) == y
    return {
        "log_loss": float(log_loss(y, proba, labels=np.arange(proba.shape[1]))),
        "calibration_error": calibration_error(proba.max(1), right),
        "accuracy": float(right.mean()),
    }


def compare(x: NDArray[Any], y: NDArray[Any], folds: int, seed: int) -> dict[str, Any]:
    """Both readings of the models of each fold, on the rows it leaves out."""
    proba = {way: np.zeros((len(y), int(y.max()) + 1)) for way in ("before", "after")}
    temperatures = []
    cut = StratifiedKFold(folds, shuffle=True, random_state=seed)
    for train, test in cut.split(x, y):
        model = DAMClassifier(random_state=seed).fit(x[train], y[train])
        temperatures.append(model.temperature_)
        for way, read in (("before", uncalibrated(model)), ("after", model)):
            proba[way][np.ix_(test, model.classes_)] = read.predict_proba(x[test])
    return {way: measured(p, y) for way, p in proba.items()} | {"temperatures": temperatures}


def main(argv: list[str]) -> None:
    made = parser(__doc__, "calibration")
    made.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    made.add_argument("--rows", type=int, default=4000, help="of a set at most")
    made.add_argument("--folds", type=int, default=3)
    add_data(made)
    args = made.parse_args(argv)
    sets = []
    for name in args.sets:
        table = load(name, "", args.data)
        some = np.random.default_rng(0).permutation(len(table.x))[: args.rows]
        y = np.unique(table.y[some], return_inverse=True)[1]
        kept = np.isin(y, np.flatnonzero(np.bincount(y) >= args.folds))  # each fold has each class
        y = np.unique(y[kept], return_inverse=True)[1]
        x = table.x[some][kept]
        line = {"name": name, "rows": len(x), "features": x.shape[1], "classes": int(y.max()) + 1}
        sets.append(line | compare(x, y, args.folds, seed=0))
        print(sets[-1], flush=True)
    command = report.command_line(["calibration", *argv])
    report.write(args.out, {**report.head(command, seeds=range(1)), "sets": sets})
