"""The transportation polytope against POT, SciPy, mpmath, closed forms and its own laws."""

import math

import numpy as np
import ot
import pytest
import torch

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


def test_marginals_of_the_wrong_type_raise() -> None:
    with pytest.raises(TypeError, match="rows must be a floating-point tensor, got list"):
        polytope.check_marginals([0.5, 0.5], torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"cols must be a floating-point tensor, got torch\.int64"):
        polytope.check_marginals(torch.ones(1), torch.ones(1, dtype=torch.int64))


def test_rounded_float32_marginals_pass() -> None:
    rows = torch.full((1009,), 1 / 1009)
    polytope.check_marginals(rows, torch.full((11,), 1 / 11))


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
    got = polytope.sinkhorn(log_k, rows, cols, tol=1e-12).raise_if_failed()
    np.testing.assert_allclose(got.p, plan, rtol=1e-8, atol=1e-15)


def test_fixed_sweeps_agree_with_direct_scaling() -> None:
    rows, cols = marginals(3)
    k = matrix(4)
    p = k.numpy().copy()
    for _ in range(3):
        p *= (rows.numpy() / p.sum(1))[:, None]
        p *= cols.numpy() / p.sum(0)
    got = polytope.sweep(k.log(), rows, cols, 3)
    np.testing.assert_allclose(got, p, rtol=1e-12)
    single = polytope.sweep(k.log().float(), rows.float(), cols.float(), 3)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, p, rtol=2e-5)


def test_sweeps_take_weights_over_many_decades() -> None:
    rows, cols = marginals(12)
    log_k = torch.tensor(200.0 * rng(13).normal(size=(R, C)))  # exp overflows
    p = log_k
    for _ in range(4):
        p = p - p.logsumexp(1, keepdim=True) + rows.log()[:, None]
        p = p - p.logsumexp(0, keepdim=True) + cols.log()
    np.testing.assert_allclose(
        polytope.sweep(log_k, rows, cols, 4), p.exp(), rtol=1e-9, atol=1e-200
    )


@pytest.mark.parametrize("spread", [30.0, 300.0])
def test_newton_scales_what_plain_sweeps_cannot(spread: float) -> None:
    rows, cols = marginals(5, 101, 11)
    log_k = torch.tensor(spread * rng(6).normal(size=(101, 11)))
    plain = polytope.sweep(log_k, rows, cols, 100)
    assert float((plain.sum(1) / rows - 1).abs().max()) > 1e-3
    got = polytope.sinkhorn(log_k, rows, cols, tol=1e-10, max_sweeps=400).raise_if_failed()
    assert_feasible(got.p, rows, cols, rtol=1e-9)
    # p = a k b exactly: every 2 by 2 minor keeps its cross ratio where p has not underflowed.
    ratio = got.p.log() - log_k
    ratio = torch.where(got.p > 1e-280, ratio, math.nan)
    cross = ratio[:-1, :-1] + ratio[1:, 1:] - ratio[:-1, 1:] - ratio[1:, :-1]
    seen = cross[torch.isfinite(cross)]
    assert len(seen) > 10
    assert float(seen.abs().max()) < 1e-9 * spread


def test_sinkhorn_keeps_structural_zeros() -> None:
    rows, cols = marginals(7)
    p = torch.outer(rows, cols)
    hole = torch.zeros(R, C, dtype=torch.bool)
    hole[2, 1] = hole[2, 3] = hole[6, 4] = True
    log_k = p.log().masked_fill(hole, -math.inf)
    got = polytope.sinkhorn(log_k, rows, cols, tol=1e-11).raise_if_failed()
    assert bool((got.p[hole] == 0).all())
    assert_feasible(got.p, rows, cols, rtol=1e-10)


def test_sinkhorn_reports_infeasible_zeros() -> None:
    # Rows 0 and 1 can only use column 0, which is too small for both.
    log_k = torch.zeros(3, 3, dtype=torch.float64)
    log_k[:2, 1:] = -math.inf
    third = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert bool(torch.isfinite(polytope.sweep(log_k, third, third, 60)).all())
    got = polytope.sinkhorn(log_k, third, third, tol=1e-9, max_sweeps=60)
    assert not bool(got.converged)
    assert float(got.error) > 0.1
    assert bool(torch.isfinite(got.p).all())
    with pytest.raises(RuntimeError, match="zeros of the matrix"):
        got.raise_if_failed()


def test_sinkhorn_zero_marginals_give_zero_rows_and_columns() -> None:
    rows, cols = marginals(8)
    rows[3], cols[1] = 0.0, 0.0
    rows, cols = rows / rows.sum(), cols / cols.sum()
    log_k = matrix(9).log()
    got = polytope.sinkhorn(log_k, rows, cols, tol=1e-12).raise_if_failed().p
    keep_r, keep_c = rows > 0, cols > 0
    small = polytope.sinkhorn(log_k[keep_r][:, keep_c], rows[keep_r], cols[keep_c], tol=1e-12).p
    torch.testing.assert_close(got[keep_r][:, keep_c], small, rtol=1e-10, atol=0.0)
    assert float(got[3].abs().sum() + got[:, 1].abs().sum()) == 0.0
    swept = polytope.sweep(log_k, rows, cols, 50)
    torch.testing.assert_close(swept, got, rtol=1e-9, atol=1e-300)


def test_sinkhorn_batch_equals_one_by_one() -> None:
    log_k = torch.tensor(8.0 * rng(10).normal(size=(2, 3, R, C)))
    rows, cols = marginals(11)
    many = polytope.sinkhorn(log_k, rows, cols, tol=1e-12)
    assert many.converged.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            one = polytope.sinkhorn(log_k[i, j], rows, cols, tol=1e-12)
            torch.testing.assert_close(many.p[i, j], one.p, rtol=1e-10, atol=1e-300)


def test_sinkhorn_rejects_nan() -> None:
    rows, cols = marginals(12)
    log_k = torch.zeros(R, C, dtype=torch.float64)
    log_k[0, 0] = math.nan
    with pytest.raises(ValueError, match="log_k must be finite or -inf"):
        polytope.sinkhorn(log_k, rows, cols)


def test_sinkhorn_says_what_does_not_fit() -> None:
    rows, cols = marginals(13)
    log_k = torch.zeros(3, R, C, dtype=torch.float64)
    with pytest.raises(
        ValueError, match=r"log_k must have shape \(\.\.\., 7, 5\).* got \(3, 5, 7\)"
    ):
        polytope.sinkhorn(log_k.mT, rows, cols)
    with pytest.raises(ValueError, match=r"got \(2,\) of rows, \(3,\) of cols"):
        polytope.sinkhorn(log_k, rows.expand(2, R), cols.expand(3, C))


# Tangent space


def fisher(p: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b / p).sum((-2, -1))


@pytest.mark.parametrize("decades", [1.0, 12.0])
def test_tangent_projection_laws(decades: float) -> None:
    rows, cols = marginals(13)
    p = polytope.sinkhorn(matrix(14, 3, R, C, decades=decades).log(), rows, cols, tol=1e-14).p
    g = p * torch.tensor(rng(15).normal(size=(3, R, C)))
    xi = polytope.to_tangent(p, g, rows, cols)
    assert float(xi.sum(-1).abs().max()) < 1e-14
    assert float(xi.sum(-2).abs().max()) < 1e-14
    torch.testing.assert_close(polytope.to_tangent(p, xi, rows, cols), xi, rtol=1e-8, atol=1e-14)
    # Orthogonal in the Fisher metric: the part removed meets no tangent vector. A basis of the
    # tangent space: plus and minus on the corners of each 2 by 2 minor.
    removed = g - xi
    for i in range(R - 1):
        for j in range(C - 1):
            eta = torch.zeros(R, C, dtype=torch.float64)
            eta[i, j] = eta[i + 1, j + 1] = 1.0
            eta[i + 1, j] = eta[i, j + 1] = -1.0
            size = (removed.abs() / p * eta.abs()).sum((-2, -1))
            assert bool((fisher(p, removed, eta).abs() <= 1e-9 * size).all())


def test_tangent_projection_solves_the_constrained_least_squares_problem() -> None:
    rows, cols = marginals(16)
    p = polytope.sinkhorn(matrix(17).log(), rows, cols, tol=1e-14).p
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


def test_center_rows_is_the_matrix_product_of_the_paper() -> None:
    rows, cols = marginals(19)
    p = polytope.sinkhorn(matrix(20).log(), rows, cols, tol=1e-14).p
    g = torch.tensor(rng(21).normal(size=(R, C)))
    got = polytope.center_rows(p, g, rows)
    for i in range(R):
        m = np.eye(C) - np.outer(np.ones(C), p[i].numpy()) / float(rows[i])
        np.testing.assert_allclose(got[i], m @ g[i].numpy(), atol=1e-14)
    assert float((p * got).sum(-1).abs().max()) < 1e-15
    rows[2], p[2] = 0.0, 0.0
    torch.testing.assert_close(polytope.center_rows(p, g, rows)[2], g[2])
