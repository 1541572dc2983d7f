"""The metric of a geometry: where it starts, and what it lets count."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import mnemosphere as mn
from draws import generator
from mnemosphere.geometry import Whitened
from mnemosphere.geometry.whitened import MAX_RANK, whitening
from mnemosphere.numerics import sphere
from mnemosphere.rows.rows import Rows


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


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


def test_a_gap_gets_the_mean_that_the_rest_of_its_row_suggests():
    z, index = classes_in_a_tilted_space()
    x = z * torch.tensor([1.0, 20.0, 1.0, 0.3, 1.0]) + torch.tensor([0.0, 7.0, -1.0, 0.0, 300.0])
    targets = torch.nn.functional.one_hot(index, 4).double()
    geometry = Whitened.fit(Rows.of(x, torch.device("cpu")), targets)
    gaps = torch.rand(x.shape, generator=generator(7)) < 0.4
    gaps[0], gaps[1] = True, False
    found = geometry.fill(torch.where(gaps, torch.nan, x)).numpy()
    values, mean, spread = x.numpy(), x.numpy().mean(0), x.numpy().std(0)
    s = 0.95 * np.corrcoef(values.T) + 0.05 * np.eye(5)  # no column is known from the others alone
    for row, own, gone in zip(found, (values - mean) / spread, gaps.numpy(), strict=True):
        part = s[np.ix_(gone, ~gone)] @ np.linalg.solve(s[np.ix_(~gone, ~gone)], own[~gone])
        np.testing.assert_allclose((row - mean)[gone] / spread[gone], part, rtol=0, atol=1e-8)
    torch.testing.assert_close(torch.from_numpy(found)[~gaps], x[~gaps], rtol=0, atol=0)


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_rows_with_gaps_are_better_than_chance_and_than_medians(objective):
    """Columns that go together: a mean in place of one of them pulls a row far off its class."""
    x, y = load_iris(return_X_y=True)
    train, test = np.arange(150) % 3 > 0, np.arange(150) % 3 == 0
    clf = mn.DAMClassifier(geometry="whitened", objective=objective, search=None, random_state=0)
    clf.fit(x[train], y[train])
    gone = np.random.default_rng(0).random(x.shape) < 0.5
    holes, medians = np.where(gone, np.nan, x), np.where(gone, np.median(x[train], 0), x)

    def loss(rows):
        return -np.log(clf.predict_proba(rows[test])[np.arange(50), y[test]]).mean()

    assert loss(holes) < 0.85 * np.log(3)
    assert loss(holes) < 0.7 * loss(medians)
