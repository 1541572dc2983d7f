"""Multipliers from those of a problem like it, and the graph Laplacian."""

import mpmath
import numpy as np
import pytest

from mnemosphere.numerics import interior
from mnemosphere.numerics.interior import Laplacian

TOL = 1e-12


def problem(
    seed: int, batch: int, n_cols: int, n_rows: int, decades: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    q = 10.0 ** (decades * rng.random((batch, n_cols, n_rows)))
    r = rng.dirichlet(np.ones(n_rows), batch)
    c = rng.dirichlet(np.ones(n_cols), batch)
    return q / q.sum((-2, -1), keepdims=True), r, c


@pytest.mark.parametrize("shape", [(5, 17), (17, 5)])
def test_multipliers_of_a_problem_like_it_are_a_start_and_bad_ones_do_no_harm(
    shape: tuple[int, int],
) -> None:
    q, r, c = problem(5, 3, *shape, 1.0)
    plain = interior.solve(q, r, c, TOL, 100)
    noise = np.random.default_rng(7).random(q.shape)
    near = interior.solve(q * (1 + 0.01 * noise), r, c, TOL, 100)
    helped = interior.solve(q, r, c, TOL, 100, (near.lam, near.omega))
    assert helped.iterations <= plain.iterations - 2
    for start in [(near.lam, near.omega), (1e9 * c, 1e-9 * r), (0 * c, 1e12 * r)]:
        found = interior.solve(q, r, c, TOL, 100, start)
        assert found.error.max() <= TOL
        np.testing.assert_allclose(found.p, plain.p, rtol=1e-10)


def exact(edges: np.ndarray, ground: int, b: np.ndarray) -> np.ndarray:
    """Solve the Laplacian's equations without the ground's, with 200 digits."""
    n = len(b)
    keep = [i for i in range(n) if i != ground]
    with mpmath.workdps(200):
        degree = [mpmath.fsum(mpmath.mpf(edges[i, j]) for j in range(n) if j != i) for i in keep]
        matrix = mpmath.matrix(n - 1, n - 1)
        for row, i in enumerate(keep):
            for col, j in enumerate(keep):
                matrix[row, col] = degree[row] if i == j else -mpmath.mpf(edges[i, j])
        x = mpmath.lu_solve(matrix, mpmath.matrix([mpmath.mpf(b[i]) for i in keep]))
        full = np.zeros(n)
        full[keep] = [float(v) for v in x]
    return full


@pytest.mark.parametrize("decades", [0.0, 2.0, 12.0, 30.0])
def test_laplacian_solutions_keep_their_relative_precision(decades: float) -> None:
    rng = np.random.default_rng(11)
    n, batch = 7, 3
    edges = 10.0 ** (decades * (rng.random((batch, n, n)) - 1))
    edges = np.triu(edges, 1)
    edges = edges + edges.swapaxes(-1, -2)
    b = rng.random((batch, n))
    b[:, 2] = -(b.sum(-1) - b[:, 2])  # flows in everywhere, out at node 2: no cancelling
    ground = np.full(batch, 2)
    given = edges.copy()
    found = Laplacian(edges, ground, ground).solve(b)
    assert np.array_equal(edges, given)
    for one in range(batch):
        want = exact(edges[one], 2, b[one])
        np.testing.assert_allclose(found[one], want, rtol=1e-9, atol=1e-12 * want.max())
