"""Three memories and forty-one rows: small enough for dense Hessians."""

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.copies import duplicate
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import accumulate
from mnemosphere.numerics import sphere
from problems import RULES

B, N, P, C = 41, 7, 3, 2

# Those that describe the rows, too.
PROPER = [rule for name, rule in RULES.items() if name != "conditional"]


def make_data(seed: int, weight: Tensor | None = None) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(5, N, generator=generator, dtype=torch.float64)
    which = torch.randint(5, (B,), generator=generator)
    noise = torch.randn(B, N, generator=generator, dtype=torch.float64)
    q = objectives.soft_labels(which % C, C, 0.1, dtype=torch.float64)
    return Batch(sphere.project(centers[which] + 0.6 * noise), q, weight)


def make_params(seed: int, *, beta: float = 5.0, varsigma: float = 0.8) -> Mixture:
    generator = torch.Generator().manual_seed(100 + seed)
    p = torch.rand(P + 1, C + 1, generator=generator, dtype=torch.float64) + 0.1
    p = p / p.sum()
    w = sphere.project(torch.randn(P, N, generator=generator, dtype=torch.float64))
    return Mixture(
        w, p, torch.tensor(beta, dtype=torch.float64), varsigma, p.sum(1), p.sum(0)
    ).check()


def converge_memories(params: Mixture, batch: Batch) -> Mixture:
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
    """Orthonormal columns (n, n−1) orthogonal to w (n,)."""
    return torch.linalg.qr(torch.cat([w[:, None], torch.eye(len(w), dtype=w.dtype)], 1)).Q[:, 1:]


def mean_loss(params: Mixture, batch: Batch, rule: LabelRule) -> Tensor:
    """By sample weight; autograd goes through."""
    h = torch.nn.functional.pad(params.slope * batch.x @ params.w.T - params.offset, (1, 0))
    top = h.detach().amax(1, keepdim=True)
    log_joint = ((h - top).exp() @ params.p).log() + top
    losses, _ = rule(log_joint.mT, batch.targets.mT)
    weight = torch.ones_like(losses) if batch.sample_weight is None else batch.sample_weight
    return (weight * losses).sum() / weight.sum()


def dense_class_split(
    params: Mixture, memory: int, batch: Batch, rule: LabelRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Hessian of the loss over (u, a), copies at w ± u with class weights p/2 ± p_h√g∘a/2.

    Also the bases of u and of a, columns across w and across √g.
    """
    root = (params.p[memory + 1] / params.p_h[memory + 1]).sqrt()
    t, s = tangent_basis(params.w[memory]), tangent_basis(root)
    grown = duplicate(params, torch.tensor([memory]))

    def loss(z: Tensor) -> Tensor:
        u = t @ z[: t.shape[1]]
        v = params.p_h[memory + 1] / 2 * root * (s @ z[t.shape[1] :])
        w, p = [*grown.w], [*grown.p]
        for k, sign in ((memory, 1), (params.n_memories, -1)):
            w[k] = w[k] + sign * u
            w[k] = w[k] / w[k].norm()
            p[k + 1] = p[k + 1] + sign * v
        moved = grown.replace(w=torch.stack(w), p=torch.stack(p))
        return mean_loss(moved, batch, rule)

    start = torch.zeros(t.shape[1] + s.shape[1], dtype=torch.float64)
    return torch.autograd.functional.hessian(loss, start), t, s


def dense_splitting_matrix(params: Mixture, memory: int, batch: Batch, rule: LabelRule) -> Tensor:
    """The same with class weights shared evenly: in coordinates of the tangent space."""
    hessian, t, _ = dense_class_split(params, memory, batch, rule)
    return hessian[: t.shape[1], : t.shape[1]]
