"""Limits of the saddle-point equations, and the noise estimates built on them."""

import math

import pytest
import torch

from draws import generator, unit_rows
from mnemosphere.model import kernel, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import bessel
from mnemosphere.theory import limits
from mnemosphere.theory import saddle_point as sp


def data(seed=0):
    q = torch.rand(11, 3, dtype=torch.float64, generator=generator(seed)) + 0.1
    return unit_rows(11, 7, seed), q / q.sum(1, keepdim=True)


def parameters(varsigma=1.0, beta=4.0):
    p_h = torch.tensor([0.1, 0.1, 0.2, 0.3, 0.2, 0.1], dtype=torch.float64)
    p_q = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)
    return Parameters(
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
    stats = kernel.accumulate(params, Batch(x, q), objectives.joint)
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


def noisy_copies(n_patterns, copies, n, varsigma, seed=0):
    """Rows varsigma·w* + √(1−varsigma²)·(uniform noise orthogonal to w*)."""
    w = unit_rows(n_patterns, n, seed).repeat(copies, 1)
    noise = torch.randn(len(w), n, dtype=torch.float64, generator=generator(seed + 1))
    noise = noise - (noise * w).sum(1, keepdim=True) * w
    noise = noise / noise.norm(dim=1, keepdim=True)
    return varsigma * w + math.sqrt(1.0 - varsigma**2) * noise


@pytest.mark.parametrize("varsigma", [0.5, 0.8])
def test_noise_is_read_off_data(varsigma):
    x = noisy_copies(17, 30, 1009, varsigma)
    half = len(x) // 2
    pairs = limits.suggest_varsigma_from_repeats(x[:half], x[half:])
    assert abs(pairs.varsigma - varsigma) < 4.0 * pairs.standard_error + 0.005
    alone = limits.suggest_varsigma_from_neighbors(x, generator=generator())
    assert abs(alone.varsigma - varsigma) < 0.03
    assert limits.varsigma_of_noise(alone.upsilon) == pytest.approx(alone.varsigma, abs=1e-12)
    # Without the cut into halves the nearest neighbor reads too high: it is chosen for its noise.
    naive = float((x @ x.T).fill_diagonal_(-1.0).amax(1).mean().sqrt())
    assert naive - varsigma > 2.0 * abs(alone.varsigma - varsigma)


def trained_apart(x, group, varsigma, seed=0):
    """Distance of two memories of each group after exact steps with β learned, from near copies."""
    n_groups, n = int(group.max()) + 1, x.shape[1]
    mean = torch.stack([x[group == k].mean(0) for k in range(n_groups)]).repeat_interleave(2, 0)
    w = mean + 0.02 * unit_rows(len(mean), n, seed)
    w = w / w.norm(dim=1, keepdim=True)
    mine = group[:, None] == torch.arange(n_groups).repeat_interleave(2)  # rows keep to their group
    beta = 1.0
    for _ in range(1000):
        logits = (varsigma * beta * x @ w.T).masked_fill(~mine, -math.inf)
        total = torch.softmax(logits, 1).T @ x
        w = total / total.norm(dim=1, keepdim=True)
        beta = float(bessel.inverse_mean_resultant(varsigma * total.norm(dim=1).sum() / len(x), n))
    return (w[::2] - w[1::2]).norm(dim=1)


@pytest.mark.parametrize("n_groups", [1, 2])
def test_memories_merge_below_the_predicted_varsigma(n_groups):
    g = generator(5)
    centers = unit_rows(2 * n_groups, 11, 3)
    place = torch.arange(200) % (2 * n_groups)
    x = centers[place] + 0.25 * torch.randn(200, 11, dtype=torch.float64, generator=g)
    x, group = x / x.norm(dim=1, keepdim=True), place // 2
    edges = limits.merging_varsigma(x, group)
    assert edges.shape == (n_groups,)
    assert bool((edges < 0.97).all())
    first = float(edges.min())
    below, above = (trained_apart(x, group, ratio * first) for ratio in (0.96, 1.04))
    assert float(below.max()) < 1e-3
    assert float(above[edges.argmin()]) > 0.05


def test_rows_without_spread_merge_at_every_varsigma():
    x = unit_rows(1, 7).expand(5, 7)
    assert limits.merging_varsigma(x).tolist() == [math.inf]
