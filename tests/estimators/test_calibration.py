"""Temperature, rejection and another class prior, against SciPy, enumeration and counting."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss

import mnemosphere as mn
from mnemosphere.estimators.calibration import best_temperature, rejection_threshold
from mnemosphere.model.prior import with_class_prior


@pytest.fixture(scope="module")
def noisy(make_clusters):
    """Three clusters that overlap; a model that is too sure of itself."""
    train, held = make_clusters(3, rows=151, spread=3.0), make_clusters(4, rows=307, spread=3.0)
    model = mn.DAMClassifier(31, varsigma=0.9, normalize="center", random_state=0)
    return model.fit(train.x, train.y), held


# Temperature


@pytest.mark.parametrize("weighted", [False, True])
def test_the_temperature_is_that_of_a_plain_search(noisy, weighted):
    model, held = noisy
    weight = np.random.default_rng(0).random(307) if weighted else None
    raw = model.predict_log_proba(held.x)

    def loss(log_t):
        proba = np.exp(raw / np.exp(log_t))
        return log_loss(held.y, proba / proba.sum(1, keepdims=True), sample_weight=weight)

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    verdict = model.predict(held.x)
    calibrated = model._copy_with(model.params_).calibrate(held.x, held.y, weight)
    # A search by values sees a minimum to the root of rounding only; the slope sees it whole.
    assert calibrated.temperature_ == pytest.approx(np.exp(best.x), rel=1e-5)
    assert best.fun < loss(0.0) - 1e-4
    proba = calibrated.predict_proba(held.x)
    assert log_loss(held.y, proba, sample_weight=weight) == pytest.approx(best.fun, rel=1e-9)
    assert np.array_equal(calibrated.predict(held.x), verdict)
    assert model.temperature_ == 1.0
    found = calibrated.explain(held.x[:5])
    np.testing.assert_allclose(found.probability, proba[:5].max(1), rtol=1e-12)
    np.testing.assert_allclose(calibrated.predict_log_proba(held.x), np.log(proba), rtol=1e-9)


def test_the_slope_vanishes_at_the_temperature_to_six_digits_and_more():
    """Scores made at T = 2.5 from the true law: the slope at 1/T, in exact arithmetic by torch."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(4001, 5))
    scores -= np.log(np.exp(scores).sum(1, keepdims=True))
    index = np.array([rng.choice(5, p=np.exp(row)) for row in scores])
    found = best_temperature(2.5 * scores, index)
    s = torch.tensor(1 / found, dtype=torch.float64, requires_grad=True)
    a = torch.from_numpy(2.5 * scores)
    loss = ((s * a).logsumexp(1) - s * a[range(4001), index]).mean()
    (slope,) = torch.autograd.grad(loss, s)
    assert abs(float(slope)) < 1e-9
    assert found == pytest.approx(2.5, rel=0.05)


def test_temperatures_stay_finite():
    sure = np.log(np.array([[0.9, 0.1], [0.2, 0.8]]))
    assert best_temperature(sure, np.array([0, 1])) == 1e-3
    assert best_temperature(sure, np.array([1, 0])) == 1e3


# Rejection


def test_the_threshold_keeps_its_promise_over_many_draws():
    """n held-out scores and one new one: below the threshold with probability k/(n+1)."""
    rng = np.random.default_rng(2)
    n, rate = 59, 0.05
    draws = rng.normal(size=(20_000, n + 1))
    hits = [row[-1] > rejection_threshold(row[:-1], rate) for row in draws]
    assert np.mean(hits) == pytest.approx(3 / 60, abs=4 * np.sqrt(0.05 / 20_000))


def test_too_few_rows_for_the_rate():
    assert rejection_threshold(np.arange(99.0), 0.01) == 98.0
    with pytest.raises(ValueError, match="at least 99 held-out rows, got 98"):
        rejection_threshold(np.arange(98.0), 0.01)
    assert rejection_threshold(np.arange(99.0), 0.29) == 70.0
    for rate in (0.0, 1.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            rejection_threshold(np.arange(99.0), rate)


@pytest.mark.parametrize(
    "names", [[0, 1, 2], ["ant", "bee", "cat"], [False, True], [1.0, 2.0, 7.0]]
)
def test_rejected_rows_are_none_whatever_the_labels(make_clusters, names):
    rows = make_clusters(0, classes=len(names))
    labels = np.array(names)[rows.y]
    model = mn.DAMClassifier(7, varsigma=0.9, normalize="standard", random_state=0)
    model.fit(rows.x, labels)
    with pytest.raises(ValueError, match="call calibrate_novelty"):
        model.is_novel(rows.x)
    model.calibrate_novelty(rows.x, rate=0.1)
    score = model.novelty_score(rows.x)
    assert model.novelty_threshold_ == np.sort(score)[-6]  # ⌊0.1·62⌋ = 6
    answer = model.predict_or_reject(rows.x)
    novel = np.array([value is None for value in answer])
    assert np.array_equal(novel, model.is_novel(rows.x))
    assert novel.sum() == 5
    assert np.array_equal(answer[~novel].astype(labels.dtype), model.predict(rows.x)[~novel])
    # As a ranking, novelty and the score agree.
    assert model.novelty(rows.x[novel]).min() >= model.novelty(rows.x[~novel]).max()
    far = -20 * rows.x[:5]
    assert model.is_novel(far).all()


def test_the_score_does_not_saturate_where_novelty_and_density_do(images):
    """In single precision, digits and shuffled digits; the ranking is that of double precision."""
    rng = np.random.default_rng(0)
    rows = np.vstack([images.x_test[:50], rng.permuted(images.x_test[:50], axis=1)])
    model = mn.DAMClassifier(
        61, varsigma=0.25, normalize="center", max_iter=2, precision="float32", random_state=0
    ).fit(images.x_train[:600], images.y_train[:600])
    score = model.novelty_score(rows)
    assert len(np.unique(score)) == 100
    assert len(np.unique(model.novelty(rows))) < 95
    assert len(np.unique(model.score_samples(rows))) < 100
    exact = model._copy_with(model.params_.to(dtype=torch.float64))
    assert np.array_equal(score.argsort(), exact.novelty_score(rows).argsort())
    uniform = model.class_weights_[0].sum()
    share = uniform / (uniform + np.exp(-exact.novelty_score(rows)))
    np.testing.assert_allclose(exact.novelty(rows), share, rtol=1e-6)


def test_calibration_is_kept_in_the_file_and_dropped_by_training(noisy, tmp_path):
    model, held = noisy
    model = model._copy_with(model.params_)
    model.calibrate(held.x, held.y).calibrate_novelty(held.x, 0.02)
    assert model.temperature_ != 1.0
    model.save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    assert loaded.temperature_ == model.temperature_
    assert loaded.novelty_threshold_ == model.novelty_threshold_
    np.testing.assert_array_equal(loaded.predict_proba(held.x), model.predict_proba(held.x))
    np.testing.assert_array_equal(loaded.is_novel(held.x), model.is_novel(held.x))
    model.partial_fit(held.x, held.y)
    assert (model.temperature_, model.novelty_threshold_) == (1.0, None)


def test_bad_held_out_rows(noisy):
    model, held = noisy
    with pytest.raises(ValueError, match="X has 307 rows but y has 3"):
        model.calibrate(held.x, held.y[:3])
    with pytest.raises(ValueError, match="not among the classes"):
        model.calibrate(held.x, held.y + 1)


# Another class prior


@pytest.fixture(scope="module")
def skewed(noisy):
    return noisy[0], noisy[1].x, np.array([0.2, 5.0, 0.7])


def test_following_memories_is_bayes_rule(skewed):
    """By enumeration: posterior × new prior / old prior, over its sum."""
    model, x, weights = skewed
    other = model.with_class_prior(weights)
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
    np.testing.assert_allclose(other.class_weights_.sum(0), other.class_prior_)
    assert np.array_equal(other.memories_, model.memories_)


def test_holding_memories_keeps_their_weights_and_every_odds_ratio(skewed):
    model, x, weights = skewed
    other = model.with_class_prior(weights, memory_weights="hold")
    np.testing.assert_allclose(other.memory_prior_, model.memory_prior_, rtol=1e-8)
    new = other.class_prior_[:-1] / other.class_prior_[:-1].sum()
    np.testing.assert_allclose(new, weights / weights.sum(), rtol=1e-8)
    ratio = np.log(other.class_weights_) - np.log(model.class_weights_)  # rank one plus one
    ratio -= ratio[:, :1]
    assert np.abs(ratio - ratio[:1]).max() < 1e-6
    # Not Bayes' rule: the odds change by more, since memories cannot give way.
    bayes = model.with_class_prior(weights).predict_proba(x)
    assert np.abs(other.predict_proba(x) - bayes).max() > 0.05


def test_holding_is_bayes_rule_where_memories_need_not_give_way(problem):
    """Every memory has the same soft label: then p_h stays by itself."""
    params, *_ = problem(2)
    p = torch.outer(params.p_h, params.p_q)
    params = params.replace(p=p)
    p_q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    both = [with_class_prior(params, p_q, kind) for kind in ("follow", "hold")]
    torch.testing.assert_close(both[0].p, both[1].p, rtol=1e-9, atol=0)
    torch.testing.assert_close(both[0].p, torch.outer(params.p_h, p_q), rtol=1e-9, atol=0)


def test_there_and_back_again(skewed):
    model, _, weights = skewed
    back = model.with_class_prior(weights).with_class_prior(model.class_prior_[:-1])
    np.testing.assert_allclose(back.class_weights_, model.class_weights_, rtol=1e-10)


def test_a_prior_by_name_in_any_order_and_a_class_that_never_comes(data):
    names = np.array(["ant", "bee", "cat"])
    model = mn.DAMClassifier(7, varsigma=0.9, normalize="standard", random_state=0)
    model.fit(data.x, names[data.y])
    named = model.with_class_prior({"cat": 3, "ant": 1, "bee": 0})
    plain = model.with_class_prior([1, 0, 3])
    assert np.array_equal(named.class_weights_, plain.class_weights_)
    assert set(named.predict(data.x)) == {"ant", "cat"}
    with pytest.raises(ValueError, match="has no weight in the model"):
        named.with_class_prior([1, 1, 1])
    for prior, message in (
        ({"ant": 1, "bee": 1}, "must name every class"),
        ([1, 1], "3 finite weights"),
        ([1, 1, -1], "3 finite weights"),
        ([0, 0, 0], "not all 0"),
    ):
        with pytest.raises(ValueError, match=message):
            model.with_class_prior(prior)
    with pytest.raises(ValueError, match="one of follow, hold"):
        model.with_class_prior([1, 1, 1], memory_weights="keep")


# Recall of rows with gaps


@pytest.mark.parametrize("kind", ["center", "unit", "standard", "none"])
def test_a_gap_is_a_feature_that_is_not_known(make_clusters, kind):
    rows = make_clusters(0, features=11)
    x = rows.x + 5 if kind == "standard" else rows.x
    x = x / np.linalg.norm(x, axis=1, keepdims=True) if kind == "none" else x
    model = mn.DAMClassifier(7, varsigma=0.9, normalize=kind, random_state=0).fit(x, rows.y)
    lost = np.random.default_rng(0).random(x.shape) < 0.4
    gaps = np.where(lost, np.nan, x)
    found = model.recall(gaps)
    neutral = {"unit": 0.0, "none": 0.0, "standard": x.mean(0)}
    if kind == "center":
        neutral["center"] = np.nanmean(gaps, axis=1, keepdims=True)
    filled = np.where(lost, neutral[kind], x)
    if kind == "none":
        filled /= np.linalg.norm(filled, axis=1, keepdims=True)
    np.testing.assert_allclose(found, model.recall(filled, known=~lost), rtol=1e-9, atol=1e-12)
    assert (model.predict(found) == rows.y).mean() > 0.8  # four features of ten are gone
    path = model.recall_path(gaps, rows.y, method="gradient", rate=1.5)
    assert (np.diff(path.energies, axis=0) <= 1e-10).all()
    np.testing.assert_allclose(
        path.rows[-1], model.recall(gaps, rows.y, method="gradient", rate=1.5)
    )
    assert path.rows.shape == (path.steps.max() + 1, *x.shape)


def test_gaps_that_cannot_be_filled(noisy):
    model, held = noisy
    gaps = held.x[:3].copy()
    gaps[1] = np.nan
    with pytest.raises(ValueError, match="row 1 of X has no known feature"):
        model.recall(gaps)
    gaps[1] = held.x[1]
    gaps[2, 0] = np.nan
    with pytest.raises(ValueError, match="row 2 of X is NaN in column 0"):
        model.recall(gaps, known=np.ones_like(gaps, dtype=bool))
    with pytest.raises(ValueError, match="row 0 of X is infinite"):
        model.recall(np.where(np.arange(5) == 0, np.inf, held.x[:3]))
