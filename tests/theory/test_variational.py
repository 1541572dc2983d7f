"""The free entropy: its stationary points are the saddle-point equations."""

import mpmath
import pytest
import torch

from draws import generator
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory import solver
from mnemosphere.theory import variational as fe
from mnemosphere.theory.problem import SaddlePointProblem


def problems(rho=1.7, upsilon=0.8, beta=4.0):
    g = generator(1)
    x = torch.randn(7, 53, dtype=torch.float64, generator=g)
    q = torch.rand(7, 2, dtype=torch.float64, generator=g) + 0.3
    p_h = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    return {
        "clamped": SaddlePointProblem.clamped(
            x / x.norm(dim=1, keepdim=True),
            q / q.sum(1, keepdim=True),
            p_h=p_h,
            beta=beta,
            rho=rho,
            upsilon=upsilon,
        ),
        "uniform": SaddlePointProblem.uniform(
            5, 2, p_h=p_h, beta=beta, rho=rho, upsilon=upsilon, n_features=97
        ),
    }


@pytest.mark.parametrize("x", [0.0, 1e-6, 0.3, 7.0, 1e4])
def test_eta_to_many_digits(x):
    mpmath.mp.dps = 40
    z = mpmath.mpf(x)
    root = mpmath.sqrt(1 + z * z)
    expected = root - 1 - mpmath.log(1 + root) + mpmath.log(2)
    got = fe.eta(torch.tensor(x, dtype=torch.float64) ** 2)
    assert abs(float(got) - float(expected)) <= 1e-14 * float(expected)


@pytest.mark.parametrize("name", ["clamped", "uniform"])
def test_gradients_away_from_solutions_are_the_residuals_of_the_equations(name):
    problem = problems()[name]
    state = sp.random_starts(problem, 1, generator=generator(7))
    m = state.m[0].requires_grad_()
    m_hat = torch.rand(m.shape, dtype=torch.float64, generator=generator(8)).requires_grad_()
    p = state.p[0].requires_grad_()
    fe.free_entropy(problem, m, m_hat, p).backward()
    c = sp.conjugate(problem, sp.OrderParameters(m.detach(), p.detach()))
    scale = problem.beta_eff * problem.rho
    torch.testing.assert_close(m.grad, scale * (c.m_hat - m_hat.detach()), rtol=0, atol=1e-12)
    answer = sp.mean_memories(problem, m_hat.detach().T @ problem.patterns)
    expected = scale * (problem.patterns @ answer.T - m.detach())
    torch.testing.assert_close(m_hat.grad, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(p.grad * p.detach(), problem.rho * c.p_bar, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["clamped", "uniform"])
def test_value_is_what_the_solver_climbs(name):
    problem = problems(rho=1.7)[name]
    starts = sp.random_starts(problem, 3, generator=generator(2))
    found = solver.solve(problem, starts, tol=1e-7).raise_if_failed()
    value = fe.free_entropy(problem, found.m, found.m_hat, found.p)
    expected = found.objective * problem.rho * problem.n_teacher
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-8)
