"""The fixed-point step maximizes a lower bound: against autograd, SciPy and the loss."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import torch
from torch.testing import assert_close

from class_formula import log_omega
from mnemosphere.model.m_step import approach_beta, bound, maximize_bound, with_labels
from mnemosphere.model.objectives import joint, marginal
from mnemosphere.model.one_pass import accumulate
from mnemosphere.numerics.bessel import inverse_mean_resultant, mean_resultant
from problems import gradient

RULES = {"joint": joint, "marginal": marginal}


@pytest.fixture
def stepped(problem):
    case = problem(4, rows=53, varsigma=0.4, weighted=True)
    stats = accumulate(case.params, case.batch, joint)
    return case.params, stats, maximize_bound(case.params, stats.w_bar, stats.p_bar)


def q_function(params, stats):
    """The bound from its definition, with Ω from SciPy: Σ p̄ log p + Σ_μ ςβ⟨w̄,w⟩ − mass·log Ω."""
    beta = float(params.beta)
    value = float((stats.p_bar * params.p.log()).sum())
    value += params.varsigma * beta * float((stats.w_bar * params.w).sum())
    return value - log_omega(beta, params.n_features) * float(stats.p_bar[1:].sum())


# The bound


def test_bound_is_the_bound(stepped):
    old, stats, new = stepped
    for params in (old, new):
        mine = float(bound(params, stats.w_bar, stats.p_bar))
        assert mine == pytest.approx(q_function(params, stats), rel=1e-12)


def test_the_bound_touches_the_loss_with_its_gradient(stepped):
    """At the parameters of the statistics, bound and minus the summed loss have one gradient."""
    old, stats, _ = stepped
    leaves = [t.clone().requires_grad_() for t in (old.w, old.p)]
    value = bound(old.replace(w=leaves[0], p=leaves[1]), stats.w_bar, stats.p_bar)
    gw, gp, gb = gradient(stats, old)
    for mine, of_loss in zip(torch.autograd.grad(value, leaves), (gw, gp), strict=True):
        assert_close(mine, -of_loss * stats.count)
    h = 1e-5
    slope = (
        q_function(old.replace(beta=old.beta + h), stats)
        - q_function(old.replace(beta=old.beta - h), stats)
    ) / (2 * h)
    assert slope == pytest.approx(-float(gb * stats.count), rel=1e-7)


@pytest.mark.parametrize("rule", RULES)
def test_the_bound_lies_below_minus_the_loss_everywhere(problem, oracle, rule):
    """From any parameters to any others the likelihood gains at least what the bound gains."""
    cases = [problem(seed, rows=31, varsigma=0.6, beta=1.0 + seed) for seed in range(6)]
    batch = cases[0].batch
    for one, other in itertools.permutations([case.params for case in cases], 2):
        stats = accumulate(one, batch, RULES[rule])
        gain = float(bound(other, stats.w_bar, stats.p_bar) - bound(one, stats.w_bar, stats.p_bar))
        before, after = (
            float(oracle.mean_loss(rule, params, batch.x, batch.targets)) for params in (one, other)
        )
        assert 31 * (before - after) >= gain - 1e-9


# Its maximum


def largest_by_scipy(p_bar, rows, cols, hold):
    """The maximum of Σ p̄ log p with these marginals, of rows the first alone, by SLSQP."""
    shape = p_bar.shape

    def off(v):
        v = v.reshape(shape)
        if not hold:
            return np.append(v.sum(0) - cols, v[0].sum() - rows[0])
        return np.concatenate([v.sum(1) - rows, (v.sum(0) - cols)[:-1]])  # the last follows

    start = np.outer(rows, cols)
    found = scipy.optimize.minimize(
        lambda v: -(p_bar.ravel() * np.log(v)).sum(),
        start.ravel(),
        jac=lambda v: -p_bar.ravel() / v,
        bounds=[(1e-9, 1.0)] * p_bar.size,
        constraints={"type": "eq", "fun": off},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x.reshape(shape)


@pytest.mark.parametrize("hold", [True, False])
def test_class_step_is_that_of_a_general_optimizer(problem, hold):
    case = problem(5, rows=53, memories=3, classes=2, contrast=1.0, weighted=True)
    stats = accumulate(case.params, case.batch, joint)
    new = maximize_bound(case.params, stats.w_bar, stats.p_bar, hold_weights=hold)
    old = case.params
    p_bar = (stats.p_bar / stats.count).numpy()
    expected = largest_by_scipy(p_bar, old.p_h.numpy(), old.p_q.numpy(), hold)
    np.testing.assert_allclose(new.p, expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(new.p_q, expected.sum(0), rtol=0, atol=1e-5)
    np.testing.assert_allclose(new.p_h, expected.sum(1), rtol=0, atol=1e-5)
    assert new.p_h[0] == old.p_h[0]
    new.check()


def test_a_component_that_answers_for_nothing_keeps_its_classes(problem):
    params = problem(7).params
    p_bar = params.p.flip(1).clone()
    # Also with weights that are hardly numbers any more.
    for few in (0.0, 4e-323):
        p_bar[0] = few * torch.arange(1, p_bar.shape[1] + 1)
        new = maximize_bound(params, params.w, p_bar, hold_weights=False).check()
        assert_close(new.p.sum(0), params.p_q, rtol=1e-9, atol=0)
        assert_close(new.p[0].sum(), params.p_h[0], rtol=1e-9, atol=0)


# Borders


def test_a_memory_without_pull_stays(problem):
    case = problem(5)
    stats = accumulate(case.params, case.batch, joint)
    w_bar = stats.w_bar.clone()
    w_bar[3] = 0.0
    new = maximize_bound(case.params, w_bar, stats.p_bar).check()
    assert_close(new.w[3], case.params.w[3])


def test_no_pull_at_all_and_perfect_pull_keep_beta_finite(problem):
    params = problem(6).params
    p_bar = params.p
    none = maximize_bound(params, torch.zeros_like(params.w), p_bar)
    full = maximize_bound(params, p_bar[1:].sum(1, keepdim=True) * params.w, p_bar)
    assert 0 < none.beta < 1e-6
    assert torch.isfinite(full.beta)
    assert full.beta > 1e6


# β step by step


@pytest.mark.parametrize("n", [2, 3, 7, 61, 784])
@pytest.mark.parametrize("r", [0.02, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("factor", [1 / 1.5, 1.5])
def test_steps_towards_beta_reach_the_inverse(n, r, factor):
    goal = float(inverse_mean_resultant(torch.tensor(r).double(), n))
    start, r = torch.tensor(goal * factor).double(), torch.tensor(r).double()
    # One step is nearer already, six are at the end.
    beta, off = start, []
    for _ in range(6):
        beta = approach_beta(beta, r, n)
        off.append(abs(float(beta) / goal - 1))
    assert off[0] < abs(factor - 1)
    assert off[-1] < 1e-9
    assert float(approach_beta(torch.tensor(goal).double(), r, n)) == pytest.approx(goal, rel=1e-9)


@pytest.mark.parametrize("n", [2, 7, 784])
@pytest.mark.parametrize("r", [-1.0, 1e-12, 0.5, 1 - 1e-12, 2.0])
@pytest.mark.parametrize("start", [1e-6, 1.0, 1e9])
def test_steps_towards_beta_are_never_lost(n, r, start):
    """Each is by a factor of at most 4 and in the right direction, where rounding lets it see."""
    beta, r = torch.tensor(start).double(), torch.tensor(r).double()
    for _ in range(15):
        new = approach_beta(beta, r, n)
        assert torch.isfinite(new)
        assert beta / 4 <= new <= beta * 4
        gap = float(r.clamp(1e-9, 1 - 1e-9) - mean_resultant(beta, n))
        if abs(gap) > 1e-12 and float(beta) < 1e5:
            assert (new - beta) * gap > 0
        beta = new
    single = approach_beta(torch.tensor(start), r.float(), n)
    assert single.dtype == torch.float32
    assert torch.isfinite(single)


# Labels of their own


@pytest.mark.parametrize("balanced", [True, False])
def test_own_labels_keep_both_marginals(problem, balanced):
    params = problem(31, memories=13, classes=3).params
    own = torch.arange(13) % 3 if balanced else (torch.arange(13) > 8).long()
    labels = torch.cat([params.p_q[None], torch.nn.functional.one_hot(own, 4).double()])
    found = with_labels(params, labels)
    assert_close(found.p.sum(1), params.p_h, rtol=1e-14, atol=0)
    assert_close(found.p.sum(0), params.p_q, rtol=1e-13, atol=1e-16)
    assert (found.p >= 0).all()
    # Beyond the class prior, each memory has so much more of its own class, all the same.
    extra = (found.p / found.p_h[:, None] - params.p_q)[1:]
    more = labels[1:] - params.p_h @ labels
    shares = (extra / more)[more.abs() > 1e-9]
    assert_close(shares, shares[:1].expand_as(shares), rtol=1e-9, atol=0)
    # As much as leaves no class negative, of every class a little.
    most = float((params.p_q / (params.p_h @ labels)).min())
    assert float(shares[0]) == pytest.approx(min(most, 0.95), rel=1e-9)
    if balanced:
        assert (found.p[1:, :3].argmax(1) == own).all()
