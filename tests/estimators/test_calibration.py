"""Temperature, rejection and another class prior, against SciPy, enumeration and counting."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss

import class_formula
import mnemosphere as mn
from quick_models import small


@pytest.fixture(scope="module")
def noisy(make_clusters):
    """Three clusters that overlap; a model that is too sure of itself."""
    train, held = make_clusters(3, rows=151, spread=3.0), make_clusters(4, rows=307, spread=3.0)
    model = small(n_memories=31, varsigma=1.0, beta=40.0, geometry="center", max_iter=None)
    return model.fit(train.x, train.y), held


def uncalibrated(model):
    return mn.as_estimator(model.model_.with_trained(model.model_.trained))


def with_prior(model, prior, **more):
    return mn.as_estimator(mn.interpret.with_class_prior(model.model_, prior, **more))


def centered(x):
    x = x - x.mean(axis=1, keepdims=True)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def plain_search(params, soft, x, y, weight=None):
    """T by SciPy, and the log-loss of the formula as a function of log T; x unit rows.

    soft: labels (P+1, C+1), or the smoothing that they are to be freed from.
    """
    p, w = params.p.double().numpy(), params.w.double().numpy()
    soft = class_formula.net_of_smoothing(p, soft) if isinstance(soft, float) else soft

    def loss(log_t, added=1.0):
        shares = class_formula.log_shares(
            w, p.sum(1), float(params.beta), params.varsigma, np.exp(log_t), x
        )
        each = class_formula.log_probabilities(shares, soft)
        own = each[np.arange(len(y)), y]
        share = added * 3 / (len(y) + 3)  # one row of each class is added, of the mean weight
        return -np.average((1 - share) * own + share * each[:, :3].mean(1), weights=weight)

    grid = np.linspace(np.log(0.1), np.log(50), 40)
    start = grid[np.argmin([loss(g) for g in grid])]
    near = minimize_scalar(
        loss, bounds=(start - 0.2, start + 0.2), method="bounded", options={"xatol": 1e-9}
    )
    return np.exp(near.x), loss


# Temperature


@pytest.mark.parametrize("weighted", [False, True])
def test_the_temperature_is_that_of_a_plain_search(noisy, weighted):
    model, held = noisy
    weight = np.random.default_rng(0).random(307) if weighted else None
    best, loss = plain_search(model.model_.trained, 0.1, centered(held.x), held.y, weight)
    before = model.temperature_
    calibrated = uncalibrated(model).calibrate(held.x, held.y, weight)
    # The posterior mean: towards 1 from the temperature of the least loss.
    found = np.log(calibrated.temperature_)
    assert 0 < found < np.log(best) < found + 0.15
    assert loss(np.log(best)) < loss(0.0) - 1e-3
    proba = calibrated.predict_proba(held.x)
    found = log_loss(held.y, proba, sample_weight=weight)
    assert found == pytest.approx(loss(np.log(calibrated.temperature_), 0.0), rel=1e-9)
    assert found == pytest.approx(loss(np.log(best), 0.0), rel=1e-2)
    assert np.array_equal(calibrated.predict(held.x), proba.argmax(axis=1))
    assert model.temperature_ == before
    np.testing.assert_allclose(calibrated.predict_log_proba(held.x), np.log(proba), rtol=1e-9)
    # What knows of no classes is left alone.
    np.testing.assert_array_equal(
        mn.interpret.score_samples(calibrated.model_, held.x),
        mn.interpret.score_samples(model.model_, held.x),
    )


def test_temperatures_stay_finite(noisy):
    """Labels all wrong want shares of no weight at all, memories alone with their own rows much."""
    model, held = noisy
    hot = uncalibrated(model).calibrate(held.x, (model.predict(held.x) + 1) % 3)
    assert 20 < hot.temperature_ < 1200
    assert np.isfinite(hot.predict_log_proba(held.x)).all()
    exact = small(n_memories=3, geometry="center", uniform_weight=0.0)
    exact.fit(held.x + 1e-3, held.y)
    exact.calibrate(held.x, exact.predict(held.x))
    assert 0.01 < exact.temperature_ < 1
    assert np.isfinite(exact.predict_log_proba(held.x)).all()


# Rejection


def test_copies_of_the_row_at_the_threshold_are_kept_in_every_batch():
    # Rounding depends on the size of the batch; five distinct rows, so that ties are common.
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(5, 61)) + 1
    x = distinct[rng.integers(5, size=83)]
    model = mn.DAMClassifier(7, objective="joint", precision="float32", random_state=0)
    model.fit(rng.normal(size=(101, 61)) + 1, np.arange(101) % 2)
    model.calibrate(x)
    for size in (1, 7, 83):
        parts = [x[k : k + size] for k in range(0, len(x), size)]
        novel = [mn.interpret.is_novel(model.model_, part, 0.05) for part in parts]
        rejected = [mn.interpret.rejections(model.model_, part, 0.05).rejected for part in parts]
        assert np.concatenate(novel).mean() <= 0.05
        assert np.concatenate(rejected).mean() <= 0.05


@pytest.mark.parametrize("names", [["ant", "bee", "cat"], [False, True]])
def test_rejected_rows_are_none_whatever_the_labels(make_clusters, names):
    rows = make_clusters(0, classes=len(names))
    labels = np.array(names)[rows.y]
    model = small(geometry="standard", max_iter=None)
    model.fit(rows.x + 1e-3, labels)
    model.calibrate(rows.x)
    answer = model.predict_or_reject(rows.x, 0.1)
    rejected = np.array([value is None for value in answer])
    score = mn.interpret.rejection_score(model.model_, rows.x)
    assert np.array_equal(rejected, score > np.sort(score)[-6] + 1e-5)  # ⌊0.1·62⌋ = 6
    assert rejected.sum() == 5
    kept = ~rejected
    assert np.array_equal(answer[kept].astype(labels.dtype), model.predict(rows.x)[kept])
    # As a ranking, novelty and the score agree.
    novel = mn.interpret.is_novel(model.model_, rows.x, 0.1)
    novelty = mn.interpret.novelty(model.model_, rows.x)
    assert novelty[novel].min() >= novelty[~novel].max()
    far = -20 * rows.x[:5]
    assert mn.interpret.is_novel(model.model_, far, 0.1).all()


def test_the_score_tells_all_rows_apart_as_in_double_precision(images):
    """In single precision, digits and shuffled digits; the ranking is that of double precision."""
    rng = np.random.default_rng(0)
    rows = np.vstack([images.x_test[:50], rng.permuted(images.x_test[:50], axis=1)])
    model = small(
        n_memories=61, varsigma=0.25, geometry="center", max_iter=2, precision="float32"
    ).fit(images.x_train[:600], images.y_train[:600])
    score = model.novelty_score(rows)
    assert len(np.unique(score)) == 100
    exact = mn.as_estimator(model.model_.with_trained(model.model_.density.to(dtype=torch.float64)))
    assert np.array_equal(score.argsort(), exact.novelty_score(rows).argsort())
    uniform = float(model.model_.density.p[0].sum())
    share = uniform / (uniform + np.exp(-exact.novelty_score(rows)))
    np.testing.assert_allclose(mn.interpret.novelty(exact.model_, rows), share, rtol=1e-6)


# Another class prior


WEIGHTS = np.array([0.2, 5.0, 0.7])


def test_following_memories_is_bayes_rule(noisy):
    """By enumeration: posterior × new prior / old prior, over its sum."""
    model, (x, _), weights = *noisy, WEIGHTS
    other = with_prior(model, weights)
    old = model.class_prior_[:-1] / model.class_prior_[:-1].sum()
    proba = model.predict_proba(x) * (weights / weights.sum()) / old
    np.testing.assert_allclose(other.predict_proba(x), proba / proba.sum(1, keepdims=True))
    assert (other.predict(x) != model.predict(x)).any()
    # P(x|y) is the same law, so within a class recall and shares are untouched.
    for y in model.classes_:
        labels = np.full(11, y)
        np.testing.assert_allclose(
            other.recall(x[:11], labels, steps=3), model.recall(x[:11], labels, steps=3)
        )
    np.testing.assert_allclose(other.class_prior_[:-1].sum(), model.class_prior_[:-1].sum())
    np.testing.assert_allclose(other.class_weights_.sum(1), other.memory_prior_)
    change = other.class_weights_.sum(0)[:3] / model.class_weights_.sum(0)[:3]
    wanted = other.class_prior_[:3] / model.class_prior_[:3]
    np.testing.assert_allclose(change / change[0], wanted / wanted[0])
    assert np.array_equal(other.memories_, model.memories_)


def test_a_prior_by_name_in_any_order_and_a_class_that_never_comes(data):
    names = np.array(["ant", "bee", "cat"])
    model = small(geometry="standard", max_iter=None)
    model.fit(data.x, names[data.y])
    named = with_prior(model, {"cat": 3, "ant": 1, "bee": 0})
    plain = with_prior(model, [1, 0, 3])
    assert np.array_equal(named.class_weights_, plain.class_weights_)
    assert set(named.predict(data.x)) == {"ant", "cat"}
    with pytest.raises(ValueError, match="has no weight in the model"):
        with_prior(named, [1, 1, 1])


# Recall of rows with gaps


@pytest.mark.parametrize("kind", ["center", "standard"])
def test_a_gap_is_a_feature_that_is_not_known(make_clusters, kind):
    rows = make_clusters(0, features=11)
    x = rows.x + 5 if kind == "standard" else rows.x
    model = small(geometry=kind, max_iter=None).fit(x, rows.y)
    lost = np.random.default_rng(0).random(x.shape) < 0.4
    gaps = np.where(lost, np.nan, x)
    found = model.recall(gaps)
    neutral = x.mean(0) if kind == "standard" else np.nanmean(gaps, axis=1, keepdims=True)
    filled = np.where(lost, neutral, x)
    np.testing.assert_allclose(found, model.recall(filled, known=~lost), rtol=1e-9, atol=1e-12)
    assert (model.predict(found) == rows.y).mean() > 0.8  # four features of ten are gone
    path = mn.interpret.recall_path(model.model_, gaps, rows.y)
    assert (np.diff(path.energies, axis=0) <= 1e-10).all()
    np.testing.assert_allclose(path.rows[-1], model.recall(gaps, rows.y))
    assert path.rows.shape == (path.steps.max() + 1, *x.shape)


def test_few_rows_set_no_temperature(data):
    model = mn.DAMClassifier(4, geometry="unit", search=None, random_state=0).fit(*data)
    before = model.temperature_
    with pytest.warns(UserWarning, match="3 labeled rows are too few to set the temperature by"):
        model.calibrate(data.x[:3] + 1e-3, data.y[:3])
    assert model.temperature_ == before
