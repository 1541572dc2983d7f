"""The clusterer: scikit-learn's checks, clusters it must find, its density."""

import numpy as np
import pytest
import torch
from scipy import special
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import mnemosphere as mn
from mnemosphere.model.one_pass import log_joint
from quick_clusters import N, blobs, small
from quick_models import assert_same_model, reloaded


def not_a_classifier(estimator):
    """Two checks of sparse matrices take all that has probabilities for a classifier of their four labels."""
    reason = "a clusterer finds its own number of clusters, and has no tags of a classifier"
    return dict.fromkeys(("check_estimator_sparse_array", "check_estimator_sparse_matrix"), reason)


# The whole list where the choices are made, which is quick, and where they are "auto".
@pytest.mark.filterwarnings("ignore:.*one cluster")  # noise has no clusters
@parametrize_with_checks(
    [small(n_clusters=3, n_memories=4, geometry="standard", varsigma=0.9, max_iter=3)],
    expected_failed_checks=not_a_classifier,
)
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*one cluster")
@parametrize_with_checks([mn.DAMClusterer(random_state=0)], expected_failed_checks=not_a_classifier)
def test_check_estimator_of_the_defaults(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    return blobs()


@pytest.fixture(scope="module")
def fitted(data):
    return small().fit(data.x)


# clusters


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"varsigma": 0.8},
        {"growth": 5},
        {"solver": mn.SGD(0.003, batch_size=40, tol=0.0), "max_iter": 5},
        {"geometry": "standard"},
        {"precision": "float32"},
        {"smoothing": 0.0},
    ],
)
@pytest.mark.filterwarnings("ignore:1 of 5 clusters have no rows")
def test_blobs_are_found(data, settings):
    model = small(**settings).fit(data.x)
    # Below ς = 1 memories coincide, which leaves the graph of those that share rows little to tell.
    enough = 0.8 if "varsigma" in settings else 0.85 if "growth" in settings else 0.97
    assert adjusted_rand_score(data.y, model.labels_) > enough
    assert np.array_equal(model.labels_, model.predict(data.x))


def test_a_cluster_of_no_convex_shape():
    """Two arcs around each other: k-means cuts both, shared rows do not."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi, 400)
    y = np.arange(400) % 2
    arc = np.c_[np.cos(angle), np.sin(angle)] * np.where(y, -1, 1)[:, None] + np.outer(y, [1, 0.5])
    x = arc + 0.06 * rng.normal(size=arc.shape)
    model = mn.DAMClusterer(n_memories=40, n_clusters=2, geometry="standard", random_state=0).fit(x)
    assert adjusted_rand_score(y, model.labels_) > 0.9
    assert adjusted_rand_score(y, KMeans(2, n_init=3, random_state=0).fit_predict(x)) < 0.5


def test_digits_better_than_k_means():
    x, y = load_digits(return_X_y=True)
    means = adjusted_rand_score(y, KMeans(10, n_init=3, random_state=0).fit_predict(x))
    model = mn.DAMClusterer(n_clusters=10, random_state=0)
    assert adjusted_rand_score(y, model.fit_predict(x)) > means + 0.02
    assert model.n_memories_ == 40  # their clusters are not round


# how many


@pytest.mark.parametrize(("load", "number"), [(load_wine, 3), (load_breast_cancer, 2)])
def test_the_number_of_kinds_is_found(load, number):
    x, y = load(return_X_y=True)
    model = mn.DAMClusterer(random_state=0).fit(x)
    assert (model.n_clusters_, model.n_memories_, model.geometry_) == (number, number, "standard")
    assert adjusted_rand_score(y, model.labels_) > 0.65
    assert [t["n_clusters"] for t in model.search_ if t["chosen"]] == [number]
    assert "silhouette" in str(model.search_)


def test_more_clusters_than_thirty():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 50, 2000)
    x = rng.normal(size=(50, 40))[y] + 0.5 * rng.normal(size=(2000, 40))
    model = mn.DAMClusterer(random_state=0).fit(x)
    assert model.n_clusters_ == 50
    assert adjusted_rand_score(y, model.labels_) > 0.99


def test_one_cloud_is_one_cluster_and_a_warning():
    x = np.random.default_rng(0).normal(size=(250, 5))
    with pytest.warns(UserWarning, match="^all rows are in one cluster, since no division is"):
        model = mn.DAMClusterer(random_state=0).fit(x)
    assert model.n_clusters_ == 1
    assert [t["n_clusters"] for t in model.search_ if t["chosen"]] == [1]


def test_a_column_of_large_numbers_does_not_decide_the_clusters(data):
    """Sales, of which one column is the ZIP code."""
    rng = np.random.default_rng(0)
    x = np.c_[7 + data.x, rng.integers(10_000, 99_999, len(data.x))]
    model = mn.DAMClusterer(random_state=0).fit(x)
    assert (model.n_clusters_, model.geometry_) == (5, "standard")
    assert adjusted_rand_score(data.y, model.labels_) > 0.9


@pytest.mark.filterwarnings("ignore:.*one cluster")
@pytest.mark.parametrize(
    ("rows", "settings", "most"), [(3, {}, 1), (43, {}, 4), (43, {"n_memories": 3}, 3)]
)
def test_as_many_clusters_as_the_data_allow(rows, settings, most):
    x = np.random.default_rng(3).normal(size=(rows, 5))
    model = mn.DAMClusterer(random_state=0, max_iter=3, **settings).fit(x)
    assert 1 <= model.n_clusters_ <= most
    assert model.predict_proba(x).shape == (rows, model.n_clusters_)


def test_rows_far_from_all_memories_go_with_the_nearest():
    """Not all of them to one cluster, because the uniform component claims them."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 6
    x = np.eye(6, 200)[y] + 0.02 * rng.normal(size=(600, 200))
    model = mn.DAMClusterer(6, n_memories=6, geometry="unit", random_state=0).fit(x)
    far = np.eye(6, 200)[y] + 0.06 * rng.normal(size=(600, 200))
    assert model.transform(far).sum(1).max() < 1e-9
    assert adjusted_rand_score(model.predict(far), y) > 0.95


# probabilities and densities


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
    assert np.allclose(mn.interpret.score_samples(fitted.model_, data.x), log_density, rtol=1e-8)
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
    centered = small(geometry="center", n_memories=11).fit(data.x)
    gap = centered.bic(data.x) - centered.aic(data.x)
    assert gap == pytest.approx((11 * 5 + 1) * (np.log(433) - 2), rel=1e-9)


# scikit-learn's habits


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        # Clusters by direction: lengths mean nothing.
        (lambda x, r: x * r.uniform(1, 9, (len(x), 1)), {"unit", "center"}),
        # The same under an offset per row.
        (lambda x, r: x * r.uniform(1, 9, (len(x), 1)) + r.normal(0, 30, (len(x), 1)), {"center"}),
        (lambda x, r: x * 10.0 ** np.arange(N), {"standard"}),  # unlike units
    ],
)
def test_what_auto_normalization_is(data, make, kinds):
    x = make(data.x, np.random.default_rng(0))
    model = small(geometry="auto").fit(x)
    assert model.geometry_ in kinds
    assert adjusted_rand_score(data.y, model.labels_) > 0.9


# what it can do besides, see test_memory_model


def test_centers_are_the_mean_directions_of_the_clusters(data, fitted):
    assert fitted.cluster_centers_.shape == (5, N)
    assert np.allclose(np.linalg.norm(fitted.cluster_centers_, axis=1), 1)
    for cluster, center in enumerate(fitted.cluster_centers_):
        mean = data.x[fitted.labels_ == cluster].mean(axis=0)
        assert center @ mean / np.linalg.norm(mean) > 0.99
    assert np.array_equal(fitted.predict(fitted.cluster_centers_), np.arange(5))


def test_centers_of_a_table_are_in_its_units(data):
    x = (7 + 100 * data.x) * 10.0 ** np.arange(N)
    model = mn.DAMClusterer(5, random_state=0).fit(x)
    for cluster, center in enumerate(model.cluster_centers_):
        rows = x[model.labels_ == cluster]
        assert (np.abs(center - rows.mean(axis=0)) < rows.std(axis=0).max()).all()


def test_recall_and_samples_of_a_cluster(data, fitted):
    blurred = data.x + 0.3 * np.random.default_rng(0).normal(size=data.x.shape)
    found = fitted.recall(blurred)
    assert (
        mn.interpret.score_samples(fitted.model_, found)
        >= mn.interpret.score_samples(fitted.model_, blurred) - 1e-9
    ).all()
    for cluster in range(5):
        rows, labels = fitted.sample(53, y=cluster, random_state=0)
        assert (labels == cluster).all()
        assert labels.dtype == fitted.classes_.dtype
        assert (fitted.predict(rows) == cluster).mean() > 0.8
        label = np.full(len(blurred), cluster)
        model = fitted.model_
        before, after = (
            log_joint(model.density, model.on_sphere(z)[0])[:, cluster]
            for z in (blurred, fitted.recall(blurred, label))
        )
        assert (after >= before - 1e-9).all()  # down the energy −log P(x|cluster)


def test_a_stream_moves_the_memories_and_keeps_the_clusters(data):
    model = small(n_memories=20)
    model.partial_fit(data.x[:217])
    assert model.labels_.shape == (217,)
    turn = torch.linalg.matrix_exp(0.2 * torch.ones(N, N).triu(1).sub(torch.ones(N, N).tril(-1)))
    turned = data.x @ turn.double().numpy()  # the stream drifts, every cluster alike
    before = model.score(turned)
    for rows in np.array_split(np.random.default_rng(0).permutation(433), 5) * 3:
        model.partial_fit(turned[rows], sample_weight=np.ones(len(rows)))
    assert (model.status_, model.converged_) == ("streaming", False)
    assert model.n_iter_ == len(model.history_)
    assert model.labels_.shape == (86,)
    assert model.score(turned) > before + 0.2
    assert adjusted_rand_score(data.y, model.predict(turned)) > 0.8


def test_a_file_gives_back_the_clusters(data, tmp_path):
    model = small(max_iter=2).fit(data.x)
    loaded = reloaded(model, tmp_path)
    assert_same_model(loaded, model, data.x)
    for name in ("labels_", "memory_labels_", "cluster_centers_"):
        assert np.array_equal(getattr(loaded, name), getattr(model, name))
    assert clone(loaded).fit(data.x).labels_.tolist() == model.labels_.tolist()
