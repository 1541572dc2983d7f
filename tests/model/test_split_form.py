"""Splits that share out the classes, on few rows: against autograd of the pair."""

import pytest
import torch

from mnemosphere.model import objectives
from mnemosphere.model.curvature import Nearest
from mnemosphere.model.duplicate import divide_classes, split
from mnemosphere.numerics import polytope
from small_models import B, C, N, P, converge_memories, dense_class_split, make_data, make_params

RULES = [objectives.joint, objectives.JointConditional(0.3), objectives.Unsupervised(0.2)]
EVERY_ROW = Nearest(B, B, steps=N + C, classes=True)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("beta", [1.5, 9.0])
def test_lambda_is_that_of_the_dense_hessian(rule, beta):
    batch, params = make_data(0), make_params(0, beta=beta)
    if rule is objectives.joint:  # elsewhere C√g is not 0, and only its part across √g counts
        params = converge_memories(params, batch)
    found = EVERY_ROW(params, batch, rule)
    plain = Nearest(B, B, steps=N)(params, batch, rule)
    assert found.class_direction is not None
    # Gains below a millionth of the pull of the rows are let go.
    for memory in range(P):
        lowest = torch.linalg.eigvalsh(dense_class_split(params, memory, batch, rule)[0])[0]
        torch.testing.assert_close(found.lambda_min[memory], lowest, rtol=1e-6, atol=1e-12)
    assert bool((found.lambda_min <= plain.lambda_min).all())
    torch.testing.assert_close(found.beta_split, plain.beta_split)


def test_without_labels_there_is_nothing_to_share_out():
    batch, params = make_data(0), make_params(0, beta=9.0)
    found = EVERY_ROW(params, batch, objectives.marginal)
    plain = Nearest(B, B, steps=N)(params, batch, objectives.marginal)
    torch.testing.assert_close(found.lambda_min, plain.lambda_min)
    assert float(found.class_direction.abs().max()) == 0.0


def test_shares_are_positive_and_add_up_however_far_they_go():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(11, 7, generator=generator, dtype=torch.float64) ** 6
    p[3, 2] = 0.0
    p[4] = 0.0
    v = torch.randn(11, 7, generator=generator, dtype=torch.float64) * p.sqrt()
    v = v - p * (v.sum(1) / p.sum(1).clamp_min(1e-300))[:, None]
    for size in (1e-4, 1.0, 1e3):
        a, b = divide_classes(p, size * v)
        assert bool((a >= 0).all() and (b >= 0).all())
        torch.testing.assert_close(a + b, p, rtol=1e-14, atol=0)
        torch.testing.assert_close(a.sum(1), p.sum(1) / 2, rtol=1e-9, atol=0)
        if size == 1e-4:
            near = p > 1e-2
            torch.testing.assert_close((a - p / 2)[near], (size * v)[near], rtol=1e-3, atol=1e-8)
    params = make_params(4)
    found = EVERY_ROW(params, make_data(4))
    grown = split(params, torch.tensor([2, 0]), found.direction, 0.7, found.class_direction)
    polytope.check(grown.p, grown.p_h, grown.p_q, tol=1e-9)
