"""What is measured: one cell per data set and method, in each of six parts.

classify     accuracy, log-loss, calibration error, cost, on the folds of a cross-validation
time         a fit of ours between one of logistic regression and one of k-NN, in one run
frames       classify, on tables with names, categories and blanks
cluster      agreement with the classes, which nobody was told, on the training rows of the folds
few-labels   test accuracy with five labels per class, the other training rows unlabeled
novelty      rows of a class left out of training told from test rows of the others, by AUROC

Seconds are processor time: what others do on the machine at the time counts little.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from research.field import frames, methods, scores, sets
from research.field.methods import Case
from research.field.sets import Table
from research.report import Json

Index = NDArray[np.int64]
LABELS_PER_CLASS = 5


@dataclass(frozen=True)
class Part:
    """Its methods, how a cell is measured, and what is read from cells (is high good?)."""

    makes: dict[str, methods.Make]
    measure: Callable[[Table, str, int, int, list[int] | None], Json]
    measures: dict[str, bool]
    source: ModuleType = sets  # of its tables


@contextmanager
def stopwatch(into: list[float]) -> Iterator[None]:
    began = time.process_time()
    yield
    into.append(round(time.process_time() - began, 5))


def folds(table: Table, n_folds: int, seed: int) -> list[tuple[Index, Index]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes with fewer rows than folds
        split = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
        return list(split.split(table.x, table.y))


def case_of(x: Any, y: Any, seed: int) -> Case:
    return Case(len(x), x.shape[1], len(np.unique(y)), seed)


@lru_cache
def warm_up(part: str, method: str) -> None:
    """Load libraries and compile what is compiled once, so that no data set pays for it."""
    table = sets.load("iris", "bundled", None)
    x: Any = table.x[::2]
    if PARTS[part].source is frames:
        from pandas import DataFrame

        x = DataFrame(x).rename(columns=str)
    PARTS[part].measure(Table("warm-up", "", x, table.y[::2]), method, 2, 0, [6, 6])


def cell(part: str, table: Table, method: str, n_folds: int, seed: int, memories: Any) -> Json:
    """Measure one cell; `memories` of ours per fold, for methods that are to have as many."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the methods: not converged, constant features
        warm_up(part, method)
        return PARTS[part].measure(table, method, n_folds, seed, memories)


def whole(p: Any, classes: Any, n_classes: int) -> NDArray[np.float64]:
    """Probabilities with a column for every class, those unknown to the model too."""
    full = np.zeros((len(p), n_classes))
    full[:, classes] = p
    return full


def deciding(model: Any, x: Any) -> dict[str, float]:
    """How few memories of ours decide about rows; the number of rows or prototypes of others."""
    if hasattr(model, "decision_summary"):
        told = model.decision_summary(x).as_dict()
        return {key: float(told[key]) for key in methods.DECISION}
    model = getattr(model, "model_", model)
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    last = getattr(last, "model_", last)
    number = getattr(last, "n_neighbors", None)  # k of k-NN, support vectors, the nearest prototype
    if hasattr(last, "n_support_"):
        number = last.n_support_.sum()
    elif hasattr(last, "prototypes_") or hasattr(last, "centroids_"):
        number = 1
    return {} if number is None else {methods.DECISION[0]: float(number)}


def classify(
    table: Table,
    method: str,
    n_folds: int,
    seed: int,
    memories: list[int] | None,
    makes: dict[str, methods.Make] = methods.CLASSIFIERS,
) -> Json:
    found: dict[str, list[float]] = {
        key: [] for key in ("accuracy", "log_loss", "fit_seconds", "predict_seconds", "bytes")
    }
    counts: list[int] = []
    pooled, truth = [], []
    for k, (train, test) in enumerate(folds(table, n_folds, seed)):
        x, y = table.rows(train), table.y[train]
        case = replace(case_of(x, y, seed), n_memories=memories[k] if memories else None)
        model = makes[method](case)
        with stopwatch(found["fit_seconds"]):
            model.fit(x, y)
        with stopwatch(found["predict_seconds"]):
            p = model.predict_proba(table.rows(test))
        p = whole(p, model.classes_, table.n_classes)
        right = model.predict(table.rows(test)) == table.y[test]
        found["accuracy"].append(round(float(right.mean()), 6))
        found["log_loss"].append(round(scores.log_loss(p, table.y[test]), 6))
        found["bytes"].append(len(pickle.dumps(model)))
        if hasattr(model, "n_memories_"):
            counts.append(int(model.n_memories_))
        for key, value in deciding(model, table.rows(test)).items():
            found.setdefault(key, []).append(round(value, 6))
        pooled.append(p)
        truth.append(table.y[test])
    # Of all rows, each as predicted by the fold that did not see it: folds are too small to bin.
    error = scores.calibration_error(np.concatenate(pooled), np.concatenate(truth))
    return {**found, "calibration_error": round(error, 6)} | (
        {"memories": counts} if counts else {}
    )


def timed(table: Table, method: str, n_folds: int, seed: int, memories: Any) -> Json:
    """A fit of ours between one of logistic regression and one of tuned k-NN, on every fold."""
    found: dict[str, list[float]] = {key: [] for key in ("fit_seconds", *methods.TIMED_BY)}
    for train, _ in folds(table, n_folds, seed):
        x, y = table.x[train], table.y[train]
        for name in (methods.LOGISTIC, method, methods.NEIGHBORS):
            key = "fit_seconds" if name == method else name
            model = methods.CLASSIFIERS[name](case_of(x, y, seed))
            with stopwatch(found[key]):
                model.fit(x, y)
    return dict(found)


def cluster(table: Table, method: str, n_folds: int, seed: int, memories: Any) -> Json:
    found: dict[str, list[float]] = {
        key: [] for key in ("rand_index", "mutual_information", "clusters", "fit_seconds")
    }
    for train, _ in folds(table, n_folds, seed):
        x, y = table.x[train], table.y[train]
        model = methods.CLUSTERERS[method](case_of(x, y, seed))
        with stopwatch(found["fit_seconds"]):
            labels = model.fit_predict(x)
        found["rand_index"].append(round(adjusted_rand_score(y, labels), 6))
        found["mutual_information"].append(round(normalized_mutual_info_score(y, labels), 6))
        found["clusters"].append(len(np.unique(labels[labels >= 0])))
    return dict(found)


def few_labels(table: Table, method: str, n_folds: int, seed: int, memories: Any) -> Json:
    found: dict[str, list[float]] = {"accuracy": [], "fit_seconds": []}
    for train, test in folds(table, n_folds, seed):
        x, y = table.x[train], table.y[train]
        order = np.random.default_rng(seed).permutation(len(y))
        chosen = np.concatenate(
            [order[y[order] == c][:LABELS_PER_CLASS] for c in range(table.n_classes)]
        )
        partly = np.full(len(y), methods.UNLABELED)
        partly[chosen] = y[chosen]
        if method in methods.ALONE:
            x, partly = x[chosen], y[chosen]
        model = methods.FEW_LABELS[method](case_of(x, y[chosen], seed))
        with stopwatch(found["fit_seconds"]):
            model.fit(x, partly)
        right = model.predict(table.x[test]) == table.y[test]
        found["accuracy"].append(round(float(right.mean()), 6))
    return dict(found)


def novelty(table: Table, method: str, n_folds: int, seed: int, memories: Any) -> Json:
    """Each class in turn is the new one; of many classes, as many as there are folds."""
    found: dict[str, list[float]] = {"auroc": [], "fit_seconds": []}
    frequent = np.argsort(-np.bincount(table.y), kind="stable")[:n_folds]
    for new, (train, test) in zip(frequent, folds(table, n_folds, seed), strict=False):
        train, test = train[table.y[train] != new], test[table.y[test] != new]
        x, y = table.x[train], table.y[train]
        model = methods.DETECTORS[method](case_of(x, y, seed))
        with stopwatch(found["fit_seconds"]):
            model.fit(x, y)
        ours = hasattr(model, "novelty_score")
        score = model.novelty_score if ours else lambda rows, of=model: -of.score_samples(rows)
        strange = table.x[table.y == new]
        values = np.concatenate([score(table.x[test]), score(strange)])
        truth = np.repeat([0, 1], [len(test), len(strange)])
        # A row without direction is as new as can be.
        auroc = roc_auc_score(truth, np.nan_to_num(values, posinf=1e300))
        found["auroc"].append(round(float(auroc), 6))
    return dict(found)


PARTS = {
    "classify": Part(
        methods.CLASSIFIERS,
        classify,
        {"accuracy": True, "log_loss": False, "calibration_error": False},
    ),
    "time": Part({m: methods.CLASSIFIERS[m] for m in methods.BOTH}, timed, {}),
    "frames": Part(
        methods.FRAMES,
        partial(classify, makes=methods.FRAMES),
        {"accuracy": True, "log_loss": False, "calibration_error": False},
        frames,
    ),
    "cluster": Part(methods.CLUSTERERS, cluster, {"rand_index": True, "mutual_information": True}),
    "few-labels": Part(methods.FEW_LABELS, few_labels, {"accuracy": True}),
    "novelty": Part(methods.DETECTORS, novelty, {"auroc": True}),
}
