"""Spherical k-means: against enumeration and scikit-learn, its starts against their law."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from draws import generator
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.numerics import sphere

N = 5


def rows(n, seed=0, features=N):
    return sphere.sample_uniform(n, features, generator=generator(seed), dtype=torch.float64)


def objective(x, label, k, weight):
    """Σ_c ‖Σ_{b in c} weight_b x_b‖, what the best unit centers reach for these labels."""
    sums = [(weight[:, None] * x)[label == c].sum(0) for c in range(k)]
    return sum(float(np.linalg.norm(s)) for s in sums)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_best_of_all_divisions_of_seven_rows(weighted):
    x = rows(7)
    weight = torch.arange(1.0, 8.0, dtype=torch.float64) if weighted else torch.ones(7).double()
    found = spherical_kmeans(
        x, 3, weight=weight if weighted else None, restarts=50, generator=generator()
    )
    best = max(
        objective(x.numpy(), np.array(label), 3, weight.numpy())
        for label in itertools.product(range(3), repeat=7)
        if set(label) == {0, 1, 2}
    )
    reached = (weight * (x @ found.centers.T).amax(1)).sum()
    assert float(reached) == pytest.approx(best, rel=1e-12)
    assert torch.allclose(found.centers.norm(dim=1), torch.ones(3).double())
    assert torch.equal(found.label, (x @ found.centers.T).argmax(1))


def test_no_worse_than_scikit_learn_on_unit_rows():
    x = sphere.project(rows(211, 1) + 3 * rows(11, 2)[torch.arange(211) % 11])
    found = spherical_kmeans(x, 11, restarts=10, generator=generator())
    peer = KMeans(11, n_init=10, random_state=0).fit(x.numpy())
    weight = np.ones(211)
    ours = objective(x.numpy(), found.label.numpy(), 11, weight)
    assert ours >= objective(x.numpy(), peer.labels_, 11, weight) - 1e-6
