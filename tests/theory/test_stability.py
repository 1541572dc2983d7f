"""Duplication, Jacobians and spectra, against autograd and against the paper's formulas."""

import math
from functools import lru_cache

import pytest
import torch
from torch.autograd.functional import jacobian

from draws import generator, unit_rows
from mnemosphere.numerics import bessel
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory import solver, stability
from mnemosphere.theory.newton import newton
from mnemosphere.theory.problem import SaddlePointProblem

INF = math.inf


def problem(rho=INF, beta=4.0, seed=0, columns=2):
    q = torch.rand(13, columns, dtype=torch.float64, generator=generator(seed + 1)) + 0.3
    return SaddlePointProblem(
        patterns=unit_rows(13, 7, seed),
        targets=q / q.sum(1, keepdim=True),
        p_h=torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64),
        p_q=torch.full((columns,), 1.0 / columns, dtype=torch.float64),
        beta=beta,
        rho=rho,
        upsilon=1.1,
        n_features=7,
        uniform_teacher=False,
    )


def solved(here, seed=3):
    starts = sp.random_starts(here, 1, generator=generator(seed))
    refined = newton(here, solver.solve(here, starts, tol=1e-7).raise_if_failed()[0], tol=1e-15)
    assert refined.residual < 1e-12
    return refined.state


@lru_cache
def fixed_point(columns=2):
    """A problem at ϱ = ∞ and a fixed point of it, shared by the tests that only read it."""
    here = problem(columns=columns)
    return here, solved(here)


def plain_map(here, p, x_bar):
    """x_bar → x_bar' at fixed p, written out from Eq. (saddle-point)."""
    two_nu = torch.tensor(2.0 * here.upsilon, dtype=torch.float64)
    beta_eff = here.beta * two_nu / (torch.sqrt(two_nu**2 + 1) + 1)
    norm = torch.sqrt((x_bar**2).sum(1, keepdim=True))
    damping = torch.ones_like(norm)
    if math.isfinite(here.rho):
        z = 2.0 * beta_eff * here.rho * norm
        damping = z / (torch.sqrt(z**2 + 1) + 1)
    m = here.patterns @ (damping * x_bar / norm).T
    beta = torch.tensor(here.beta, dtype=torch.float64)
    ratio = bessel.log_omega_ratio(beta, here.n_features)
    uniform = torch.exp(ratio).expand(len(m), 1)
    density = torch.cat([uniform, torch.exp(beta_eff * m)], 1)
    joint = density @ p
    share = (here.targets / joint) @ p.T * density  # (P*, P+1)
    return share[:, 1:].T @ here.patterns


@pytest.mark.parametrize("memories", [[], [1], [2, 0], [0, 1, 2]])
def test_duplicates_of_a_fixed_point_are_fixed_points(memories):
    here, state = fixed_point()
    narrow = float(sp.residual(here, state))
    grown, copy = stability.duplicate(here, state, memories)
    assert grown.n_student == 3 + len(memories)
    assert float(grown.p_h.sum()) == pytest.approx(1.0, abs=1e-15)
    assert narrow < 1e-12
    assert float(sp.residual(grown, copy)) < 1e-12


@pytest.mark.parametrize("rho", [0.8, INF])
def test_jacobian_of_the_full_map_equals_differences(rho):
    here = problem(rho=rho)
    x_bar = torch.randn(3, 7, dtype=torch.float64, generator=generator(6))
    p_bar = torch.rand(4, 2, dtype=torch.float64, generator=generator(7)) + 0.2
    k, factor, scale = stability.linearize(here, x_bar, p_bar)
    closed = (k @ factor @ factor.T) * scale.unsqueeze(1) / scale
    assert float((k - k.T).abs().max()) < 1e-13

    def flat(z):
        state = sp.respond(here, z[:, :21].reshape(-1, 3, 7), z[:, 21:].reshape(-1, 4, 2))
        c = sp.conjugate(here, state)
        return torch.cat([c.x_bar.flatten(1), c.p_bar.flatten(1)], 1)

    z = torch.cat([x_bar.flatten(), p_bar.flatten()])
    h = 1e-5 * torch.eye(29, dtype=torch.float64)
    measured = ((flat(z + h) - flat(z - h)) / 2e-5).T
    torch.testing.assert_close(closed, measured, rtol=0, atol=2e-8)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("memory", [0, 1, 2])
def test_antisymmetric_spectrum_is_that_of_the_grown_jacobian(memory, columns):
    here, state = fixed_point(columns)
    grown, copy = stability.duplicate(here, state, [memory])
    c = sp.conjugate(grown, copy)
    full = jacobian(lambda z: plain_map(grown, copy.p, z), c.x_bar)
    # Restrict to (u, −u): the map of the difference of the twins.
    block = full[memory, :, memory, :] - full[memory, :, 3, :]
    torch.testing.assert_close(block, full[3, :, 3, :] - full[3, :, memory, :], rtol=0, atol=1e-12)
    direct = torch.linalg.eigvals(block).real.sort(descending=True).values
    from_narrow = stability.antisymmetric_spectrum(here, state, memory)
    torch.testing.assert_close(from_narrow, direct, rtol=0, atol=1e-10)
    # β_split by its definition, from responsibilities of the narrow fixed point.
    narrow = sp.conjugate(here, state)
    t = narrow.x_bar[memory] / narrow.x_bar[memory].norm()
    across = here.patterns - (here.patterns @ t)[:, None] * t
    matrix = across.T @ (narrow.m_hat[:, memory, None] * across)
    expected = narrow.x_bar[memory].norm() / torch.linalg.eigvalsh(matrix)[-1]
    split = stability.split_temperature(here, state)
    assert float(split[memory]) == pytest.approx(float(expected), rel=1e-10)
    top = float(from_narrow[0])
    assert top == pytest.approx(here.beta_eff / float(split[memory]), rel=1e-10)
    # And it is an eigenvalue of the whole Jacobian of the grown network.
    size = grown.n_student * 7
    everything = torch.linalg.eigvals(full.reshape(size, size)).real
    assert float((everything - top).abs().min()) < 1e-10


def test_the_block_form_of_the_paper_is_the_large_beta_limit():
    """½ (β_eff/‖Σ x‖) Σ [[A, −A], [−A, A]], A = x xᵀ(I − t tᵀ), t ∝ Σ x, over the patterns of a doubled memory."""
    centers = torch.eye(5, dtype=torch.float64)[:2]
    noise = torch.randn(2, 6, 5, dtype=torch.float64, generator=generator(8))
    x = (centers[:, None] + 0.3 * noise).reshape(12, 5)
    x = x / x.norm(dim=1, keepdim=True)
    gaps = []
    for beta in (10.0, 20.0, 40.0):
        here = SaddlePointProblem.clamped(x, n_student=2, beta=beta, rho=INF, upsilon=INF)
        start = sp.OrderParameters((x @ centers.T)[None], here.p_h[None, :, None])
        state = solver.solve(here, start, tol=1e-12).raise_if_failed()[0]
        grown, copy = stability.duplicate(here, state, [0])
        c = sp.conjugate(grown, copy)
        k, factor, _ = stability.linearize(grown, c.x_bar, c.p_bar)
        full = (k @ factor @ factor.T).reshape(3, 5, 3, 5)
        exact = full[[0, 2]][:, :, [0, 2]].reshape(10, 10)
        own = x[sp.conjugate(here, state).m_hat.argmax(1) == 0]
        t = own.sum(0) / own.sum(0).norm()
        a = own.T @ own @ (torch.eye(5, dtype=torch.float64) - torch.outer(t, t))
        signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
        block = 0.5 * here.beta_eff / own.sum(0).norm() * torch.kron(signs, a)
        gaps.append(float((exact - block).abs().max() / block.abs().max()))
    assert gaps[0] > 1e-6
    assert gaps[1] < 0.2 * gaps[0]
    assert gaps[2] < 0.1 * gaps[1]


def test_spectrum_does_not_depend_on_the_coordinates():
    # Patterns in more dimensions than patterns: the spectrum is computed in their span.
    x = unit_rows(5, 11, 9)
    here = SaddlePointProblem.clamped(x, n_student=2, beta=1.0, rho=2.0, upsilon=3.0)
    state = solved(here)
    c = sp.conjugate(here, state)
    full = jacobian(lambda z: plain_map(here, state.p, z), c.x_bar).reshape(22, 22)
    direct = torch.linalg.eigvals(full).real.sort(descending=True).values
    torch.testing.assert_close(stability.spectrum(here, state), direct[:10], rtol=0, atol=1e-12)
