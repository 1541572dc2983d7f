"""Splits in which the copies share out the classes: against autograd of the doubled network."""

from functools import lru_cache

import pytest
import torch

from draws import generator
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.certificates import certify
from mnemosphere.model.mixture import Mixture
from mnemosphere.theory import stability
from mnemosphere.theory.limits import from_parameters
from mnemosphere.theory.saddle_point import OrderParameters
from mnemosphere.theory.solver import solve
from research.theory.joint_splits import joint_split
from small_models import dense_class_split

N, ROWS, MEMORIES, CLASSES = 7, 23, 3, 5


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
    params = Mixture(w, p, torch.tensor(beta).double(), varsigma, p_h, p_q)
    return at_rest(params, x, q), x, q


def at_rest(params, x, q):
    """The stationary point that the theory's solver finds from here."""
    problem, state = from_parameters(params, Batch(x, q))
    found = solve(problem, OrderParameters(state.m[None], state.p[None]), tol=1e-11)
    x_bar = found.raise_if_failed().m_hat[0].T @ x
    return params.replace(w=x_bar / x_bar.norm(dim=1, keepdim=True), p=found.p[0])


@pytest.mark.parametrize(
    "rule", [objectives.joint, objectives.JointConditional(0.6), objectives.marginal]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_lambda_is_the_lowest_eigenvalue_of_the_doubled_network(rule, weighted):
    params, x, q = stationary()
    weight = torch.rand(ROWS, generator=generator(3)).double() + 0.1 if weighted else None
    batch = Batch(x, q, weight)
    found = joint_split(params, batch, rule)
    for memory in range(MEMORIES):
        h, t, s = dense_class_split(params, memory, batch, rule)
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


def test_a_minimum_at_fixed_class_weights_is_a_saddle_with_labels():
    params, x, q = stationary()
    certificate = certify(params, Batch(x, q), learn_beta=False)
    assert certificate.kinds == ("minimum",) * MEMORIES
    assert bool((certificate.beta_split > params.slope).all())
    found = joint_split(params, Batch(x, q))
    assert "label saddle" in found.kinds
    assert "saddle" not in found.kinds
    # The Jacobian of the doubled network says the same: an eigenvalue above 1.
    problem, state = from_parameters(params, Batch(x, q))
    assert float(stability.spectrum(problem, state)[0]) < 1 + 1e-9
    for memory, kind in enumerate(found.kinds):
        wide, copy = stability.duplicate(problem, state, [memory])
        leading = float(stability.spectrum(wide, copy)[0])
        assert leading > 1 + 1e-5 if kind == "label saddle" else leading < 1 + 1e-6


def test_labels_that_say_the_same_everywhere_leave_the_minimum():
    # Every row has the same soft label: the class pulls are parallel to the memory.
    params, x, _ = stationary()
    q = params.p_q.expand(ROWS, CLASSES)
    flat = params.replace(p=params.p_h[:, None] * params.p_q)
    flat = at_rest(flat, x, q)
    result = joint_split(flat, Batch(x, q))
    assert result.kinds == ("minimum",) * MEMORIES
    assert float(result.lambda_joint.abs().max()) < 1e-12


@pytest.mark.parametrize("ratio", [1.01, 1.5])
@pytest.mark.parametrize("seed", range(2))
def test_a_saddle_whose_labels_say_nothing_is_a_saddle(ratio, seed):
    # (0, a) is an exact eigenpair of value 0 here, and must not end the search.
    features = 20
    x = torch.randn(97, features, dtype=torch.float64, generator=generator(seed))
    x[:, 0] += 2.0
    x = x / x.norm(dim=1, keepdim=True)
    q = torch.full((97, 3), 1 / 3, dtype=torch.float64)
    w = x.mean(0, keepdim=True)
    w = w / w.norm()
    across = x - (x @ w.T) * w
    split = (x @ w.T).sum() / torch.linalg.eigvalsh(across.T @ across)[-1]
    p_h = torch.tensor([0.0, 1.0], dtype=torch.float64)
    params = Mixture(w, p_h[:, None] * q[:1], ratio * split, 1.0, p_h, q[0])
    found = joint_split(params, Batch(x, q))
    assert found.kinds == ("saddle",)
    hessian, *_ = dense_class_split(params, 0, Batch(x, q), objectives.joint)
    exact = float(torch.linalg.eigvalsh(hessian)[0])
    assert exact < 0
    assert float(found.lambda_joint[0]) == pytest.approx(exact, abs=1e-6 * float(found.scale[0]))
