"""The classifier: scikit-learn's checks, its defaults, predictions against formulas, training."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import class_formula
import mnemosphere as mn
from draws import generator
from mnemosphere.numerics import sphere, vmf
from quick_models import small


# The whole list where the choices are made, which is quick, and where they are "auto".
@pytest.mark.usefixtures("quick_choice")
@parametrize_with_checks([small(geometry="standard", varsigma=0.8)])
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([mn.DAMClassifier(random_state=0)])
def test_check_estimator_of_the_defaults(estimator, check):
    check(estimator)


# defaults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folds", "least"), [(5, 0.95), (StratifiedKFold(5, shuffle=True, random_state=0), 0.975)]
)
def test_defaults_on_digits_five_folds(folds, least):
    """In the order of the file a fold holds writers that the others do not: harder for all."""
    x, y = load_digits(return_X_y=True)
    assert cross_val_score(mn.DAMClassifier(random_state=0), x, y, cv=folds).mean() >= least


def embeddings(seed, rows, concentration, classes=4, modes=2):
    """Von Mises–Fisher clusters in 384 dimensions, several to a class."""
    places = torch.Generator().manual_seed(99)
    mean = sphere.sample_uniform(classes * modes, 384, generator=places, dtype=torch.float64)
    x = vmf.sample(
        mean.repeat_interleave(rows, 0),
        torch.tensor(concentration, dtype=torch.float64),
        generator=generator(seed),
    )
    return x.numpy(), np.repeat(np.arange(classes * modes) % classes, rows)


def test_defaults_on_embeddings():
    """Rows of one cluster have a cosine of 0.15 with each other."""
    model = mn.DAMClassifier(random_state=0).fit(*embeddings(0, 30, 180.0))
    assert model.score(*embeddings(1, 20, 180.0)) >= 0.95


@pytest.mark.slow
def test_defaults_on_images(images):
    model = mn.DAMClassifier(random_state=0).fit(images.x_train[::2], images.y_train[::2])
    assert model.score(images.x_test, images.y_test) >= 0.93


def test_repeated_rows_are_known_by_heart():
    """Twelve points with labels drawn at random: a held-out row has been seen before."""
    rng = np.random.default_rng(0)
    x, y = np.tile(rng.normal(size=(12, 3)), (8, 1)), np.tile(rng.integers(0, 2, 12), 8)
    model = mn.DAMClassifier(random_state=0).fit(x, y)
    assert model.score(x, y) == 1.0
    assert model.n_memories_ <= 12


# predictions and what is behind them


def test_probabilities_are_those_of_the_formula(read, fresh):
    model, x, _, _ = read
    _, _, expected = class_formula.of_model(model, x.numpy())
    assert model.temperature_ != 1.0
    found = model.predict_proba(fresh.x)
    assert np.allclose(found, expected, rtol=1e-10, atol=1e-14)
    assert np.allclose(found.sum(axis=1), 1, atol=1e-12)
    assert np.array_equal(model.predict(fresh.x), expected.argmax(axis=1))
    assert np.allclose(model.decision_function(fresh.x), np.log(expected), rtol=1e-9)


def test_uniform_weight_is_that_of_the_uniform_component(data):
    model = small(uniform_weight=3.0, max_iter=None)
    assert model.fit(data.x, data.y).memory_prior_[0] == pytest.approx(0.3)
    held = clone(model).set_params(solver=mn.FixedPoint(learn_weights=False))
    assert held.fit(data.x, data.y).memory_prior_ == pytest.approx([0.3] + 7 * [0.1])
    model.set_params(uniform_weight=0.0, precision="float32").fit(data.x, data.y)
    assert np.isfinite(model.class_weights_).all()
    model.set_params(precision="auto").fit(data.x, data.y)
    assert model.memory_prior_[0] == 0.0
    assert np.allclose(model.explain(data.x).uniform_share, 0)


def test_boolean_labels_and_the_sign_of_the_decision(make_clusters):
    x, y = make_clusters(classes=2)
    model = mn.DAMClassifier(random_state=0).fit(x, y == 1)
    assert model.classes_.tolist() == [False, True]
    odds, log_p = model.decision_function(x), model.predict_log_proba(x)
    assert np.array_equal(odds > 0, model.predict(x))
    assert np.allclose(odds, log_p[:, 1] - log_p[:, 0], rtol=1e-12)


def test_one_class(data, fresh):
    model = mn.DAMClassifier(random_state=0)
    with pytest.warns(UserWarning, match="y says 'only' in every row, so every prediction will"):
        model.fit(data.x, np.full(61, "only"))
    assert model.predict(fresh.x).tolist() == ["only"] * 47
    assert np.array_equal(model.predict_proba(fresh.x), np.ones((47, 1)))


def test_constant_rows_give_back_the_proportions_of_the_classes():
    """Nothing can be learned from X, and the model says just that."""
    model = mn.DAMClassifier(objective="joint", label_smoothing=0.0, random_state=0)
    model.fit(np.full((40, 3), 2.0), np.repeat([0, 1], [10, 30]))
    assert np.allclose(model.predict_proba(np.full((1, 3), 2.0)), [[0.25, 0.75]], atol=1e-6)


def test_a_single_feature():
    """On a line there is no direction; with geometry='standard', the default's choice, there is.

    A threshold is learned where the classes meet.
    """
    x = np.r_[np.linspace(0, 1, 30), np.linspace(3, 4, 30)][:, None]
    model = mn.DAMClassifier(random_state=0).fit(x, np.repeat([0, 1], 30))
    assert model.predict([[0.5], [3.5]]).tolist() == [0, 1]


# weights


def test_weight_two_trains_as_the_row_given_twice_bit_for_bit(data):
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, 61)
    copies = rng.permutation(np.repeat(np.arange(61), weight))
    for settings in ({}, {"class_weight": "balanced"}, {"class_weight": {1: 3.0}}):
        weighted = small(**settings).fit(data.x, data.y, sample_weight=weight)
        copied = small(**settings).fit(data.x[copies], data.y[copies])
        assert np.array_equal(weighted.memories_, copied.memories_)
        assert np.array_equal(weighted.class_weights_, copied.class_weights_)


def test_class_weight_moves_the_prior(data):
    heavy = small(class_weight={2: 9.0}, label_smoothing=0.0).fit(data.x, data.y)
    counts = np.bincount(data.y) * np.array([1.0, 1.0, 9.0])
    assert np.allclose(heavy.class_prior_, np.r_[counts / counts.sum(), 0.0], atol=1e-12)
    few = data.y != 0
    few[::6] = True  # half of class 0 is left
    balanced = small(class_weight="balanced", label_smoothing=0.0)
    balanced.fit(data.x[few], data.y[few])
    assert np.allclose(balanced.class_prior_, [1 / 3, 1 / 3, 1 / 3, 0.0], atol=1e-12)


# streaming


def test_streaming_comes_close_to_fitting(digits):
    x, test_x, y, test_y = digits
    settings = {"n_memories": 150, "geometry": "center", "varsigma": 0.75, "random_state": 0}
    whole = mn.DAMClassifier(**settings, objective="joint", max_iter=15).fit(x, y)
    whole = whole.score(test_x, test_y)
    stream = mn.DAMClassifier(**settings)
    rng = np.random.default_rng(0)
    stream.partial_fit(x[:200], y[:200], classes=range(10))
    for _ in range(2):
        for rows in np.array_split(rng.permutation(len(x)), 12):
            stream.partial_fit(x[rows], y[rows])
    assert stream.score(test_x, test_y) > whole - 0.02
    assert stream.status_ == "streaming"


def test_streaming_takes_rows_without_labels(data, fresh):
    model = small(unlabeled=-1, max_iter=None)
    model.fit(data.x, data.y)
    prior = model.class_prior_.copy()
    before = model.memories_.copy()
    model.partial_fit(fresh.x, np.full(47, -1))
    assert model.class_prior_ == pytest.approx(prior, abs=1e-3)
    assert not np.array_equal(before, model.memories_)
    assert model.classes_.tolist() == [0, 1, 2]


# objectives and solvers


@pytest.mark.parametrize("geometry", ["standard", "unit"])
def test_a_large_beta_does_not_leave_the_rows_to_class_frequencies(geometry):
    """Given β alone, ς is one at which memories can be likelier than the uniform component."""
    x, y = load_wine(return_X_y=True)
    settings = {"objective": "joint", "geometry": geometry, "random_state": 0}
    at = [
        mn.DAMClassifier(6, beta=beta, **settings).fit(x[::2], y[::2]).score(x[1::2], y[1::2])
        for beta in (30.0, 300.0)
    ]
    assert at[1] > at[0] - 0.05


def test_a_beta_at_which_memories_answer_for_few_rows_is_warned_of():
    x, y = load_wine(return_X_y=True)
    model = mn.DAMClassifier(6, beta=3000.0, objective="joint", geometry="standard", random_state=0)
    with pytest.warns(UserWarning, match=r"beta=3000 is too large for these rows.*\d% of them"):
        model.fit(x, y)
