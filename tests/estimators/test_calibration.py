"""Temperature, rejection and another class prior, against SciPy, enumeration and counting."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

import mnemosphere as mn
from quick_models import small


@pytest.fixture(scope="module")
def noisy(make_clusters):
    """Three clusters that overlap; a model that is too sure of itself."""
    train, held = make_clusters(3, rows=151, spread=3.0), make_clusters(4, rows=307, spread=3.0)
    model = small(n_memories=31, varsigma=1.0, beta=40.0, geometry="center", max_iter=None)
    return model.fit(train.x, train.y), held


def uncalibrated(model):
    return mn.as_estimator(model.model_.at(1.0).replace(calibration=None))


def with_prior(model, prior, **more):
    return mn.as_estimator(mn.interpret.with_class_prior(model.model_, prior, **more))


# Temperature, against SciPy in model/test_soft_labels


@pytest.mark.parametrize("weighted", [False, True])
def test_the_temperature_makes_held_out_labels_likelier(noisy, weighted):
    model, held = noisy
    weight = np.random.default_rng(0).random(307) if weighted else None
    plain, before = uncalibrated(model), model.temperature_
    calibrated = uncalibrated(model).calibrate(held.x, held.y, weight)
    proba = calibrated.predict_proba(held.x)
    found, untouched = (
        log_loss(held.y, m.predict_proba(held.x), sample_weight=weight) for m in (calibrated, plain)
    )
    assert found < untouched - 1e-3
    for factor in (0.8, 1.25):  # little is gained beyond it, by which log T is drawn towards 0
        other = model.model_.replace(
            votes=calibrated.model_.votes.at(factor * calibrated.temperature_)
        )
        near = mn.as_estimator(other).predict_proba(held.x)
        assert found < log_loss(held.y, near, sample_weight=weight) + 1e-2
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
    assert (model.novelty_score(-20 * rows.x[:5]) > model.novelty_threshold_).all()


def test_the_score_tells_all_rows_apart_as_in_double_precision(images):
    """In single precision, digits and shuffled digits; the ranking is that of double precision."""
    rng = np.random.default_rng(0)
    rows = np.vstack([images.x_test[:50], rng.permuted(images.x_test[:50], axis=1)])
    model = small(
        n_memories=61, varsigma=0.25, geometry="center", max_iter=2, precision="float32"
    ).fit(images.x_train[:600], images.y_train[:600])
    score = model.novelty_score(rows)
    assert len(np.unique(score)) == 100
    exact = model.model_.replace(density=model.model_.density.to(dtype=torch.float64))
    assert np.array_equal(score.argsort(), exact.novelty_score(rows).numpy().argsort())


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
    path = model.recall(gaps, rows.y, path=True)
    assert (np.diff(path.energies, axis=0) <= 1e-10).all()
    np.testing.assert_allclose(path.rows[-1], model.recall(gaps, rows.y))
    assert path.rows.shape == (path.steps.max() + 1, *x.shape)


def test_few_rows_set_no_temperature(data):
    model = mn.DAMClassifier(4, geometry="unit", search=None, random_state=0).fit(*data)
    before = model.temperature_
    with pytest.warns(UserWarning, match="3 labeled rows are too few to set the temperature by"):
        model.calibrate(data.x[:3] + 1e-3, data.y[:3])
    assert model.temperature_ == before
