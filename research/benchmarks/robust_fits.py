"""Fits with default settings on small synthetic problems: how often one fails, with baselines.

    python -m research robust_fits --jobs 16
    python -m research robust_fits --kinds spiral parity --each 1 --seeds 1

Each problem is fitted once per seed on the same rows and evaluated on fresh ones. The baselines are
logistic regression and 5-NN on standardized rows. The summary has the share of fits more than five
points below the better baseline, the log-loss on noise labels relative to chance, and the fits that
fall below the median of their problem by more than one point or four standard errors.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mnemosphere import DAMClassifier
from research import jobs, report
from research.benchmarks._options import parser
from research.report import Json

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]
Draw = Callable[[int], tuple[Floats, Classes]]  # so many rows of one distribution

FRESH = 2000  # test rows: the standard error of an accuracy is at most 1.1 points
BEHIND = 0.05  # of accuracy below the better baseline: a failure
LEAST, ERRORS = 0.01, 4.0  # below the median of a problem, in accuracy and in standard errors
NOISE = "noise labels"
_LEAST_PROBABILITY = 1e-6


# --- problems: each function fixes a distribution, and returns what draws rows from it


def _balanced(rng: np.random.Generator, n: int, classes: int) -> Classes:
    found: Classes = rng.permutation(np.arange(n) % classes)
    return found


def _padded(rng: np.random.Generator, x: Floats, features: int) -> Floats:
    """With columns of noise that say nothing, up to so many features."""
    return np.hstack([x, rng.normal(size=(len(x), features - x.shape[1]))])


def spiral(rng: np.random.Generator, turns: float, features: int) -> Draw:
    def draw(n: int) -> tuple[Floats, Classes]:
        y = _balanced(rng, n, 2)
        angle = 2 * np.pi * turns * np.sqrt(rng.uniform(0.02, 1, n))
        x = angle[:, None] * np.stack([np.cos(angle + np.pi * y), np.sin(angle + np.pi * y)], 1)
        return _padded(rng, x / angle.std() + 0.05 * rng.normal(size=x.shape), features), y

    return draw


def circles(rng: np.random.Generator, noise: float, features: int) -> Draw:
    def draw(n: int) -> tuple[Floats, Classes]:
        y, angle = _balanced(rng, n, 2), rng.uniform(0, 2 * np.pi, n)
        x = (1 - 0.5 * y[:, None]) * np.stack([np.cos(angle), np.sin(angle)], 1)
        return _padded(rng, x + noise * rng.normal(size=x.shape), features), y

    return draw


def moons(rng: np.random.Generator, noise: float, features: int) -> Draw:
    def draw(n: int) -> tuple[Floats, Classes]:
        y, angle = _balanced(rng, n, 2), rng.uniform(0, np.pi, n)
        side = 1 - 2 * y
        x = np.stack([side * np.cos(angle) + y, side * np.sin(angle) + 0.5 * y], 1)
        return _padded(rng, x + noise * rng.normal(size=x.shape), features), y

    return draw


def blobs(rng: np.random.Generator, classes: int, features: int, spread: float) -> Draw:
    centers = 2 * rng.normal(size=(classes, features))

    def draw(n: int) -> tuple[Floats, Classes]:
        y = _balanced(rng, n, classes)
        return centers[y] + spread * rng.normal(size=(n, features)), y

    return draw


def imbalance(rng: np.random.Generator, share: float, spread: float) -> Draw:
    """The rare class around one place, the other around two."""
    centers = 2 * rng.normal(size=(3, 5))

    def draw(n: int) -> tuple[Floats, Classes]:
        y = (rng.permutation(n) < round(share * n)).astype(np.int64)
        place = np.where(y == 1, 0, rng.integers(1, 3, n))
        return centers[place] + spread * rng.normal(size=(n, 5)), y

    return draw


def xor(rng: np.random.Generator, features: int) -> Draw:
    def draw(n: int) -> tuple[Floats, Classes]:
        sign = rng.integers(0, 2, (n, 2))
        x = 2.0 * sign - 1 + 0.4 * rng.normal(size=(n, 2))
        return _padded(rng, x, features), sign[:, 0] ^ sign[:, 1]

    return draw


def parity(rng: np.random.Generator, features: int) -> Draw:
    """Signs of all features alike; two of them decide."""
    chosen = rng.permutation(features)[:2]

    def draw(n: int) -> tuple[Floats, Classes]:
        sign = rng.integers(0, 2, (n, features))
        x = 2.0 * sign - 1 + 0.1 * rng.normal(size=sign.shape)
        return x, sign[:, chosen].sum(1) % 2

    return draw


def copies(rng: np.random.Generator, points: int, classes: int, jitter: float) -> Draw:
    """A few points with a class each, again and again, exactly or nearly."""
    place, label = rng.normal(size=(points, 4)), _balanced(rng, points, classes)

    def draw(n: int) -> tuple[Floats, Classes]:
        which = _balanced(rng, n, points)
        return place[which] + jitter * rng.normal(size=(n, 4)), label[which]

    return draw


def wide(rng: np.random.Generator, features: int, informative: int, classes: int) -> Draw:
    """More features than rows; the means of some depend on the class."""
    shift = np.zeros((classes, features))
    shift[:, :informative] = rng.normal(size=(classes, informative))

    def draw(n: int) -> tuple[Floats, Classes]:
        y = _balanced(rng, n, classes)
        return shift[y] + rng.normal(size=(n, features)), y

    return draw


def noise_labels(rng: np.random.Generator, features: int, classes: int) -> Draw:
    return lambda n: (rng.normal(size=(n, features)), _balanced(rng, n, classes))


class Problem(NamedTuple):
    """Rows to fit from one distribution; its name gives the seed."""

    kind: str
    make: Callable[..., Draw]
    rows: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        told = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        return f"{self.kind}, {self.rows} rows, {told}"

    def draw(self) -> tuple[Floats, Classes, Floats, Classes]:
        """(rows to fit, classes, fresh rows, classes): always the same."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        draw = self.make(rng, **self.settings)
        return (*draw(self.rows), *draw(FRESH))


def problems() -> list[Problem]:
    """All of them, 40 to 400 rows each."""
    sizes = (40, 100, 200, 400)

    def some(kind: str, make: Callable[..., Draw], rows: Sequence[int], **lists: Sequence[Any]
             ) -> Iterator[Problem]:  # fmt: skip
        grid = np.meshgrid(*(np.arange(len(v)) for v in (rows, *lists.values())), indexing="ij")
        for k, *at in np.stack([g.ravel() for g in grid], 1).tolist():
            settings = {key: v[i] for (key, v), i in zip(lists.items(), at, strict=True)}
            yield Problem(kind, make, rows[k], settings)

    return [
        *some("spiral", spiral, (60, 120, 240, 400), turns=(1.0, 1.75), features=(2, 5)),
        *some("circles", circles, sizes, noise=(0.05, 0.15), features=(2, 6)),
        *some("moons", moons, sizes, noise=(0.1, 0.3), features=(2, 6)),
        *(found for classes in (2, 3, 5, 10, 20, 40, 60) for found in some(
            "blobs", blobs, (min(max(100, 8 * classes), 400),), classes=(classes,),
            features=(3, 12), spread=(0.5, 1.5))),
        *some("imbalance", imbalance, (100, 200, 400), share=(0.05, 0.1), spread=(1.0, 2.0)),
        *some("xor", xor, (60, 120, 240, 400), features=(2, 6)),
        *some("parity", parity, (120, 240, 400), features=(10, 20, 40)),
        *some("near-duplicates", copies, (60, 150, 300), points=(12, 24, 40), classes=(2, 4),
              jitter=(1e-3,)),
        *some("repeated rows", copies, (48, 144), points=(6, 12, 24), classes=(2, 3),
              jitter=(0.0,)),
        *some("wide", wide, (40, 80), features=(200, 500), informative=(5, 30), classes=(2, 4)),
        *some(NOISE, noise_labels, sizes, features=(2, 10, 100), classes=(2, 5)),
        *some(NOISE, noise_labels, (40,), features=(500, 1000), classes=(2,)),
    ]  # fmt: skip


# --- fits


def _scores(model: Any, x: Floats, y: Classes) -> Json:
    """Accuracy and log-loss on these rows; every class is known to the model."""
    proba = np.asarray(model.predict_proba(x))
    place = np.searchsorted(model.classes_, y)
    own = proba[np.arange(len(y)), place].clip(_LEAST_PROBABILITY)
    right = model.classes_[proba.argmax(1)] == y
    return {"accuracy": float(right.mean()), "log_loss": float(-np.log(own).mean())}


def measure(problem: Problem, seeds: int) -> Json:
    """Our fits and the baselines on one problem."""
    x, y, fresh, truth = problem.draw()
    baselines = {
        "logistic regression": LogisticRegression(max_iter=2000),
        "5-NN": KNeighborsClassifier(min(5, len(x))),
    }
    found: Json = {
        "problem": problem.name, "kind": problem.kind, "rows": len(x), "features": x.shape[1],
        "classes": len(np.unique(y)), "chance": _entropy(y), "fits": [],
        "baselines": {
            name: _scores(make_pipeline(StandardScaler(), model).fit(x, y), fresh, truth)
            for name, model in baselines.items()
        },
    }  # fmt: skip
    for seed in range(seeds):
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = DAMClassifier(random_state=seed, device="cpu").fit(x, y)
            except Exception as error:  # a fit that fails is a result
                failed = {"accuracy": 0.0, "log_loss": -math.log(_LEAST_PROBABILITY)}
                found["fits"].append({"seed": seed, **failed, "error": repr(error)})
                continue
        found["fits"].append({
            "seed": seed, **_scores(model, fresh, truth),
            "seconds": round(time.perf_counter() - began, 3), "objective": model.objective_,
            "normalize": model.normalize_, "memories": model.n_memories_,
            "temperature": model.temperature_,
        })  # fmt: skip
    return found


def _entropy(y: Classes) -> float:
    """Log-loss of the class frequencies."""
    share = np.unique(y, return_counts=True)[1] / len(y)
    return float(-(share * np.log(share)).sum())


# --- summary


def summary(measured: Sequence[Json]) -> Json:
    """Summary of the fits of all problems."""
    behind, fallen, gains, over = [], [], [], []
    for own in measured:
        best = max(scores["accuracy"] for scores in own["baselines"].values())
        median = statistics.median(fit["accuracy"] for fit in own["fits"])
        error = math.sqrt(median * (1 - median) / FRESH)
        for fit in own["fits"]:
            told = {"problem": own["problem"], "seed": fit["seed"], "accuracy": fit["accuracy"]}
            gains.append(fit["accuracy"] - best)
            if gains[-1] < -BEHIND:
                behind.append(told | {"best_baseline": best})
            if fit["accuracy"] < median - max(LEAST, ERRORS * error):
                fallen.append(told | {"median": median})
            if own["kind"] == NOISE:
                over.append(fit["log_loss"] / own["chance"])
    return {
        "problems": len(measured), "fits": len(gains), "mean_gain": statistics.fmean(gains),
        "failed": sum("error" in fit for own in measured for fit in own["fits"]),
        "share_behind": len(behind) / len(gains), "behind": behind,
        "noise_log_loss_over_chance": {
            "mean": statistics.fmean(over), "highest": max(over)} if over else None,
        "below_median": fallen,
    }  # fmt: skip


def main(argv: list[str]) -> None:
    made = parser(__doc__, "robust_fits")
    every = problems()
    kinds = list(dict.fromkeys(problem.kind for problem in every))
    made.add_argument("--kinds", nargs="+", choices=kinds, default=kinds, metavar="KIND")
    made.add_argument("--each", type=int, help="so many problems of each kind, for a quick look")
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    args = made.parse_args(argv)
    chosen = [p for kind in args.kinds for p in [q for q in every if q.kind == kind][: args.each]]
    head = report.head(report.command_line(["robust_fits", *argv]), seeds=range(args.seeds))
    measured: dict[str, Json] = {}
    for _, own in jobs.finished(measure, [(p, args.seeds) for p in chosen], args.jobs):
        measured[own["problem"]] = own
        shown = " ".join(f"{100 * fit['accuracy']:.1f}" for fit in own["fits"])
        best = 100 * max(scores["accuracy"] for scores in own["baselines"].values())
        print(f"{own['problem']:<60} {shown}  best baseline {best:.1f}", flush=True)
        ordered = [measured[p.name] for p in chosen if p.name in measured]
        whole = {"test_rows": FRESH, "summary": summary(ordered), "problems": ordered}
        report.write(args.out, head | {"threads": 1} | whole)
    print({k: len(v) if isinstance(v, list) else v for k, v in summary(ordered).items()})
