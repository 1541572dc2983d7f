"""The conditional objective of a classifier: direct training, its density, its laws."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

import mnemosphere as mn

SETTINGS = {
    "n_memories": 9, "geometry": "standard", "objective": "conditional", "random_state": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def wine():
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return x[order], y[order]


@pytest.fixture(scope="module")
def model(wine):
    return mn.DAMClassifier(**SETTINGS).fit(*wine)


def test_digits_with_ten_memories_beat_the_joint_model():
    x, y = load_digits(return_X_y=True)
    settings = {"n_memories": 10, "geometry": "center", "random_state": 0, "max_iter": 8}
    right = {
        objective: mn.DAMClassifier(objective=objective, **settings)
        .fit(x[:800], y[:800])
        .score(x[800:1600], y[800:1600])
        for objective in ("conditional", "joint")
    }
    assert right["conditional"] > right["joint"] + 0.02
    assert right["conditional"] > 0.9


def test_each_memory_votes_for_its_own_class_alone(model):
    net = model.model_.votes.p
    soft = net[1:, :-1] / net[1:, :-1].sum(1, keepdim=True)
    assert soft.max(1).values.min() > 0.99
    assert {*soft.argmax(1).tolist()} == {0, 1, 2}
    assert float(net[0].sum()) == 0.0  # the uniform component has no vote


def test_the_density_is_a_proper_one(wine):
    """ς = 1, and novelty recognizes rows far from all others."""
    x, y = wine
    model = mn.DAMClassifier(**SETTINGS).fit(x[:120], y[:120])
    assert model.varsigma_ == 1.0
    far = x[120:] + 6 * x.std(0) * np.random.default_rng(1).choice([-1, 1], size=x[120:].shape)
    assert np.median(model.novelty_score(far)) > np.quantile(model.novelty_score(x[120:]), 0.95)
    rows, labels = model.sample(50, random_state=0)
    assert (model.predict(rows) == labels).mean() > 0.6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"growth": 3}, "growth splits memories of the joint likelihood"),
        ({"solver": "fixed-point"}, "FixedPoint does not train the conditional likelihood"),
        ({"objective": "joint", "solver": "adam"}, "Adam does not train the joint likelihood"),
    ],
)
def test_what_belongs_to_the_joint_likelihood_is_refused(wine, settings, message):
    with pytest.raises(ValueError, match=message):
        mn.DAMClassifier(**SETTINGS | settings).fit(*wine)
