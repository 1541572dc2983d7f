"""The metric of a geometry: where it starts, and what it lets count."""

from __future__ import annotations

import pytest
import torch

from mnemosphere.geometry.whitened import MAX_RANK, whitening
from mnemosphere.numerics import sphere
from runs import seeded


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def standard_rows(z):
    root = z.new_full((len(z), 1), z.shape[1] ** 0.5)
    return sphere.project(torch.cat([z, root], dim=1))


def metric(z, index, shrinkage):
    return whitening(standard_rows(z), index, torch.ones(len(z)).double(), shrinkage)


def classes_in_a_tilted_space(n=307, d=5, classes=3):
    """Rows whose covariance within classes is far from round."""
    index = torch.arange(n) % classes
    centers = 3 * randn(classes, d, seed=3)
    tilt = randn(d, d, seed=4) + 2 * torch.eye(d, dtype=torch.float64)
    z = (centers[index] + randn(n, d, seed=5)) @ tilt
    return (z - z.mean(0)) / z.std(0), index


def within(z, index):
    rest = torch.cat([z[index == k] - z[index == k].mean(0) for k in range(int(index.max()) + 1)])
    return rest.T @ rest / len(rest)


def test_whitening_makes_classes_round():
    z, index = classes_in_a_tilted_space()
    a = metric(z, index, shrinkage=0.0)
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
    z, index = classes_in_a_tilted_space()
    q = torch.linalg.qr(randn(5, 5, seed=6))[0]
    seen = []
    for rows in (z, z @ q.T):
        x = sphere.project(standard_rows(rows) @ metric(rows, index, shrinkage=0.3).T)
        seen.append(x @ x.T)
    torch.testing.assert_close(*seen, rtol=0, atol=1e-9)


@pytest.mark.parametrize("more", [3, 211])  # fewer and more than rows
def test_many_coordinates_are_seen_along_their_principal_axes(more):
    n = MAX_RANK + more
    index = torch.arange(211) % 3
    z = (randn(3, n, seed=3)[index] + randn(211, n, seed=5)) * torch.logspace(0, -2, n)
    a = metric(z, index, shrinkage=1.0)
    assert a.shape == (MAX_RANK, n + 1)
    axes = torch.linalg.eigh(z.T @ z)[1][:, 1 - MAX_RANK :]
    # The same plane, kept as it is.
    projector = a[:-1, :-1].T @ a[:-1, :-1]
    found = projector / projector.trace() * (MAX_RANK - 1)
    torch.testing.assert_close(found, axes @ axes.T, rtol=0, atol=1e-9)
