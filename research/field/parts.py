"""What is measured: one cell per data set, method and fold, in each of four parts.

classify     accuracy, log-loss, calibration, cost and seconds per explanation, on all tables
cluster      agreement with the classes, which nobody was told, on the training rows of the folds
few-labels   test accuracy with five labels per class, the other training rows unlabeled
novelty      rows of a class left out of training told from test rows of the others, by AUROC

Seconds are processor time: what others do on the machine at the time counts little. All methods of
a table and fold are measured one after the other in one process, so that their ratios are fair.
"""

from __future__ import annotations

import pickle
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    adjusted_rand_score,
    log_loss,
    normalized_mutual_info_score,
    roc_auc_score,
)
from sklearn.model_selection import StratifiedKFold

from research.field import frames, methods, scores, sets
from research.field.methods import Case
from research.field.sets import Table
from research.report import Json, Parts

Index = NDArray[np.int64]
LABELS_PER_CLASS = 5
EXPLAINED = 10  # rows, one at a time


class Fold(NamedTuple):
    """Training and test rows, and how many folds there were before."""

    train: Index
    test: Index
    number: int


@dataclass(frozen=True)
class Part:
    """Its methods, how a cell is measured, and what is read from cells (is high good?)."""

    makes: dict[str, methods.Make]
    measure: Callable[[Table, str, Fold, int], Json]
    measures: dict[str, bool]
    folds: int = 3
    frames: bool = False  # also on tables with names, categories and missing values


class Seconds:
    """Of processor time, by name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Of a block."""
        began = time.process_time()
        yield
        self.spent[name] = round(time.process_time() - began, 5)


@lru_cache(maxsize=2)
def load(name: str, kind: str, folder: Path | None) -> Table:
    """A table of any kind."""
    return (frames if name in frames.SETS else sets).load(name, kind, folder)


def kinds(part: Part, folder: Path | None) -> dict[str, str]:
    """Name and kind of every table that a part is measured on."""
    return sets.kinds(folder) | (frames.kinds(folder) if part.frames else {})


def folds(table: Table, n_folds: int, seed: int) -> list[Fold]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes with fewer rows than folds
        split = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
        return [Fold(*rows, k) for k, rows in enumerate(split.split(table.x, table.y))]


def case_of(x: Any, y: Any, seed: int) -> Case:
    return Case(len(x), x.shape[1], len(np.unique(y)), seed, hasattr(x, "columns"))


@lru_cache
def warm_up(part: str, method: str, frame: bool) -> None:
    """Load libraries and compile what is compiled once, so that no data set pays for it."""
    table = sets.load("iris", "bundled", None)
    x: Any = table.x[::2]
    if frame:
        from pandas import DataFrame

        x = DataFrame(x).rename(columns=str)
    small = Table("warm-up", "", x, table.y[::2])
    PARTS[part].measure(small, method, folds(small, 2, 0)[0], 0)


def cells(
    part: str, name: str, kind: str, data: Path | None, names: Iterable[str], number: int,
    n_folds: int, seed: int, folder: Path,
) -> dict[str, Json]:  # fmt: skip
    """Measure one fold of a table by these methods; cells that `folder` has are not redone."""
    table = load(name, kind, data)

    def measured(method: str) -> Json:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the methods: not converged, constant features
            warm_up(part, method, hasattr(table.x, "columns"))
            return PARTS[part].measure(table, method, folds(table, n_folds, seed)[number], seed)

    stored = Parts(folder)
    return {m: stored.step(f"{name} {m} {number}", lambda m=m: measured(m)) for m in names}  # type: ignore[misc]


def whole(p: Any, classes: Any, n_classes: int) -> NDArray[np.float64]:
    """Probabilities with a column for every class, those unknown to the model too."""
    full = np.zeros((len(p), n_classes))
    full[:, classes] = p
    return full


def classify(table: Table, method: str, fold: Fold, seed: int) -> Json:
    x, y, new, truth = *table.at(fold.train), *table.at(fold.test)
    case, seconds = case_of(x, y, seed), Seconds()
    if methods.too_long(method, case):
        return {}
    model = methods.CLASSIFIERS[method](case)
    with seconds.of("fit_seconds"):
        model.fit(x, y)
    with seconds.of("predict_seconds"):
        p = model.predict_proba(new)
    p = whole(p, model.classes_, table.n_classes)
    found: Json = {
        "accuracy": round(float((model.predict(new) == truth).mean()), 6),
        "log_loss": round(float(log_loss(truth, p, labels=range(table.n_classes))), 6),
        # Of all folds together: one of them is too small to bin.
        "calibration": np.round(scores.calibration_gaps(p, truth), 6).tolist(),
        "tested": len(truth),
        **seconds.spent,
        "bytes": len(pickle.dumps(model)),
    }
    if table.n_classes == 2 and len(np.unique(truth)) == 2:
        found["auroc"] = round(float(roc_auc_score(truth, p[:, 1])), 6)
    if hasattr(model, "n_memories_"):
        found["memories"] = int(model.n_memories_)
    if explain := getattr(model, "explain", getattr(model, "explain_local", None)):
        found["explain_seconds"] = explanation_seconds(explain, table, fold)
    return found


def explanation_seconds(explain: Callable[[Any], Any], table: Table, fold: Fold) -> float:
    """For one row, the median over some."""
    spent = []
    for k in fold.test[:EXPLAINED]:
        row, seconds = table.at(np.array([k]))[0], Seconds()
        with seconds.of("one"):
            explain(row)
        spent.append(seconds.spent["one"])
    return round(statistics.median(spent), 6)


def cluster(table: Table, method: str, fold: Fold, seed: int) -> Json:
    x, y = table.at(fold.train)
    model, seconds = methods.CLUSTERERS[method](case_of(x, y, seed)), Seconds()
    with seconds.of("fit_seconds"):
        labels = model.fit_predict(x)
    return {
        "rand_index": round(adjusted_rand_score(y, labels), 6),
        "mutual_information": round(normalized_mutual_info_score(y, labels), 6),
        "clusters": len(np.unique(labels[labels >= 0])),
        **seconds.spent,
    }


def few_labels(table: Table, method: str, fold: Fold, seed: int) -> Json:
    x, y, new, truth = *table.at(fold.train), *table.at(fold.test)
    order = np.random.default_rng(seed).permutation(len(y))
    chosen = np.concatenate(
        [order[y[order] == c][:LABELS_PER_CLASS] for c in range(table.n_classes)]
    )
    partly = np.full(len(y), methods.UNLABELED)
    partly[chosen] = y[chosen]
    if method in methods.ALONE:
        x, partly = x[chosen], y[chosen]
    model, seconds = methods.FEW_LABELS[method](case_of(x, y[chosen], seed)), Seconds()
    with seconds.of("fit_seconds"):
        model.fit(x, partly)
    right = model.predict(new) == truth
    return {"accuracy": round(float(right.mean()), 6), **seconds.spent}


def novelty(table: Table, method: str, fold: Fold, seed: int) -> Json:
    """The most frequent class is new in the first fold, the next one in the second, and so on."""
    if fold.number >= table.n_classes:
        return {}
    new = np.argsort(-np.bincount(table.y), kind="stable")[fold.number]
    train, test = (rows[table.y[rows] != new] for rows in (fold.train, fold.test))
    x, y = table.at(train)
    model, seconds = methods.DETECTORS[method](case_of(x, y, seed)), Seconds()
    with seconds.of("fit_seconds"):
        model.fit(x, y)
    ours = hasattr(model, "novelty_score")
    score = model.novelty_score if ours else lambda rows: -model.score_samples(rows)
    strange = table.x[table.y == new]
    values = np.concatenate([score(table.x[test]), score(strange)])
    truth = np.repeat([0, 1], [len(test), len(strange)])
    # A row without direction is as new as can be.
    auroc = roc_auc_score(truth, np.nan_to_num(values, posinf=1e300))
    return {"auroc": round(float(auroc), 6), **seconds.spent}


PARTS = {
    "classify": Part(
        methods.CLASSIFIERS,
        classify,
        {"accuracy": True, "log_loss": False, "calibration_error": False, "auroc": True},
        folds=5,
        frames=True,
    ),
    "cluster": Part(methods.CLUSTERERS, cluster, {"rand_index": True, "mutual_information": True}),
    "few-labels": Part(methods.FEW_LABELS, few_labels, {"accuracy": True}),
    "novelty": Part(methods.DETECTORS, novelty, {"auroc": True}),
}
