"""Adam on the sphere: steps against autograd, laws, and settings."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model.objectives import conditional
from mnemosphere.model.one_pass import accumulate
from mnemosphere.training.adam import Adam
from problems import RULES

both = pytest.mark.parametrize("rule", ["conditional", "blend 0.3"])


def take(solver, params, state, case, rule=conditional):
    return solver.step(params, state, accumulate(params, case.batch, rule), case.batch, 1.0)


def run(solver, case, steps, rule=conditional):
    params, state = case.params, solver.start(case.params)
    for _ in range(steps):
        params, state = take(solver, params, state, case, rule)
    return params


@both
def test_the_first_step_goes_down_the_gradient_by_the_rate(problem, oracle, rule):
    """Against autograd: each memory by one angle, log p of each by one length, log β by one."""
    case = problem(31, rows=29, weighted=True, clustered=True, varsigma=0.5)
    turn, rate = 0.07, 0.03
    new = run(Adam(steps=100, angle=turn, learning_rate=rate), case, 1, RULES[rule])
    old = case.params
    gw, gp, gb = (
        g.numpy() for g in oracle.gradient(rule, old, case.x, case.targets, case.sample_weight)
    )
    for before, after, g in zip(old.w.numpy(), new.w.numpy(), gw, strict=True):
        down = -(g - (g @ before) * before)
        down /= np.linalg.norm(down)
        expected = (before + turn * down) / math.hypot(1, turn)
        np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12)
    p = old.p.numpy()
    slope = p * gp
    moved = np.log(new.p.numpy() / p) + rate * slope / np.linalg.norm(slope, axis=1, keepdims=True)
    np.testing.assert_allclose(moved - moved[0, 0], 0, rtol=0, atol=1e-10)  # one common scale
    expected = float(old.beta) * math.exp(-rate * np.sign(gb))
    assert float(new.beta) == pytest.approx(expected, rel=1e-12)


@both
def test_constraints_hold_however_large_the_steps(problem, rule):
    case = problem(32, rows=31, weighted=True, beta=20.0)
    new = run(Adam(steps=40, angle=1.0, learning_rate=0.5), case, 11, RULES[rule])
    one = torch.ones(len(new.w), dtype=new.w.dtype)
    assert_close(new.w.norm(dim=1), one, rtol=0, atol=1e-12)
    assert float(new.p.sum()) == pytest.approx(1, rel=1e-12)
    assert_close(new.p.sum(1), new.p_h, rtol=1e-12, atol=0)
    assert_close(new.p.sum(0), new.p_q, rtol=1e-12, atol=0)
    assert new.p.min() >= 0
    assert new.beta > 0


def test_a_memory_keeps_out_of_classes_that_it_has_no_weight_for(problem):
    case = problem(44, rows=29, labels="full", clustered=True)
    p = case.params.p.clone()
    p[0] = 0.0
    p[2, 1:] = 0.0
    case = case._replace(params=case.params.replace(p=p / p.sum()))
    new = run(Adam(steps=40, learning_rate=0.3), case, 12)
    assert (new.p[p == 0] == 0).all()
    assert (new.p[p > 0] > 0).all()


def test_the_rate_fades_along_half_a_cosine(problem):
    """With no memory of earlier gradients every step of a memory turns it by atan(rate)."""
    case = problem(36, rows=17, clustered=True)
    solver = Adam(steps=10, angle=0.2, decay=(0.0, 0.0))
    params, state = case.params, solver.start(case.params)
    for t in range(12):
        new, state = take(solver, params, state, case)
        chord = (new.w - params.w).norm(dim=1)
        angle = 2 * torch.asin(chord / 2)
        rate = 0.1 * (1 + math.cos(math.pi * min(t / 10, 1)))
        assert_close(angle, torch.full_like(angle, math.atan(rate)), rtol=1e-8, atol=1e-12)
        params = new


@pytest.mark.parametrize(
    ("n_rows", "passes", "size", "steps"), [(53, 4, 27, 8), (2, 3, 1, 6), (7001, 2, 876, 16)]
)
def test_the_schedule_is_that_of_all_passes(n_rows, passes, size, steps):
    """At least two batches per pass, none much smaller than the others."""
    cpu = torch.device("cpu")
    solver = Adam(batch_size=1000).resolve(n_rows, learn_beta=False, device=cpu)
    found, taken = solver.scheduled(n_rows, max_iter=passes)
    assert taken == passes
    assert (found.rows_per_step, found.steps, found.learn_beta) == (size, steps, False)
    assert not found.exact


@pytest.mark.parametrize("n_rows", [11, 700, 53_000])
def test_each_cycle_is_twice_as_long_as_the_last(n_rows):
    """In passes, so that it is longer however many rows there are."""
    passes = [Adam().scheduled(n_rows, cycle)[1] for cycle in range(4)]
    assert passes == [passes[0] << cycle for cycle in range(4)]
    first, _ = Adam().scheduled(n_rows)
    assert first.steps >= 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be >= 1, got 0"),
        ({"angle": -1.0}, "angle must be finite and > 0, got -1.0"),
        ({"noise": -1.0}, "noise must be finite and >= 0, or 'auto', got -1.0"),
        ({"decay": (0.9, 1.0)}, "both decays must lie in"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Adam(**settings)
