"""The metric of a normalization: where it starts, and what it lets count."""

from __future__ import annotations

import pytest
import torch

from mnemosphere.model import metric
from mnemosphere.model.batch import Batch
from mnemosphere.numerics import sphere
from runs import seeded


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def standard_rows(z):
    root = z.new_full((len(z), 1), z.shape[1] ** 0.5)
    return sphere.project(torch.cat([z, root], dim=1))


def labeled(n, classes):
    index = torch.arange(n) % classes
    return index, torch.nn.functional.one_hot(index, classes + 1).double()


def classes_in_a_tilted_space(n=307, d=5, classes=3):
    """Rows whose covariance within classes is far from round."""
    index, targets = labeled(n, classes)
    centers = 3 * randn(classes, d, seed=3)
    tilt = randn(d, d, seed=4) + 2 * torch.eye(d, dtype=torch.float64)
    z = (centers[index] + randn(n, d, seed=5)) @ tilt
    return (z - z.mean(0)) / z.std(0), index, targets


def within(z, index):
    rest = torch.cat([z[index == k] - z[index == k].mean(0) for k in range(int(index.max()) + 1)])
    return rest.T @ rest / len(rest)


def test_whitening_makes_classes_round():
    z, index, targets = classes_in_a_tilted_space()
    a = metric.start(Batch(standard_rows(z), targets), shrinkage=0.0)
    assert a.shape == (6, 6)
    assert a[-1].tolist() == [0] * 5 + [1]
    found = within(z @ a[:-1, :-1].T, index)
    size = found.diagonal().mean()
    torch.testing.assert_close(found, size * torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-9)
    # Rows are as long as before, on average.
    seen = (z @ a[:-1, :-1].T).square().sum(1).mean()
    torch.testing.assert_close(seen, z.square().sum(1).mean())


def test_whitening_does_not_depend_on_a_rotation_of_the_features():
    """Overlaps after it are the same, whatever the axes (of features of one common scale)."""
    z, _, targets = classes_in_a_tilted_space()
    q = torch.linalg.qr(randn(5, 5, seed=6))[0]
    seen = []
    for rows in (z, z @ q.T):
        batch = Batch(standard_rows(rows), targets)
        x = metric.apply(metric.start(batch, shrinkage=0.3), batch).x
        seen.append(x @ x.T)
    torch.testing.assert_close(*seen, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_rows", [53, 211])  # fewer and more than columns
def test_principal_axes_are_right_singular_vectors(n_rows):
    z = randn(n_rows, 101, seed=8) * torch.logspace(0, -3, 101, dtype=torch.float64)
    expected = torch.linalg.svd(z, full_matrices=False)[2][:31]
    found = metric._principal_axes(z, 31)
    signs = (found * expected).sum(1, keepdim=True).sign()
    torch.testing.assert_close(found * signs, expected, rtol=0, atol=1e-9)
    flat = z[:, :7] @ randn(7, 101, seed=9)  # of seven axes only
    found = metric._principal_axes(flat, 31)
    assert found.shape == (7, 101)
    torch.testing.assert_close(flat @ found.T @ found, flat, rtol=0, atol=1e-9)
    assert metric._principal_axes(0 * z, 31).shape == (31, 101)


def test_many_coordinates_are_seen_along_their_principal_axes():
    n = metric.MAX_RANK + 3
    index, targets = labeled(211, 3)
    z = (randn(3, n, seed=3)[index] + randn(211, n, seed=5)) * torch.logspace(0, -2, n)
    a = metric.start(Batch(standard_rows(z), targets), shrinkage=1.0)
    assert a.shape == (metric.MAX_RANK, n + 1)
    axes = torch.linalg.eigh(z.T @ z)[1][:, 1 - metric.MAX_RANK :]
    # The same plane, kept as it is.
    projector = a[:-1, :-1].T @ a[:-1, :-1]
    found = projector / projector.trace() * (metric.MAX_RANK - 1)
    torch.testing.assert_close(found, axes @ axes.T, rtol=0, atol=1e-9)


def by_hand(z, label, weight):
    """`relief`, row by row."""
    z = (z - z.mean(0)) / z.std(0, correction=0)
    gain = torch.zeros_like(z[0])
    for i, row in enumerate(z):
        gap = (z - row).norm(dim=1)
        others = [k for k in range(len(z)) if k != i]
        own = sorted((k for k in others if label[k] == label[i]), key=lambda k: gap[k])
        rest = sorted((k for k in others if label[k] != label[i]), key=lambda k: gap[k])
        radius = max(gap[part[:5]].max() for part in (own, rest))
        inside = [torch.tensor([k for k in part if gap[k] <= radius]) for part in (own, rest)]
        far = [(z[part] - row).square().mean(0) for part in inside]
        gain += weight[i] * (far[1] - far[0])
    gain = gain.clamp_min(0)
    return (gain / gain.max()).sqrt()


def test_relief_is_what_it_says():
    z, index, _ = classes_in_a_tilted_space(n=53)
    weight = torch.arange(53).double() % 3 + 0.5
    found = metric.relief(z, index, weight)
    torch.testing.assert_close(found, by_hand(z, index, weight), rtol=1e-6, atol=1e-9)
    # The units of a coordinate and the order of rows mean nothing.
    order = torch.randperm(53, generator=seeded(0))
    units = torch.tensor([1e-3, 1.0, 7.0, 1e5, 2.0], dtype=torch.float64)
    again = metric.relief((units * z)[order], index[order], weight[order])
    torch.testing.assert_close(again, found)


def test_relief_tells_noise_from_what_tells_classes_apart_only_together():
    z = randn(401, 6, seed=11)
    index = (z[:, 0] * z[:, 1] > 0).long()
    found = metric.relief(z, index, torch.ones(401, dtype=torch.float64))
    assert found[:2].min() > 0.7
    assert found[2:].max() < 0.1


def test_a_weighted_metric_sees_no_noise():
    z, _, targets = classes_in_a_tilted_space()
    z = torch.cat([z, randn(len(z), 2, seed=13)], dim=1)
    a = metric.start(Batch(standard_rows(z), targets), 0.3, weighted=True)
    relevance = a[:, :-1].square().sum(0) / a[:, :-1].square().sum(0).mean()
    assert relevance[5:].max() < 0.01
    assert relevance[:5].max() > 1
    # Rows are as long as before, on average.
    seen = (z @ a[:-1, :-1].T).square().sum(1).mean()
    torch.testing.assert_close(seen, z.square().sum(1).mean())
