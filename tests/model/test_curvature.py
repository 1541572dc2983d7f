"""Curvature along a split, against dense eigendecompositions of autograd's Hessian and Jacobian."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from draws import generator
from mnemosphere.model import objectives
from mnemosphere.model.copies import duplicate
from mnemosphere.model.curvature import krylov, nearest
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import log_joint
from mnemosphere.numerics import sphere
from research.paper.descent import Descent
from small_models import (
    PROPER,
    B,
    C,
    N,
    P,
    converge_memories,
    dense_splitting_matrix,
    make_data,
    make_params,
    tangent_basis,
)  # fmt: skip

EVERY_ROW = partial(nearest, steps=N)
METHODS = {"nearest": EVERY_ROW, "krylov": partial(krylov, tol=1e-11)}


@pytest.mark.parametrize("rule", PROPER, ids=repr)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("weighted", [False, True])
def test_lambda_min_and_direction_are_those_of_the_dense_hessian(method, rule, weighted):
    weight = None
    if weighted:
        weight = torch.rand(B, generator=generator(3), dtype=torch.float64)
    batch = make_data(0, weight)
    params = make_params(0)
    found = method(params, batch, rule)
    for memory in range(P):
        dense = dense_splitting_matrix(params, memory, batch, rule)
        values, vectors = torch.linalg.eigh(dense)
        u = tangent_basis(params.w[memory]) @ vectors[:, 0]
        torch.testing.assert_close(found.lambda_min[memory], values[0], rtol=1e-9, atol=1e-12)
        cosine = float(found.direction[memory] @ u)
        assert abs(cosine) == pytest.approx(1, abs=1e-9)


def test_value_belongs_to_the_direction_returned():
    """The quotient is exact even for a poor direction: one Krylov step, or a short descent."""
    batch = make_data(2)
    params = make_params(2)
    for method in (partial(nearest, steps=1), Descent(batch_size=13)):
        found = method(params, batch)
        for memory in range(P):
            dense = dense_splitting_matrix(params, memory, batch, objectives.joint)
            u = tangent_basis(params.w[memory]).T @ found.direction[memory]
            torch.testing.assert_close(found.lambda_min[memory], u @ dense @ u)
            assert found.lambda_min[memory] >= torch.linalg.eigvalsh(dense)[0] - 1e-12


def test_a_sample_of_rows_is_the_problem_of_those_rows():
    """Rows that are not among the strongest do not enter, neither in T nor in the overlap."""
    batch = make_data(4)
    params = make_params(4)
    found = nearest(params, batch, strongest=11, steps=N)
    beta = params.slope
    shares = torch.zeros(B, P, dtype=torch.float64)
    joint = log_joint(params, batch.x)
    for y in range(C + 1):
        h = params.w.new_zeros(B, P)
        for memory in range(P):
            alone = params.replace(p=torch.zeros_like(params.p))
            alone.p[memory + 1, y] = params.p[memory + 1, y]
            h[:, memory] = log_joint(alone, batch.x)[:, y]
        shares += batch.targets[:, y, None] * (h - joint[:, y, None]).exp()
    for memory in range(P):
        rows = shares[:, memory].argsort(descending=True)[:11]
        r, near, w = shares[rows, memory], batch.x[rows], params.w[memory]
        basis = tangent_basis(w)
        spread = torch.linalg.eigvalsh(basis.T @ (near.T * r) @ near @ basis)[-1] / B
        expected = beta * (r * (near @ w)).sum() / B - beta**2 * spread
        torch.testing.assert_close(found.lambda_min[memory], expected)


@pytest.mark.parametrize("seed", range(2))
def test_antisymmetric_eigenvalue_of_the_fixed_point_map(seed):
    """It equals β_eff/β_split(μ): the autograd Jacobian of the duplicated network's map."""
    batch = make_data(seed)
    params = converge_memories(make_params(seed), batch)
    beta_split = krylov(params, batch, tol=1e-12).beta_split
    for memory in range(P):
        grown = duplicate(params, torch.tensor([memory]))

        def step(w: Tensor, grown: Mixture = grown) -> Tensor:
            w = w.requires_grad_() if not w.requires_grad else w
            joint = log_joint(grown.replace(w=w), batch.x)
            total = (batch.targets * joint).sum()
            (gradient,) = torch.autograd.grad(total, w, create_graph=True)
            return gradient / gradient.norm(dim=1, keepdim=True)

        jacobian = torch.autograd.functional.jacobian(step, grown.w)  # (P+1, N, P+1, N)
        copy = P
        block = jacobian[memory, :, memory] - jacobian[memory, :, copy]
        basis = tangent_basis(params.w[memory])
        block = basis.T @ block @ basis
        assert (block - block.T).abs().max() < 1e-10  # the tangent block is symmetric
        top = torch.linalg.eigvalsh(block)[-1]
        torch.testing.assert_close(top, params.slope / beta_split[memory], rtol=1e-10, atol=0)


def test_a_memory_without_rows_is_no_saddle():
    batch = make_data(5)
    params = make_params(5, beta=300.0, varsigma=1.0)
    x = batch.x
    far = -sphere.project(x.sum(0, keepdim=True))
    x = sphere.project(x + 5 * x.mean(0))
    params = params.replace(w=torch.cat([far, x[:1], x[1:2]]))
    found = EVERY_ROW(params, replace(batch, x=x))
    assert bool(torch.isfinite(found.lambda_min).all())
    assert bool(torch.isfinite(found.direction).all())
    assert abs(float(found.lambda_min[0])) < 1e-12
