"""What "auto" means for clusters: its two readings against scikit-learn and enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, jaccard_score

import mnemosphere as mn
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators.cluster_selection import _found_again, choose, compare
from quick_clusters import N, blobs, small

N_ROWS, K = 53, 4


def labels(seed):
    rng = np.random.default_rng(seed)
    one = rng.integers(K, size=N_ROWS)
    other = np.where(rng.random(N_ROWS) < 0.4, rng.integers(K, size=N_ROWS), (one + 1) % K)
    return one, other


@pytest.mark.parametrize("seed", range(3))
def test_readings_of_two_assignments(seed):
    one, other = labels(seed)
    weight = torch.ones(N_ROWS, dtype=torch.float64)
    stability, agreement = compare(torch.from_numpy(one), torch.from_numpy(other), K, weight)
    assert agreement == pytest.approx(adjusted_rand_score(one, other), rel=1e-12)
    best = max(
        np.mean([jaccard_score(one == c, other == order[c]) for c in range(K)])
        for order in itertools.permutations(range(K))
    )
    assert stability == pytest.approx(best, rel=1e-12)


def test_a_weight_is_so_many_copies():
    one, other = (torch.from_numpy(y) for y in labels(7))
    times = torch.arange(N_ROWS) % 3
    weighted = compare(one, other, K, times)
    repeated = (y.repeat_interleave(times) for y in (one, other))
    copied = compare(*repeated, K, torch.ones(int(times.sum())))
    assert weighted == pytest.approx(copied, rel=1e-12)


def test_one_cluster_is_always_found_again():
    zeros = torch.zeros(7, dtype=torch.long)
    assert compare(zeros, zeros, 1, torch.ones(7)) == (1.0, 1.0)


def pairs(n_rows=211):
    """Rows around two points."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n_rows, 5)) + 9 * np.eye(5)[np.arange(n_rows) % 2]


def chosen(x, **settings):
    wanted = {"normalize": "standard", "numbers": [2, 3, 4, 5], "shapes": [1, 8]} | settings
    rows = StoredRows.of(x, torch.device("cpu"))
    return choose(rows, None, generator=torch.Generator().manual_seed(0), **wanted)


def test_the_number_that_is_found_again_and_one_memory_each():
    found = chosen(pairs())
    assert found[:3] == ("standard", 2, 1)
    cases = [(t["memories_per_cluster"], t["n_clusters"]) for t in found.trials]
    assert cases == list(itertools.product([1, 8], [2, 3, 4, 5]))
    best = found.trials[0]
    assert best["stability"] > 0.99 > 0.9 > max(t["stability"] for t in found.trials[1:4])


def trial(stability, k):
    return {"stability": stability, "n_clusters": k}


@pytest.mark.parametrize(
    ("stability", "number"),
    [
        ([0.98, 0.97, 0.60], 3),  # as good as the number before it
        ([1.00, 0.85, 0.60], 2),  # stable, but by clusters it has from the number before it
        ([0.98, 0.70, 0.80], 4),  # better than the one before it
        ([0.50, 0.60, 0.55], 3),  # none is stable: the nearest
    ],
)
def test_rule_for_the_number(stability, number):
    trials = [trial(s, k) for s, k in zip(stability, (2, 3, 4), strict=True)]
    assert _found_again(trials, (2, 3, 4)) == number
    # Another shape below it, of which no number is stable, changes nothing unless it is nearer.
    worse = [trial(0.4, k) for k in (2, 3, 4)]
    assert _found_again([*trials, *worse], (2, 3, 4)) == number


def test_nothing_is_tried_where_nothing_is_open():
    assert chosen(pairs(), shapes=[8], numbers=[2]).trials == ()
    few = chosen(pairs(7))  # too few rows to cut in halves
    assert (few.n_clusters, few.trials) == (2, ())


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
    assert {2, 5, 29} <= numbers


@pytest.mark.parametrize(
    ("rows", "settings", "most"),
    [(3, {}, 2), (43, {}, 4), (43, {"n_memories": 3}, 3), (43, {"class_prior": [3, 2, 1]}, 3)],
)
def test_as_many_clusters_as_the_data_or_the_prior_allow(rows, settings, most):
    x = np.random.default_rng(3).normal(size=(rows, 5))
    model = mn.DAMClusterer(random_state=0, max_iter=3, **settings).fit(x)
    assert 2 <= model.n_clusters_ <= most
    assert model.predict_proba(x).shape == (rows, model.n_clusters_)


def test_degenerate_divisions_are_flagged(data):
    """One row of another kind takes a cluster of its own."""
    x = np.r_[np.eye(N)[:1] + 0.01 * data.x[data.y == 2], -np.eye(N)[:1]]
    with pytest.warns(UserWarning, match="^one cluster has 99% of the rows: ask for another"):
        small(n_clusters=2, n_memories=2).fit(x)
