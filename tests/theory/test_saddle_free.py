"""Steps of second order: fast near maxima, away from saddles, and what the solver gains by them."""

import math

import pytest
import torch
from torch.testing import assert_close

from draws import generator
from mnemosphere.theory import saddle_free, solver, stability
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory.problem import SaddlePointProblem
from symmetric_state import symmetric_state

INF = math.inf


def labeled(n_teacher=4, n_student=6, beta=8.0, rho=1.0, seed=5):
    """Orthonormal patterns with informative labels: more memories than patterns."""
    x = torch.linalg.qr(torch.randn(211, n_teacher, generator=generator(seed)).double())[0].T
    q = 0.9 * torch.nn.functional.one_hot(torch.arange(n_teacher) % 2, 3).double() + 0.1 / 3
    return SaddlePointProblem.clamped(x, q, n_student=n_student, beta=beta, rho=rho, upsilon=1.0)


def step(problem, x_bar, p_bar, radius=10.0):
    size = torch.full((len(x_bar),), radius, dtype=torch.float64)
    c = sp.conjugate(problem, sp.respond(problem, x_bar, p_bar))
    level = sp.free_entropy_at(problem, c, x_bar)
    return saddle_free.saddle_free_step(problem, (x_bar, p_bar), (c.x_bar, c.p_bar), level, size)


def test_near_a_maximum_the_error_is_squared():
    x = torch.randn(5, 41, dtype=torch.float64, generator=generator(1))
    x = x / x.norm(dim=1, keepdim=True)
    q = torch.softmax(torch.randn(5, 2, generator=generator(2)).double(), 1)
    problem = SaddlePointProblem.clamped(x, q, n_student=2, beta=3.0, rho=2.0, upsilon=1.0)
    problem = problem.compressed()
    found = solver.solve(problem, sp.random_starts(problem, 3, generator=generator(3)), tol=1e-12)
    c = sp.conjugate(problem, found.raise_if_failed().state)
    # A change of x_bar alone: the class weights follow in the first image.
    noise = torch.randn(c.x_bar.shape, dtype=torch.float64, generator=generator(4))
    errors = []
    for size in (1e-2, 1e-3):
        (x_new, _), _ = step(problem, c.x_bar + size * noise, c.p_bar)
        errors.append(float((x_new - c.x_bar).abs().max()))
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 50


def test_near_a_saddle_it_goes_away_where_newton_returns():
    problem = SaddlePointProblem.uniform(2, 2, beta=4.0, rho=2.0, upsilon=1.0, n_features=300)
    state = symmetric_state(problem)
    saddle = sp.conjugate(problem, state)
    unstable = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    x_bar, p_bar = (saddle.x_bar + 1e-4 * unstable)[None], saddle.p_bar[None]
    # With λ = β_eff a > 1 the map takes dz to λ dz, and Newton's step would end at 0. This one goes
    # on as far as it may, on the side where it stands.
    leading = problem.beta_eff * float(state.m[0, 0])
    assert leading > 1.2
    (x_new, _), radius = step(problem, x_bar, p_bar, radius=0.05)
    assert float(radius) == pytest.approx(0.15)  # three times the length of a step that succeeds
    moved = (x_new[0] - saddle.x_bar) / unstable
    assert float(moved.std()) < 1e-3 * float(moved.mean())
    assert float(moved.mean()) > 100 * 1e-4
    # A saddle met by symmetry is not left.
    (x_new, _), _ = step(problem, saddle.x_bar[None], saddle.p_bar[None])
    assert_close(x_new[0], saddle.x_bar, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("beta", "rho"), [(8.0, 1.0), (20.0, INF)])
def test_starts_in_flat_valleys_converge_in_few_passes(beta, rho):
    # Plain and accelerated steps alone need thousands of passes for some of these.
    problem = labeled(beta=beta, rho=rho)
    found = solver.solve(problem, sp.random_starts(problem, 19, generator=generator(6)))
    assert bool(found.converged.all())
    assert int(found.iterations.max()) < 60
    assert float(found.residual.max()) <= 2e-10
    for i in range(0, 19, 6):
        # And end in maxima, up to flat directions.
        assert float(stability.spectrum(problem, found[i])[0]) < 1 + 1e-5


def test_compressed_coordinates_change_no_solution():
    problem = labeled(3, 2)
    small = problem.compressed()
    assert small.patterns.shape == (3, 3)
    assert_close(small.patterns @ small.patterns.T, problem.patterns @ problem.patterns.T)
    start = sp.random_starts(problem, 5, generator=generator(7))
    for field in ("m", "p"):
        assert_close(getattr(sp.step(problem, start), field), getattr(sp.step(small, start), field))
    found = solver.solve(problem, start).raise_if_failed()
    assert found.problem is problem
    assert float(sp.residual(problem, found.state).max()) < 2e-10
