"""Small problems of one shape trained side by side: all together take about as long as one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import SparseRows, take_rows
from mnemosphere.training.adam import Adam
from mnemosphere.training.noise import SphereNoise

__all__ = ["conditional", "joint"]

_TINY = 1e-30  # of squares in single precision


def joint(
    params: Parameters, rows: Batch, *, learn_beta: bool, max_iter: int, tol: float = 0.0
) -> Parameters:
    """Exact fixed-point steps for the joint likelihood, weights of memories learned.

    params and rows have a leading axis of problems, or are one. Stops when a step changes the loss
    of every problem by less than `tol` relative.
    """
    before: Tensor | None = None
    for _ in range(max_iter):
        stats = accumulate(params, rows, objectives.joint)
        params = maximize_bound(
            params, stats.w_bar, stats.p_bar, learn_beta=learn_beta, hold_weights=False
        )
        now = stats.mean_loss
        # Asking a GPU would wait for it.
        if tol > 0 and before is not None and bool(((before - now).abs() < tol * now.abs()).all()):
            break
        before = now
    return params


def conditional(
    params: Parameters,
    rows: Batch,
    solver: Adam,
    noise: float,
    *,
    noisy: int,
    generator: torch.Generator,
) -> Parameters:
    """The steps of `solver`, by the conditional likelihood, on all problems at once.

    What `fit` does with the kernel, for rows with a label each and memories of one class each, in few
    operations: on small problems their number is what costs. noisy: how many of the problems, the first ones,
    have noise on their rows.
    """
    rows = rows.filled()
    x, q, weight = rows.x, rows.targets[..., :-1], rows.sample_weight
    w, p, beta = params.w, params.p[..., 1:, :-1], params.beta
    if x.ndim == 2:
        q, w, p, beta = q[None], w[None], p[None], beta[None]
        x = x if isinstance(x, SparseRows) else x[None]
        weight = None if weight is None else weight[None]
    n_rows, size = x.shape[-2], solver.batch_size
    log_weight, log_beta = p.sum(-1).log(), beta.log()
    label = p / p.sum(-1, keepdim=True)  # (K, P, C)
    label_t = label.mT.contiguous()
    laid = SphereNoise(noise) if noise > 0 and noisy > 0 else None
    a, b = solver.decay
    means = [torch.zeros_like(part) for part in (w, log_weight, log_beta)]
    squares = [torch.zeros_like(part) for part in (log_weight, log_weight, log_beta)]
    rates = solver.angle, solver.learning_rate, solver.learning_rate * solver.learn_beta
    each = math.ceil(n_rows / size)
    for step in range(solver.steps):
        if step % each == 0:
            order = torch.randperm(n_rows, generator=generator).to(x.device)
        some = order[step % each * size : (step % each + 1) * size]
        batch, goal = (x, q) if each == 1 else (_take(x, some), q[:, some])
        if laid is not None:
            batch = _with_noise(batch, laid, noisy, generator)
        scaled = (w * log_beta.exp()[:, None, None]).mT.contiguous()  # else slow
        if isinstance(batch, SparseRows):
            share = (log_weight[:, None] + batch.times(scaled[0])).softmax(-1)
        else:
            share = torch.baddbmm(log_weight[:, None], batch, scaled).softmax(-1)  # (K, B, P)
        total = (share @ label).clamp_min_(1e-20)
        pull = share.addcmul_(share, (goal / total) @ label_t, value=-1.0)  # −∂ log P(y|x)/∂h
        if weight is not None:
            pull = pull * (weight if each == 1 else weight[:, some])[..., None]
        if isinstance(batch, SparseRows):
            across = batch.transposed_times(pull[0]).T.contiguous()[None]
        else:
            across = pull.mT @ batch
        along = torch.linalg.vecdot(across, w)
        across = torch.addcmul(across, along[..., None], w, value=-1.0)
        means[0] = torch.addcmul(means[0], torch.linalg.vecdot(means[0], w)[..., None], w, value=-1)
        gradients = across, pull.sum(1), along.sum(-1)
        lengths = torch.linalg.vecdot(across, across), gradients[1].square(), gradients[2].square()
        scale = solver.scale(step)
        moves = []
        for k in range(3):
            means[k] = torch.lerp(gradients[k], means[k], a)
            squares[k] = torch.lerp(lengths[k], squares[k], b)
            moves.append((-rates[k] * scale) * squares[k].clamp_min(_TINY).rsqrt())
        w = torch.addcmul(w, means[0], moves[0][..., None])
        w = w / torch.linalg.vector_norm(w, dim=-1, keepdim=True)
        log_weight = torch.addcmul(log_weight, means[1], moves[1])
        log_beta = torch.addcmul(log_beta, means[2], moves[2])
    found = torch.nn.functional.pad(log_weight.softmax(-1)[..., None] * label, (0, 1, 1, 0))
    found = found.reshape(params.p.shape)
    return params.replace(
        w=w.reshape(params.w.shape), p=found, p_h=found.sum(-1), p_q=found.sum(-2),
        beta=log_beta.exp().reshape(params.beta.shape),
    )  # fmt: skip


def _take(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows of each problem; sparse ones are of one problem."""
    return take_rows(x, rows) if isinstance(x, SparseRows) else x[:, rows]


def _with_noise(x: Tensor, laid: SphereNoise, noisy: int, generator: torch.Generator) -> Tensor:
    x = x.to_dense()[None] if isinstance(x, SparseRows) else x
    own = laid(x[:noisy].flatten(0, -2), generator).view_as(x[:noisy])
    return own if noisy == len(x) else torch.cat([own, x[noisy:]])
