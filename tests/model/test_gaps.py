"""Rows with gaps: the mean over what is not known, against quadrature and the Bessel functions."""

import itertools

import numpy as np
import pytest
import torch
from torch.autograd.functional import jacobian

from mnemosphere.model import gaps, objectives, retrieval
from mnemosphere.model.batch import Batch
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.mixture import Mixture, from_memories
from mnemosphere.model.one_pass import accumulate, evaluate, log_joint
from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import log_omega_ratio, mean_resultant
from problems import gradient, log_omega_series

B, N, P, C = 23, 7, 5, 3
DOUBLE = torch.float64


@pytest.fixture(scope="module")
def problem():
    generator = torch.Generator().manual_seed(3)
    x = sphere.sample_uniform(B, N, generator=generator, dtype=DOUBLE, device="cpu")
    x[torch.rand(B, N, generator=generator) < 0.3] = torch.nan
    x[::5] = sphere.project(torch.randn(5, N, generator=generator, dtype=DOUBLE))  # without gaps
    w = sphere.sample_uniform(P, N, generator=generator, dtype=DOUBLE, device="cpu")
    p_q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=DOUBLE)
    params = from_memories(w, p_q, beta=6.0, varsigma=0.8)
    p = params.p * torch.rand(params.p.shape, generator=generator, dtype=DOUBLE)
    label = torch.arange(B) % C
    return params.replace(p=p / p.sum()), x, objectives.soft_labels(label, C, 0.1, dtype=DOUBLE)


def by_hand(params, x):
    """log_joint out of plain operations, row by row, gaps by the closed form."""
    h = []
    for row in x:
        known = ~row.isnan()
        m = int((~known).sum())
        e = params.slope * (params.w[:, known] @ row[known])
        if m:
            room = (1 - row[known].square().sum()).sqrt()
            kappa = params.beta * room * params.w[:, ~known].norm(dim=1)
            a, b = (m - 1) / 2, (m + 1) / 2
            root = (kappa.square() + b * b).sqrt()
            e = e + root - b - a * torch.log((a + root) / (a + b))
        h.append(e - log_omega_series(params.beta, N))
    h = torch.stack(h)
    h = torch.cat([torch.zeros(len(x), 1, dtype=DOUBLE), h], dim=1)
    return (h[:, :, None] + params.p.log()[None]).logsumexp(1)


@pytest.mark.parametrize(("m", "error"), [(1, 0.31), (2, 0.24), (3, 0.21), (23, 0.16), (101, 0.16)])
def test_the_closed_form_is_near_the_bessel_function(m, error):
    kappa = torch.logspace(-2, 3.5, 60, dtype=DOUBLE)
    w = torch.zeros(60, m, dtype=DOUBLE)
    w[:, 0] = kappa / 5e3
    gap = gaps.Gaps(
        torch.tensor([0]), torch.ones(1, m, dtype=DOUBLE), torch.ones(1, 1, dtype=DOUBLE)
    )
    p = torch.full((61, 2), 1 / 122, dtype=DOUBLE)
    lift, expected = gap.exponent_lift(
        Mixture(w, p, torch.tensor(5e3, dtype=DOUBLE), 1.0, p.sum(1), p.sum(0))
    )
    exact = torch.logaddexp(kappa, -kappa) - np.log(2) if m == 1 else log_omega_ratio(kappa, m)
    assert float((lift[0] - exact).abs().max()) < error
    resultant = torch.tanh(kappa) if m == 1 else mean_resultant(kappa, m)
    torch.testing.assert_close(expected[0] * w[:, 0], resultant, rtol=0, atol=0.08 / m)


def test_log_joint_and_statistics_of_rows_with_gaps(problem):
    params, x, targets = problem
    torch.testing.assert_close(log_joint(params, x), by_hand(params, x), rtol=1e-12, atol=1e-12)

    def loss(w, p, beta):
        q = params.replace(w=w, p=p, beta=beta)
        return -(targets * by_hand(q, x)).sum() / B

    stats = accumulate(params, Batch(x, targets), objectives.joint)
    wanted = jacobian(loss, (params.w, params.p, params.beta))
    for found, oracle in zip(gradient(stats, params), wanted, strict=True):
        torch.testing.assert_close(found, oracle, rtol=1e-10, atol=1e-12)


def test_the_fixed_point_never_raises_the_loss_of_rows_with_gaps(problem):
    params, x, targets = problem
    params = params.replace(p=from_memories(params.w, params.p_q, beta=6.0, varsigma=0.8).p)
    batch, losses = Batch(x, targets), []
    for _ in range(30):
        stats = accumulate(params, batch, objectives.joint)
        losses.append(float(stats.mean_loss))
        params = maximize_bound(params, stats.w_bar, stats.p_bar)
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(losses))
    assert losses[-1] < losses[0] - 0.1
    assert evaluate(params, batch, objectives.joint) <= losses[-1]


def test_shares_and_patterns_follow_the_same_exponents(problem):
    params, x, _ = problem
    h = gaps.overlaps(params, x) * params.slope
    h = h - log_omega_ratio(params.beta, N)
    score = torch.cat([torch.zeros(B, 1, dtype=DOUBLE), h], 1) + params.p.sum(1).log()
    found = retrieval.scores(params, gaps.overlaps(params, x)).softmax(1)
    torch.testing.assert_close(found, score.softmax(1))
    pattern = retrieval.expected_memory(params, x)
    torch.testing.assert_close(pattern, score[:, 1:].softmax(1) @ params.w)


@pytest.mark.parametrize("varsigma", [1.0, 0.6, 0.2])
def test_a_row_of_which_nothing_is_known_leaves_every_component_its_weight(varsigma):
    """Up to the closed form, and however little of the overlaps training trusts."""
    generator = torch.Generator().manual_seed(1)
    w = sphere.sample_uniform(P, 101, generator=generator, dtype=DOUBLE, device="cpu")
    params = from_memories(w, torch.tensor([0.7, 0.3], dtype=DOUBLE), beta=120.0, varsigma=varsigma)
    x = torch.full((1, 101), torch.nan, dtype=DOUBLE)
    torch.testing.assert_close(log_joint(params, x)[0].exp(), params.p_q, rtol=0.15, atol=0)
