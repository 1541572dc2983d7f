"""Robustness: certified and attacked accuracy against the length of a change, with baselines.

    python -m research robustness --jobs 16 --data DIR
    python -m research robustness --sets iris wine --rows 50

Images are in pixel L2 (pixels from 0 to 1), vectors of texts have unit length, tables are
standardized. Certified: no change of this length changes the class, proven. Attacked: none was
found that does. The two bracket the robust accuracy. Ours: the joint likelihood over a sweep of ς
and, for tables, over geometries; the conditional one. Baselines: logistic regression (exact) over a
sweep of C, 1-NN (exact, by the distance to the cells of the other classes) and a random forest
(attacked only). Half of the fresh rows are for choosing among the values of a sweep, the other half
for testing. Every fit is one job of one thread.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.spatial.distance import cdist
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import mnemosphere as mn
from research import report
from research.benchmarks._attack import shortest_change
from research.benchmarks._options import add_data, parser
from research.benchmarks._radius import certified_radius
from research.data import load_data
from research.field import sets
from research.jobs import finished as in_processes
from research.report import Json

Floats = NDArray[np.float64]

IMAGES = ("mnist", "fashion-mnist")
TEXTS = "banking"
TABLES = (*sets.BUNDLED, "pima", "sonar", "vertebral", "olive", "crabs", "satellite")
ONE_NEIGHBOR, LOGISTIC, FOREST = "1-NN", "logistic regression", "random forest"
VARSIGMA = (0.15, 0.25, 0.4, 0.6, 0.8, 1.0)
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of logistic regression


class Kind(NamedTuple):
    """How one kind of rows is measured."""

    lengths: tuple[float, ...]
    geometry: str
    memories: int
    varsigma: float  # where another setting is swept


KINDS = {
    "image": Kind(tuple(np.linspace(0, 4, 17).tolist()), "center", 300, 0.25),
    "text": Kind(tuple(np.linspace(0, 1, 21).tolist()), "unit", 385, 0.4),
    "table": Kind(tuple(np.linspace(0, 3, 13).tolist()), "standard", 20, 0.6),
}
_HALVINGS = 20
_TOWARD = 5  # rows of other classes that a forest is attacked toward
_NEAR = 400  # foreign rows whose cells are looked at
_CELLS = 60  # cells whose distance is computed exactly
_CONSTRAINTS = 8  # own rows that are added to a cell at once


class Margins(NamedTuple):
    """Predicted classes of rows, and bounds of the shortest change that changes them."""

    label: NDArray[Any]  # (n,)
    certified: Floats  # (n,) from below, proven
    attacked: Floats  # (n,) from above, by a row that was found; inf: none was


class Rows(NamedTuple):
    """A data set, as all methods take it."""

    kind: str
    x: Floats
    y: NDArray[Any]
    fresh: Floats
    truth: NDArray[Any]


class Job(NamedTuple):
    """One fit on one data set."""

    set: str
    method: str
    seed: int
    swept: str = ""  # "varsigma", "C" or "geometry"
    value: float | str = 0.0


def kind_of(name: str) -> str:
    """Of a data set."""
    return "image" if name in IMAGES else "text" if name == TEXTS else "table"


def open_set(name: str, n_rows: int, seed: int, folder: Path | None, most: int) -> Rows:
    """Training rows, at most so many, and up to n_rows others."""
    rng, kind = np.random.default_rng(seed), kind_of(name)
    if kind == "table":
        table = sets.load(name, "table", folder)
        order = rng.permutation(len(table.y))
        learned, some = order[: len(order) // 2][:most], order[len(order) // 2 :][:n_rows]
        mean, scale = table.x[learned].mean(0), table.x[learned].std(0)
        z = (table.x - mean) / np.where(scale > 0, scale, 1.0)
        return Rows(kind, z[learned], table.y[learned], z[some], table.y[some])
    if kind == "image":
        data = load_data(name, folder / name if folder is not None else None)
        parts = (data.x_train, data.y_train, data.x_test, data.y_test)
    else:
        assert folder is not None
        with np.load(folder / "texts" / "banking-minilm.npz") as stored:
            parts = tuple(stored[k] for k in ("x_train", "y_train", "x_test", "y_test"))
    x, y, fresh, truth = parts
    learned, some = rng.permutation(len(x))[:most], rng.permutation(len(fresh))[:n_rows]
    x, fresh = (np.asarray(v, dtype=np.float64) for v in (x[learned], fresh[some]))
    if kind == "image":
        x, fresh = x / 255, fresh / 255
    if kind == "text":
        x, fresh = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, fresh))
    return Rows(kind, x, np.asarray(y)[learned], fresh, np.asarray(truth)[some])


# --- margins


def memory_margins(model: mn.DAMClassifier, x: Floats) -> Margins:
    """Of our model: the certified radius, and the shortest verified change toward two classes."""
    proven = certified_radius(model, x)
    attacked = np.full(len(x), np.inf)
    rows, order = torch.from_numpy(x), model.model_.log_proba(x).argsort(1, descending=True)
    for target in (order[:, 1], model.model_.columns_of(proven.other.astype(model.classes_.dtype))):
        found = shortest_change(model.model_, rows, target).numpy()
        hit = ~np.isnan(found).any(1)
        if hit.any():
            hit[hit] = model.model_.log_proba(found[hit]).argmax(1).numpy() == target.numpy()[hit]
        moved = np.linalg.norm(found - x, axis=1)
        attacked = np.minimum(attacked, np.where(hit & (moved > 0), moved, np.inf))
    return Margins(proven.label, proven.radius, attacked)


def nearest_row_margins(x: Floats, y: NDArray[Any], fresh: Floats) -> Margins:
    """Of 1-NN: the distance to the nearest Voronoi cell of a row of another class.

    Exact, unless more cells than are looked at come into question: then the two bounds differ.
    """
    label, low, high = [], [], []
    for row in fresh:
        square = ((x - row) ** 2).sum(1)
        label.append(y[square.argmin()])
        below, above = _to_other_cells(row, x, square, y == label[-1])
        low.append(below)
        high.append(above)
    return Margins(np.array(label), np.array(low), np.array(high))


def _to_other_cells(
    row: Floats, x: Floats, square: Floats, own: NDArray[np.bool_]
) -> tuple[float, float]:
    """(lower, upper) bounds of the distance to the cells of all rows that are not `own`."""
    mine, others = x[own], x[~own]
    nearest, ahead = square[own].min(), square[~own]
    place = mine[square[own].argmin()]
    # Each own row bounds a cell by a plane: the distance to the farthest plane is a bound.
    bound = _to_plane(ahead - nearest, np.linalg.norm(others - place, axis=1))
    order = np.argsort(bound, kind="stable")
    near, rest = order[:_NEAR], order[_NEAR:]
    few = np.argsort(square[own])[:_CONSTRAINTS]
    gap = cdist(others[near], mine[few])
    bounds = _to_plane(ahead[near][:, None] - square[own][few], gap).max(1)
    best, left = np.inf, float(bound[rest].min()) if len(rest) else np.inf
    for count, k in enumerate(np.argsort(bounds, kind="stable")):
        if bounds[k] >= best:
            break
        if count == _CELLS:
            left = min(left, float(bounds[k]))
            break
        best = min(best, _to_cell(row, others[near[k]], mine, square[own], best))
    return min(best, left), best


def _to_plane(ahead: Floats, gap: Floats) -> Floats:
    """Distance to the plane between two rows, from the squared distances to both."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(gap > 0, ahead / (2 * gap), np.where(ahead > 0, np.inf, 0.0))
    return found


def _to_cell(row: Floats, center: Floats, mine: Floats, square: Floats, limit: float) -> float:
    """Distance from a row to the points nearer to `center` than to all of `mine`.

    square: squared distances of the row to `mine`.
    The nearest point of a polyhedron {δ: G δ ≥ h} by non-negative least squares (Lawson and Hanson
    1974, problem LDP), with planes added as they are violated.
    """
    h = ((row - center) ** 2).sum() - square
    active = np.argsort(-h)[:_CONSTRAINTS]
    while True:
        matrix = np.vstack([2 * (center - mine[active]).T, h[active]])
        target = np.append(np.zeros(len(row)), 1.0)
        weights, _ = nnls(matrix, target, maxiter=30 * matrix.shape[1])
        rest = matrix @ weights - target
        if abs(rest[-1]) < 1e-12:
            return np.inf  # no such point
        change = -rest[:-1] / rest[-1]
        length = float(np.linalg.norm(change))
        slack = 2 * (center @ change - mine @ change) - h
        worst = np.argsort(slack)[:_CONSTRAINTS]
        worst = worst[slack[worst] < -1e-7 * (1 + np.abs(h).max())]
        new = np.setdiff1d(worst, active)
        if length >= limit or not len(new):  # with fewer planes the distance is a lower bound
            return length
        active = np.concatenate([active, new])


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


def logistic_margins(x: Floats, y: NDArray[Any], fresh: Floats, c: float) -> Margins:
    """Of multinomial logistic regression with the penalty 1/C."""
    model = LogisticRegression(C=c, max_iter=300).fit(x, y)
    coef, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # one plane: the scores of the second class
        coef, intercept = np.vstack([0 * coef, coef]), np.append(0 * intercept, intercept)
    return linear_margins(coef, intercept, model.classes_, fresh)


def forest_margins(x: Floats, y: NDArray[Any], fresh: Floats, seed: int) -> Margins:
    """Of a random forest: ways toward the nearest rows of other classes; nothing is proven."""
    model = RandomForestClassifier(random_state=seed).fit(x, y)
    label, known = model.predict(fresh), model.predict(x)
    apart = np.where(known[None] == label[:, None], np.inf, cdist(fresh, x))
    nearest = np.argsort(apart, axis=1)[:, :_TOWARD]
    ways = [
        shortest_way(fresh, x[nearest[:, k]], lambda rows: model.predict(rows) != label)
        for k in range(nearest.shape[1])
    ]
    return Margins(label, np.zeros(len(fresh)), np.min(ways, axis=0))


def shortest_way(start: Floats, end: Floats, changed: Callable[[Floats], Any]) -> Floats:
    """How far to go from `start` to `end` (n, N) until `changed(rows)`; inf if not at the end."""
    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        there = changed(start + middle[:, None] * (end - start))
        low, high = np.where(there, low, middle), np.where(there, middle, high)
    reached = changed(start + high[:, None] * (end - start))
    return np.where(reached, high * np.linalg.norm(end - start, axis=1), np.inf)


# --- the study


def jobs(names: list[str], seeds: int) -> list[Job]:
    """All fits, the long ones first."""
    found = []
    for seed in range(seeds):
        for name in sorted(names, key=lambda name: list(KINDS).index(kind_of(name))):
            swept = [("joint", "varsigma", VARSIGMA), (LOGISTIC, "C", PENALTIES)]
            if kind_of(name) == "table":
                swept.append(("joint", "geometry", (KINDS["table"].geometry, "whitened")))
            found += [Job(name, method, seed) for method in ("conditional", ONE_NEIGHBOR, FOREST)]
            found += [Job(name, method, seed, key, v) for method, key, of in swept for v in of]
    return found


def fitted(job: Job, rows: Rows, memories: int | None, device: str) -> mn.DAMClassifier:
    """Our model as the job asks for it; nothing is searched."""
    kind = KINDS[rows.kind]
    n, geometry = memories or kind.memories, kind.geometry
    settings: dict[str, Any] = {"objective": "joint", "varsigma": kind.varsigma}
    if job.method == "conditional":
        settings = {"objective": "conditional"}
    elif job.swept == "varsigma":
        settings["varsigma"] = job.value
    elif job.swept == "geometry":
        geometry = str(job.value)
    n = min(n, len(rows.x))
    return mn.DAMClassifier(
        n, geometry=geometry, random_state=job.seed, device=device, **settings
    ).fit(rows.x, rows.y)


def run_job(job: Job, args: Any) -> Json:
    """One line of the report."""
    rows = open_set(job.set, args.rows, job.seed, args.data, args.train)
    began, x, y, fresh = time.perf_counter(), rows.x, rows.y, rows.fresh
    model = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if job.method == ONE_NEIGHBOR:
            found = nearest_row_margins(x, y, fresh)
        elif job.method == LOGISTIC:
            found = logistic_margins(x, y, fresh, float(job.value))
        elif job.method == FOREST:
            found = forest_margins(x, y, fresh, job.seed)
        else:
            model = fitted(job, rows, args.memories, args.device)
            found = memory_margins(model, fresh)
    right, lengths = found.label == rows.truth, KINDS[rows.kind].lengths
    choosing = np.arange(len(fresh)) % 2 == 0  # rows by which the value of a sweep is chosen
    test = ~choosing
    return {
        **job._asdict(), "kind": rows.kind, "lengths": lengths, "rows": len(x),
        "tested": int(test.sum()),
        "accuracy": float(right[test].mean()),
        "chosen_by": accuracy_curve(right[choosing], found.certified[choosing], lengths),
        "certified": accuracy_curve(right[test], found.certified[test], lengths),
        "attacked": accuracy_curve(right[test], found.attacked[test], lengths),
        "radius": float(np.median(found.certified)), "attack": float(np.median(found.attacked)),
        "memories": None if model is None else model.n_memories_,
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def accuracy_curve(right: NDArray[np.bool_], margin: Floats, lengths: Any) -> list[float]:
    """Share of rows that are right and stay so under every change of each length."""
    return [float(np.mean(right & (margin > length))) for length in lengths]


def _job_of(line: Json) -> Job:
    return Job(*(line[name] for name in Job._fields))


def main(argv: list[str]) -> None:
    made = parser(__doc__, "robustness")
    known = [*IMAGES, TEXTS, *TABLES]
    made.add_argument("--sets", nargs="+", choices=known, default=known, metavar="SET")
    made.add_argument("--rows", type=int, default=300, help="rows of each set that are attacked")
    made.add_argument("--train", type=int, default=60_000, help="most rows to train on")
    made.add_argument("--memories", type=int, help="of our models; by default by the kind of rows")
    made.add_argument("--seeds", type=int, default=1)
    made.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    made.add_argument("--device", default="cpu", help="of our fits: cpu or cuda")
    made.add_argument("--resume", action="store_true", help="keep the fits that --out has")
    add_data(made)
    args = made.parse_args(argv)
    work, lines = jobs(args.sets, args.seeds), []
    if args.resume and args.out.exists():
        lines = report.read_json(args.out, "delete it")["runs"]
    done = {_job_of(line) for line in lines}
    place = {job: k for k, job in enumerate(work)}
    left = [(job, args) for job in work if job not in done]
    for _, line in in_processes(run_job, left, args.jobs):
        shown = ("set", "method", "swept", "value", "accuracy", "radius", "attack", "seconds")
        print(len(lines) + 1, "of", len(work), {key: line[key] for key in shown}, flush=True)
        lines.append(line)
        lines.sort(key=lambda one: place.get(_job_of(one), -1))
        command = report.command_line(["robustness", *argv])
        report.write(args.out, {**report.head(command, seeds=range(args.seeds)), "runs": lines})
