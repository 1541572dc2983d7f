"""The exact maximizer over the polytope against SciPy, mpmath, closed forms and its own laws."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemosphere.numerics import polytope
from polytopes import C, R, assert_feasible, marginals, matrix, rng


def maximize(p_bar: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor) -> polytope.Maximum:
    got = polytope.maximize(p_bar, rows, cols)
    assert bool(got.converged.all())
    return got


def assert_optimal(
    result: polytope.Maximum,
    p_bar: torch.Tensor,
    rows: torch.Tensor,
    cols: torch.Tensor,
    rtol: float = 1e-11,
) -> None:
    """The optimality conditions: p in the polytope, p·(λ+ω) = p̄, λ+ω ≥ 0."""
    assert bool(result.converged.all())
    assert_feasible(result.p, rows, cols, rtol)
    zeta = result.col_multipliers[..., None, :] + result.row_multipliers[..., None]
    assert bool((zeta >= 0).all())
    scale = float(p_bar.sum())
    np.testing.assert_allclose(result.p * zeta, p_bar, rtol=1e-10, atol=1e-28 * scale)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 6),
    m=st.integers(1, 5),
    decades=st.sampled_from([0.0, 2.0, 10.0, 30.0]),
    spread=st.sampled_from([0.0, 1.0, 4.0]),
)
def test_maximize_meets_the_optimality_conditions(
    seed: int, n: int, m: int, decades: float, spread: float
) -> None:
    rows, cols = marginals(seed, n, m, spread)
    p_bar = matrix(seed + 1, n, m, decades=decades)
    # Only what lies under the floor of 1e-30 may differ from p̄: keep clear of it.
    p_bar = p_bar.clamp(min=1e-27 * float(p_bar.sum()))
    got = polytope.maximize(p_bar, rows, cols)
    assert_optimal(got, p_bar, rows, cols)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 1.0, 3.0]))
def test_maximize_with_zeros_beats_every_feasible_neighbor(seed: int, spread: float) -> None:
    rows, cols = marginals(seed, spread=spread)
    p_bar = matrix(seed + 1, decades=2.0)
    p_bar[torch.tensor(rng(seed + 2).uniform(size=(R, C)) < 0.4)] = 0.0
    # A feasible member on the support, so that the maximum is finite.
    p_bar[:, 0] += 0.01
    p_bar[0] += 0.01
    got = maximize(p_bar, rows, cols)
    assert_feasible(got.p, rows, cols)
    # Concave problem: no feasible direction may lead up, so Σ (p̄/p)(p' − p) ≤ 0 for members p'.
    slope = torch.where(p_bar > 0, p_bar / got.p, 0.0)
    for trial in range(5):
        other = polytope.sinkhorn(
            matrix(seed + 3 + trial, decades=3.0).log(), rows, cols, tol=1e-13
        )
        gain = float((slope * (other - got.p)).sum())
        assert gain <= 1e-9 * float(p_bar.sum())


def test_maximize_is_scale_free_and_follows_permutations() -> None:
    rows, cols = marginals(26)
    p_bar = matrix(27, decades=5.0)
    base = polytope.maximize(p_bar, rows, cols)
    scaled = polytope.maximize(1e-40 * p_bar, 3.0 * rows, 3.0 * cols)
    torch.testing.assert_close(scaled.p, 3.0 * base.p, rtol=1e-10, atol=0.0)
    i, j = torch.tensor(rng(28).permutation(R)), torch.tensor(rng(29).permutation(C))
    moved = polytope.maximize(p_bar[i][:, j], rows[i], cols[j])
    torch.testing.assert_close(moved.p, base.p[i][:, j], rtol=1e-10, atol=0.0)
    flipped = polytope.maximize(p_bar.T, cols, rows)
    torch.testing.assert_close(flipped.p, base.p.T, rtol=1e-9, atol=0.0)


def test_maximize_dead_rows_and_columns_fill_what_is_left() -> None:
    # Row 0 carries no data: the others take what suits them, it takes the remainder.
    third = torch.full((3,), 1 / 3, dtype=torch.float64)
    p_bar = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]).double()
    expected = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).double() / 3
    got = maximize(p_bar, third, third)
    torch.testing.assert_close(got.p, expected, rtol=1e-11, atol=1e-14)
    assert float(got.p[1, 1]) == 0.0
    # A dead column too: only its marginal says where mass goes.
    got = polytope.maximize(p_bar[1:], torch.tensor([0.5, 0.5]).double(), third)
    expected = torch.tensor([[2.0, 0.0, 1.0], [0.0, 2.0, 1.0]]).double() / 6
    torch.testing.assert_close(got.p, expected, rtol=1e-11, atol=1e-13)


def test_maximize_carries_marginals_where_the_data_cannot() -> None:
    # All data in column 0, which holds a tenth: it is shared in proportion, the rest is even.
    rows = torch.tensor([0.25, 0.75], dtype=torch.float64)
    cols = torch.tensor([0.1, 0.9], dtype=torch.float64)
    got = polytope.maximize(torch.tensor([[1.0, 0.0], [4.0, 0.0]]).double(), rows, cols)
    assert bool(got.converged)
    expected = torch.tensor([[0.02, 0.23], [0.08, 0.67]], dtype=torch.float64)
    torch.testing.assert_close(got.p, expected, rtol=1e-10, atol=0.0)


def test_maximize_zero_marginals_give_zero_rows_and_columns() -> None:
    rows, cols = marginals(33)
    rows[3], cols[1] = 0.0, 0.0
    rows, cols = rows / rows.sum(), cols / cols.sum()
    p_bar = matrix(34, decades=4.0)
    got = maximize(p_bar, rows, cols)
    keep_r, keep_c = rows > 0, cols > 0
    small = polytope.maximize(p_bar[keep_r][:, keep_c], rows[keep_r], cols[keep_c])
    torch.testing.assert_close(got.p[keep_r][:, keep_c], small.p, rtol=1e-9, atol=0.0)
    assert float(got.p[3].sum() + got.p[:, 1].sum()) == 0.0
    assert math.isinf(float(got.row_multipliers[3]))
    assert math.isinf(float(got.col_multipliers[1]))


def test_maximize_batch_equals_one_by_one() -> None:
    # Easy and hard problems together: the batch narrows as the easy ones finish.
    p_bar = torch.stack([matrix(40 + i, decades=d) for i, d in enumerate([0.1, 0.5, 1, 3, 9, 25])])
    p_bar = p_bar.reshape(2, 3, R, C)
    rows, _ = marginals(41)
    cols = torch.stack([marginals(42 + i)[1] for i in range(3)])
    many = maximize(p_bar, rows, cols)
    assert many.converged.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            one = polytope.maximize(p_bar[i, j], rows, cols[j])
            torch.testing.assert_close(many.p[i, j], one.p, rtol=1e-9, atol=1e-14)
            assert_feasible(many.p[i, j], rows, cols[j])


def test_maximize_errors_say_what_to_do() -> None:
    rows, cols = marginals(52)
    with pytest.raises(ValueError, match=r"p_bar must be finite and non-negative, got -1 at"):
        polytope.maximize(-torch.ones(R, C, dtype=torch.float64), rows, cols)
    with pytest.raises(ValueError, match=r"p_bar must have shape \(\.\.\., 7, 5\)"):
        polytope.maximize(torch.ones(C, R, dtype=torch.float64), rows, cols)
    stopped = polytope.maximize(matrix(53), rows, cols, max_iter=1)
    assert not bool(stopped.converged)


def test_maximize_stays_feasible_and_optimal_where_rounding_hides_the_multipliers() -> None:
    # Forty decades and equal marginals, so that many vertices tie.
    g = rng(54)
    z = 30.0 * g.normal(size=(300, 11, 11))
    p_bar = np.exp(z - z.max(-1, keepdims=True)) * 10.0 ** (-20.0 * g.uniform(size=(300, 11, 1)))
    even = torch.full((11,), 1 / 11, dtype=torch.float64)
    assert_feasible(maximize(torch.tensor(p_bar), even, even).p, even, even)


@pytest.mark.parametrize("decades", [1.0, 8.0, 30.0])
def test_maximize_two_by_two_in_high_precision(decades: float) -> None:
    # One degree of freedom s = p_00; the derivative of the objective falls from +∞ to −∞.
    with mpmath.workdps(80):
        for seed in range(6):
            rows, cols = marginals(200 + seed, 2, 2, spread=2.0)
            p_bar = matrix(300 + seed, 2, 2, decades=decades)
            r, c = mpmath.mpf(float(rows[0])), mpmath.mpf(float(cols[0]))
            total = mpmath.mpf(float(rows[0])) + mpmath.mpf(float(rows[1]))
            q = [[mpmath.mpf(float(v)) for v in line] for line in p_bar]
            low, high = max(mpmath.mpf(0), r + c - total), min(r, c)
            for _ in range(260):
                s = (low + high) / 2
                slope = q[0][0] / s - q[0][1] / (r - s) - q[1][0] / (c - s)
                slope += q[1][1] / (total - r - c + s)
                low, high = (s, high) if slope > 0 else (low, s)
            expected = [[s, r - s], [c - s, total - r - c + s]]
            got = maximize(p_bar, rows, cols).p
            for i in range(2):
                for j in range(2):
                    assert float(got[i, j]) == pytest.approx(
                        float(expected[i][j]), rel=1e-9, abs=1e-14
                    )
