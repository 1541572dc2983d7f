"""Memories without a saddle: counts on known rows, thresholds of the theory, what births gain."""

import itertools
import math

import numpy as np
import pytest
import torch

from mnemosphere import theory
from mnemosphere.numerics import sphere
from research.theory import complexity
from research.theory.complexity import Network


def rows(seed=0, n_rows=31, n=5):
    generator = torch.Generator().manual_seed(seed)
    return sphere.project(torch.randn(n_rows, n, dtype=torch.float64, generator=generator) + 0.6)


def test_two_bundles_need_two_memories_once_it_is_cold_enough():
    generator = torch.Generator().manual_seed(0)
    place = torch.eye(2, 7, dtype=torch.float64).repeat_interleave(11, 0)
    x = sphere.project(place + 0.02 * torch.randn(22, 7, dtype=torch.float64, generator=generator))
    found = complexity.complexity_curve({"bundles": x}, [0.5, 1.2, 1.6, 8.0], max_memories=5)
    # Two orthogonal patterns: ‖x̄‖ = 1/√2 and λ_max = 1/2.
    assert found.first == pytest.approx([math.sqrt(2)], rel=0.02)
    assert found.n_memories.tolist() == [[1, 1, 2, 2]]
    assert found.stable.all()
    assert float(found.excess.max()) < 1e-7
    assert found.draw().get_ylabel() == "memories without a saddle"


def test_growth_that_meets_the_limit_says_so():
    found = complexity.complexity_curve({"rows": rows()}, [40.0, 50.0], max_memories=3)
    assert found.n_memories.tolist() == [[3, 3]]
    assert not found.stable.any()


def test_thresholds_are_those_of_the_theory():
    x = rows(1)
    net = complexity.settle(x, Network(x[:3], torch.tensor([0.5, 0.3, 0.2]).double(), 9.0))
    assert len(net.w) == 3
    p_h = torch.cat([torch.zeros(1).double(), net.share])
    problem = theory.SaddlePointProblem.clamped(
        x, n_student=3, beta=9.0, rho=math.inf, upsilon=math.inf, p_h=p_h
    )
    state = theory.OrderParameters(x @ net.w.T, p_h[:, None])
    ratio, direction = net.split_ratio(x)
    torch.testing.assert_close(
        9.0 / ratio, theory.split_temperature(problem, state), rtol=1e-6, atol=0
    )
    torch.testing.assert_close(
        (direction * net.w).sum(1), torch.zeros(3).double(), atol=1e-7, rtol=0
    )


def test_a_network_without_saddles_does_not_depend_on_the_way():
    x = rows(2, 13)
    warm = complexity.single(x, 2.0)
    for beta in (2.5, 4.0):
        warm, stable = complexity.grow(x, Network(warm.w, warm.share, beta), 30)
        cold, _ = complexity.grow(x, complexity.single(x, beta), 30)
        assert stable
        assert len(warm.w) == len(cold.w)
        assert warm.likelihood(x) == pytest.approx(cold.likelihood(x), abs=1e-5)
    assert len(warm.w) >= 3
    # None is too many: any two of them merged are a saddle again.
    for i, j in itertools.combinations(range(len(warm.w)), 2):
        rest = [k for k in range(len(warm.w)) if k not in (i, j)]
        pair = (warm.share[i] * warm.w[i] + warm.share[j] * warm.w[j])[None]
        w = torch.cat([warm.w[rest], sphere.project(pair)])
        share = torch.cat([warm.share[rest], (warm.share[i] + warm.share[j])[None]])
        fewer = complexity.settle(x, Network(w, share, 4.0))
        assert float(fewer.split_ratio(x)[0].max()) > 1.001


def test_excess_is_what_a_memory_born_elsewhere_gains():
    # On the circle all places for it can be tried.
    angle = np.array([-0.3, -0.1, 0.0, 0.15, 0.2, 2.4])
    x = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], 1))
    net = complexity.settle(x, complexity.single(x, 1.5))
    place = np.linspace(0, 2 * np.pi, 4000)
    grid = torch.tensor(np.stack([np.cos(place), np.sin(place)], 1))
    density = torch.exp(1.5 * (x @ net.w.T)) @ net.share
    gain = (torch.exp(1.5 * (grid @ x.T)) / density).mean(1) - 1
    assert float(gain.max()) > 0.01
    assert net.excess(x) == pytest.approx(float(gain.max()), abs=1e-5)
    # And it is the slope of the likelihood when weight passes there.
    born = grid[int(gain.argmax())]
    share = 1e-6
    wider = Network(
        torch.cat([net.w, born[None]]), torch.tensor([1 - share, share], dtype=x.dtype), 1.5
    )
    slope = (wider.likelihood(x) - net.likelihood(x)) / share
    assert slope == pytest.approx(float(gain.max()), rel=1e-3)


def test_surrogate_rows_have_the_mean_and_the_covariance():
    found = complexity.sets_of("digits", 300)
    assert [len(x) for x in found.values()] == [300, 300, 300]
    x, same = found["digits"], found["same mean and covariance"]
    assert float((x.mean(0) - same.mean(0)).norm()) < 0.1
    spread = [torch.linalg.eigvalsh(torch.cov(y.T))[-3:] for y in (x, same)]
    torch.testing.assert_close(*spread, rtol=0.25, atol=0)
