import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model.batch import Batch
from mnemosphere.model.m_step import displacement
from mnemosphere.model.objectives import joint
from mnemosphere.model.one_pass import accumulate
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD
from problems import RULES


def run(solver, case, steps, rule=joint):
    """Mixture after each of some steps on all rows."""
    params, state = case.params, solver.start(case.params)
    for _ in range(steps):
        stats = accumulate(params, case.batch, rule)
        params, state = solver.step(params, state, stats, case.batch, 1.0)
        yield params


def papers_steps(oracle, rule, case, steps, eta=0.1, m=0.99, learn_beta=True):
    """The paper's update as its authors run it: v ← m·v − η·grad, θ ← θ + η·v, on w, g and β.

    g = (P + P_0)p; the gradient of w is projected on the tangent space, that of g multiplied by
    δ − p/p_h; g is multiplied by exp(ηv) and scaled by Sinkhorn–Knopp sweeps.
    """
    params = case.params
    v_w = v_g = v_beta = 0.0
    p_h, p_q = params.p_h.numpy(), params.p_q.numpy()
    total = params.n_memories + params.n_memories * p_h[0] / (1 - p_h[0])  # P + P_0
    for _ in range(steps):
        gradient = oracle.gradient(rule, params, case.x, case.targets, case.sample_weight)
        gw, gp, gb = (g.numpy() for g in gradient)
        w, p, beta = params.w.numpy(), params.p.numpy(), float(params.beta)
        gw = np.stack(
            [(np.eye(w.shape[1]) - np.outer(a, a)) @ g for a, g in zip(w, gw, strict=True)]
        )
        gg = gp / total
        gg = np.stack(
            [
                (np.eye(len(p_q)) - np.outer(np.ones(len(p_q)), row / h)) @ g
                for row, h, g in zip(p, p_h, gg, strict=True)
            ]
        )
        v_w = m * v_w - eta * gw
        v_g = m * v_g - eta * gg
        v_beta = m * v_beta - eta * float(gb)
        w = w + eta * v_w
        w = w / np.linalg.norm(w, axis=1, keepdims=True)
        k = p * np.exp(eta * v_g)
        for _ in range(1000):
            k = k * (p_h / k.sum(1))[:, None]
            k = k * (p_q / k.sum(0))[None, :]
        params = params.replace(
            w=torch.from_numpy(w),
            p=torch.from_numpy(k),
            beta=torch.tensor(beta + learn_beta * eta * v_beta, dtype=torch.float64),
        )
        yield params


@pytest.mark.parametrize("rule", RULES)
def test_steps_of_the_paper(problem, oracle, rule):
    """Three steps, so that momentum takes part."""
    case = problem(21, rows=31, weighted=True, clustered=True, varsigma=0.5)
    mine = run(SGD.paper(learn_beta=False), case, 3, RULES[rule])
    reference = papers_steps(oracle, rule, case, 3, learn_beta=False)
    for new, expected in zip(mine, reference, strict=True):
        assert_close(new.w, expected.w, rtol=1e-6, atol=1e-8)
        assert_close(new.p, expected.p, rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize(("beta", "up"), [(0.5, True), (100.0, False)])
def test_beta_of_the_paper(problem, oracle, beta, up):
    """A step up is the plain one; a step down, kept from reaching zero, is so to first order."""
    case = problem(21, rows=31, weighted=True, clustered=True, beta=beta)
    (new,) = run(SGD.paper(), case, 1)
    (expected,) = papers_steps(oracle, "joint", case, 1)
    change = float(expected.beta) - beta
    assert (change > 0) == up
    if up:
        assert_close(new.beta, expected.beta, rtol=1e-13, atol=0)
    else:
        assert 0 < float(new.beta - expected.beta) < 1.01 * change**2 / beta
        assert new.beta < beta


@pytest.mark.parametrize("rule", RULES)
def test_constraints_hold_after_every_step(problem, rule):
    case = problem(23, rows=37, contrast=3.0, weighted=True)
    for params in run(SGD(learning_rate=0.3, momentum=0.9), case, 12, RULES[rule]):
        assert_close(params.w.norm(dim=1), torch.ones(5).double(), rtol=0, atol=1e-13)
        assert (params.p > 0).all()
        assert_close(params.p.sum(1), params.p_h, rtol=2e-7, atol=0)
        assert_close(params.p.sum(0), params.p_q, rtol=2e-7, atol=0)
        assert params.beta > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_beta_pushed_down_stays_positive(problem, dtype):
    """A memory opposite to all rows pulls β below zero; turned around, it pulls it up again."""
    case = problem(26, memories=1, rows=13, dtype=dtype)
    p = torch.tensor([[1e-3, 1e-3], [0.499, 0.499]], dtype=dtype)
    params = case.params.replace(
        p=p, p_h=p.sum(1), p_q=p.sum(0), beta=torch.tensor(0.01, dtype=dtype)
    )
    q = torch.tensor([[0.5, 0.5]], dtype=dtype).expand(13, 2)
    solver = SGD(learning_rate=0.5, momentum=0.9)
    state = solver.start(params)
    for sign, steps in ((-1, 40), (1, 60)):
        x = sign * case.params.w.expand(13, -1)
        betas = [float(params.beta)]
        for _ in range(steps):
            stats = accumulate(params, Batch(x, q), joint)
            params, state = solver.step(params, state, stats, Batch(x, q), 1.0)
            betas.append(float(params.check().beta))
        assert min(betas) > 0
        if sign < 0:
            assert all(b <= a for a, b in itertools.pairwise(betas))
    assert betas[-1] > 1.0


def test_a_fixed_point_is_stationary(problem):
    case = problem(29, rows=101, memories=3, labels="full", clustered=True, contrast=0.5)
    exact = fit(case.params, case.dataset, FixedPoint(None, tol=1e-14), max_iter=30).params
    (start,) = run(SGD(), case, 1)
    (end,) = run(SGD(), case._replace(params=exact), 1)
    assert float(displacement(case.params, start).largest) > 1e-3
    assert float(displacement(exact, end).largest) < 1e-8


# Borders


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": math.nan}, r"learning_rate must lie in .0, 1e\+30., got nan"),
        ({"learning_rate": 1e300}, r"learning_rate must lie in .0, 1e\+30., got 1e\+300"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1"),
        ({"patience": 0}, "batch_size and patience must be >= 1, got .*patience=0"),
        ({"validation_fraction": 1.0}, r"validation_fraction must lie in \(0, 1\), got 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SGD(**settings)


def test_resolved_for_few_rows_and_for_a_gpu():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    solver = SGD(0.3, 0.9, 1000)
    here = solver.resolve(211, learn_beta=False, device=cpu)
    assert (here.rows_per_step, here.learn_beta) == (211, False)
    there = solver.resolve(5000, learn_beta=True, device=gpu)
    assert (there.rows_per_step, there.learn_beta) == (1000, True)
    assert (
        (here.learning_rate, here.momentum) == (there.learning_rate, there.momentum) == (0.3, 0.9)
    )
    assert not solver.exact
