"""What "auto" means for clusters: the agreement against enumeration, and what is chosen."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score, jaccard_score

import mnemosphere as mn
from mnemosphere.estimators.cluster_selection import agreement, choose
from mnemosphere.estimators.progress import Progress
from mnemosphere.rows.stored import StoredRows
from quick_clusters import blobs, small

N_ROWS, K = 53, 4


def labels(seed):
    rng = np.random.default_rng(seed)
    one = rng.integers(K, size=N_ROWS)
    other = np.where(rng.random(N_ROWS) < 0.4, rng.integers(K, size=N_ROWS), (one + 1) % K)
    return one, other


def test_agreement_of_two_assignments():
    one, other = labels(0)
    weight = torch.ones(N_ROWS, dtype=torch.float64)
    best = max(
        np.mean([jaccard_score(one == c, other == order[c]) for c in range(K)])
        for order in itertools.permutations(range(K))
    )
    found = agreement(torch.from_numpy(one), torch.from_numpy(other), K, weight)
    assert found == pytest.approx(best, rel=1e-12)


def test_a_weight_is_so_many_copies():
    one, other = (torch.from_numpy(y) for y in labels(7))
    times = torch.arange(N_ROWS) % 3
    weighted = agreement(one, other, K, times)
    repeated = (y.repeat_interleave(times) for y in (one, other))
    copied = agreement(*repeated, K, torch.ones(int(times.sum())))
    assert weighted == pytest.approx(copied, rel=1e-12)


def chosen(x, **settings):
    wanted = {"geometry": "standard", "numbers": [2, 3, 4, 5], "shapes": [1, 8]} | settings
    rows = StoredRows.of(x, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    return choose(rows, None, generator=generator, progress=Progress(0), **wanted)


@pytest.mark.parametrize("centers", [1, 5])
def test_blobs_are_counted(centers):
    x, _ = make_blobs(250, centers=centers, n_features=5, random_state=1)
    found, _ = chosen(x, numbers=range(2, 8))
    assert found.n_clusters == centers


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_species_and_cultivars_are_counted_within_one(load):
    found, _ = chosen(load().data, numbers=range(2, 8))
    assert abs(found.n_clusters - 3) <= 1


# In a fit


@pytest.fixture(scope="module")
def data():
    return blobs()


def test_the_number_of_clusters_is_found(data):
    model = small(n_clusters="auto", n_memories="auto").fit(data.x)
    assert model.n_clusters_ == 5
    assert model.n_memories_ == 5  # round ones need one memory each
    assert adjusted_rand_score(data.y, model.labels_) > 0.97
    numbers = {t["n_clusters"] for t in model.search_}
    assert {1, 2, 5, 29} <= numbers
    assert [t["n_clusters"] for t in model.search_ if t["chosen"]] == [5]
    assert "agreement" in str(model.search_)


@pytest.mark.parametrize(
    ("rows", "settings", "most"), [(3, {}, 2), (43, {}, 4), (43, {"n_memories": 3}, 3)]
)
def test_as_many_clusters_as_the_data_allow(rows, settings, most):
    x = np.random.default_rng(3).normal(size=(rows, 5))
    model = mn.DAMClusterer(random_state=0, max_iter=3, **settings).fit(x)
    assert 1 <= model.n_clusters_ <= most
    assert model.predict_proba(x).shape == (rows, model.n_clusters_)
