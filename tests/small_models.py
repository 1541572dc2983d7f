"""Three memories and forty-one rows: small enough for dense Hessians."""

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.duplicate import duplicate
from mnemosphere.model.kernel import accumulate, log_joint_differentiable
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere

B, N, P, C = 41, 7, 3, 2


def make_data(seed: int, weight: Tensor | None = None) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(5, N, generator=generator, dtype=torch.float64)
    which = torch.randint(5, (B,), generator=generator)
    noise = torch.randn(B, N, generator=generator, dtype=torch.float64)
    q = objectives.soft_labels(which % C, C, 0.1, dtype=torch.float64)
    return Batch(sphere.project(centers[which] + 0.6 * noise), q, weight)


def make_params(seed: int, *, beta: float = 5.0, varsigma: float = 0.8) -> Parameters:
    generator = torch.Generator().manual_seed(100 + seed)
    p = torch.rand(P + 1, C + 1, generator=generator, dtype=torch.float64) + 0.1
    p = p / p.sum()
    w = sphere.project(torch.randn(P, N, generator=generator, dtype=torch.float64))
    return Parameters(
        w, p, torch.tensor(beta, dtype=torch.float64), varsigma, p.sum(1), p.sum(0)
    ).check()


def converge_memories(params: Parameters, batch: Batch) -> Parameters:
    """A fixed point of w ← w_bar/‖w_bar‖ with class weights and β held."""
    for _ in range(20000):
        w = sphere.project(accumulate(params, batch, objectives.joint).w_bar)
        moved = (w - params.w).abs().max()
        params = params.replace(w=w)
        if moved < 1e-15:
            break
    assert moved < 1e-13
    return params


def tangent_basis(w: Tensor) -> Tensor:
    """Orthonormal columns (N, N−1) orthogonal to w (N,)."""
    return torch.linalg.qr(torch.cat([w[:, None], torch.eye(N, dtype=w.dtype)], 1)).Q[:, 1:]


def dense_splitting_matrix(
    params: Parameters, memory: int, batch: Batch, rule: LabelRule
) -> Tensor:
    """Autograd Hessian of the loss of the split network in coordinates of the tangent space."""
    basis = tangent_basis(params.w[memory])
    grown = duplicate(params, torch.tensor([memory]))

    def loss(coordinates: Tensor) -> Tensor:
        u = basis @ coordinates
        first = params.w[memory] + u
        second = params.w[memory] - u
        rows = [*params.w.unbind()]
        rows[memory] = first / first.norm()
        w = torch.stack([*rows, second / second.norm()])
        losses, _ = rule(log_joint_differentiable(grown.replace(w=w), batch.x), batch.targets)
        if batch.sample_weight is None:
            return losses.mean()
        return (losses * batch.sample_weight).sum() / batch.sample_weight.sum()

    return torch.autograd.functional.hessian(loss, torch.zeros(N - 1, dtype=torch.float64))
