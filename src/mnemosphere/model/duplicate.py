"""Duplication of memories: the network grows and stays the same function (Eq. (fixed_point))."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import sphere


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
) -> Mixture:
    """Duplicate the memories in `which` and move the pair to w ± δu on the sphere.

    direction (P, N): u, a tangent vector for every memory of `params` (App. splitting).
    """
    grown = duplicate(params, which)
    move = torch.zeros_like(grown.w)
    move[which] = delta * direction[which]
    move[params.n_memories :] = -delta * direction[which]
    return grown.replace(w=sphere.retract(grown.w, move))
