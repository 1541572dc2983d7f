"""The sampler against quadrature, rejection sampling and exact laws."""

import itertools

import numpy as np
import pytest
import torch
from scipy import special

from draws import generator
from mnemosphere.theory import gibbs
from mnemosphere.theory.diagnostics import estimate

SIGMAS = 4.5


def standard_errors_off(trace, exact):
    """How far Monte Carlo means of a trace (chains, draws, ...) lie from exact values, at most."""
    result = estimate(trace).raise_if_failed()
    error = (result.mean - torch.as_tensor(exact, dtype=torch.float64)).abs()
    return float((error / result.standard_error).max())


def run_moves(p, counts, n_moves, seed):
    draws, g = [], generator(seed)
    for _ in range(n_moves):
        p = gibbs.move_given_assignments(p, counts, generator=g)
        draws.append(p)
    return torch.stack(draws, 1)


def test_class_weight_moves_keep_the_marginals():
    g = generator(19)
    p = torch.rand(5, 7, 4, generator=g, dtype=torch.float64)
    p[:, 3] = 0.0  # a component without share stays without
    counts = torch.randint(50, p.shape, generator=g).double()
    counts[:, 3] = 0.0
    moved = run_moves(p, counts, 40, seed=23)[:, -1]
    torch.testing.assert_close(moved.sum(1), p.sum(1), rtol=0, atol=1e-13)
    torch.testing.assert_close(moved.sum(2), p.sum(2), rtol=0, atol=1e-13)
    assert float(moved.min()) >= 0
    assert bool((moved[:, 3] == 0).all())
    assert float((moved - p).abs().amax((1, 2)).min()) > 0.01


def test_posterior_by_quadrature():
    """All of Eq. (posterior) at N=2, M=3, P=2, labels and a uniform component, by brute force."""
    beta, angles = 1.7, np.array([0.3, 1.4, 3.0])
    y = np.array([0, 1, 0])
    p_h, p_q = (0.2, 0.5, 0.3), (0.6, 0.4)
    x = np.stack([np.cos(angles), np.sin(angles)], 1)

    # Class weights: the first column (b0, b1, b2) sums to 0.6. The integrand is a polynomial in p.
    node, node_weight = np.polynomial.legendre.leggauss(6)

    def rule(low, high):
        return (low + high) / 2 + (high - low) / 2 * node, (high - low) / 2 * node_weight

    points, weights = [], []
    for low, high in itertools.pairwise([0.1, 0.3, 0.5]):  # kinks of the limits below
        for b1, v1 in zip(*rule(low, high), strict=True):
            ends = max(0.0, p_q[0] - p_h[0] - b1), min(p_h[2], p_q[0] - b1)
            for b2, v2 in zip(*rule(*ends), strict=True):
                first = np.array([p_q[0] - b1 - b2, b1, b2])
                points.append(np.stack([first, np.array(p_h) - first], 1))
                weights.append(v1 * v2)
    p, p_weight = np.array(points), np.array(weights)  # (Q, 3, 2)

    # Memories: the trapezoidal rule on the circle converges geometrically.
    theta = np.arange(64) * 2 * np.pi / 64
    w = np.stack([np.cos(theta), np.sin(theta)], 1)
    e = np.exp(beta * w @ x.T) / special.iv(0, beta)  # (64, M): vMF density over the uniform one
    density = np.ones((64, 64, len(p)))
    for c in range(3):
        pc = p[:, :, y[c]]
        density *= pc[:, 0] + e[:, None, None, c] * pc[:, 1] + e[None, :, None, c] * pc[:, 2]
    density *= p_weight
    density /= density.sum()
    w1, w2 = density.sum((1, 2)), density.sum((0, 2))
    pair = density.sum(2)
    exact = [
        *(w1 @ w), *(w2 @ w), w1 @ w[:, 0] ** 2, w2 @ w[:, 1] ** 2,
        np.einsum("ab,ai,bi->", pair, w, w),
        *np.einsum("q,qg->g", density.sum((0, 1)), p[:, :, 0]),
        np.einsum("aq,a,q->", density.sum(1), w[:, 0], p[:, 1, 0]),
    ]  # fmt: skip

    n_chains, n_draws, g = 251, 170, generator(29)
    start = torch.nn.functional.normalize(torch.randn(n_chains, 2, 2, generator=g).double(), dim=-1)
    p0 = torch.outer(torch.tensor(p_h), torch.tensor(p_q)).double().expand(n_chains, 3, 2)
    state = gibbs.GibbsState(start, p0)
    data = gibbs.Likelihood(torch.tensor(x), torch.tensor(y), torch.tensor([beta]).double())
    draws = []
    for _ in range(n_draws):
        state = gibbs.sweep(state, data, class_weight_moves=2, generator=g)
        (u, v), q = state.w.unbind(1), state.p
        columns = [
            *u.unbind(1), *v.unbind(1), u[:, 0] ** 2, v[:, 1] ** 2, (u * v).sum(1),
            *q[:, :, 0].unbind(1), u[:, 0] * q[:, 1, 0],
        ]  # fmt: skip
        draws.append(torch.stack(columns, 1))
    assert standard_errors_off(torch.stack(draws[20:], 1), exact) <= SIGMAS


@pytest.mark.slow
def test_class_weights_on_a_bigger_polytope_by_rejection():
    # Free cells uniform in a box, the rest from the marginals, negative ones rejected; weighted.
    rows, cols = np.array([0.2, 0.35, 0.45]), np.array([0.5, 0.3, 0.2])
    counts = np.array([[2, 0, 1], [0, 3, 1], [1, 2, 0]])
    rng = np.random.default_rng(13)
    p = np.empty((700_000, 3, 3))
    p[:, :2, :2] = rng.random((len(p), 2, 2)) * np.minimum.outer(rows, cols)[:2, :2]
    p[:, :2, 2] = rows[:2] - p[:, :2, :2].sum(2)
    p[:, 2] = cols - p[:, :2].sum(1)
    p = p[(p >= 0).all((1, 2))]
    weight = np.prod(p**counts, axis=(1, 2))
    weight /= weight.sum()
    mean = np.tensordot(weight, p, 1)
    square = np.tensordot(weight, p**2, 1)
    floor = np.sqrt(((p - mean) ** 2 * weight[:, None, None] ** 2).sum(0))  # error of the oracle

    start = torch.tensor(np.outer(rows, cols)).expand(101, 3, 3)
    draws = run_moves(
        start, torch.tensor(counts, dtype=torch.float64).expand(101, 3, 3), 500, seed=17
    )
    result = estimate(draws[:, 50:]).raise_if_failed()
    error = np.sqrt(result.standard_error.numpy() ** 2 + floor**2)
    assert (np.abs(result.mean.numpy() - mean) < 4.5 * error).all()
    second = estimate(draws[:, 50:] ** 2)
    assert (
        np.abs(second.mean.numpy() - square) < 4.5 * (second.standard_error.numpy() + floor)
    ).all()
