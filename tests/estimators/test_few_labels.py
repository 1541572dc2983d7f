"""Rows without labels through `fit`: all kinds of labels, automatic choices, interruption."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

import mnemosphere as mn
from draws import circles
from mnemosphere.training import few_labels


@pytest.fixture(scope="module")
def two():
    (x, y), fresh = (map(np.asarray, circles(*of)) for of in ((901, 0), (997, 1)))
    return x, np.where(np.arange(901) < 6, y, -1), *fresh


def small(**options):
    settings = {"objective": "joint", "varsigma": 1.0, "geometry": "unit", "random_state": 0}
    return mn.DAMClassifier(100, **(settings | options))


def test_six_labels_go_a_long_way(two):
    x, partly, fresh_x, fresh_y = two
    model = small(unlabeled=-1).fit(x, partly)
    alone = small().fit(x[:6], partly[:6])
    assert model.score(fresh_x, fresh_y) > 0.95
    assert alone.score(fresh_x, fresh_y) < 0.7
    phases = [record["phase"] for record in model.history_]
    assert phases == sorted(phases)
    assert set(phases) == {few_labels.PHASE, 0}


def test_hard_soft_and_missing_labels_are_one_thing(two):
    """A matrix with a row of zeros for a missing label trains as the marker does."""
    x, partly, fresh_x, _ = two
    soft = np.zeros((901, 2))
    soft[np.arange(6), partly[:6]] = 1.0
    hard_model = small(unlabeled=-1).fit(x, partly)
    soft_model = small().fit(x, soft)
    assert_array_equal(soft_model.predict_proba(fresh_x), hard_model.predict_proba(fresh_x))
    soft[0] = [0.3, 0.2]  # half of it is not known
    other = small().fit(x, soft)
    assert not np.array_equal(other.class_weights_, soft_model.class_weights_)


def test_the_search_trains_on_unlabeled_rows_as_the_model_is_trained():
    """So it sees what they are worth, and its temperature is that of the model."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(y))
    rows, rest = order[:400], order[400:]
    known = np.concatenate([rows[y[rows] == c][:5] for c in range(10)])
    partly = np.where(np.isin(rows, known), y[rows], -1)
    settings = {"geometry": "center", "objective": "joint", "random_state": 0}
    model = mn.DAMClassifier(unlabeled=-1, **settings).fit(x[rows], partly)
    alone = mn.DAMClassifier(**settings).fit(x[known], y[known])
    assert model.score(x[rest], y[rest]) > alone.score(x[rest], y[rest]) + 0.04
