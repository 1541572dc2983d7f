import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from mnemosphere.model.objectives import (
    JointConditional,
    Marginal,
    Unsupervised,
    conditional,
    joint,
    soft_labels,
)
from problems import RULES

EVERY = RULES | {
    "unsupervised 0.0": Unsupervised(0.0),
    "unsupervised 1.0": Unsupervised(1.0),
}


def scores(rows=13, columns=5, seed=0, spread=4.0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def labels(rows=13, columns=5, seed=1):
    """Full, empty and partial rows in turn."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.rand(rows, columns, generator=generator, dtype=torch.float64)
    q = q / q.sum(1, keepdim=True)
    q[1::3] = 0.0
    q[2::3] *= 0.4
    return q


def apply(rule, z, q):
    """Rows first."""
    loss, weights = rule(z.T, q.T)
    return loss, weights.T


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("full", [False, True])
def test_weights_are_minus_the_derivative_of_the_loss(name, full, oracle):
    z, q = scores().requires_grad_(), labels()
    q = q[::3].repeat(5, 1)[:13] if full else q
    loss, weights = apply(EVERY[name], z, q)
    assert_close(loss, oracle.loss(name, z, q), rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(oracle.loss(name, z, q).sum(), z)
    assert_close(weights, -gradient, rtol=0, atol=1e-12)


def test_unlabeled_rows_count_by_their_marginal_in_the_joint_part_alone():
    z = scores()
    nothing = torch.zeros_like(z)
    for rule, part in ((joint, 1.0), (conditional, 0.0), (JointConditional(0.6), 0.4)):
        for mine, reference in zip(
            apply(rule, z, nothing), apply(Marginal(), z, nothing), strict=True
        ):
            assert_close(mine, part * reference)


def test_a_partial_label_is_a_labeled_row_and_one_without_label():
    z, q = scores(), labels()
    share = q.sum(1, keepdim=True)
    full = torch.where(share > 0, q / share.clamp_min(1e-300), 1 / 5)
    for rule in (joint, conditional, JointConditional(0.6)):
        cases = (full, torch.zeros_like(z), q)
        both = zip(*(apply(rule, z, labels) for labels in cases), strict=True)
        for labeled, without, mixed in both:
            part = share if mixed.ndim == 2 else share[:, 0]
            assert_close(mixed, part * labeled + (1 - part) * without)


@pytest.mark.parametrize("rule", [rule for rule in EVERY.values() if rule.supports_fixed_point])
@given(seed=st.integers(0, 10_000), excess=st.sampled_from([0.0, 3e-8, 5e-6, 9e-5]))
def test_weights_for_the_fixed_point_are_never_negative(rule, seed, excess):
    # One-hot labels against confident scores, and sums that rounding left above 1.
    z = scores(seed=seed, spread=30.0).float()
    q = torch.nn.functional.one_hot(scores(seed=seed + 1).argmax(1), 5).float() * (1 + excess)
    q[1::3] = 0.0
    _, weights = apply(rule, z, q)
    assert (weights >= 0).all()


@pytest.mark.parametrize("name", EVERY)
def test_extreme_scores_stay_finite(name):
    z = torch.tensor([[-2e4, 0.0, 3e4], [1e4, 1e4, 1e4], [-1e30, 0.0, 50.0]], dtype=torch.float32)
    q = torch.tensor([[0.0, 0.0, 1.0], [0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])
    loss, weights = apply(EVERY[name], z, q)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(weights).all()


@pytest.mark.parametrize("name", EVERY)
def test_weights_over_shares_are_those_of_the_log_joint(name):
    z, q, rule = scores().T, labels().T, EVERY[name]
    scale = z.amax(0, keepdim=True) - 3.0
    loss, weights = rule(z, q)
    share = (z - scale).exp()
    for found, wanted in zip(
        rule.of_shares(share, lambda: scale, q), (loss, weights / share), strict=True
    ):
        assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_soft_labels():
    q = soft_labels(torch.tensor([1, -1, 0]), 2, 0.3, dtype=torch.float64)
    expected = torch.tensor([[0.1, 0.8, 0.1], [0, 0, 0], [0.8, 0.1, 0.1]], dtype=torch.float64)
    assert_close(q, expected)
