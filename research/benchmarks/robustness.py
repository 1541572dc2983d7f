"""Robustness: certified and attacked accuracy against the length of a change, with baselines.

    python -m research robustness
    python -m research robustness --sets iris wine --rows 50

Tables are standardized, so that lengths are in standard deviations; those of images are pixel L2.
Certified: no change of this length changes the class, proven. Attacked: none was found that does.
The two bracket the robust accuracy. Baselines: 1-NN (bound by the nearest row of the class; attack
toward the nearest row of another) and logistic regression (exact margin).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

import mnemosphere as mn
from mnemosphere.data import load
from research import report
from research.benchmarks._options import parser

Floats = NDArray[np.float64]

TABLES = {
    "iris": datasets.load_iris, "wine": datasets.load_wine, "cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}  # fmt: skip
IMAGES = "mnist-small"
LENGTHS = {"table": tuple(np.linspace(0, 3, 13)), "image": tuple(np.linspace(0, 4, 17))}
MEMORIES = {"table": 20, "image": 200}
OBJECTIVES = ("joint", "conditional")
_HALVINGS = 40


class Margins(NamedTuple):
    """Predicted classes of rows, and bounds of the shortest change that changes them."""

    label: NDArray[Any]  # (n,)
    certified: Floats  # (n,) from below, proven
    attacked: Floats  # (n,) from above, by a row that was found; inf: none was


class Rows(NamedTuple):
    """A data set, as all methods take it."""

    kind: str  # "table" or "image"
    x: Floats
    y: NDArray[Any]
    fresh: Floats
    truth: NDArray[Any]


def open_set(name: str, n_rows: int, seed: int) -> Rows:
    """Half of a table, standardized, or the training images; and up to n_rows others."""
    rng = np.random.default_rng(seed)
    if name == IMAGES:
        data = load(IMAGES)
        some = rng.permutation(len(data.x_test))[:n_rows]
        x, fresh = (np.asarray(v, dtype=np.float64) for v in (data.x_train, data.x_test[some]))
        return Rows("image", x, data.y_train, fresh, data.y_test[some])
    x, y = TABLES[name](return_X_y=True)
    order = rng.permutation(len(x))
    learned, some = order[: len(x) // 2], order[len(x) // 2 :][:n_rows]
    mean, scale = x[learned].mean(0), x[learned].std(0)
    z = (x - mean) / np.where(scale > 0, scale, 1.0)
    return Rows("table", z[learned], y[learned], z[some], y[some])


def memory_margins(model: mn.DAMClassifier, x: Floats) -> Margins:
    """Of our model: the certified radius, and the shortest verified counterfactual."""
    proven = model.certified_radius(x)
    found = model.counterfactual(x)
    moved = np.linalg.norm(found.after - x, axis=1)
    return Margins(proven.label, proven.radius, np.where(found.found, moved, np.inf))


def nearest_row_margins(x: Floats, y: NDArray[Any], fresh: Floats) -> Margins:
    """Of 1-NN: a row of another class must come nearer than the nearest row of the own one."""
    apart = cdist(fresh, x)  # (n, rows)
    own = apart.argmin(1)
    label = y[own]
    foreign = y[None, :] != label[:, None]
    nearest = np.take_along_axis(apart, own[:, None], 1)
    gap = cdist(x[own], x)
    gap[gap == 0] = np.inf  # a copy with another label: a tie at distance 0, as ahead is 0 too
    ahead = (apart**2 - nearest**2) / (2 * gap)
    certified = np.where(foreign, ahead, np.inf).min(1)
    target = x[np.where(foreign, apart, np.inf).argmin(1)]

    def other(rows: Floats) -> NDArray[np.bool_]:
        changed: NDArray[np.bool_] = y[cdist(rows, x).argmin(1)] != label
        return changed

    return Margins(label, certified, shortest_way(fresh, target, other))


def linear_margins(coef: Floats, intercept: Floats, classes: NDArray[Any], x: Floats) -> Margins:
    """Of a linear classifier: the distance to the nearest plane between two classes, exact."""
    scores = x @ coef.T + intercept  # (n, C)
    best = scores.argmax(1)
    lead = scores[np.arange(len(x)), best][:, None] - scores
    slope = np.linalg.norm(coef[best][:, None] - coef[None], axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        away = lead / slope
    away[np.arange(len(x)), best] = np.inf
    found = away.min(1)
    return Margins(classes[best], found, found)


def logistic_margins(x: Floats, y: NDArray[Any], fresh: Floats) -> Margins:
    """Of multinomial logistic regression."""
    model = LogisticRegression(max_iter=2000).fit(x, y)
    coef, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # one plane: the scores of the second class
        coef, intercept = np.vstack([0 * coef, coef]), np.append(0 * intercept, intercept)
    return linear_margins(coef, intercept, model.classes_, fresh)


def shortest_way(start: Floats, end: Floats, changed: Any) -> Floats:
    """How far to go from `start` to `end` (n, N) until `changed(rows)`; inf if not at the end."""
    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        there = changed(start + middle[:, None] * (end - start))
        low, high = np.where(there, low, middle), np.where(there, middle, high)
    reached = changed(start + high[:, None] * (end - start))
    return np.where(reached, high * np.linalg.norm(end - start, axis=1), np.inf)


def accuracy_curve(right: NDArray[np.bool_], margin: Floats, lengths: Any) -> list[float]:
    """Share of rows that are right and stay so under every change of each length."""
    return [float(np.mean(right & (margin > length))) for length in lengths]


def study(name: str, n_rows: int, n_memories: int | None, seed: int) -> list[dict[str, Any]]:
    """One line for each method on a data set."""
    rows = open_set(name, n_rows, seed)
    lengths = LENGTHS[rows.kind]
    margins = {
        "1-NN": nearest_row_margins(rows.x, rows.y, rows.fresh),
        "logistic regression": logistic_margins(rows.x, rows.y, rows.fresh),
    }
    for objective in OBJECTIVES:
        model = mn.DAMClassifier(
            n_memories or MEMORIES[rows.kind], objective=objective, random_state=seed,
            normalize="standard" if rows.kind == "table" else "center",
        ).fit(rows.x, rows.y)  # fmt: skip
        margins[f"ours, {objective}"] = memory_margins(model, rows.fresh)
    lines = []
    for method, found in margins.items():
        right = found.label == rows.truth
        lines.append({
            "set": name, "method": method, "seed": seed, "lengths": lengths,
            "accuracy": float(right.mean()),
            "certified": accuracy_curve(right, found.certified, lengths),
            "attacked": accuracy_curve(right, found.attacked, lengths),
            "median radius": float(np.median(found.certified)),
        })  # fmt: skip
    return lines


def main(argv: list[str]) -> None:
    made = parser(__doc__, "robustness")
    known = [*TABLES, IMAGES]
    made.add_argument("--sets", nargs="+", choices=known, default=known)
    made.add_argument("--rows", type=int, default=150, help="rows of each set that are attacked")
    made.add_argument("--memories", type=int, help="of our models; by default by the kind of rows")
    made.add_argument("--seeds", type=int, default=1)
    args = made.parse_args(argv)
    runs = []
    for seed in range(args.seeds):
        for name in args.sets:
            for line in study(name, args.rows, args.memories, seed):
                print({k: v for k, v in line.items() if k != "lengths"}, flush=True)
                runs.append(line)
    command = report.command_line(["robustness", *argv])
    report.write(args.out, {**report.head(command, seeds=range(args.seeds)), "runs": runs})
