"""Rows without labels through `fit`: all kinds of labels, automatic choices, interruption."""

import numpy as np
import pytest
import torch

import mnemosphere as mn
from mnemosphere.estimators import few_labels, selection
from mnemosphere.training import semi_supervised
from mnemosphere.training.callbacks import Callback


def circles(rows, seed):
    """Two circles of latitude, half a radian apart: two classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    longitude = 2 * np.pi * rng.random(rows)
    latitude = np.where(y == 0, 0.25, -0.25) + 0.05 * rng.normal(size=rows)
    level = np.cos(latitude)
    return np.stack([np.cos(longitude) * level, np.sin(longitude) * level, np.sin(latitude)], 1), y


@pytest.fixture(scope="module")
def two():
    x, y = circles(901, 0)
    return x, np.where(np.arange(901) < 6, y, -1), *circles(997, 1)


def small(**options):
    settings = {"varsigma": 1.0, "normalize": "none", "random_state": 0}
    return mn.DAMClassifier(100, **(settings | options))


def test_six_labels_go_a_long_way(two):
    x, partly, fresh_x, fresh_y = two
    model = small(unlabeled=-1).fit(x, partly)
    alone = small().fit(x[:6], partly[:6])
    assert model.score(fresh_x, fresh_y) > 0.95
    assert alone.score(fresh_x, fresh_y) < 0.7
    phases = [record["phase"] for record in model.history_]
    assert phases == sorted(phases)
    assert set(phases) == {semi_supervised.PHASE, 0}


def test_hard_soft_and_missing_labels_are_one_thing(two):
    """A matrix with a row of zeros for a missing label trains as the marker does."""
    x, partly, fresh_x, _ = two
    soft = np.zeros((901, 2))
    soft[np.arange(6), partly[:6]] = 1.0
    hard_model = small(unlabeled=-1).fit(x, partly)
    soft_model = small().fit(x, soft)
    np.testing.assert_array_equal(
        soft_model.predict_proba(fresh_x), hard_model.predict_proba(fresh_x)
    )
    soft[0] = [0.3, 0.2]  # half of it is not known
    other = small().fit(x, soft)
    assert not np.array_equal(other.class_weights_, soft_model.class_weights_)


@pytest.mark.parametrize(
    "options",
    [{"growth": "split", "n_initial": 5}, {"solver": "sgd"}, {"objective": "conditional"}],
)
def test_every_way_of_training_takes_unlabelled_rows(two, options):
    x, partly, fresh_x, fresh_y = two
    model = small(unlabeled=-1, max_epochs=4, **options).fit(x, partly)
    assert np.isfinite(model.predict_proba(fresh_x)).all()
    if "growth" not in options:
        assert model.score(fresh_x, fresh_y) > 0.9


def test_interruption_while_memories_settle_leaves_a_usable_model(two):
    class Stop(Callback):
        def on_epoch(self, record, params):
            raise KeyboardInterrupt

    x, partly, fresh_x, fresh_y = two
    model = small(unlabeled=-1, callbacks=[Stop()]).fit(x, partly)
    assert model.status_ == "interrupted"
    assert model.score(fresh_x, fresh_y) > 0.6
    assert all(record["phase"] == semi_supervised.PHASE for record in model.history_)


def test_varsigma_is_the_scale_on_which_a_few_memories_share_a_row():
    """The choice, followed to the end: trained at it, β_eff comes out near that scale."""
    data = mn.datasets.load("digits")
    y = np.full(len(data.y_train), -1)
    y[:12] = data.y_train[:12]  # too few to judge by
    model = mn.DAMClassifier(60, unlabeled=-1, random_state=0).fit(data.x_train, y)
    assert model.normalize_ == "center"
    (trial,) = model.selection_
    assert trial["varsigma"] == model.varsigma_
    assert 0.5 < model.params_.beta_eff / trial["beta_eff"] < 3
    x = model._on_sphere(data.x_train)
    kappa, overlap = few_labels.sharing(x, 60)
    share = (kappa * (x[60:316] @ x[:60].T)).softmax(1)
    perplexity = float(torch.special.entr(share).sum(1).exp().mean())
    assert perplexity == pytest.approx(semi_supervised.SHARED_BY, rel=1e-6)
    assert 0 < overlap < 1


def test_labelled_rows_and_others_come_in_turn():
    index = np.array([-1, 2, -1, -1, 0, -1, -1])
    order = np.array([3, 0, 4, 6, 2, 1, 5])
    assert selection._labelled_in_turn(order, index).tolist() == [4, 3, 1, 0, 6, 2, 5]


def test_more_labels_judge_the_normalization_and_move_varsigma():
    data = mn.datasets.load("digits")
    y = np.where(np.arange(1001) < 500, data.y_train[:1001], -1)
    model = mn.DAMClassifier(40, unlabeled=-1, max_epochs=1, random_state=0)
    model.fit(data.x_train[:1001], y)
    stages = [trial["stage"] for trial in model.selection_]
    assert stages.count("pilot") == 3
    assert stages.count("fine") >= 2
    assert np.isfinite([trial["log_loss"] for trial in model.selection_]).all()
    assert model.score(data.x_test, data.y_test) > 0.85
