"""Limits of the saddle-point equations, and the noise estimates built on them."""

import math

import pytest
import torch

from draws import generator, unit_rows
from mnemosphere.model import objectives, one_pass
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import bessel
from mnemosphere.theory import limits
from mnemosphere.theory import saddle_point as sp


def data(seed=0):
    q = torch.rand(11, 3, dtype=torch.float64, generator=generator(seed)) + 0.1
    return unit_rows(11, 7, seed), q / q.sum(1, keepdim=True)


def parameters(varsigma=1.0, beta=4.0):
    p_h = torch.tensor([0.1, 0.1, 0.2, 0.3, 0.2, 0.1], dtype=torch.float64)
    p_q = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)
    return Mixture(
        w=unit_rows(5, 7, 9),
        p=p_h[:, None] * p_q,
        beta=torch.tensor(beta, dtype=torch.float64),
        varsigma=varsigma,
        p_h=p_h,
        p_q=p_q,
    )


def stationarity(x, q, w, p, beta, varsigma=1.0):
    """Right-hand sides of Eq. (stationarity), with ςβ in the exponent for Eq. (effective_loss)."""
    ratio = bessel.log_omega_ratio(beta, x.shape[1])
    density = torch.cat([torch.ones(len(x), 1), torch.exp(varsigma * beta * x @ w.T - ratio)], 1)
    joint = density @ p
    share = density[:, :, None] * p / joint[:, None, :]  # (B, P+1, C+1)
    w_bar = torch.einsum("by,bmy,bi->mi", q, share[:, 1:], x)
    return w_bar / w_bar.norm(dim=1, keepdim=True), torch.einsum("by,bgy->gy", q, share)


@pytest.mark.parametrize("varsigma", [1.0, 0.4])
def test_infinite_rho_is_stationarity_of_the_effective_loss(varsigma):
    x, q = data()
    params = parameters(varsigma)
    problem, state = limits.from_parameters(params, Batch(x, q))
    after = sp.step(problem, state)
    w, p_bar = stationarity(x, q, params.w, params.p, params.beta, varsigma)
    torch.testing.assert_close(after.m, x @ w.T, rtol=0, atol=1e-13)
    c = sp.conjugate(problem, state)
    torch.testing.assert_close(c.p_bar, p_bar, rtol=0, atol=1e-13)
    # The same statistics as the model's single pass.
    stats = one_pass.accumulate(params, Batch(x, q), objectives.joint)
    torch.testing.assert_close(c.x_bar, stats.w_bar, rtol=0, atol=1e-12)
    torch.testing.assert_close(c.p_bar, stats.p_bar, rtol=0, atol=1e-12)
    torch.testing.assert_close(-c.log_likelihood, stats.loss, rtol=1e-12, atol=0)


@pytest.mark.parametrize("upsilon", [0.05, 0.3, 1.0, 12.0, math.inf])
def test_noise_and_varsigma_are_inverse(upsilon):
    varsigma = limits.varsigma_of_noise(upsilon)
    assert limits.noise_of_varsigma(varsigma) == pytest.approx(upsilon, rel=1e-12)
    if math.isfinite(upsilon):
        # ς(2υ) is the large-N limit of A_N(υN), at a gap that shrinks as 1/N.
        gaps = [
            abs(float(bessel.mean_resultant(torch.tensor(upsilon * n).double(), n)) - varsigma)
            for n in (1000, 100_000)
        ]
        assert gaps[1] < gaps[0] / 50
        assert gaps[1] < 1e-5
