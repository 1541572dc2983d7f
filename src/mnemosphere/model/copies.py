"""Copies of memories: duplicates, of which growth is made, and memories that repeat another."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import sphere

_BLOCK, _PAIRS = 1024, 1 << 24  # memories compared with all at once, and most pairs of that
_WIDE = 1 << 14
# Memories that a reader cannot distinguish: an overlap of 0.999, soft labels alike to a hundredth.
_ALIKE, _SAME_LABELS = math.sqrt(2 * (1 - 0.999)), 0.01
_DIRECTIONS = 16  # in which most pairs turn out to be far apart
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


def alike(params: Mixture, distance: float = _ALIKE, labels: float = _SAME_LABELS) -> Tensor:
    """(P,) int64: the memory that stands for each, itself unless it repeats a heavier one.

    A memory repeats another within this distance whose soft labels differ by `labels` at most. The
    heaviest comes first and takes all that repeat it.
    """
    w, p = params.w, params.p[1:]
    soft = p / p.sum(1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
    found = torch.full((len(w),), -1, device=w.device)
    # Memories that are near are near in a few directions too, where most pairs are ruled out.
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(w.shape[1], min(_DIRECTIONS, w.shape[1]), generator=generator)
    seen = w @ torch.linalg.qr(few)[0].to(w)
    left = p.sum(1).argsort(descending=True, stable=True)
    while len(left):
        block = left[: max(1, min(_BLOCK, _PAIRS // len(left)))]
        near = torch.cdist(seen[block], seen[left]) <= distance + _CDIST_ERROR  # (M, L)
        alone = near.sum(1) <= 1
        found[block[alone]] = block[alone]
        for memory, candidates in zip(block[~alone].tolist(), near[~alone], strict=True):
            if found[memory] < 0:
                others = left[candidates & (found[left] < 0)]
                same = (w[others] - w[memory]).norm(dim=1) <= distance
                same &= (soft[others] - soft[memory]).abs().amax(1) <= labels
                found[others[same]] = memory
                found[memory] = memory
        left = left[found[left] < 0]
    return found


def merge_duplicates(params: Mixture, class_weights: Tensor) -> tuple[Mixture, Tensor]:
    """The same model without copies: memories of equal direction and soft labels become one.

    Copies share one exponent, so the sum of their weights predicts what they did. class_weights:
    the p (P+1, C+1) that classes are read from; its soft labels are compared and it is merged
    with the rest. So many memories that looking for copies takes minutes are left as they are.
    """
    if params.n_memories > _WIDE:
        return params, class_weights
    tiny = _ROUNDING * torch.finfo(params.w.dtype).eps
    source = alike(params.replace(p=class_weights.to(params.p)), tiny, tiny)
    kept = (source == torch.arange(len(source), device=source.device)).nonzero()[:, 0]
    place = torch.searchsorted(kept, source)
    if len(kept) == params.n_memories:
        return params, class_weights
    p, p_h, net = (_added(t, place, len(kept)) for t in (params.p, params.p_h, class_weights))
    return params.replace(w=params.w[kept], p=p, p_h=p_h), net


def _added(t: Tensor, source: Tensor, n_memories: int) -> Tensor:
    rows = torch.cat([source.new_zeros(1), source + 1])  # the uniform component stays the first
    return t.new_zeros(n_memories + 1, *t.shape[1:]).index_add_(0, rows, t)
