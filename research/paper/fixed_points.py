"""Exact fixed points of small networks, and their curvature without any iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.copies import split
from mnemosphere.model.m_step import displacement, maximize_bound
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import accumulate, memory_shares
from mnemosphere.numerics import sphere
from research.fits import mean_loss

# Of the central second difference; its error is of the order of the fourth derivative times this².
_PROBE = 1e-3


@dataclass(frozen=True)
class Relaxation:
    """Exact fixed-point steps until the parameters rest."""

    params: Mixture
    losses: list[float]  # before each step, and at the end
    residual: float  # of the last step


def descend(params: Mixture, data: Batch, *, tol: float, max_steps: int) -> Relaxation:
    """Step until no memory, class weight or β moves by more than `tol`."""
    losses: list[float] = []
    moved = np.inf
    while moved > tol and len(losses) < max_steps:
        stats = accumulate(params, data, objectives.joint)
        losses.append(float(stats.mean_loss))
        new = maximize_bound(params, stats.w_bar / stats.count, stats.p_bar / stats.count)
        moved, params = float(displacement(params, new).largest), new
    losses.append(mean_loss(params, data))
    return Relaxation(params, losses, moved)


def splitting_spectra(params: Mixture, data: Batch) -> list[Tensor]:
    """Eigenvalues of every splitting matrix S_μ on the tangent space, in increasing order.

    From dense matrices, and so an independent word on what `model.curvature` finds: N numbers per
    memory, with the one along w^μ, which is no direction, left out.
    """
    n = data.n_rows
    shares = torch.cat(
        [r.clone() for _, r in memory_shares(params, data, objectives.joint)]
    )  # (n, P)
    beta = params.slope
    found = []
    for w, r in zip(params.w, shares.T, strict=True):
        across = sphere.to_tangent(w.expand_as(data.x), data.x)  # (n, N)
        spread = (across * r[:, None]).T @ across / n  # (N, N)
        overlap = (r * (data.x @ w)).sum() / n
        values = beta * overlap - beta**2 * torch.linalg.eigvalsh(spread)
        # Along w the spread is 0: β·o, the largest of all, or one of several that are equal.
        found.append(values.flip(0)[:-1])
    return found


def finite_differences(params: Mixture, data: Batch, direction: Tensor) -> Tensor:
    """Curvature of the loss where one memory at a time is duplicated and its copies part, (P,).

    2(L(w ± tu) − L)/t²: nothing but losses.
    """
    base = mean_loss(params, data)
    found = []
    for mu in range(params.n_memories):
        which = torch.tensor([mu], device=params.w.device)
        moved = split(params, which, direction, _PROBE)
        found.append(2 * (mean_loss(moved, data) - base) / _PROBE**2)
    return torch.tensor(found, dtype=torch.float64)
