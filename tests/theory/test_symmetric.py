"""The symmetric solution: all its transitions, and their order, by other means."""

import math

import pytest
import torch

from draws import generator
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory import solver, stability, symmetric
from mnemosphere.theory.problem import SaddlePointProblem
from symmetric_state import symmetric_state


def uniform(n_teacher=2, n_student=2, p_0=0.0, beta=10.0, rho=2.0, n_features=1000):
    p_h = torch.full((n_student + 1,), (1.0 - p_0) / n_student, dtype=torch.float64)
    p_h[0] = p_0
    x = torch.eye(n_teacher, dtype=torch.float64)
    return SaddlePointProblem(  # no warning where β is not small against N
        patterns=x,
        targets=torch.ones(n_teacher, 1),
        p_h=p_h,
        p_q=torch.ones(1),
        beta=beta,
        rho=rho,
        upsilon=1.0,
        n_features=n_features,
        uniform_teacher=True,
    )


def state_at(problem, a):
    m = torch.full((problem.n_teacher, problem.n_student), a, dtype=torch.float64)
    return sp.OrderParameters(m, problem.p_h[:, None] * problem.p_q)


def test_a_narrow_window_of_instability_is_found_with_both_ends():
    problem = uniform(2, 2, 0.9, rho=0.03)
    low, high = symmetric.symmetric_transitions(problem, "beta")
    assert 35.0 < low < 36.0
    assert 59.0 < high < 60.0
    assert symmetric.symmetric_transition(problem, "beta") == low
    for value in (low, high):
        here = problem.replace(beta=value)
        at = state_at(here, 1 / here.beta_eff)
        assert float(sp.residual(here, at)) < 1e-10
        assert float(stability.spectrum(here, at)[0]) == pytest.approx(1.0, abs=1e-9)
        # The same point, seen along the other parameters.
        assert symmetric.symmetric_transitions(here, "rho") == pytest.approx([0.03], rel=1e-9)
        assert symmetric.symmetric_transitions(here, "upsilon") == pytest.approx([1.0], rel=1e-9)
    # Where the condition holds by a plain scan, memories part: ϱ s (β_eff² − P*) > 1.
    scan = [beta for beta in range(20, 80) if _excess(problem.replace(beta=float(beta))) > 0]
    assert scan == list(range(36, 60))
    middle = problem.replace(beta=45.0)
    assert float(stability.spectrum(middle, symmetric_state(middle))[0]) > 1.01
    below = symmetric.symmetric_transitions(problem, "beta", upper=50.0)
    assert below == pytest.approx([low], rel=1e-12)
    with pytest.raises(ValueError, match="stays stable"):
        symmetric.symmetric_transition(problem.replace(rho=0.02), "beta")


def _excess(problem):
    p_0 = float(problem.p_h[0])
    s = (1 - p_0) * math.e / ((1 - p_0) * math.e + p_0 * math.exp(problem.log_ratio))
    return problem.rho * s / problem.n_student * (problem.beta_eff**2 - problem.n_teacher) - 1


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
    cubic = symmetric.cubic_coefficient(problem, a) * float((xi**3).sum())
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
        expected = symmetric.quartic_term(problem, xi)
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
    (transition,) = symmetric.transition_order(problem)
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
    (there,) = symmetric.transition_order(problem)
    assert abs(there.quartic) < 1e-12
    for factor, order in ((0.99, "first order"), (1.01, "continuous")):
        (near,) = symmetric.transition_order(problem.replace(rho=factor * problem.rho))
        assert near.order == order
