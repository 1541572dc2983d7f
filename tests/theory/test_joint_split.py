"""Splits in which the copies share out the classes: against autograd of the doubled network."""

import importlib
from functools import lru_cache

import pytest
import torch

from mnemosphere.model import duplicate as duplicate
from mnemosphere.model import kernel, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.parameters import Parameters
from mnemosphere.theory import joint_split, stability
from mnemosphere.theory.limits import from_parameters
from mnemosphere.theory.saddle_point import OrderParameters
from mnemosphere.theory.solver import solve
from mnemosphere.theory.stationarity import certify

N, ROWS, MEMORIES, CLASSES = 7, 23, 3, 5


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(seed=0, n=ROWS):
    x = torch.randn(n, N, dtype=torch.float64, generator=generator(seed))
    x[:, 0] += 1.5
    q = torch.rand(n, CLASSES, dtype=torch.float64, generator=generator(seed + 1)) + 0.05
    return x / x.norm(dim=1, keepdim=True), q / q.sum(1, keepdim=True)


@lru_cache
def stationary(beta=1.9, varsigma=0.7, seed=0):
    """A stationary point of the joint likelihood, with its data."""
    x, q = rows(seed)
    p_h = torch.tensor([0.13, 0.17, 0.29, 0.41], dtype=torch.float64)
    p_q = q.mean(0)
    p = p_h[:, None] * p_q * (1 + 0.2 * torch.rand(4, CLASSES, generator=generator(7)).double())
    p = p * (p_h / p.sum(1))[:, None]
    w = x[[2, 11, 17]]
    params = Parameters(w, p, torch.tensor(beta).double(), varsigma, p_h, p_q)
    problem, state = from_parameters(params, Batch(x, q))
    found = solve(problem, OrderParameters(state.m[None], state.p[None]), tol=1e-11)
    found = found.raise_if_failed()
    x_bar = found.m_hat[0].T @ x
    w = x_bar / x_bar.norm(dim=1, keepdim=True)
    return params.replace(w=w, p=found.p[0]), x, q


def loss(params, x, q, rule, weight):
    value, _ = rule(kernel.log_joint_differentiable(params, x), q)
    return (weight * value).sum() / weight.sum()


def tangent_basis(v):
    """Orthonormal columns across the vector v."""
    return torch.linalg.qr(torch.cat([v[:, None], torch.eye(len(v)).double()], 1))[0][:, 1:]


def dense(params, x, q, memory, rule, weight):
    """Hessian over (u, a) of a memory and its copy, by autograd, and over sums as well."""
    grown = duplicate.duplicate(params, torch.tensor([memory]))
    twin = [memory, MEMORIES]
    g = params.p[memory + 1] / params.p_h[memory + 1]
    t, s = tangent_basis(params.w[memory]), tangent_basis(g.sqrt())
    size = t.shape[1] + s.shape[1]

    def move(theta):
        w, p = list(grown.w), list(grown.p)
        for i, z in zip(twin, theta.reshape(2, size), strict=True):
            moved = grown.w[i] + t @ z[: t.shape[1]]
            w[i] = moved / moved.norm()
            shift = s @ z[t.shape[1] :]  # a; the copy's g changes by √g∘a, its p by that × p_h/2
            p[i + 1] = grown.p[i + 1] + params.p_h[memory + 1] / 2 * g.sqrt() * shift
        changed = grown.replace(w=torch.stack(w), p=torch.stack(p))
        return loss(changed, x, q, rule, weight)

    h = torch.autograd.functional.hessian(move, torch.zeros(2 * size).double())
    h = h.reshape(2, size, 2, size)
    apart = h[0, :, 0] - h[0, :, 1] - h[1, :, 0] + h[1, :, 1]
    mixed = h[0, :, 0] + h[0, :, 1] - h[1, :, 0] - h[1, :, 1]
    return apart, mixed, t, s


@pytest.mark.parametrize(
    "rule", [objectives.joint, objectives.JointConditional(0.6), objectives.marginal]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_lambda_is_the_lowest_eigenvalue_of_the_doubled_network(rule, weighted):
    params, x, q = stationary()
    weight = torch.rand(ROWS, generator=generator(3)).double() + 0.1
    weight = weight if weighted else torch.ones(ROWS).double()
    found = joint_split(params, Batch(x, q, weight if weighted else None), rule)
    for memory in range(MEMORIES):
        h, _, t, s = dense(params, x, q, memory, rule, weight)
        lowest = float(torch.linalg.eigvalsh(h)[0])
        assert float(found.lambda_joint[memory]) == pytest.approx(lowest, abs=1e-12)
        # The direction attains it, in the coordinates u of w and v of p.
        g = params.p[memory + 1] / params.p_h[memory + 1]
        a = found.class_direction[memory] * 2 / params.p_h[memory + 1] / g.sqrt()
        z = torch.cat([t.T @ found.direction[memory], s.T @ a])
        assert float(z.norm()) == pytest.approx(1.0, abs=1e-9)
        assert float(z @ h @ z) == pytest.approx(lowest, abs=1e-12)
        # Class weights moved between copies that coincide change nothing.
        assert bool((h[t.shape[1] :, t.shape[1] :].abs() < 1e-13).all())


def test_the_copies_parting_is_decoupled_from_their_common_motion():
    params, x, q = stationary()
    _, mixed, _, _ = dense(params, x, q, 1, objectives.joint, torch.ones(ROWS).double())
    assert float(mixed.abs().max()) < 1e-13


def test_the_pair_in_closed_form():
    params, x, q = stationary()
    found = joint_split(params, Batch(x, q))
    s, c = found.split, found.coupling
    torch.testing.assert_close(
        found.lambda_joint, (s - (s * s + 4 * c * c).sqrt()) / 2, rtol=0, atol=1e-13
    )
    assert float(c.max()) > 0.02


def test_a_minimum_at_fixed_class_weights_is_a_saddle_with_labels():
    params, x, q = stationary()
    certificate = certify(params, Batch(x, q), learn_beta=False)
    assert certificate.verdicts == ("minimum",) * MEMORIES
    assert bool((certificate.beta_split > params.beta_eff).all())
    found = joint_split(params, Batch(x, q))
    assert certificate.joint_verdicts == found.verdicts
    assert certificate.joint_counts["label saddle"] == found.verdicts.count("label saddle")
    assert bool((certificate.lambda_joint >= found.lambda_joint - 1e-12).all())
    some = joint_split(params, Batch(x, q), which=torch.tensor([2, 0]))
    torch.testing.assert_close(some.lambda_joint, found.lambda_joint[[2, 0]])
    assert "label saddle" in found.verdicts
    assert "saddle" not in found.verdicts
    # The Jacobian of the doubled network says the same: an eigenvalue above 1.
    problem, state = from_parameters(params, Batch(x, q))
    assert float(stability.spectrum(problem, state)[0]) < 1 + 1e-9
    for memory, verdict in enumerate(found.verdicts):
        wide, copy = stability.duplicate(problem, state, [memory])
        leading = float(stability.spectrum(wide, copy)[0])
        assert leading > 1 + 1e-5 if verdict == "label saddle" else leading < 1 + 1e-6


def test_a_memory_of_one_class_is_a_minimum_and_one_of_two_is_not():
    # Two tight groups of rows, one memory on each; the second group has rows of two classes.
    center = torch.eye(2, N, dtype=torch.float64).repeat_interleave(11, 0)
    x = center + 0.3 * torch.randn(22, N, dtype=torch.float64, generator=generator(9))
    x = x / x.norm(dim=1, keepdim=True)
    classes = torch.cat([torch.zeros(11), 1 + (x[11:, 2] > 0)]).long()
    q = torch.nn.functional.one_hot(classes, 3).double()
    p_h, p_q = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64), q.mean(0)
    p = torch.stack([0 * p_q, torch.tensor([0.5, 0.0, 0.0]).double(), p_q - p_q[0] * q[0]])
    params = Parameters(center[[0, 11]], p, torch.tensor(3.1).double(), 1.0, p_h, p_q)
    problem, state = from_parameters(params, Batch(x, q))
    found = solve(problem, OrderParameters(state.m[None], state.p[None]), tol=1e-11)
    x_bar = found.raise_if_failed().m_hat[0].T @ x
    params = params.replace(w=x_bar / x_bar.norm(dim=1, keepdim=True), p=found.p[0])
    both = certify(params, Batch(x, q), learn_beta=False)
    assert both.verdicts == ("minimum", "minimum")
    assert both.joint_verdicts == ("minimum", "label saddle")
    result = joint_split(params, Batch(x, q))
    assert result.verdicts == ("minimum", "label saddle")
    # The copies go to either class, at either side of the second memory.
    assert float(result.class_direction[1, 1] * result.class_direction[1, 2]) < 0
    assert abs(float(result.direction[1, 2])) > 0.5 * float(result.direction[1].norm())


def test_the_loss_falls_along_the_split_by_half_lambda():
    params, x, q = stationary()
    found = joint_split(params, Batch(x, q))
    before = loss(params, x, q, objectives.joint, torch.ones(ROWS).double())
    step = 1e-3
    for memory in range(MEMORIES):
        grown = duplicate.split(params, torch.tensor([memory]), found.direction, step)
        p = grown.p.clone()
        p[memory + 1] += step * found.class_direction[memory]
        p[-1] -= step * found.class_direction[memory]
        torch.testing.assert_close(p.sum(0), params.p_q, rtol=0, atol=1e-12)
        torch.testing.assert_close(p.sum(1), grown.p_h, rtol=0, atol=1e-12)
        after = loss(grown.replace(p=p), x, q, objectives.joint, torch.ones(ROWS).double())
        expected = 0.5 * step**2 * float(found.lambda_joint[memory])
        assert float(after - before) == pytest.approx(expected, rel=1e-3)


def test_labels_that_say_the_same_everywhere_leave_the_minimum():
    # Every row has the same soft label: the class pulls are parallel to the memory.
    params, x, _ = stationary()
    q = params.p_q.expand(ROWS, CLASSES)
    flat = params.replace(p=params.p_h[:, None] * params.p_q)
    problem, state = from_parameters(flat, Batch(x, q))
    found = solve(problem, OrderParameters(state.m[None], state.p[None]), tol=1e-11)
    x_bar = found.raise_if_failed().m_hat[0].T @ x
    flat = flat.replace(w=x_bar / x_bar.norm(dim=1, keepdim=True))
    result = joint_split(flat, Batch(x, q))
    assert result.verdicts == ("minimum",) * MEMORIES
    assert float(result.lambda_joint.abs().max()) < 1e-12


def test_without_labels_it_is_the_split_at_fixed_class_weights():
    params, x, _ = stationary()
    one = Parameters(
        params.w, params.p_h[:, None], params.beta, 0.7, params.p_h, torch.ones(1).double()
    )
    found = joint_split(one, Batch(x, torch.ones(ROWS, 1).double()))
    exact = certify(one, Batch(x, torch.ones(ROWS, 1).double()), learn_beta=False)
    # The sign is certify's; the value is the dense one.
    for memory in range(MEMORIES):
        w = one.w[memory]
        r = kernel.responsibilities(one, x, torch.ones(ROWS, 1).double())[:, memory + 1]
        across = x - (x @ w)[:, None] * w
        t = tangent_basis(w)
        beta = one.beta_eff
        s = (
            beta * (r @ (x @ w)) * torch.eye(N - 1).double()
            - beta**2 * t.T @ (across.T * r) @ across @ t
        )
        lowest = torch.linalg.eigvalsh(s / ROWS)[0]
        assert float(found.lambda_joint[memory]) == pytest.approx(float(lowest), abs=1e-12)
    torch.testing.assert_close(found.lambda_joint, exact.lambda_min, rtol=1e-4, atol=1e-8)


def test_the_search_may_start_again(monkeypatch):
    # More dimensions than vectors kept: the value must not depend on how many.
    n, features = 61, 41
    x = torch.randn(n, features, dtype=torch.float64, generator=generator(5))
    x = x / x.norm(dim=1, keepdim=True)
    q = torch.nn.functional.one_hot(torch.arange(n) % 3, 3).double() * 0.9 + 0.1 / 3
    p_h = torch.tensor([0.1, 0.4, 0.5], dtype=torch.float64)
    p_q = q.mean(0)
    params = Parameters(x[:2], p_h[:, None] * p_q, torch.tensor(6.1).double(), 1.0, p_h, p_q)
    module = importlib.import_module("mnemosphere.theory.joint_split")
    whole = joint_split(params, Batch(x, q))
    monkeypatch.setattr(module, "_MAX_BASIS", 7)
    again = joint_split(params, Batch(x, q))
    assert float(again.residual.max()) < 1e-8
    torch.testing.assert_close(again.lambda_joint, whole.lambda_joint, rtol=0, atol=1e-12)


def test_a_class_without_weight_stays_without():
    params, x, q = stationary()
    p = params.p.clone()
    p[2, 4] = 0.0
    p[1, 4] += params.p[2, 4]
    found = joint_split(params.replace(p=p, p_h=p.sum(1)), Batch(x, q))
    assert float(found.class_direction[1, 4]) == 0.0
    assert bool(torch.isfinite(found.lambda_joint).all())


def test_bad_arguments_are_refused():
    params, x, q = stationary()
    with pytest.raises(ValueError, match="must be positive"):
        joint_split(params, Batch(x, q), tol=0.0)
    with pytest.raises(ValueError, match="targets must be"):
        joint_split(params, Batch(x, q[:, :3]))
