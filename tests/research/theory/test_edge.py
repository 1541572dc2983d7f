"""Kernels with an edge, against quadrature, autograd and sampling."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import gammaln
from torch.autograd.functional import hessian

from draws import generator
from mnemosphere import theory
from problems import slow_but
from research.theory import edge

INF = math.inf


def solve(w, beta_e, rho, m, n_steps=4000):
    """Climb F from w (S, P, P*): its stationary equation as a step, damped by a half."""
    for _ in range(n_steps):
        share = torch.softmax(edge.log_kernel(beta_e * w, m), -2)
        pull = rho * share * beta_e / (1 + beta_e * w / m)
        length = pull.norm(dim=-1, keepdim=True)
        target = pull * 2 / (torch.hypot(2 * length, torch.ones_like(length)) + 1)
        change, w = float((target - w).abs().max()), (w + target) / 2
        if change < 1e-12:
            break
    return w


@pytest.mark.parametrize(
    ("n", "beta", "m"), [(3, 2.0, 1.0), (11, 3.0, 7.0), (11, 7.0, 7.0), (67, 30.0, 13.0), (67, 5.0, 2.5)]
)  # fmt: skip
def test_normalization_is_the_mean_over_the_sphere(n, beta, m):
    constant = math.exp(gammaln(n / 2) - gammaln((n - 1) / 2)) / math.sqrt(math.pi)

    def density(t):
        return constant * (1 - t * t) ** ((n - 3) / 2) * max(0.0, 1 - beta / m * (1 - t)) ** m

    mean = quad(density, max(-1.0, 1 - m / beta), 1.0, epsabs=0, epsrel=1e-11, limit=400)[0]
    assert edge.log_normalization(n, beta, m) == pytest.approx(math.log(mean), abs=1e-9)


@pytest.mark.parametrize(
    ("m", "expected"), [(2.0, 3.5653), (4.0, 2.9995), (16.0, 2.6805), (64.0, 2.6111), (INF, 2.5887)]
)  # fmt: skip
def test_copies_of_a_memory_between_two_patterns_part_at_the_split(m, expected):
    angle = 0.6
    beta = edge.split_of_two(angle, m)
    assert beta == pytest.approx(expected, abs=5e-5)
    x = torch.tensor([[math.cos(angle), math.sin(angle)], [math.cos(angle), -math.sin(angle)]])
    x = x.double()

    def gain(turn, beta):
        """Log-likelihood of two copies turned apart."""
        copies = (
            torch.stack([torch.cos(turn), torch.sin(turn)]),
            torch.stack([torch.cos(turn), -torch.sin(turn)]),
        )
        t = x @ torch.stack(copies).T
        log = beta * (t - 1) if math.isinf(m) else m * torch.log(1 - beta / m * (1 - t))
        return torch.logsumexp(log, 1).sum()

    for factor, sign in ((0.99, -1), (1.01, 1)):
        second = hessian(lambda turn, f=factor: gain(turn, f * beta), torch.zeros(()).double())
        assert math.copysign(1, float(second)) == sign


@pytest.mark.parametrize(("n", "m"), [(2, 2.5), (3, 4.0), (3, 16.0), (3, INF)])
def test_the_symmetric_state_turns_unstable_at_the_line_and_its_cubic_term_is_as_derived(n, m):
    rho = 2.0
    line = edge.stability_line(n, n, rho, m)
    for factor, unstable in ((0.98, False), (1.02, True)):
        w = solve(torch.full((1, n, n), 0.4).double(), factor * line, rho, m)[0]
        curve = hessian(lambda w, f=factor: edge.free_entropy(w, f * line, rho, m), w)
        assert bool(torch.linalg.eigvalsh(curve.reshape(n * n, -1))[-1] > 0) == unstable
    w = solve(torch.full((1, n, n), 0.4).double(), line, rho, m)[0]
    g = line / (1 + line * float(w[0, 0]) / m)
    contrast = torch.tensor([2.0, -1.0, -1.0] if n == 3 else [1.0, -1.0]).double()
    xi, h = torch.outer(contrast, contrast), 0.002
    values = [float(edge.free_entropy(w + k * h * xi, line, rho, m)) for k in (-2, -1, 1, 2)]
    third = (values[3] - 2 * values[2] + 2 * values[1] - values[0]) / (2 * h**3)
    derived = rho / n * (1 - 1 / m) * (1 - 2 / m) * g**3 * float((xi**3).sum())
    assert third == pytest.approx(derived, rel=2e-3, abs=1e-3)


@pytest.mark.parametrize("m", slow_but([INF], [2.5, 8.0, INF]))
def test_three_memories_part_from_the_fold_on_and_jump(m):
    found = edge.order_of(3, 2.0, m)
    assert found["end"] < 0.98 * found["line"]
    start = 0.05 + 0.9 * torch.eye(3, dtype=torch.float64)[None]
    gaps = {}
    for factor in (0.998, 1.002, 1.0005):
        w = solve(start, factor * found["end"], 2.0, m)[0]
        gaps[factor] = float(w.amax() - w.amin())
    assert gaps[0.998] < 1e-3
    # Above the fold the contrast is jump + c √(β_e − fold): two points give the jump.
    assert 2 * gaps[1.0005] - gaps[1.002] == pytest.approx(found["jump"], abs=0.003)
    if math.isinf(m):
        problem = theory.SaddlePointProblem.uniform(
            3, 3, beta=4.0, rho=2.0, upsilon=1.0, n_features=1000
        )
        beta = found["end"] / theory.varsigma_of_noise(1.0)
        parted = theory.find_solutions(
            problem.replace(beta=1.0001 * beta), 30, generator=generator()
        )
        assert "broken" in {s.symmetry.kind for s in parted}
        parted = theory.find_solutions(
            problem.replace(beta=0.9999 * beta), 30, generator=generator()
        )
        assert "broken" not in {s.symmetry.kind for s in parted}


def test_a_pattern_with_half_of_the_shares_is_kept_up_to_the_capacity():
    n, start = 16, 0.8
    for m, temperature in ((INF, 1.5), (8.0, 1.5)):
        beta = n / temperature
        alpha = edge.capacity(n, beta, m, start, power=1)
        kept, ended = edge.measured_capacity(
            n, beta, m, start, alphas=np.arange(0.2, 0.56, 0.05), n_starts=64, generator=generator()
        )
        assert kept == pytest.approx(alpha, abs=0.04)
        assert ended > kept
    assert edge.capacity(n, 4 * n, 8.0, start, power=1) == 0.0  # the start lies beyond the edge


def test_a_pattern_alone_in_its_cap_is_an_exact_fixed_point():
    w = torch.eye(5).double()[:3]
    x = torch.tensor([[0.9, 0.1, 0.1, 0.4, 0.0]]).double()
    x = x / x.norm()
    found = edge.recall(x, w, beta=8.0, m=2.0, n_steps=1)  # the cap of w ends at the overlap 0.75
    torch.testing.assert_close(found, w[:1], rtol=0, atol=0)
    outside = -w[:1]
    torch.testing.assert_close(edge.recall(outside, w, 8.0, 2.0), outside, rtol=0, atol=0)
