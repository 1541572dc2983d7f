"""Small problems of one shape trained side by side: all together take about as long as one."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.adam import Adam
from mnemosphere.training.noise import SphereNoise

__all__ = ["conditional", "joint"]


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
    """The schedule of `solver`, by the conditional likelihood, on all problems at once.

    noisy: how many of the problems, the first ones, have noise on their rows.
    """
    n_rows, state = rows.x.shape[-2], solver.start(params)
    laid = SphereNoise(noise) if noise > 0 and noisy > 0 else None
    single = params.w.ndim == 2
    for _ in range(math.ceil(solver.steps / math.ceil(n_rows / solver.batch_size))):
        order = torch.randperm(n_rows, generator=generator).to(rows.x.device)
        for cut in range(0, n_rows, solver.batch_size):
            batch = rows
            if solver.batch_size < n_rows:
                some = order[cut : cut + solver.batch_size]
                batch = rows.take(some if single else (slice(None), some))
            if laid is not None:
                batch = replace(batch, x=_with_noise(batch.x, laid, noisy, generator))
            stats = accumulate(params, batch, objectives.conditional)
            params, state = solver.step(params, state, stats, batch, 1.0)
    return params


def _with_noise(x: Tensor, laid: SphereNoise, noisy: int, generator: torch.Generator) -> Tensor:
    if x.ndim == 2:
        return laid(x, generator)
    own = laid(x[:noisy].flatten(0, -2), generator).view_as(x[:noisy])
    return own if noisy == len(x) else torch.cat([own, x[noisy:]])
