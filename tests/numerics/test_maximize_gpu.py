"""The kernel on a GPU against the exact maximizer on the processor."""

from __future__ import annotations

import pytest
import torch

from mnemosphere.numerics import maximize_gpu, polytope
from polytopes import assert_feasible, marginals, matrix

on_gpu = pytest.mark.skipif(
    not maximize_gpu.usable(2), reason="needs a GPU and Triton: the kernel itself is not tested"
)


def on_device(p_bar, rows, cols, lam=None, omega=None, *, tol=1e-11, max_iter=60):
    """p on the host, the error, both multipliers."""
    there = [t.cuda() for t in (p_bar, rows, cols)]
    lam = torch.zeros_like(there[2], dtype=torch.float64) if lam is None else lam.clone()
    omega = torch.zeros_like(there[1], dtype=torch.float64) if omega is None else omega.clone()
    p, error = maximize_gpu.maximize(*there, lam, omega, tol=tol, max_iter=max_iter)
    return p.cpu(), float(error), lam, omega


def test_not_without_a_gpu_nor_for_many_columns():
    assert not maximize_gpu.usable(33)
    if not torch.cuda.is_available():
        assert not maximize_gpu.usable(2)


@on_gpu
@pytest.mark.parametrize("n_cols", [1, 2, 3, 11, 16, 17, 31, 32])
@pytest.mark.parametrize("n_rows", [1, 7, 101, 1009])
def test_the_kernel_finds_what_the_host_finds(n_rows, n_cols):
    rows, cols = marginals(3, n_rows, n_cols)
    p_bar = matrix(4, n_rows, n_cols, decades=2.0)
    p, error, lam, omega = on_device(p_bar, rows, cols)
    assert error <= 1e-11
    assert_feasible(p, rows, cols, rtol=2e-11)
    expected = polytope.maximize(p_bar, rows, cols).raise_if_failed().p
    torch.testing.assert_close(p, expected, rtol=1e-7, atol=1e-15)
    # Stationarity: p = p̄/ζ with ζ = λ + ω, up to the scale of p̄.
    scale = p * (lam.cpu() + omega.cpu()[:, None]) / p_bar
    torch.testing.assert_close(scale, scale[:1, :1].expand_as(scale), rtol=1e-10, atol=0)


@on_gpu
def test_single_precision_is_solved_in_double():
    rows, cols = (t.float() for t in marginals(5, 101, 11))
    p_bar = matrix(6, 101, 11, decades=2.0).float()
    p, error, *_ = on_device(p_bar, rows, cols, tol=1e-6)
    assert error <= 1e-6
    assert p.dtype == torch.float32
    expected = polytope.maximize(p_bar, rows, cols).p
    torch.testing.assert_close(p, expected, rtol=1e-4, atol=1e-9)


@on_gpu
def test_a_warm_start_takes_few_iterations():
    rows, cols = marginals(7, 211, 11)
    p_bar = matrix(8, 211, 11, decades=3.0)
    _, _, lam, omega = on_device(p_bar, rows, cols)
    changed = p_bar * (1 + 0.05 * matrix(9, 211, 11))
    cold = on_device(changed, rows, cols, max_iter=3)[1]
    p, warm, *_ = on_device(changed, rows, cols, lam, omega, max_iter=3)
    assert warm < 1e-6 < cold
    expected = polytope.maximize(changed, rows, cols).p
    torch.testing.assert_close(p, expected, rtol=1e-4, atol=1e-9)
    again = on_device(p_bar, rows, cols, lam, omega, max_iter=1)
    assert again[1] <= 1e-10  # nothing left to do


@on_gpu
@pytest.mark.parametrize("warm", [False, True])
def test_zero_marginals_give_zero_rows_and_columns(warm):
    rows, cols = marginals(10, 37, 5)
    rows[3], cols[1] = 0.0, 0.0
    rows, cols = rows / rows.sum(), cols / cols.sum()
    p_bar = matrix(11, 37, 5, decades=2.0)
    p, error, lam, omega = on_device(p_bar, rows, cols)
    if warm:
        p, error, *_ = on_device(p_bar * 1.01, rows, cols, lam, omega)
    assert error <= 1e-11
    expected = polytope.maximize(p_bar, rows, cols).p
    torch.testing.assert_close(p, expected, rtol=1e-7, atol=1e-15)
    assert float(p[3].sum() + p[:, 1].sum()) == pytest.approx(0.0, abs=1e-25)


@on_gpu
def test_a_hard_problem_ends_and_reports_its_error():
    """Forty decades: for the interior-point method on the host."""
    rows, cols = marginals(12, 101, 11)
    _, error, *_ = on_device(matrix(13, 101, 11, decades=40.0), rows, cols, max_iter=5)
    assert not error <= 1e-11  # NaN counts
