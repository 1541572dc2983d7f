"""Two rows of a polytope: against the solver of many rows, and at the ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mnemosphere.numerics import polytope
from mnemosphere.numerics.polytope import divide


def problem(seed, decades, columns=7):
    rng = np.random.default_rng(seed)
    a, b = 10 ** rng.uniform(-decades, 0, size=(2, columns))
    c = rng.dirichlet(np.ones(columns))
    return a, b, c, rng.uniform(0.001, 0.999)


@pytest.mark.parametrize("decades", [0.5, 3, 12])
def test_as_the_solver_of_many_rows(decades):
    for seed in range(31):
        a, b, c, total = problem(seed, decades)
        two = torch.from_numpy(np.stack([a, b]))
        rows = torch.tensor([total, 1 - total], dtype=torch.float64)
        expected = polytope.maximize(two, rows, torch.from_numpy(c)).p.numpy()
        np.testing.assert_allclose(divide(a, b, c, total), expected, rtol=1e-9, atol=1e-14)


def test_many_at_once_and_the_sums():
    problems = [problem(seed, 30) for seed in range(13)]
    a, b, c, total = (np.stack(part) for part in zip(*problems, strict=True))
    p, rest = divide(a, b, c, total)
    np.testing.assert_allclose(p.sum(1), total, rtol=1e-12)
    np.testing.assert_allclose(p + rest, c, rtol=1e-9)
    assert (p >= 0).all()
    for k, (one, other, *_) in enumerate(zip(p, rest, strict=True)):
        np.testing.assert_allclose((one, other), divide(a[k], b[k], c[k], total[k]), rtol=1e-9)


def test_columns_without_weight():
    """Of no weight at all: what the others leave; of one row's alone: as the sums allow."""
    p, rest = divide([3.0, 0.0], [3.0, 0.0], [0.5, 0.5], 0.25)
    np.testing.assert_allclose(p, [0.25, 0.0], atol=1e-12)
    p, rest = divide([0.0, 2.0], [1.0, 2.0], [0.5, 0.5], 0.25)
    np.testing.assert_allclose(p, [0.0, 0.25], atol=1e-14)
    np.testing.assert_allclose(rest, [0.5, 0.25], rtol=1e-12)
    p, rest = divide([0.3, 2.0], [1.0, 2.0], [0.5, 0.5], 0.0)
    assert (p.tolist(), rest.tolist()) == ([0.0, 0.0], [0.5, 0.5])


@pytest.mark.parametrize("total", [1e-140, 1e-160, 1e-308])
def test_a_row_of_next_to_nothing(total):
    """A multiplier so large is all that the equation of a column has: p = a/t."""
    a, b, c, _ = problem(3, 2)
    a, b, c = (np.append(v, last) for v, last in ((a, 0.7), (b, 0.2), (c, 0.0)))
    p, rest = divide(a, b, c, total)
    np.testing.assert_allclose(p[:-1] / total, a[:-1] / a[:-1].sum(), rtol=1e-3)
    np.testing.assert_allclose(rest, c, rtol=1e-12)
    assert p[-1] == 0


@pytest.mark.parametrize("seed", range(11))
def test_a_row_that_hardly_a_column_asks_for(seed):
    """Many classes and a uniform component that no row is left to: steps leap over the root."""
    rng = np.random.default_rng(seed)
    c = rng.dirichlet(np.full(201, 5.0))
    a, b = 10 ** rng.uniform(-15, -6, 201), c * (1 + 0.02 * rng.normal(size=201))
    p, rest = divide(a, b, c, 0.00125)
    assert p.sum() == pytest.approx(0.00125, rel=1e-12)
    np.testing.assert_allclose(p + rest, c, rtol=1e-12)
    force = a / p - b / rest  # the one multiplier of the row
    np.testing.assert_allclose(force, force[0], rtol=1e-6)
