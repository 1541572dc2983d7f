import mpmath
import pytest
import torch
from torch.testing import assert_close

from draws import generator
from mnemosphere.model import initialize
from mnemosphere.numerics import sphere


@pytest.fixture
def x(problem):
    return problem(rows=47, features=11).x


def test_memories_from_data_are_distinct_rows(x):
    w = initialize.from_data(x, 31, generator=generator())
    picked = [(x == row).all(1).nonzero().ravel().tolist() for row in w]
    assert all(len(matches) == 1 for matches in picked)
    assert len({matches[0] for matches in picked}) == 31


@pytest.mark.parametrize("n_memories", [48, 94, 101])
def test_more_memories_than_rows(x, n_memories):
    w = sphere.check(initialize.from_data(x, n_memories, generator=generator()))
    assert w.shape == (n_memories, 11)
    # Every row is a memory; the rest are near a row, and no two are the same.
    overlap = w @ x.T
    assert_close(overlap.amax(0), torch.ones(47).double(), rtol=0, atol=1e-14)
    assert (overlap.amax(1) > 0.99).all()
    gram = w @ w.T - torch.eye(n_memories)
    assert gram.max() < 1 - 1e-6


def check_beta(beta, resultant, n):
    """A_N(β) by mpmath against the resultant that β should have."""
    a = mpmath.besseli(n / 2, float(beta)) / mpmath.besseli(n / 2 - 1, float(beta))
    assert float(a) == pytest.approx(resultant, rel=1e-9)


@pytest.mark.parametrize("varsigma", [0.25, 1.0])
def test_beta_for_rows_that_go_to_their_nearest_memory(problem, varsigma):
    case = problem(3, rows=1009, features=11, memories=17)
    nearest = (case.x @ case.params.w.T).max(1).values.mean()
    beta = initialize.estimate_beta(case.params.w, case.x, varsigma)
    assert beta.dtype == torch.float64
    assert beta.shape == ()
    check_beta(beta, varsigma * float(nearest), 11)


def test_rows_that_are_memories_do_not_count(x):
    w = initialize.from_data(x, 29, generator=generator())
    nearest = (x @ w.T).max(1).values
    others = nearest[nearest < 1 - 1e-9]
    assert len(others) == 18
    check_beta(initialize.estimate_beta(w, x, 0.5), 0.5 * float(others.mean()), 11)


def test_beta_where_every_row_is_a_memory_is_finite(x):
    for varsigma in (0.25, 1.0):
        beta = initialize.estimate_beta(x, x, varsigma)
        assert torch.isfinite(beta)
        assert beta > 0
