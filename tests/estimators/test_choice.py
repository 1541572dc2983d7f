"""The automatic choice: what it finds on problems whose answer is known, and laws that it keeps."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from mnemosphere import DAMClassifier
from mnemosphere.estimators.choice import splits, usable
from mnemosphere.estimators.settings import Sample
from mnemosphere.rows.rows import Rows
from problems import slow_but


def rings(n, seed):
    """Two classes on rings around each other: no straight border parts them."""
    rng = np.random.default_rng(seed)
    y, angle = rng.permutation(n) % 2, rng.uniform(0, 2 * np.pi, n)
    x = (1 + y)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return x + 0.1 * rng.normal(size=x.shape), y


def fitted(x, y, **settings):
    return DAMClassifier(random_state=0, **settings).fit(x, y)


def test_one_memory_per_class_where_classes_are_one_cluster_each():
    rng = np.random.default_rng(0)
    y = np.arange(211) % 3
    x = 4 * np.eye(3, 5)[y] + rng.normal(size=(211, 5))
    assert fitted(x, y).n_memories_ <= 12


def test_more_memories_where_a_class_needs_them():
    x, y = rings(401, 0)
    clf, (fresh, truth) = fitted(x, y), rings(1009, 1)
    assert clf.score(fresh, truth) > 0.97


def test_columns_on_circles_where_units_and_shapes_differ():
    """The class depends on the middle ranks of a column with heavy tails."""
    rng = np.random.default_rng(1)
    x = np.exp(2 * rng.normal(size=(1201, 3))) * [1, 1000, 1e-3]
    y = (np.abs(np.log(x[:, 0])) < 1).astype(int)
    clf = fitted(x[:601], y[:601])
    assert clf.geometry_ == "circles"
    assert clf.score(x[601:], y[601:]) > 0.95


@pytest.mark.parametrize("load", slow_but([load_wine], [load_iris, load_wine, load_breast_cancer]))
def test_defaults_on_small_tables(load):
    """Better than class frequencies by far, and what the choice promised of held-out rows."""
    x, y = load(return_X_y=True)
    x, fresh, y, truth = train_test_split(x, y, random_state=0, stratify=y)
    clf = fitted(x, y)
    found = log_loss(truth, clf.predict_proba(fresh))
    chance = log_loss(truth, np.tile(np.bincount(y) / len(y), (len(truth), 1)))
    (chosen,) = [trial for trial in clf.search_ if trial["chosen"]]
    assert found < chance / 5
    assert found < chosen["log_loss"] + 4 * chosen["error"] + 0.02
    assert (chosen["geometry"], chosen["objective"]) == (clf.geometry_, clf.objective_)


def test_the_choice_does_not_depend_on_the_seed_nor_on_the_order_of_rows():
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    tables = [
        [{k: v for k, v in t.items() if k not in ("log_loss", "error")} for t in clf.search_]
        for clf in (
            DAMClassifier(random_state=0).fit(x, y),
            DAMClassifier(random_state=7).fit(x[order], y[order]),
        )
    ]
    assert tables[0] == tables[1]


def test_a_table_that_one_rule_decides_gets_more_cycles():
    """Certain where nothing is uncertain: nearly as good as a logistic regression without penalty."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1400, 5))
    y = (x[:, 0] + x[:, 1] > 0.3).astype(int)
    clf = fitted(x[:300], y[:300])
    assert max(trial["cycles"] for trial in clf.search_) >= 3
    assert len({record["phase"] for record in clf.history_}) >= 2
    assert clf.score(x[300:], y[300:]) > 0.97
    assert log_loss(y[300:], clf.predict_proba(x[300:])) < 0.06


def test_rows_without_a_mistake_do_not_ask_for_more_and_more_cycles():
    rng = np.random.default_rng(4)
    y = np.arange(180) % 3
    x = 6 * np.eye(3, 5)[y] + rng.normal(size=(180, 5))
    clf = fitted(x, y)
    (chosen,) = [trial for trial in clf.search_ if trial["chosen"]]
    assert chosen["cycles"] <= 2
    assert max(trial["cycles"] for trial in clf.search_) <= 3


def test_the_objective_follows_from_the_labels():
    x, y = load_iris(return_X_y=True)
    assert {trial["objective"] for trial in fitted(x, y).search_} == {"conditional"}
    partly = np.where(np.arange(len(y)) % 3 == 0, -1, y)
    clf = fitted(x, partly, unlabeled=-1)
    assert {trial["objective"] for trial in clf.search_} == {"joint"} == {clf.objective_}
    assert True in {trial["unlabeled"] for trial in clf.search_}


def test_texts_alone_are_directions():
    def encode(texts):
        each = (np.random.default_rng(len(text)).normal(size=7) for text in texts)
        return np.array([row * 10.0 ** np.arange(7) for row in each])

    clf = fitted(["x" * k for k in range(1, 91)], np.arange(90) % 2, encoder=encode)
    assert {trial["geometry"] for trial in clf.search_} <= {"unit", "center"}


def test_what_is_given_is_kept():
    x, y = load_iris(return_X_y=True)
    clf = fitted(x, y, n_memories=7, geometry="standard", objective="conditional")
    assert (clf.n_memories_, clf.geometry_, clf.objective_) == (7, "standard", "conditional")
    tried = {(t["n_memories"], t["geometry"], t["objective"]) for t in clf.search_}
    assert tried == {(7, "standard", "conditional")}
    assert {trial["noise"] for trial in clf.search_} == {0.0, 0.5}  # which was not given


def test_without_a_search_the_preset_is_no_majority_vote():
    rng = np.random.default_rng(2)
    y = (rng.uniform(size=907) < 0.25).astype(int)
    x = rng.normal(size=(907, 9)) + 1.5 * y[:, None] * np.eye(9)[0]
    clf = fitted(x, y, search=None)
    assert len(clf.search_) == 1
    assert 0.05 < clf.predict(x).mean() < 0.5
    assert log_loss(y, clf.predict_proba(x)) < 0.9 * log_loss(y, np.full(907, y.mean()))


def test_held_out_parts_are_disjoint_and_have_every_class():
    y = torch.arange(103) % 3
    targets = torch.nn.functional.one_hot(y, 4).double()
    rows = Rows.of(np.arange(206.0).reshape(103, 2), torch.device("cpu"))
    parts = splits(Sample(rows, targets, None, torch.float64), 80, 20, 5)
    held = torch.cat([part.number for part in parts])
    assert len(held.unique()) == 100
    for part in parts:
        own = set(part.held.rows.values[:, 0].tolist())
        assert not own & set(part.fitted.rows.values[:, 0].tolist())
        assert (part.held.targets.sum(0)[:3] >= 6).all()


def test_rows_of_unlike_units_have_no_direction():
    rng = np.random.default_rng(0)
    x, targets = rng.normal(size=(97, 5)), torch.ones(97, 2).double()

    def kinds(x):
        rows = Rows.of(x, torch.device("cpu"))
        return usable(Sample(rows, targets, None, torch.float64))

    assert kinds(x) == ["unit", "center", "standard", "whitened", "circles"]
    assert kinds(x * [1, 1, 1, 1e4, 1e4]) == ["standard", "whitened", "circles"]


@pytest.mark.parametrize("known", [1, 2])
def test_columns_with_one_or_two_known_values(known):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 30))
    y = (X[:, 0] > 0).astype(int)
    X[known:, 20:] = np.nan
    model = DAMClassifier(geometry="center", search=None, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
