"""Replica exchange: exact by quadrature where chains alone are stuck, and the rank of branches."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from draws import generator
from mnemosphere.theory import gibbs, solutions, teacher_student, tempering
from mnemosphere.theory.diagnostics import estimate
from mnemosphere.theory.problem import SaddlePointProblem

BETAS = (0.7, 2.5, 5.0, 9.0)
P_H = (0.0, 0.35, 0.65)
ANGLES = np.concatenate([np.linspace(-0.4, 0.4, 8), 2.2 + np.linspace(-0.3, 0.3, 4)])
ROWS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1)


def quadrature(beta):
    """P(memory 1 is the one on the large group), E w_1x, E w_2y and E⟨w_1, w_2⟩ on the circle."""
    theta = np.arange(240) * 2 * np.pi / 240
    w = np.stack([np.cos(theta), np.sin(theta)], 1)
    e = np.exp(beta * (w @ ROWS.T)) / special.iv(0, beta)  # (240, M)
    density = np.exp(np.log(P_H[1] * e[:, None] + P_H[2] * e[None]).sum(2))
    density /= density.sum()
    large = (w[:, 0] > np.cos(1.1)).astype(float)
    return [
        float(density.sum(1) @ large),
        float(density.sum(1) @ w[:, 0]),
        float(density.sum(0) @ w[:, 1]),
        float(np.einsum("ab,ai,bi->", density, w, w)),
    ]


@pytest.mark.slow
def test_every_rung_is_sampled_exactly():
    n_chains, n_sweeps, seed = 41, 120, generator(1)
    x = torch.tensor(ROWS)
    y = torch.zeros(len(ROWS), dtype=torch.long)
    # All chains start in the mode of less weight: memory 1 on the large group of rows.
    wrong = torch.tensor([[1.0, 0.0], [math.cos(2.2), math.sin(2.2)]], dtype=torch.float64)
    p = torch.tensor(P_H, dtype=torch.float64)[None, :, None].expand(n_chains, 3, 1)
    start = gibbs.GibbsState(wrong.expand(n_chains, 2, 2), p)
    replicas = tempering.start_replicas(start, torch.tensor(BETAS).double())
    draws = []
    for i in range(n_sweeps):
        replicas = tempering.tempered_sweep(
            replicas, x, y, parity=i % 2, class_weight_moves=1, generator=seed
        )
        first, second = replicas.state.w.unbind(1)
        large = (first[:, 0] > math.cos(1.1)).double()
        columns = [large, first[:, 0], second[:, 1], (first * second).sum(1)]
        draws.append(torch.stack(columns, 1).reshape(n_chains, len(BETAS), 4))
    trace = torch.stack(draws[40:], 1)  # (chains, draws, K, 4)
    exact = torch.tensor([quadrature(beta) for beta in BETAS])
    found = estimate(trace).raise_if_failed()
    assert float(((found.mean - exact) / found.standard_error).abs().max()) < 4.5
    assert float(exact[-1, 0]) < 0.15  # the start was in the wrong mode indeed
    assert bool((replicas.acceptance() > 0.1).all())
    torch.testing.assert_close(replicas.last().w, replicas.state.w[len(BETAS) - 1 :: len(BETAS)])
    # Without exchange the chains stay where they start.
    state = start
    data = gibbs.Likelihood(x, y, torch.tensor([BETAS[-1]]).double())
    for _ in range(60):
        state = gibbs.sweep(state, data, class_weight_moves=1, generator=seed)
    assert float((state.w[:, 0, 0] > math.cos(1.1)).double().mean()) > 0.9


def test_memories_of_equal_share_trade_places_with_their_class_weights():
    seed = generator(3)
    w = torch.nn.functional.normalize(torch.randn(53, 3, 5, generator=seed).double(), dim=-1)
    p = torch.rand(53, 4, 2, generator=seed).double()
    p = p / p.sum(2, keepdim=True) / 4
    x = torch.nn.functional.normalize(torch.randn(17, 5, generator=seed).double(), dim=-1)
    data = gibbs.Likelihood(x, torch.arange(17) % 2, x.new_tensor([6.0]))
    state = gibbs.GibbsState(w, p)
    moved = tempering.exchange_memories(state, data, generator=seed)
    before, after = (
        gibbs.log_likelihood(s.p, gibbs.overlaps_with_rows(s.w, x), data) for s in (state, moved)
    )
    torch.testing.assert_close(before, after, rtol=0, atol=1e-11)
    assert bool((moved.w != w).flatten(1).any(1).all())  # always accepted
    torch.testing.assert_close(moved.p.sum(1), p.sum(1))
    torch.testing.assert_close(moved.p[:, 0], p[:, 0])
    one = gibbs.GibbsState(w[:, :1], p[:, :2])
    assert tempering.exchange_memories(one, data, generator=seed) is one


@pytest.mark.slow
def test_branches_are_occupied_as_their_free_entropies_rank_them():
    # Three memories on two vectors: either one is idle, or two share a vector.
    n, beta = 127, 11.0
    problem = SaddlePointProblem.uniform(2, 3, beta=beta, rho=1.0, upsilon=1.0, n_features=n)
    found = solutions.find_solutions(problem, 24, generator=generator(4))

    def weakest(m):
        return (m.amax(-2) - m.amin(-2)).amin(-1)

    stable = [s for s in found if s.stable]
    idle = [s.free_entropy for s in stable if float(weakest(s.m)) < 0.35]
    paired = [s.free_entropy for s in stable if float(weakest(s.m)) > 0.35]
    assert idle[0] > paired[0] + 0.05
    seed = generator(0)
    teacher = teacher_student.sample_teacher(2, n, upsilon=1.0, generator=seed)
    data = teacher_student.sample_data(teacher, 1.0, generator=seed)
    posterior = teacher_student.sample_posterior(
        teacher, data, n_memories=3, beta=beta, start="teacher", n_chains=2, n_burn_in=0,
        n_sweeps=200, ladder=(beta * np.linspace(0.25, 1.0, 13)[:-1]).tolist(), generator=seed,
    )  # fmt: skip
    assert posterior.acceptance.shape == (12,)
    share = (weakest(posterior.trace) < 0.35).double()  # (chains, draws)
    assert float(share[:, :5].mean()) < 0.2  # both chains start with two memories on one vector
    assert float(share[:, 120:].mean()) > 0.8


def test_bad_ladders_are_refused():
    state = gibbs.GibbsState(torch.ones(1, 1, 2), torch.ones(1, 2, 1))
    for betas in ([2.0, 1.0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="betas must"):
            tempering.start_replicas(state, torch.tensor(betas))
