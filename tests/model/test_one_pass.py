import operator
from functools import reduce

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from mnemosphere.model import one_pass
from mnemosphere.model.batch import Batch
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.mixture import Mixture, from_memories
from mnemosphere.model.objectives import conditional, joint
from problems import RULES, gradient

EXACT = {"rtol": 1e-10, "atol": 1e-10}


class LargestTensor(TorchDispatchMode):
    """Remember the largest result of any operation."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.numel = max(self.numel, out.numel())
        return out


def statistics(problem, rule=joint, rows=slice(None)):
    return one_pass.accumulate(problem.params, problem.batch.take(rows), rule)


def shares(params, batch, rule):
    """Responsibilities of the memories (B, P)."""
    return torch.cat([r for _, r in one_pass.memory_shares(params, batch, rule)])


def assert_same_statistics(a, b, **tolerance):
    for name in ("w_bar", "p_bar", "overlap", "loss", "count"):
        assert_close(getattr(a, name), getattr(b, name), **tolerance)


# Forward


@pytest.mark.parametrize("varsigma", [0.05, 0.25, 1.0])
@pytest.mark.parametrize("beta", [0.01, 3.0, 90.0])
def test_log_joint_against_the_whole_array(problem, oracle, varsigma, beta):
    case = problem(1, varsigma=varsigma, beta=beta)
    expected = oracle.log_joint(case.params, case.x)
    assert_close(one_pass.log_joint(case.params, case.x), expected, rtol=1e-12, atol=1e-12)


def test_zero_class_weights(problem):
    """Components without a class take no part in it; the others are untouched."""
    case = problem(4)
    p = case.params.p.clone()
    p[2, 1] = p[0, 0] = 0.0
    params = case.params.replace(p=p)
    h = one_pass.log_joint(case.params.replace(p=torch.eye(6, 6).double()), case.x)
    expected = torch.einsum("bg,gy->by", h.exp(), p).log()
    assert_close(one_pass.log_joint(params, case.x), expected, rtol=1e-12, atol=1e-12)


def test_autograd_goes_through_the_shares(problem, oracle):
    case = problem(2)
    x = case.x.clone().requires_grad_()
    wanted = torch.autograd.grad(oracle.log_joint(case.params, x).sum(), x)
    assert_close(torch.autograd.grad(one_pass.log_joint(case.params, x).sum(), x), wanted)
    share, density = one_pass.shares(case.params, case.x)
    assert_close(share.sum(1), torch.ones(len(x)).double())
    assert_close(density, oracle.log_joint(case.params, case.x).logsumexp(1))


# Backward


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("varsigma", [0.05, 0.25, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_that_of_autograd(problem, oracle, name, varsigma, weighted):
    case = problem(6, varsigma=varsigma, weighted=weighted)
    stats = statistics(case, RULES[name])
    expected = oracle.gradient(name, *case)
    for mine, reference in zip(gradient(stats, case.params), expected, strict=True):
        assert_close(mine, reference, **EXACT)
    assert_close(stats.mean_loss, oracle.mean_loss(name, *case), **EXACT)


@pytest.mark.parametrize("weighted", [False, True])
def test_chunks_do_not_matter(problem, weighted):
    # So many memories that a chunk is a small part of the rows, and none is as large as all.
    case = problem(9, rows=1009, memories=5003, weighted=weighted, features=3, classes=2)
    parts = list(one_pass.chunks(1009, 5003, case.x.device))
    assert len(parts) > 3
    assert [row for s in parts for row in range(s.start, s.stop)] == list(range(1009))
    with LargestTensor() as seen:
        whole, scores = statistics(case), one_pass.log_joint(case.params, case.x)
    assert seen.numel < 1009 * 5003 / 3
    alone = [slice(start, start + 53) for start in range(0, 1009, 53)]
    total = reduce(operator.add, (statistics(case, joint, rows) for rows in alone))
    assert_same_statistics(whole, total, **EXACT)
    assert_close(
        scores,
        torch.cat([one_pass.log_joint(case.params, case.x[rows]) for rows in alone]),
        **EXACT,
    )


def test_statistics_from_their_definition(problem, oracle):
    case = problem(10, weighted=True)
    params = case.params
    h = params.slope * case.x @ params.w.T - oracle.log_omega(params.beta, 7)
    e = torch.cat([torch.ones(23, 1).double(), h.exp()], 1)  # (B, P+1)
    share = e[:, :, None] * params.p  # (B, P+1, C+1)
    share = share / share.sum(1, keepdim=True)
    scores = oracle.log_joint(params, case.x)
    q = case.targets + (1 - case.targets.sum(1, keepdim=True)) * scores.softmax(1)
    q = q * case.sample_weight[:, None]
    r = torch.einsum("by,bgy->bg", q, share)
    stats = statistics(case)
    assert_close(stats.w_bar, torch.einsum("bm,bn->mn", r[:, 1:], case.x), **EXACT)
    assert_close(stats.p_bar, torch.einsum("by,bgy->gy", q, share), **EXACT)
    assert_close(stats.overlap, (r[:, 1:] * (case.x @ params.w.T)).sum(0), **EXACT)
    assert_close(stats.mass, r.sum(0), **EXACT)
    assert_close(stats.count, case.sample_weight.sum(), **EXACT)
    assert_close(shares(params, case.batch, joint), r[:, 1:], **EXACT)


# Float32 at the edge of its range


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_labels_that_no_component_explains_stay_finite(dtype):
    """Weight on a class of zero probability, on many rows at once: a large loss and no NaN."""
    rows = 2003
    w = torch.eye(2, 3, dtype=dtype)
    x = w[0].expand(rows, 3)
    p_q = torch.tensor([0.5, 0.5, 0.0], dtype=dtype)
    params = from_memories(w, p_q, beta=2000.0)
    p = torch.tensor([[0.01, 0.01, 0], [0.49, 0, 0], [0, 0.49, 0]], dtype=dtype)
    params = params.replace(p=p)
    q = torch.tensor([[0.05, 0.9, 0.05]], dtype=dtype).expand(rows, 3)
    for rule in RULES.values():
        stats = one_pass.accumulate(params, Batch(x, q), rule)
        for value in (stats.w_bar, stats.p_bar, stats.overlap, stats.loss):
            assert torch.isfinite(value).all()
        for value in gradient(stats, params):
            assert torch.isfinite(value).all()


# Several problems at once


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_problems_along_a_leading_axis_are_those_alone(problem, gaps, weighted):
    """Statistics, gradients, the fixed-point step and predictions of three, each by itself."""
    cases = [problem(seed, varsigma=0.3 * seed, beta=7.0 * seed) for seed in (1, 2, 3)]
    generator = torch.Generator().manual_seed(0)
    params, batches = [case.params for case in cases], []
    for case in cases:
        x = case.x.clone()
        if gaps:
            x[torch.rand(x.shape, generator=generator) < 0.2] = torch.nan
        weight = torch.rand(len(x), generator=generator, dtype=x.dtype) if weighted else None
        batches.append(Batch(x, case.batch.targets, weight))
    stacked, rows = Mixture.stack(params), Batch.stack(batches)
    together = one_pass.accumulate(stacked, rows, conditional)
    moved = maximize_bound(stacked, together.w_bar, together.p_bar.abs(), hold_weights=False)
    for k, (own, batch) in enumerate(zip(params, batches, strict=True)):
        alone = one_pass.accumulate(own, batch, conditional)
        for name in ("w_bar", "p_bar", "overlap", "loss", "count"):
            assert_close(getattr(together, name)[k], getattr(alone, name), **EXACT)
        for found, wanted in zip(gradient(together, stacked), gradient(alone, own), strict=True):
            assert_close(found[k], wanted, **EXACT)
        assert_close(
            one_pass.log_joint(stacked, rows.x)[k], one_pass.log_joint(own, batch.x), **EXACT
        )
        step = maximize_bound(own, alone.w_bar, alone.p_bar.abs(), hold_weights=False)
        for name, tensor in step.to_tensors().items():
            assert_close(moved.to_tensors()[name][k], tensor, **EXACT)


def test_a_row_without_label_does_not_count_in_the_conditional(problem):
    case = problem(6, labels="full")
    q = case.batch.targets.clone()
    q[::2] = 0.0
    one = one_pass.accumulate(case.params, Batch(case.x, q), conditional)
    two = one_pass.accumulate(case.params, Batch(case.x[1::2], q[1::2]), conditional)
    for name in ("w_bar", "p_bar", "loss"):
        assert_close(getattr(one, name), getattr(two, name), **EXACT)


# No uniform component


def three_clusters(sigma=0.02, uniform_weight=0.0, dtype=torch.float64):
    """One memory and one class on each axis of space, and rows far from all three."""
    w = torch.eye(3, dtype=torch.float64)
    params = from_memories(
        w, torch.full((4,), 0.25), beta=1 / sigma**2, uniform_weight=uniform_weight
    )
    label = torch.cat([torch.eye(3), torch.zeros(3, 1)], dim=1).double()
    p = torch.cat([params.p[:1], params.p_h[1:, None] * (0.97 * label + 0.01)])
    angle = torch.tensor([0.3, 0.6, 0.77, 0.785, 0.79])
    x = torch.stack([angle.cos(), angle.sin(), 0 * angle], 1).double()
    x = torch.cat([x, -x, x.roll(1, 1)])
    return params.replace(p=p, p_q=p.sum(0)).to(dtype=dtype), x.to(dtype)


def direct(params, x):
    """log_joint by logsumexp over the memories alone."""
    params, x = params.to(dtype=torch.float64), x.double()
    h = params.slope * (x @ params.w.T) - params.offset
    return (h[:, :, None] + params.p[1:].log()).logsumexp(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_without_a_uniform_component_no_row_is_lost(dtype, temperature):
    params, x = three_clusters(dtype=dtype)
    params = params.replace(beta=params.beta / temperature)
    expected = direct(params, x)
    # Densities relative to the uniform law lie far below what a float can hold.
    assert float(expected.amax(1).amin()) < -1000
    tolerance = {"rtol": 20 * torch.finfo(dtype).eps, "atol": 0.0}
    proba = expected.softmax(1)
    found = one_pass.log_joint(params, x).double()
    assert_close(found, expected, **tolerance)
    close = 1e-2 if dtype == torch.float32 else 1e-8
    assert_close(found.softmax(1), proba, rtol=0, atol=close)
    assert float(proba[0, 0]) > 0.96
    stats = one_pass.accumulate(params, Batch(x, proba.to(dtype)), joint)
    assert float(stats.mass.sum()) == pytest.approx(len(x), rel=1e-5)
    assert float(stats.mass[0]) == 0.0
    r = shares(params, Batch(x, proba.to(dtype)), joint)
    assert_close(r.sum(1), torch.ones(len(x), dtype=dtype), rtol=0, atol=1e-4)


def test_a_stack_of_problems_with_and_without_a_uniform_component():
    params, rows = zip(*(three_clusters(uniform_weight=u) for u in (0.0, 0.5)), strict=True)
    found = one_pass.log_joint(Mixture.stack(params), torch.stack(rows))
    for k in range(2):
        assert_close(found[k], one_pass.log_joint(params[k], rows[k]), **EXACT)
