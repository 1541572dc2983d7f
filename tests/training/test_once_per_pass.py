"""Class weights that wait for the end of a pass."""

import pytest
import torch
from torch.testing import assert_close

from draws import generator
from fixed_points import assert_feasible
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.objectives import joint
from mnemosphere.model.one_pass import accumulate, log_joint
from mnemosphere.numerics import sphere
from mnemosphere.training.fixed_point import FixedPoint


@pytest.mark.parametrize("weighted", [False, True])
def test_class_weights_wait_for_the_end_of_a_pass(problem, weighted):
    case = problem(41, rows=97, memories=5, varsigma=0.6, clustered=True, weighted=weighted)
    solver = FixedPoint(17, by_pass=True)
    params, state = case.params, solver.start(case.params)
    means = {"w": torch.zeros_like(params.w), "p": torch.zeros_like(params.p)}
    done = 0.0
    for batch in case.dataset.batches(17, generator=generator(0)):
        stats, share = accumulate(params, batch, joint), batch.n_rows / 97
        params, state = solver.step(params, state, stats, batch, share)
        done += share
        assert torch.equal(params.p, case.params.p)
        # Class weights look back for half a pass, memories for a fifth.
        for name, sums, window in (("w", stats.w_bar, 0.2), ("p", stats.p_bar, 0.5)):
            rate = min(1.0, share / min(done, window))
            means[name] += rate * (sums / stats.count - means[name])
        assert_close(params.w, sphere.project(means["w"]), rtol=1e-10, atol=1e-12)
    assert_close(state["p_bar"], means["p"], rtol=1e-12, atol=1e-15)
    ended, _ = solver.end_pass(params, state, batch, 97)
    expected = maximize_bound(params, means["w"], means["p"])
    assert_close(ended.p, expected.p, rtol=1e-9, atol=1e-13)
    assert_close(ended.w, expected.w, rtol=1e-9, atol=1e-12)
    assert_close(ended.beta, expected.beta, rtol=1e-9, atol=0)
    assert_feasible(ended)


def test_a_dead_memory_is_found_at_the_end_of_a_pass(problem):
    case = problem(42, rows=97, memories=7, clustered=True)
    solver = FixedPoint(17, by_pass=True)
    params, state = case.params, solver.start(case.params)
    for batch in case.dataset.batches(17):
        stats = accumulate(params, batch, joint)
        params, state = solver.step(params, state, stats, batch, batch.n_rows / 97)
    alive, _ = solver.end_pass(params, state, batch, 97)
    assert float((batch.x @ alive.w[-1]).max()) < 1 - 1e-6
    for name in ("w_bar", "p_bar"):
        state[name][-1] = 0.0
    ended, _ = solver.end_pass(params, state, batch, 97)
    worst = log_joint(params, batch.x).logsumexp(1).argmin()
    assert_close(ended.w[-1], batch.x[worst], rtol=1e-12, atol=1e-12)
    assert_close(ended.w[:-1], params.w[:-1], rtol=1e-12, atol=1e-12)
    assert_feasible(ended)
