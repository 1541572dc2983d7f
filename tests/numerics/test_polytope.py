"""The transportation polytope against POT, SciPy, mpmath, closed forms and its own laws."""

import math

import numpy as np
import ot
import pytest
import torch
from numpy.testing import assert_allclose

from mnemosphere.numerics import polytope
from polytopes import C, R, assert_feasible, marginals, matrix, rng

# Marginals and membership


@pytest.mark.parametrize(
    ("rows", "cols", "message"),
    [
        ([0.5, 0.5], [0.5, 0.6], r"equal totals, got 1 and 1\.1: normalize"),
        ([1.5, -0.5], [0.5, 0.5], r"rows must be finite and non-negative, got -0\.5 at index \(1,"),
        ([0.5, 0.5], [math.nan, 1.0], r"cols must be finite and non-negative, got nan"),
        ([0.0, 0.0], [0.0], "sum to 0"),
        ([], [], "at least one entry"),
    ],
)
def test_bad_marginals_raise(rows: list[float], cols: list[float], message: str) -> None:
    r, c = (torch.tensor(m, dtype=torch.float64) for m in (rows, cols))
    with pytest.raises(ValueError, match=message):
        polytope.check_marginals(r, c)
    if rows:
        k = torch.ones(len(rows), len(cols), dtype=torch.float64)
        with pytest.raises(ValueError, match=message):
            polytope.maximize(k, r, c)
        with pytest.raises(ValueError, match=message):
            polytope.sinkhorn(k.log(), r, c)


def test_check_accepts_members_and_names_what_is_off() -> None:
    rows, cols = marginals(0)
    p = torch.outer(rows, cols)
    assert polytope.check(p, rows, cols, tol=1e-12) is p
    moved = p.clone()
    moved[4, 1] += 1e-3
    with pytest.raises(ValueError, match=r"row 4 of p misses its marginal by 0\.001 "):
        polytope.check(moved, rows, cols, tol=1e-4)
    polytope.check(moved, rows, cols, tol=2e-3)
    moved[4, 2] -= 1e-3
    with pytest.raises(ValueError, match=r"column [12] of p misses its marginal"):
        polytope.check(moved, rows, cols, tol=1e-4)
    with pytest.raises(ValueError, match="non-negative"):
        polytope.check(-p, rows, cols, tol=1.0)
    with pytest.raises(ValueError, match=r"shape \(\.\.\., 7, 5\)"):
        polytope.check(p.T, rows, cols, tol=1.0)


# Sinkhorn


@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_sinkhorn_agrees_with_pot(spread: float) -> None:
    rows, cols = marginals(1)
    log_k = torch.tensor(spread * rng(2).normal(size=(R, C)))
    plan = ot.sinkhorn(
        rows.numpy(),
        cols.numpy(),
        -log_k.numpy(),
        reg=1.0,
        method="sinkhorn_log",
        stopThr=1e-14,
        numItermax=20_000,
    )
    got = polytope.sinkhorn(log_k, rows, cols, tol=1e-12)
    assert_allclose(got, plan, rtol=1e-8, atol=1e-15)


def test_sweeps_take_weights_over_many_decades() -> None:
    rows, cols = marginals(12)
    log_k = torch.tensor(200.0 * rng(13).normal(size=(R, C)))  # exp overflows
    p = log_k
    for _ in range(4):
        p = p - p.logsumexp(1, keepdim=True) + rows.log()[:, None]
        p = p - p.logsumexp(0, keepdim=True) + cols.log()
    assert_allclose(polytope.sweep(log_k, rows, cols, 4), p.exp(), rtol=1e-9, atol=1e-200)


@pytest.mark.parametrize("spread", [30.0, 300.0])
def test_newton_scales_what_plain_sweeps_cannot(spread: float) -> None:
    rows, cols = marginals(5, 101, 11)
    log_k = torch.tensor(spread * rng(6).normal(size=(101, 11)))
    plain = polytope.sweep(log_k, rows, cols, 100)
    assert float((plain.sum(1) / rows - 1).abs().max()) > 1e-3
    got = polytope.sinkhorn(log_k, rows, cols, tol=1e-10, max_sweeps=400)
    assert_feasible(got, rows, cols, rtol=1e-9)
    # p = a k b exactly: every 2 by 2 minor keeps its cross ratio where p has not underflowed.
    ratio = got.log() - log_k
    ratio = torch.where(got > 1e-280, ratio, math.nan)
    cross = ratio[:-1, :-1] + ratio[1:, 1:] - ratio[:-1, 1:] - ratio[1:, :-1]
    seen = cross[torch.isfinite(cross)]
    assert len(seen) > 10
    assert float(seen.abs().max()) < 1e-9 * spread


def test_sinkhorn_reports_infeasible_zeros() -> None:
    # Rows 0 and 1 can only use column 0, which is too small for both.
    log_k = torch.zeros(3, 3, dtype=torch.float64)
    log_k[:2, 1:] = -math.inf
    third = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert bool(torch.isfinite(polytope.sweep(log_k, third, third, 60)).all())
    with pytest.raises(RuntimeError, match="zeros of the matrix"):
        polytope.sinkhorn(log_k, third, third, tol=1e-9, max_sweeps=60)


# Tangent space


def test_center_rows_is_the_matrix_product_of_the_paper() -> None:
    rows, cols = marginals(19)
    p = polytope.sinkhorn(matrix(20).log(), rows, cols, tol=1e-13)
    g = torch.tensor(rng(21).normal(size=(R, C)))
    got = polytope.center_rows(p, g, rows)
    for i in range(R):
        m = np.eye(C) - np.outer(np.ones(C), p[i].numpy()) / float(rows[i])
        assert_allclose(got[i], m @ g[i].numpy(), atol=1e-14)
    assert float((p * got).sum(-1).abs().max()) < 1e-15
    rows[2], p[2] = 0.0, 0.0
    torch.testing.assert_close(polytope.center_rows(p, g, rows)[2], g[2])


def test_tangent_projection_solves_the_constrained_least_squares_problem() -> None:
    rows, cols = marginals(16)
    p = polytope.sinkhorn(matrix(17).log(), rows, cols, tol=1e-13)
    g = torch.tensor(rng(18).normal(size=(R, C)))
    # Minimize the Fisher norm of ξ − g subject to A ξ = 0, by dense linear algebra.
    a = np.vstack([np.kron(np.eye(R), np.ones(C)), np.kron(np.ones(R), np.eye(C))])
    d = np.diag(p.numpy().ravel())
    multipliers = np.linalg.lstsq(a @ d @ a.T, a @ g.numpy().ravel(), rcond=None)[0]
    expected = (g.numpy().ravel() - d @ a.T @ multipliers).reshape(R, C)
    got = polytope.to_tangent(p, g, rows, cols)
    np.testing.assert_allclose(got, expected, atol=1e-12)
    single = polytope.to_tangent(p.float(), g.float(), rows.float(), cols.float())
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)
