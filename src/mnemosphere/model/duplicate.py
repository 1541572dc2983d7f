"""Duplication of memories: the network grows and stays the same function (Eq. (fixed_point))."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import polytope, sphere

_FARTHEST = 15.0  # half-logarithm of the odds between two copies, about


def parents(n_memories: int, which: Tensor) -> Tensor:
    """The old index of each memory after `which` were duplicated, (P+R,): copies come last."""
    return torch.cat([torch.arange(n_memories, device=which.device), which])


def duplicate(params: Mixture, which: Tensor) -> Mixture:
    """Append a copy of each memory in `which` (R,), halving p and p_h of original and copy.

    The density, the loss and the uniform component stay as they are, and the gradient of the loss
    vanishes where it did: Eq. (fixed_point). `which` holds distinct indices of memories.
    """
    source = parents(params.n_memories, which)
    share = 1 / source.bincount().to(params.p.dtype)[source]  # (P+R,)
    return params.replace(
        w=params.w[source],
        p=torch.cat([params.p[:1], params.p[1:][source] * share[:, None]]),
        p_h=torch.cat([params.p_h[:1], params.p_h[1:][source] * share]),
    )


def split(
    params: Mixture,
    which: Tensor,
    direction: Tensor,
    delta: float,
    class_direction: Tensor | None = None,
) -> Mixture:
    """Duplicate the memories in `which` and move the pair to w ± δu on the sphere.

    direction (P, N): u, a tangent vector for every memory of `params` (App. splitting).
    class_direction (P, C+1): v, if the copies are to share out the classes, p/2 ± δv to first
    order; the sums of p stay.
    """
    grown = duplicate(params, which)
    move = torch.zeros_like(grown.w)
    move[which] = delta * direction[which]
    move[params.n_memories :] = -delta * direction[which]
    grown = grown.replace(w=sphere.retract(grown.w, move))
    if class_direction is None:
        return grown
    p = grown.p.clone()
    pair = divide_classes(params.p[1 + which], delta * class_direction[which])
    p[1 + which], p[1 + params.n_memories :] = pair
    return grown.replace(p=p)


def divide_classes(p: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Class weights p (R, C+1) for two copies, p/2 ± v to first order in v, sums of both exact.

    The copies of a memory are the columns of a polytope, and (v, −v) is tangent to it.
    """
    half = (torch.stack([p, p], 2) / 2).clamp_min(torch.finfo(p.dtype).tiny)  # (R, C+1, 2)
    move = torch.stack([v, -v], 2).clamp(-_FARTHEST * half, _FARTHEST * half)
    pair = polytope.retract(half, move, half.sum(2), half.sum(1))
    pair = torch.where(p[..., None] > 0, pair, 0.0)
    return pair[..., 0], pair[..., 1]
