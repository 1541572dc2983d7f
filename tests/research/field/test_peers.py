"""The peers that are made here: nearest prototypes, neighbors, calibrated scores."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from research.field.peers import LVQ, Calibrated, NeighborDistance, Prototypes, TunedNeighbors


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=127)
    return rng.normal(size=(127, 5)) + 1.2 * np.eye(5)[y], np.array(["u", "v", "w"])[y]


def test_the_nearest_prototype_of_each_class_counts(rows):
    x, y = rows
    model = Prototypes()
    model.classes_, model.labels_ = np.unique(y), np.array([2, 0, 1, 0])
    model.prototypes_, model.omega_ = x[:4], np.random.default_rng(1).normal(size=(5, 5))
    for row, found in zip(x[10:13], model.decision_function(x[10:13]), strict=True):
        d = [np.sum(((row - w) @ model.omega_) ** 2) for w in x[:4]]
        nearest = np.array([min(d[1], d[3]), d[2], d[0]])
        np.testing.assert_allclose(found, -nearest / nearest.sum())


def test_neighbors_are_those_of_scikit_learn_drawn_to_the_prior(rows):
    x, y = rows
    model = TunedNeighbors(StandardScaler()).fit(x[:100], y[:100])
    k, m = model.model_["knn"].n_neighbors, model.further_
    scaler = StandardScaler().fit(x[:100])
    plain = KNeighborsClassifier(k).fit(scaler.transform(x[:100]), y[:100])
    new = scaler.transform(x[100:])
    np.testing.assert_array_equal(model.predict(x[100:]), plain.predict(new))
    p = model.predict_proba(x[100:])
    prior = [(y[:100] == c).mean() for c in "uvw"]
    np.testing.assert_allclose(p, (k * plain.predict_proba(new) + m * np.array(prior)) / (k + m))
    np.testing.assert_allclose(p.sum(1), 1)


def test_scores_that_are_log_odds_come_back_as_probabilities():
    """Scores far too sure of themselves are brought down to what rows left out say."""

    class Overconfident(LogisticRegression):
        def decision_function(self, X):
            return 50 * super().decision_function(X)

    rng = np.random.default_rng(5)
    x = rng.normal(size=(1500, 1))
    truth = 1 / (1 + np.exp(-2 * x[:, 0]))
    y = (rng.random(1500) < truth).astype(int)
    for folds in (0, 5):
        p = Calibrated(Overconfident(), folds=folds).fit(x, y).predict_proba(x)[:, 1]
        assert np.abs(p - truth).mean() < 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("matrix", [False, True])
def test_prototypes_of_lvq_decide_as_prosemble_does(rows, matrix):
    models = pytest.importorskip("prosemble.models")
    x, y = rows
    index = np.searchsorted(["u", "v", "w"], y)
    ours = LVQ(matrix=matrix, per_class=2).fit(x, y)
    theirs = (models.GMLVQ if matrix else models.GLVQ)(n_prototypes_per_class=2, random_seed=0)
    theirs.fit(x.astype(np.float32), index)
    np.testing.assert_array_equal(
        np.searchsorted(["u", "v", "w"], ours.predict(x)), theirs.predict(x.astype(np.float32))
    )
    wide = np.concatenate([x[:31], np.zeros((31, 40))], axis=1)  # more features than rows
    wide = wide @ np.linalg.qr(np.random.default_rng(0).normal(size=(45, 45)))[0]
    assert (LVQ(matrix=matrix).fit(wide, y[:31]).predict(wide) == y[:31]).mean() > 0.7


def test_novelty_by_neighbors_is_the_fifth_smallest_distance(rows):
    x, _ = rows
    train, test = x[:37], x[37:60]
    every = np.sqrt(((test[:, None] - train) ** 2).sum(-1))
    found = NeighborDistance().fit(train).score_samples(test)
    np.testing.assert_allclose(-found, np.sort(every, axis=1)[:, 4], rtol=1e-10)
