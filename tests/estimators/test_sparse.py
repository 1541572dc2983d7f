"""Sparse rows through the estimators: the same answers as dense ones, and never made dense."""

import numpy as np
import pytest
from scipy import sparse

import mnemosphere as mn
from mnemosphere.model.sparse_rows import SparseRows
from quick_models import reloaded, small

pytestmark = pytest.mark.usefixtures("quick_choice")

N_ROWS, N, P = 211, 53, 7
KINDS = ("unit", "center", "standard")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, N_ROWS)
    own = 1.5 * (np.arange(N) % 3 == y[:, None])
    x = np.where(rng.random((N_ROWS, N)) < 0.25, rng.random((N_ROWS, N)) + own, 0.0)
    x[9], y[9] = x[4], y[4]  # copies are merged
    return x, np.array(["deer", "elk", "moose"])[y]


@pytest.fixture
def never_dense(monkeypatch):
    """Only few rows may be made dense: memories start from them, a clusterer's ten times."""
    real = SparseRows.to_dense

    def to_dense(self, *args, **kwargs):
        assert self.shape[0] <= 10 * P < N_ROWS, f"{self.shape[0]} rows made dense"
        return real(self, *args, **kwargs)

    monkeypatch.setattr(SparseRows, "to_dense", to_dense)


@pytest.mark.parametrize("kind", KINDS)
def test_classifier_as_with_dense_rows(data, never_dense, kind):
    x, y = data
    rows = sparse.csr_matrix(x)
    settings = {"geometry": kind, "random_state": 0, "max_iter": 3, "varsigma": 0.5,
                "device": "cpu", "objective": "joint"}  # fmt: skip
    a = mn.DAMClassifier(P, **settings).fit(x, y)
    b = mn.DAMClassifier(P, **settings).fit(rows, y)
    np.testing.assert_allclose(b.memories_, a.memories_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(b.class_weights_, a.class_weights_, rtol=0, atol=1e-10)
    assert b.temperature_ == pytest.approx(a.temperature_, rel=1e-5)  # trials are in float32
    for name in ("predict_proba", "transform", "novelty_score"):
        one, other = getattr(a, name)(x), getattr(b, name)(rows)
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5, err_msg=name)
    assert (a.predict(x) == b.predict(rows)).all()
    assert b.score(rows, y) == a.score(x, y)
    one, other = a.explain(x[:3]), b.explain(rows[:3])
    np.testing.assert_allclose(other.share, one.share, rtol=0, atol=1e-5)
    assert str(one) == str(other)


def test_memories_and_decisions_name_features(data, never_dense, tmp_path):
    x, y = data
    rows = sparse.csr_matrix(x)
    model = small(n_memories=P, varsigma=0.5, max_iter=2).fit(rows, y)
    first = np.argsort(-np.abs(model.memories_[2]))[:4]
    assert mn.interpret.strongest_features(model.model_, 1)["feature"].iloc[2] == first[0]
    terms = [f"{a}{b}" for a in "abcdefgh" for b in "stuvwxyz"][:N]
    model.model_ = mn.interpret.name_features(model.model_, np.array(terms))
    model = reloaded(model, tmp_path)
    table = mn.interpret.strongest_features(model.model_, 4)
    assert len(table) == 4 * P
    own = table[table["memory"] == "#2"]
    assert own["feature"].tolist() == [terms[k] for k in first]
    np.testing.assert_allclose(own["weight"], model.memories_[2][first])
    assert sorted(own.column for own in model.explain(rows[:2]).pulls(1)) == terms
    assert not hasattr(model, "feature_names_in_")  # so that rows without names are welcome


def counts(n_rows, n_features):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n_rows)
    topics = rng.dirichlet(np.full(n_features, 0.05), 3)
    x = np.array([rng.multinomial(60, topics[k]) for k in y], dtype=float)
    return sparse.csr_matrix(x), y


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_memories_of_wide_centered_rows_have_unit_norm(objective):
    """Nearly all entries of such a memory are one small number."""
    x, y = counts(211, 10007)
    given = {"geometry": "center", "precision": "float32", "random_state": 0, "varsigma": 0.5}
    found = mn.DAMClassifier(11, objective=objective, max_iter=3, **given).fit(x, y)
    norms = np.linalg.norm(found.memories_.astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, 1.0, rtol=0, atol=1e-6)
    assert found.score(x, y) > 0.9
    clusters = mn.DAMClusterer(3, n_memories=7, max_iter=5, **given).fit(x)
    assert np.isfinite(clusters.score_samples(x)).all()
