"""How a classifier is fitted: streams, growth, certificates, solvers, seeds and precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

import mnemosphere as mn

# streaming


def test_streaming_comes_close_to_fitting(digits):
    x, test_x, y, test_y = digits
    settings = {"n_memories": 150, "normalize": "center", "varsigma": 0.75, "random_state": 0}
    whole = mn.DAMClassifier(**settings, max_epochs=15).fit(x, y).score(test_x, test_y)
    stream = mn.DAMClassifier(**settings)
    rng = np.random.default_rng(0)
    stream.partial_fit(x[:200], y[:200], classes=range(10))
    for _ in range(2):
        for rows in np.array_split(rng.permutation(len(x)), 12):
            stream.partial_fit(x[rows], y[rows])
    assert stream.score(test_x, test_y) > whole - 0.02
    assert stream.status_ == "streaming"


def test_streaming_learns_a_class_that_comes_late(make_clusters):
    x, y = make_clusters(rows=305)
    early = y < 2
    model = mn.DAMClassifier(9, normalize="unit", varsigma=0.9, random_state=0)
    model.partial_fit(x[early], y[early], classes=[0, 1, 2])
    assert not (model.predict(x) == 2).any()
    for rows in np.array_split(np.random.default_rng(0).permutation(305), 5) * 6:
        model.partial_fit(x[rows], y[rows])
    assert model.score(x, y) > 0.9


def test_streaming_goes_on_from_a_fitted_and_from_a_loaded_model(data, fresh, tmp_path):
    model = mn.DAMClassifier(7, normalize="unit", varsigma=0.9, random_state=0)
    model.fit(data.x, data.y)
    model.save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    before = model.memories_.copy()
    for one in (model, loaded):
        one.partial_fit(fresh.x, fresh.y)
    assert np.array_equal(model.memories_, loaded.memories_)
    assert np.array_equal(model.class_weights_, loaded.class_weights_)
    moved = np.linalg.norm(model.memories_ - before, axis=1)
    assert 0 < moved.max() < 0.2  # one batch does not overturn what was learned
    assert model.score(data.x, data.y) > 0.9


def test_streaming_takes_rows_without_labels(data, fresh):
    model = mn.DAMClassifier(7, unlabeled=-1, normalize="unit", varsigma=0.9, random_state=0)
    model.fit(data.x, data.y)
    prior = model.class_prior_.copy()
    before = model.memories_.copy()
    model.partial_fit(fresh.x, np.full(47, -1))
    assert model.class_prior_ == pytest.approx(prior, abs=1e-5)
    assert not np.array_equal(before, model.memories_)
    assert model.classes_.tolist() == [0, 1, 2]


# growth


def test_growth_records_its_tree(grown):
    assert grown.n_memories_ == 23
    lineage = grown.lineage_
    sizes = [len(nodes) for nodes in lineage.members]
    assert sizes[0] == 5
    assert sizes[-1] == 23
    assert sizes == sorted(sizes)
    assert grown.status_ == "grown"
    assert grown.memory_prior_[0] == pytest.approx(1 / 24)  # P_0 = 1 at the final width


def test_levels_of_growth_are_models(grown, images):
    x, y = images.x_test[:300], images.y_test[:300]
    levels = [grown.at_level(k) for k in range(grown.lineage_.n_levels)]
    assert [m.n_memories_ for m in levels] == [len(n) for n in grown.lineage_.members]
    assert np.array_equal(grown.at_level(-1).predict_proba(x), grown.predict_proba(x))
    losses = [log_loss(y, m.predict_proba(x)) for m in levels]
    assert losses[-1] < losses[0]
    assert levels[0].memories_.shape == (5, 784)
    with pytest.raises(ValueError, match="did not grow"):
        levels[0].at_level(0)


def test_shrinking_keeps_most_of_what_was_known(grown, images):
    x, y = images.x_train[:600], images.y_train[:600]
    small = grown.shrink(x, y, 17)
    assert small.n_memories_ == 17
    assert grown.n_memories_ == 23
    assert small.score(x, y) > grown.score(x, y) - 0.1
    assert grown.shrink(x, y, 23).score(x, y) == grown.score(x, y)


def test_certificate_of_a_converged_model(data):
    model = mn.DAMClassifier(
        3, normalize="unit", varsigma=0.9, tol=1e-6, max_epochs=300, random_state=0
    ).fit(data.x, data.y)
    found = model.certify(data.x, data.y)
    assert found.converged
    assert found.beta_eff == pytest.approx(0.9 * model.beta_)
    early = mn.DAMClassifier(3, normalize="unit", varsigma=0.9, max_epochs=1, random_state=0)
    assert not early.fit(data.x, data.y).certify(data.x, data.y).converged


def test_certificate_leaves_the_model_as_it_is(data):
    names = np.array(["ant", "bee", "wasp"])
    model = mn.DAMClassifier(3, normalize="unit", varsigma=0.9, random_state=0)
    model.fit(data.x, names[data.y])
    model.certify(data.x[:9], np.eye(3)[data.y[:9]])  # soft labels
    assert model.classes_.tolist() == names.tolist()


# objectives and solvers


@pytest.mark.parametrize("rows", [97, 401])
def test_conditional_objective_improves_the_log_loss(make_clusters, rows):
    x, y = make_clusters(rows=rows, spread=2.0)
    settings = {"n_memories": 7, "normalize": "standard", "varsigma": 0.7, "random_state": 0}
    settings["max_epochs"] = 15
    joint = mn.DAMClassifier(**settings).fit(x, y)
    both = [
        mn.DAMClassifier(**settings, objective=objective).fit(x, y)
        for objective in ("conditional", 0.5)
    ]
    cost = [log_loss(y, m.predict_proba(x)) for m in (joint, *both)]
    assert cost[1] < cost[0]
    assert cost[2] <= cost[0] + 1e-3
    assert 1 in {record["phase"] for record in both[0].history_}


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_sgd(make_clusters, objective):
    x, y = make_clusters(rows=305)
    model = mn.DAMClassifier(
        5,
        solver="sgd",
        objective=objective,
        normalize="unit",
        varsigma=0.9,
        batch_size=50,
        max_epochs=60,
        random_state=0,
    ).fit(x, y)
    assert model.score(x, y) > 0.95
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]
    assert model.history_[0]["validation_loss"] is not None


def test_sgd_defaults(make_clusters):
    x, y = make_clusters(rows=305)
    model = mn.DAMClassifier(5, solver="sgd", normalize="unit", varsigma=0.9, random_state=0)
    assert model.fit(x, y).score(x, y) > 0.95


def test_exact_steps_never_increase_the_loss(data):
    model = mn.DAMClassifier(7, normalize="unit", varsigma=0.8, tol=0.0, random_state=0)
    losses = [record["loss"] for record in model.fit(data.x, data.y).history_]
    assert len(losses) == 50
    assert (np.diff(losses) <= 1e-12).all()


# runs


def test_same_seed_same_bits(data, fresh):
    def fit(seed):
        return mn.DAMClassifier(random_state=seed).fit(data.x, data.y).predict_proba(fresh.x)

    assert np.array_equal(fit(0), fit(0))
    assert not np.array_equal(fit(0), fit(1))
    generators = [np.random.RandomState(5), np.random.RandomState(5)]
    assert np.array_equal(*[fit(generator) for generator in generators])


def test_global_random_state_is_left_alone(data):
    before = np.random.mtrand._rand.get_state()[1].copy(), torch.get_rng_state()
    mn.DAMClassifier(5, normalize="unit", varsigma=0.9, random_state=0).fit(data.x, data.y)
    assert np.array_equal(before[0], np.random.mtrand._rand.get_state()[1])
    assert torch.equal(before[1], torch.get_rng_state())


def test_single_precision_is_close_to_double(data, fresh):
    settings = {"n_memories": 7, "normalize": "unit", "varsigma": 0.9, "random_state": 0}
    one, two = (
        mn.DAMClassifier(**settings, dtype=dtype, max_epochs=10).fit(data.x, data.y)
        for dtype in ("float32", "float64")
    )
    assert one.memories_.dtype == np.float32
    assert two.memories_.dtype == np.float64
    assert np.allclose(one.predict_proba(fresh.x), two.predict_proba(fresh.x), atol=1e-3)
