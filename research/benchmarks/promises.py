"""Promises of a model that grows: a class added at a time, rates, coverage and accuracy after each.

    python -m research promises --repetitions 200

Rows are drawn from normal classes that overlap, three known at first, ten added from twenty rows each. After the
last class: the share rejected at rates of 5 and 10%, the share of sets that hold the truth at 90%, and how right
answers at an accuracy of 80% are, on fresh rows in the proportions that the model was given.
"""

from __future__ import annotations

import warnings

import numpy as np

import mnemosphere as mn
from research import report
from research.benchmarks._options import parser
from research.jobs import finished

_KNOWN, _NEW, _FEW, _FEATURES, _ROWS, _FRESH = 3, 10, 20, 5, 300, 5000
_ACCURACY = 0.8


def measure(seed: int) -> dict[str, float]:
    """One repetition; NaN: the accuracy is refused."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    centers = 2.2 * rng.normal(size=(_KNOWN + _NEW, _FEATURES))
    share = np.append(np.full(_KNOWN, _ROWS / _KNOWN), np.full(_NEW, float(_FEW)))
    y = np.repeat(np.arange(_KNOWN), _ROWS // _KNOWN)
    clf = mn.DAMClassifier(random_state=seed)
    clf.fit(centers[y] + rng.normal(size=(len(y), _FEATURES)), y)
    for k in range(_KNOWN, _KNOWN + _NEW):
        clf.add_class(centers[k] + rng.normal(size=(_FEW, _FEATURES)), k)
    y = rng.choice(len(share), size=_FRESH, p=share / share.sum())
    x = centers[y] + rng.normal(size=(_FRESH, _FEATURES))
    found = {
        f"rejected at {r}": float(np.equal(clf.predict_or_reject(x, r), None).mean())
        for r in (0.05, 0.1)
    }
    inside = [label in own for label, own in zip(y, clf.predict_set(x, 0.9), strict=True)]
    found["covered at 0.9"] = float(np.mean(inside))
    try:
        answers = clf.predict_or_reject(x, accuracy=_ACCURACY)
        given = ~np.equal(answers, None)
        found["right"] = float(np.mean(answers[given] == y[given]))
        found["answered"] = float(given.mean())
    except ValueError:
        found |= {"right": np.nan, "answered": 0.0}
    return found


def main(argv: list[str]) -> None:
    """Repeat, and say how often the promises are kept."""
    made = parser(__doc__, "promises")
    made.add_argument("--repetitions", type=int, default=200)
    made.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    args = made.parse_args(argv)
    work = [(seed,) for seed in range(args.repetitions)]
    runs = [found for _, found in finished(measure, work, args.jobs)]
    table = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    for name, values in table.items():
        print(name, np.round(np.nanquantile(values, [0.05, 0.5, 0.95]), 3), flush=True)
    told = table["right"][~np.isnan(table["right"])]
    print(f"accuracy kept in {np.mean(told >= _ACCURACY):.1%} of {len(told)} that were given")
    command = report.command_line(["promises", *argv])
    head = report.head(command, seeds=range(args.repetitions))
    report.write(args.out, {**head, "results": {k: v.tolist() for k, v in table.items()}})
