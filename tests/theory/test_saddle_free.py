"""Steps of second order: fast near maxima, away from saddles, and what the solver gains by them."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from mnemosphere.theory import saddle_free, solver, stability, symmetric
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory.problem import SaddlePointProblem

INF = math.inf


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def labeled(n_teacher=4, n_student=6, beta=8.0, rho=1.0, seed=5):
    """Orthonormal patterns with informative labels: more memories than patterns."""
    x = torch.linalg.qr(torch.randn(211, n_teacher, generator=generator(seed)).double())[0].T
    q = 0.9 * torch.nn.functional.one_hot(torch.arange(n_teacher) % 2, 3).double() + 0.1 / 3
    return SaddlePointProblem.clamped(x, q, n_student=n_student, beta=beta, rho=rho, upsilon=1.0)


def step(problem, x_bar, p_bar, radius=10.0):
    size = torch.full((len(x_bar),), radius, dtype=torch.float64)
    c = sp.conjugate(problem, sp.respond(problem, x_bar, p_bar))
    level = sp.free_entropy_at(problem, c, x_bar)
    return saddle_free.saddle_free_step(problem, x_bar, p_bar, c.x_bar, c.p_bar, level, size)


@pytest.mark.parametrize(("rho", "p_0"), [(1.5, 0.0), (INF, 0.0), (1.5, 0.2)])
def test_factors_of_a_batch_are_those_of_its_members(rho, p_0):
    share = torch.tensor([p_0, *[(1 - p_0) / 3] * 3], dtype=torch.float64)
    problem = labeled(5, 3, rho=rho).replace(p_h=share).compressed()
    c = sp.conjugate(problem, sp.random_starts(problem, 7, generator=generator()))
    whole = stability.linearize(problem, c.x_bar, c.p_bar)
    for i in range(7):
        for batched, single in zip(
            whole, stability.linearize(problem, c.x_bar[i], c.p_bar[i]), strict=True
        ):
            torch.testing.assert_close(batched[i], single, rtol=0, atol=1e-13)
    _, factor, _ = stability.linearize(problem, c.x_bar, c.p_bar, factor=True)
    torch.testing.assert_close(factor @ factor.mT, whole[1], rtol=0, atol=1e-11)
    # Class weights have as many columns as their polytope has dimensions.
    assert factor.shape[-1] == problem.patterns.shape[1] * 3 + 2 * (2 if p_0 == 0 else 3)


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
        x_new, _, _ = step(problem, c.x_bar + size * noise, c.p_bar)
        errors.append(float((x_new - c.x_bar).abs().max()))
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 50


def test_near_a_saddle_it_goes_away_where_newton_returns():
    problem = SaddlePointProblem.uniform(2, 2, beta=4.0, rho=2.0, upsilon=1.0, n_features=300)
    m = torch.full((2, 2), symmetric.symmetric_overlap(problem), dtype=torch.float64)
    saddle = sp.conjugate(problem, sp.OrderParameters(m, problem.p_h[:, None]))
    unstable = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    x_bar, p_bar = (saddle.x_bar + 1e-4 * unstable)[None], saddle.p_bar[None]
    # With λ = β_eff a > 1 the map takes dz to λ dz, and Newton's step would end at 0. This one goes
    # on as far as it may, on the side where it stands.
    leading = problem.beta_eff * float(m[0, 0])
    assert leading > 1.2
    x_new, _, length = step(problem, x_bar, p_bar, radius=0.05)
    assert float(length) == pytest.approx(0.05)
    moved = (x_new[0] - saddle.x_bar) / unstable
    assert float(moved.std()) < 1e-3 * float(moved.mean())
    assert float(moved.mean()) > 100 * 1e-4
    # A saddle met by symmetry is not left.
    x_new, _, length = step(problem, saddle.x_bar[None], saddle.p_bar[None])
    assert float(length) < 1e-9
    torch.testing.assert_close(x_new[0], saddle.x_bar, rtol=0, atol=1e-12)


def test_a_step_that_lowers_the_free_entropy_is_shortened():
    problem = labeled().compressed()
    c = sp.conjugate(problem, sp.random_starts(problem, 23, generator=generator(9)))
    x_new, p_new, length = step(problem, c.x_bar, c.p_bar, radius=10.0)
    ended = sp.conjugate(problem, sp.respond(problem, x_new, p_new))
    began = sp.conjugate(problem, sp.respond(problem, c.x_bar, c.p_bar))
    gain = sp.free_entropy_at(problem, ended, x_new)
    gain = gain - sp.free_entropy_at(problem, began, c.x_bar)
    assert bool((gain > 0).all())
    assert float(length.min()) < 2.1 < float(length.max())


def test_the_step_within_a_radius_is_the_best_there_is():
    # Oracle: the multiplier found by Brent's method on 1/|y|, and no random point does better.
    slope = torch.randn(7, 5, dtype=torch.float64, generator=generator(1))
    stiffness = torch.randn(7, 5, dtype=torch.float64, generator=generator(2))
    stiffness[:2] = stiffness[:2].abs() + 3.0  # a maximum inside
    radius = torch.full((7,), 1.3, dtype=torch.float64)
    found = saddle_free._within(slope, stiffness, radius)

    def gain(y):
        return (slope * y - 0.5 * stiffness * y * y).sum(-1)

    trial = torch.randn(4001, 7, 5, dtype=torch.float64, generator=generator(3))
    length = torch.rand(4001, 7, 1, dtype=torch.float64, generator=generator(4)) ** 0.2
    trial = 1.3 * length * trial / trial.norm(dim=-1, keepdim=True)
    assert bool((gain(found) >= gain(trial).amax(0)).all())
    torch.testing.assert_close(found[:2], slope[:2] / stiffness[:2], rtol=1e-9, atol=0)
    for i in range(2, 7):
        g, h = slope[i].numpy(), stiffness[i].numpy()
        assert h.min() < 0
        shift = brentq(
            lambda s, g=g, h=h: 1 / 1.3 - 1 / np.linalg.norm(g / (h + s)), -h.min() + 1e-12, 99
        )
        np.testing.assert_allclose(found[i], g / (h + shift), rtol=1e-7)


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
    torch.testing.assert_close(
        small.patterns @ small.patterns.T, problem.patterns @ problem.patterns.T
    )
    start = sp.random_starts(problem, 5, generator=generator(7))
    for field in ("m", "p"):
        torch.testing.assert_close(
            getattr(sp.step(problem, start), field), getattr(sp.step(small, start), field)
        )
    found = solver.solve(problem, start).raise_if_failed()
    assert found.problem is problem
    assert float(sp.residual(problem, found.state).max()) < 2e-10
