"""Silhouettes against scikit-learn, and numbers of groups that were planted."""

import pytest
import torch
from sklearn.metrics import adjusted_rand_score, silhouette_score

from draws import generator
from mnemosphere.model.silhouette import REAL, Groupings, silhouettes
from mnemosphere.numerics import sphere


def planted(k, n, noise, features=17, seed=1):
    """Unit rows (n, N) around k random directions."""
    draw = generator(seed)
    centers = sphere.sample_uniform(k, features, generator=draw, dtype=torch.float64)
    label = torch.arange(n) % k
    x = centers[label] + noise * torch.randn(n, features, generator=draw, dtype=torch.float64)
    order = torch.randperm(n, generator=draw)
    return sphere.project(x)[order], label[order]


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_the_mean_silhouette_is_that_of_scikit_learn(noise):
    x, label = planted(5, 83, noise)
    label[0] = 6  # a row that is alone, and a group without rows
    expected = silhouette_score(x.numpy(), label.numpy(), metric="cosine")
    assert float(silhouettes(x, label).mean()) == pytest.approx(expected, rel=1e-9)


def test_a_weight_is_so_many_copies():
    x, label = planted(4, 61, 0.4)
    label[0] = 4
    times = 1 + torch.arange(61) % 3
    copies = x.repeat_interleave(times, 0), label.repeat_interleave(times)
    mean = float(silhouettes(x, label, times) @ times.double() / times.sum())
    expected = silhouette_score(*(part.numpy() for part in copies), metric="cosine")
    assert mean == pytest.approx(expected, rel=1e-9)


def test_rows_in_one_group_have_no_silhouette():
    x, label = planted(1, 7, 0.4)
    assert torch.equal(silhouettes(x, label), torch.zeros(7).double())


@pytest.mark.parametrize(("k", "noise"), [(2, 0.2), (7, 0.1), (60, 0.05)])
def test_planted_groups_are_counted(k, noise):
    x, label = planted(k, 1800, noise)
    groupings = Groupings(x.float())
    assert groupings.best() == k
    assert groupings.excess(k) > REAL
    found = (x.float() @ groupings.centers(k).T).argmax(1)
    assert adjusted_rand_score(label, found) > 0.95


@pytest.mark.parametrize("features", [2, 3, 29])
def test_one_cloud_has_no_groups(features):
    for seed in range(5):
        x, _ = planted(1, 311, 0.5 if features < 29 else 0.2, features, seed)
        groupings = Groupings(x)
        assert groupings.excess(groupings.best()) <= REAL
