"""The order of the symmetric solution's transitions, by other means."""

import math

import pytest
import torch

from draws import generator
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory import solver, symmetric
from research.theory.transition_order import cubic_coefficient, quartic_term, transition_order
from symmetric_state import symmetric_state, uniform


def free_entropy(problem, w):
    """F of docs/research/theory-derivations.md, section 2, for memories w (P*, P) in the teachers' basis."""
    h = problem.beta_eff * w - problem.log_ratio
    h = torch.cat([torch.zeros_like(h[:, :1]), h], 1)
    entropy = 0.5 * torch.log(1 - (w * w).sum(0)).sum()
    return entropy + problem.rho * torch.logsumexp(h + problem.p_h.log(), 1).sum()


def contrast(n_teacher, n_student, seed):
    xi = torch.randn(n_teacher, n_student, dtype=torch.float64, generator=generator(seed))
    xi = xi - xi.mean(0) - xi.mean(1, keepdim=True) + xi.mean()
    return xi / xi.norm()


@pytest.mark.parametrize(("n_teacher", "n_student", "p_0"), [(3, 5, 0.0), (5, 3, 0.3), (2, 7, 0.1)])
def test_the_cubic_term_is_the_third_derivative(n_teacher, n_student, p_0):
    problem = uniform(n_teacher, n_student, p_0, beta=4.0)
    xi = contrast(n_teacher, n_student, 1)
    a = float(symmetric_state(problem).m[0, 0])
    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    value = free_entropy(problem, a + t * xi)
    for _ in range(3):
        (value,) = torch.autograd.grad(value, t, create_graph=True)
    cubic = cubic_coefficient(problem, a) * float((xi**3).sum())
    assert float(value.detach()) / 6 == pytest.approx(cubic, abs=1e-10)
    assert (abs(cubic) > 1e-3) == (n_teacher > 2)


def relaxed_quartic(problem, xi, size):
    """F gained along size·ξ with all other modes at their best, over size⁴, by Newton's method."""
    n = xi.numel()
    unit = torch.eye(n, dtype=torch.float64).reshape(n, *xi.shape)
    inner = unit - unit.mean(1, keepdim=True) - unit.mean(2, keepdim=True)
    others = (unit - (inner + unit.mean((1, 2), keepdim=True))).reshape(n, n)
    vectors, values, _ = torch.linalg.svd(others)
    basis = vectors[:, values > 0.5]
    a = 1 / problem.beta_eff

    def value(y):
        return free_entropy(problem, a + size * xi + (basis @ y).reshape(xi.shape))

    y = torch.zeros(basis.shape[1], dtype=torch.float64)
    start = value(y - y) - free_entropy(problem, torch.full_like(xi, a))
    for _ in range(8):
        gradient = torch.autograd.functional.jacobian(value, y)
        y = y - torch.linalg.solve(torch.autograd.functional.hessian(value, y), gradient)
    gained = float(value(y) - value(torch.zeros_like(y)) + start)
    return gained / size**4


@pytest.mark.parametrize(
    ("n_teacher", "n_student", "p_0", "rho"),
    [(2, 3, 0.0, 0.1), (5, 2, 0.1, 1.0), (2, 5, 0.05, 0.7)],
)
def test_the_quartic_term_is_that_of_the_relaxed_free_entropy(n_teacher, n_student, p_0, rho):
    problem = uniform(n_teacher, n_student, p_0, rho=rho)
    problem = problem.replace(beta=symmetric.symmetric_transition(problem, "beta"))
    for seed in (1, 2):
        xi = contrast(n_teacher, n_student, seed)
        expected = quartic_term(problem, xi)
        # Two sizes, extrapolated: the next term is of order size².
        coarse, fine = (relaxed_quartic(problem, xi, size) for size in (0.04, 0.02))
        assert (4 * fine - coarse) / 3 == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ("n_teacher", "n_student", "rho", "order"),
    [
        (2, 2, 2.0, "continuous"),
        (2, 5, 2.0, "continuous"),
        (3, 2, 0.1, "continuous"),
        (5, 2, 2.0, "continuous"),
        (3, 3, 2.0, "first order"),
        (5, 3, 2.0, "first order"),
        # Two teachers forbid the cubic term, but with few examples the quartic one is positive.
        (2, 3, 0.03, "first order"),
        (2, 4, 0.1, "first order"),
    ],
)
def test_the_order_is_what_the_solver_finds(n_teacher, n_student, rho, order):
    problem = uniform(n_teacher, n_student, rho=rho, n_features=10**5)
    (transition,) = transition_order(problem)
    assert transition.order == order
    assert (transition.cubic > 0) == (min(n_teacher, n_student) >= 3)
    below = problem.replace(beta=0.985 * transition.value)
    starts = sp.random_starts(below, 17, generator=generator(3))
    found = solver.solve(below, starts, tol=1e-8).raise_if_failed()
    spread = float((found.m.amax((1, 2)) - found.m.amin((1, 2))).max())
    # Of first order: a broken solution is there before the symmetric one turns unstable.
    assert spread > 0.1 if order == "first order" else spread < 1e-4


def test_the_order_changes_at_the_tricritical_point():
    # For P* = 2, P = 3 and no uniform component F_4 = 0 at P/ϱ = 4 + √96.
    problem = uniform(2, 3, rho=3 / (4 + math.sqrt(96)))
    (there,) = transition_order(problem)
    assert abs(there.quartic) < 1e-12
    for factor, order in ((0.99, "first order"), (1.01, "continuous")):
        (near,) = transition_order(problem.replace(rho=factor * problem.rho))
        assert near.order == order
