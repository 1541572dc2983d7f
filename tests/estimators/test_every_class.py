"""Every class keeps its weight: on its own training rows, no model is worse than the class frequencies.

Rows repeat with mixed labels, and in most designs one class is nowhere the commonest.
"""

import itertools

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from problems import slow_but


def _tenth():
    """A tenth of the rows of every cell is of the other class."""
    return np.repeat([[0, 0], [0, 1], [1, 0], [1, 1.0]], 30, 0), np.arange(120) % 10 // 9


def _coin():
    """Labels by chance in a factorial design of three factors."""
    cells = np.array(list(itertools.product([0, 1], repeat=3)), float)
    return np.repeat(cells, 10, 0), np.tile([0, 1], 40)


def _levels():
    """A category of five levels as indicators, four classes that have nothing to do with it."""
    rng = np.random.default_rng(1)
    return np.eye(5)[rng.integers(5, size=200)], rng.choice(4, 200, p=[0.5, 0.3, 0.15, 0.05])


def _few():
    """Ten distinct rows of eight numbers, each with both labels."""
    return np.repeat(np.random.default_rng(1).normal(size=(10, 8)), 4, 0), np.tile([0, 0, 0, 1], 10)


DESIGNS = {"tenth": _tenth, "coin": _coin, "levels": _levels, "few": _few}
every_design = pytest.mark.parametrize("design", slow_but(["tenth", "levels"], DESIGNS))
SETTINGS = {
    "default": {},
    "no search": {"search": None},
    "joint": {"objective": "joint", "search": None},
    "joint, no smoothing": {"objective": "joint", "search": None, "label_smoothing": 0.0},
    "fewer memories than classes": {"n_memories": 1, "search": None},
    "SGD": {"solver": "sgd", "n_memories": 4, "geometry": "standard"},
    "SGD, conditional": {
        "solver": "sgd", "n_memories": 4, "objective": "conditional", "geometry": "standard"
    },
    "growth": {"growth": 1, "n_memories": 6, "geometry": "standard"},
    **{kind: {"geometry": kind, "search": None} for kind in ("unit", "center", "whitened", "circles")},
}  # fmt: skip


def check_law(model, X, y, weight=None):
    """Log-loss at most .02 above that of the frequencies; no class impossible where its rows are."""
    weight = np.ones(len(y)) if weight is None else weight
    share = np.bincount(y, weight) / weight.sum()
    own = model.predict_proba(X)[np.arange(len(y)), y]
    assert own.min() > 1e-6
    assert weight @ -np.log(own) / weight.sum() < -share @ np.log(share) + 0.02


@pytest.mark.parametrize("setting", SETTINGS)
@every_design
def test_no_model_is_worse_than_the_class_frequencies(design, setting):
    X, y = DESIGNS[design]()
    kind = SETTINGS[setting].get("geometry")
    if kind in ("unit", "center"):  # a row of one number all over has no direction
        some = np.ptp(X, 1) > 0
        X, y = X[some], y[some]
    check_law(mn.DAMClassifier(random_state=0, **SETTINGS[setting]).fit(X, y), X, y)


CATEGORIES = [(12, 480, 0.1, 0), (30, 900, 0.05, 3), (12, 480, 0.1, 5), (5, 300, 0.2, 6)]


@pytest.mark.parametrize("case", slow_but(CATEGORIES[:2], CATEGORIES))
def test_one_category_that_says_nothing(case):
    """A model of few distinct rows is not trained as the trials on all rows were."""
    levels, n_rows, rare, seed = case
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"level": pd.Categorical(rng.integers(levels, size=n_rows).astype(str))})
    y = (rng.random(n_rows) < rare).astype(int)
    check_law(mn.DAMClassifier(random_state=seed).fit(X, y), X, y)


@every_design
def test_streams(design):
    X, y = (np.concatenate([part] * 5) for part in DESIGNS[design]())
    order = np.random.default_rng(0).permutation(len(y))
    model = mn.DAMClassifier(random_state=0, search=None)
    for part in np.array_split(order, 5):
        model.partial_fit(X[part], y[part], classes=np.unique(y))
    check_law(model, X, y)


@pytest.mark.parametrize("objective", ["joint", "conditional"])
@every_design
def test_files(tmp_path, design, objective):
    X, y = DESIGNS[design]()
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    frame.assign(y=y).sample(frac=1, random_state=0).to_csv(tmp_path / "rows.csv", index=False)
    model = mn.DAMClassifier(random_state=0, search=None, objective=objective)
    check_law(model.fit(mn.Dataset.open(tmp_path / "rows.csv", label="y")), frame, y)


@pytest.mark.parametrize("objective", ["joint", "conditional"])
@every_design
def test_soft_labels_and_weights(design, objective):
    X, y = DESIGNS[design]()
    cells, index = np.unique(X, axis=0, return_inverse=True)
    soft = np.zeros((len(cells), y.max() + 1))
    np.add.at(soft, (index, y), 1.0)
    settings = {"random_state": 0, "search": None, "objective": objective}
    total = soft.sum(1)
    model = mn.DAMClassifier(**settings).fit(cells, soft / total[:, None], sample_weight=total)
    check_law(model, X, y)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    check_law(mn.DAMClassifier(**settings).fit(X, y, sample_weight=weight), X, y, weight)


@pytest.mark.parametrize("settings", [{}, {"objective": "joint", "search": None}])
@every_design
def test_rows_that_repeat_with_and_without_label(design, settings):
    X, y = DESIGNS[design]()
    known = np.random.default_rng(0).random(len(y)) < 0.5
    model = mn.DAMClassifier(unlabeled=-1, random_state=0, **settings)
    check_law(model.fit(X, np.where(known, y, -1)), X[known], y[known])
