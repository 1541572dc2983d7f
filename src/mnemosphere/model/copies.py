"""Copies of memories: duplicates, of which growth is made, and memories that repeat another."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import sphere

_BLOCK = 256  # memories compared with all at once
# Memories that a reader cannot distinguish: an overlap of 0.999, soft labels alike to a hundredth.
_ALIKE, _SAME_LABELS = math.sqrt(2 * (1 - 0.999)), 0.01
_CDIST_ERROR = 2e-3  # of distances near 0 in single precision
_ROUNDING = 64  # units of rounding by which copies of one memory may differ


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


def split(params: Mixture, which: Tensor, direction: Tensor, delta: float) -> Mixture:
    """Duplicate the memories in `which` and move the pair to w ± δu on the sphere.

    direction (P, N): u, a tangent vector for every memory of `params` (App. splitting).
    """
    grown = duplicate(params, which)
    move = torch.zeros_like(grown.w)
    move[which] = delta * direction[which]
    move[params.n_memories :] = -delta * direction[which]
    return grown.replace(w=sphere.retract(grown.w, move))


def alike(params: Mixture, distance: float = _ALIKE, labels: float = _SAME_LABELS) -> Tensor:
    """(P,) int64: the memory that stands for each, itself unless it repeats a heavier one.

    A memory repeats another within this distance whose soft labels differ by `labels` at most. The
    heaviest comes first and takes all that repeat it.
    """
    w, soft = params.w, params.labels[1:]
    found = torch.full((len(w),), -1, device=w.device)
    order = params.weights[1:].argsort(descending=True, stable=True)
    for block in torch.split(order, _BLOCK):
        near = torch.cdist(w[block], w) <= distance + _CDIST_ERROR  # (M, P)
        alone = near.sum(1) <= 1
        found[block[alone]] = block[alone]
        for memory, candidates in zip(block[~alone].tolist(), near[~alone], strict=True):
            if found[memory] < 0:
                others = (candidates & (found < 0)).nonzero()[:, 0]
                same = (w[others] - w[memory]).norm(dim=1) <= distance
                same &= (soft[others] - soft[memory]).abs().amax(1) <= labels
                found[others[same]] = memory
    return found


def merge_duplicates(params: Mixture, class_weights: Tensor) -> tuple[Mixture, Tensor]:
    """The same model without copies: memories of equal direction and soft labels become one.

    Copies share one exponent, so the sum of their weights predicts what they did. class_weights:
    the p (P+1, C+1) that classes are read from; its soft labels are compared and it is merged
    with the rest.
    """
    tiny = _ROUNDING * torch.finfo(params.w.dtype).eps
    source = alike(params.replace(p=class_weights.to(params.p)), tiny, tiny)
    kept, place = torch.unique(source, return_inverse=True)
    if len(kept) == params.n_memories:
        return params, class_weights
    rows = torch.cat([place.new_zeros(1), place + 1])  # the uniform component stays the first

    def added(t: Tensor) -> Tensor:
        return t.new_zeros(len(kept) + 1, *t.shape[1:]).index_add_(0, rows, t)

    p, p_h = added(params.p), added(params.p_h)
    return params.replace(w=params.w[kept], p=p, p_h=p_h), added(class_weights)
