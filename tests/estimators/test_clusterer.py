"""The clusterer: scikit-learn's checks, clusters it must find, its density, files, kind errors."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy import special
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import mnemosphere as mn
from mnemosphere.estimators import load_classifier
from mnemosphere.model import kernel, objectives
from mnemosphere.numerics import vmf
from mnemosphere.training import latent
from mnemosphere.training.callbacks import Callback

SIZES = (101, 61, 151, 37, 83)
N = 7


@parametrize_with_checks([mn.DAMClusterer(random_state=0)])
def test_check_estimator(estimator, check):
    check(estimator)


def blobs(seed=1, concentration=50.0):
    """Von Mises–Fisher clusters of distinct prime sizes."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=torch.float64)).Q
    y = np.repeat(np.arange(5), SIZES)
    kappa = torch.tensor(concentration, dtype=torch.float64)
    x = vmf.sample(centers[:5][y], kappa, generator=generator).numpy()
    order = np.random.default_rng(seed).permutation(len(y))
    return SimpleNamespace(x=x[order], y=y[order])


@pytest.fixture(scope="module")
def data():
    return blobs()


def small(**settings):
    return mn.DAMClusterer(**({"n_classes": 5, "normalize": "unit", "random_state": 0} | settings))


@pytest.fixture(scope="module")
def fitted(data):
    return small().fit(data.x)


# clusters


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"varsigma": 0.8},
        {"growth": "split", "n_initial": 5},
        {"solver": "sgd", "max_epochs": 5, "batch_size": 40, "learning_rate": 0.003, "tol": 0.0},
        {"normalize": "standard"},
        {"dtype": "float32"},
        {"smoothing": 0.0},
    ],
    ids=lambda s: " ".join(f"{k}={v}" for k, v in s.items())[:30] or "defaults",
)
def test_blobs_are_found(data, settings):
    model = small(**settings).fit(data.x)
    assert adjusted_rand_score(data.y, model.labels_) > 0.97
    assert np.array_equal(model.labels_, model.predict(data.x))
    assert adjusted_rand_score(data.y, small(**settings).fit_predict(data.x)) > 0.97


def test_a_cluster_of_no_convex_shape():
    """Two arcs around each other: k-means cuts both, shared rows do not."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi, 400)
    y = np.arange(400) % 2
    arc = np.c_[np.cos(angle), np.sin(angle)] * np.where(y, -1, 1)[:, None] + np.outer(y, [1, 0.5])
    x = arc + 0.06 * rng.normal(size=arc.shape)
    model = mn.DAMClusterer(n_memories=40, n_classes=2, random_state=0).fit(x)
    assert adjusted_rand_score(y, model.labels_) > 0.9
    assert adjusted_rand_score(y, KMeans(2, n_init=3, random_state=0).fit_predict(x)) < 0.5


def test_digits_better_than_k_means():
    x, y = load_digits(return_X_y=True)
    model = mn.DAMClusterer(n_classes=10, random_state=0).fit(x)
    means = KMeans(10, n_init=3, random_state=0).fit_predict(x)
    assert model.normalize_ == "center"
    assert adjusted_rand_score(y, model.labels_) > adjusted_rand_score(y, means) + 0.03


def test_classes_of_memories_are_coherent(fitted):
    w = torch.from_numpy(fitted.memories_)
    label = torch.from_numpy(fitted.memory_labels_)
    found = latent.coherence(w, label, generator=torch.Generator().manual_seed(0))
    assert found.within > 0.5 > found.shuffled + 0.2
    assert found.across < found.shuffled


@pytest.mark.parametrize("solver", ["fixed-point", "sgd"])
def test_given_proportions_are_kept(data, solver):
    """Every class has its share of the memories, and the marginals of p are exact."""
    prior = np.array([5.0, 7.0, 11.0, 13.0, 17.0])
    model = small(
        class_prior=prior, n_memories=53, solver=solver, max_epochs=3, learning_rate=0.003
    ).fit(data.x)
    smooth = np.r_[0.9 * prior / prior.sum(), 0.0] + 0.1 / 6
    assert np.allclose(model.class_prior_, smooth, rtol=1e-12)
    assert np.allclose(model.class_weights_.sum(0), smooth, rtol=1e-6)
    assert np.allclose(model.class_weights_.sum(1), model.memory_prior_, rtol=1e-6)
    assert np.abs(np.bincount(model.memory_labels_, minlength=6)[:5] - prior).max() <= 3


def test_the_loss_of_the_classes_never_ends_above_its_start(data, fitted):
    phase = [h["loss"] for h in fitted.history_ if h["phase"] == 1]
    x = torch.from_numpy(data.x)
    none = torch.zeros(len(x), 6, dtype=torch.float64)
    end = kernel.evaluate(fitted.params_, x, none, objectives.Unsupervised(0.1))
    assert end <= phase[0] + 1e-12


# probabilities and densities


def test_probabilities(data, fitted):
    proba = fitted.predict_proba(data.x)
    assert np.allclose(proba.sum(axis=1), 1, rtol=1e-12)
    assert np.array_equal(proba.argmax(axis=1), fitted.predict(data.x))
    assert proba.max(axis=1).mean() > 0.9
    assert fitted.transform(data.x).shape == (sum(SIZES), 40)


def plain_log_density(model, x):
    """Log of the mixture of von Mises–Fisher densities, constants from SciPy's Bessel function."""
    nu, beta = N / 2 - 1, model.beta_
    log_bessel = np.log(special.ive(nu, beta)) + beta
    log_norm = nu * np.log(beta) - N / 2 * np.log(2 * np.pi) - log_bessel
    area = np.log(2) + N / 2 * np.log(np.pi) - special.gammaln(N / 2)
    parts = np.c_[np.full(len(x), -area), log_norm + beta * x @ model.memories_.T]
    return special.logsumexp(parts + np.log(model.memory_prior_), axis=1)


def test_density_and_information_criteria(data, fitted):
    log_density = plain_log_density(fitted, data.x)
    assert np.allclose(fitted.score_samples(data.x), log_density, rtol=1e-8)
    assert fitted.score(data.x) == pytest.approx(log_density.mean(), rel=1e-8)
    free = 40 * (N - 1) + 1
    total = -2 * log_density.sum()
    assert fitted.aic(data.x) == pytest.approx(total + 2 * free, rel=1e-8)
    assert fitted.bic(data.x) == pytest.approx(total + free * np.log(433), rel=1e-8)


def test_fewer_free_numbers_for_held_beta_and_centered_rows(data):
    held = small(beta=30.0, n_memories=11).fit(data.x)
    assert held.beta_ == 30.0
    gap = held.bic(data.x) - held.aic(data.x)
    assert gap == pytest.approx(11 * 6 * (np.log(433) - 2), rel=1e-9)
    centered = small(normalize="center", n_memories=11).fit(data.x)
    gap = centered.bic(data.x) - centered.aic(data.x)
    assert gap == pytest.approx((11 * 5 + 1) * (np.log(433) - 2), rel=1e-9)


def test_no_criteria_without_a_density(data):
    model = small(varsigma=0.6, max_epochs=1).fit(data.x)
    for name in ("bic", "aic"):
        with pytest.raises(ValueError, match=r"varsigma=0.6: fit with varsigma=1"):
            getattr(model, name)(data.x)


# scikit-learn's habits


def test_weight_two_is_the_row_given_twice_bit_for_bit(data):
    weight = np.random.default_rng(0).integers(0, 4, len(data.x))
    copies = np.random.default_rng(1).permutation(np.repeat(np.arange(len(data.x)), weight))
    one = small().fit(data.x, sample_weight=weight)
    two = small().fit(data.x[copies])
    assert np.array_equal(one.class_weights_, two.class_weights_)
    assert np.array_equal(one.predict_proba(data.x), two.predict_proba(data.x))


def test_same_seed_same_bits_and_pickle(data, fitted):
    again = clone(fitted).fit(data.x)
    for other in (again, pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(other.predict_proba(data.x), fitted.predict_proba(data.x))
        assert np.array_equal(other.labels_, fitted.labels_)


def test_last_in_a_pipeline(data):
    chain = make_pipeline(StandardScaler(), small())
    assert adjusted_rand_score(data.y, chain.fit_predict(data.x)) > 0.97


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda r: r.normal(size=(60, 5)), "standard"),  # few features
        (lambda r: r.normal(size=(60, 12)), "unit"),  # signed, alike: embeddings
        (lambda r: r.random(size=(60, 12)), "center"),  # not negative: images, counts
        (lambda r: r.random(size=(60, 12)) * 10.0 ** np.arange(12), "standard"),  # a table
        (lambda r: np.r_[r.random(size=(60, 12)), np.ones((1, 12))], "standard"),  # constant row
    ],
)
def test_what_auto_normalization_is(make, kind):
    x = make(np.random.default_rng(0))
    model = mn.DAMClusterer(n_memories=4, n_classes=2, max_epochs=1, random_state=0).fit(x)
    assert model.normalize_ == kind


def test_one_class_is_everything(data):
    model = small(n_classes=1).fit(data.x)
    assert not model.labels_.any()
    assert np.array_equal(model.predict_proba(data.x[:3]), np.ones((3, 1)))


def test_as_many_classes_as_rows():
    x = np.eye(4)
    model = mn.DAMClusterer(n_classes=4, normalize="unit", random_state=0).fit(x)
    assert sorted(model.labels_.tolist()) == [0, 1, 2, 3]


# growth


def test_smaller_models_on_the_way(data):
    model = small(growth="split", n_initial=5, n_memories=20).fit(data.x)
    assert model.lineage_.n_levels > 1
    for level in range(model.lineage_.n_levels):
        early = model.at_level(level)
        assert np.allclose(early.class_weights_.sum(1), early.memory_prior_, rtol=1e-6)
        assert np.allclose(early.class_weights_.sum(0), model.class_prior_, rtol=1e-6)
        assert np.mean(early.predict(data.x) == model.labels_) > 0.9
    assert model.at_level(0).n_memories_ == 5
    with pytest.raises(ValueError, match="did not grow"):
        small(max_epochs=1).fit(data.x).at_level(0)


# files, checkpoints, Ctrl-C


@pytest.mark.parametrize("prior", ["auto", [3, 4, 5, 6, 7]])
def test_file(data, tmp_path, prior):
    model = small(class_prior=prior, max_epochs=2).fit(data.x)
    model.save(tmp_path / "clusters.safetensors")
    loaded = mn.load(tmp_path / "clusters.safetensors")
    assert isinstance(loaded, mn.DAMClusterer)
    assert np.array_equal(loaded.predict_proba(data.x), model.predict_proba(data.x))
    assert np.array_equal(loaded.labels_, model.labels_)
    assert np.array_equal(loaded.memory_labels_, model.memory_labels_)
    assert loaded.history_ == model.history_
    assert clone(loaded).fit(data.x).labels_.tolist() == model.labels_.tolist()
    with pytest.raises(ValueError, match="holds a DAMClusterer, which has latent classes"):
        load_classifier(tmp_path / "clusters.safetensors")


def test_grown_file(data, tmp_path):
    model = small(growth="split", n_initial=5, n_memories=9).fit(data.x)
    model.save(tmp_path / "clusters.safetensors")
    loaded = mn.load(tmp_path / "clusters.safetensors")
    one, two = model.at_level(0), loaded.at_level(0)
    assert np.array_equal(one.predict_proba(data.x), two.predict_proba(data.x))


def test_file_of_an_unknown_estimator(fitted, tmp_path):
    fitted.save(tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        meta = json.loads(file.metadata()["mnemosphere"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    meta["estimator"] = "DAMOracle"
    save_file(tensors, tmp_path / "b.safetensors", {"mnemosphere": json.dumps(meta)})
    with pytest.raises(ValueError, match="damaged: estimator is 'DAMOracle'"):
        mn.load(tmp_path / "b.safetensors")


class Stop(Callback):
    """Ctrl-C after some passes of one phase."""

    def __init__(self, phase, epoch):
        self.phase, self.epoch = phase, epoch

    def on_epoch(self, record, params):
        if (record.phase, record.epoch) == (self.phase, self.epoch):
            raise KeyboardInterrupt


@pytest.mark.parametrize("phase", [0, 1])
def test_interrupted_is_usable_and_goes_on_with_the_same_bits(data, tmp_path, phase):
    settings = {"max_epochs": 4, "tol": 0.0, "checkpoint": tmp_path / "run"}
    stopped = small(**settings, callbacks=[Stop(phase, 2)]).fit(data.x)
    assert stopped.status_ == "interrupted"
    assert adjusted_rand_score(data.y, stopped.labels_) > 0.9
    resumed = small(**settings).fit(data.x)
    straight = small(max_epochs=4, tol=0.0).fit(data.x)
    assert np.array_equal(resumed.class_weights_, straight.class_weights_)


# kind errors


@pytest.mark.parametrize(
    ("settings", "x", "message"),
    [
        ({"n_memories": 50}, np.eye(7), r"n_memories=50 but X has 7 distinct row\(s\)"),
        ({}, np.eye(3), r"n_classes=5 needs as many memories, got 3"),
        ({"n_memories": 4}, np.eye(9), r"n_classes=5 needs as many memories, got 4"),
        ({}, np.ones((30, 4)), r"got 1 for 1 distinct row\(s\)"),
        (
            {"normalize": "center"},
            np.r_[np.eye(8), np.full((1, 8), 2.0)],
            "row 8 of X is constant, so it has no direction",
        ),
        ({}, np.r_[np.eye(8), np.zeros((1, 8))], "row 8 of X is all zeros"),
        ({}, np.full((9, 3), np.nan), "row 0 of X is NaN"),
        ({"class_prior": [1, 2]}, np.eye(9), r"one entry for each of 5 classes, got shape \(2,\)"),
        ({"class_prior": [1, 2, 3, 4, 0]}, np.eye(9), "class_prior must be positive"),
        ({"class_prior": "even"}, np.eye(9), "class_prior must be 'auto' or numbers, got 'even'"),
        ({"smoothing": 1.0}, np.eye(9), "smoothing"),
        ({"n_classes": 0}, np.eye(9), "n_classes"),
        ({"varsigma": 0.0}, np.eye(9), "varsigma"),
    ],
)
def test_bad_input(settings, x, message):
    with pytest.raises(ValueError, match=message):
        small(**settings).fit(x)


def test_weights_of_zero(data):
    with pytest.raises(ValueError, match="at least one non-zero"):
        small().fit(data.x, sample_weight=np.zeros(len(data.x)))


def test_callbacks_that_are_none(data):
    with pytest.raises(TypeError, match="callbacks must be a list of Callback objects"):
        small(callbacks=[print]).fit(data.x)


@pytest.mark.parametrize(
    ("rows", "settings", "expected"),
    [(4, {}, 4), (43, {}, 10), (43, {"n_memories": 7}, 7), (43, {"class_prior": [3, 2, 1]}, 3)],
)
def test_as_many_classes_as_the_data_or_the_prior_allow(rows, settings, expected):
    x = np.random.default_rng(3).normal(size=(rows, 5))
    model = mn.DAMClusterer(random_state=0, max_epochs=3, **settings).fit(x)
    assert model.classes_.tolist() == list(range(expected))
    assert model.predict_proba(x).shape == (rows, expected)
    assert set(model.labels_) <= set(range(expected))
