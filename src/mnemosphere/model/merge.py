"""The reverse of growth: merge memories, those that repeat another or those that cost least."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.votes import Mixture
from mnemosphere.numerics import sphere

# Partners of a memory whose labels are looked at: its nearest by direction.
_CANDIDATES = 16
# Of the memories, merged in one round: estimates of one round know nothing of its other merges.
_ROUND = 0.125
_BLOCK, _PAIRS = 1024, 1 << 24  # memories compared with all at once, and most pairs of that
_WIDE = 1 << 14
# Memories that a reader cannot distinguish: an overlap of 0.999, soft labels alike to a hundredth.
_ALIKE, _SAME_LABELS = math.sqrt(2 * (1 - 0.999)), 0.01
_DIRECTIONS = 16  # in which most pairs turn out to be far apart
_CDIST_ERROR = 2e-3  # of distances near 0 in single precision
_ROUNDING = 64  # units of rounding by which copies of one memory may differ


def merge(
    params: Parameters, batch: Batch, n_memories: int, rule: LabelRule = objectives.joint
) -> tuple[Parameters, Tensor]:
    """(parameters, the memory that each old one went into): pairs merged until n_memories are left.

    A pair becomes one memory in the direction of o_a w^a + o_b w^b (o: `Statistics.overlap`) that
    keeps the sum of their p and of their p_h. With responsibilities held, that costs

        β_eff (o_a + o_b − ‖o_a w^a + o_b w^b‖) + Σ_γ Σ_y p_bar[γ,y] log(g_γ,y / g'_y)

    over γ = a, b, where g = p/p_h is a class profile and g' that of the pair: zero for two copies
    of one memory. The cheapest pairs are taken in rounds of an eighth of the memories at most, each
    with fresh statistics from one pass.
    """
    if not 1 <= n_memories <= params.n_memories:
        raise ValueError(
            f"n_memories must lie in [1, {params.n_memories}] to shrink to it, got {n_memories}"
        )
    # The estimate needs non-negative responsibilities.
    counting = rule if rule.supports_fixed_point else objectives.joint
    source = torch.arange(params.n_memories, device=params.w.device)
    while params.n_memories > n_memories:
        stats = accumulate(params, batch, counting)
        # A memory that nothing pulls goes anywhere for free.
        pull = stats.overlap.clamp_min(0)
        limit = min(params.n_memories - n_memories, max(1, int(_ROUND * params.n_memories)))
        first, second = _pairs(params, pull, stats.p_bar[1:], limit)
        params, where = _join(params, pull, first, second)
        source = where[source]
    return params, source


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


def merge_duplicates(params: Parameters, class_weights: Tensor) -> tuple[Parameters, Tensor]:
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
    return gather(params, params.w[kept], place), _added(class_weights, place, len(kept))


def gather(params: Parameters, w: Tensor, source: Tensor) -> Parameters:
    """Parameters with memories w, each with the weights of all memories that went into it."""
    p, p_h = (_added(t, source, len(w)) for t in (params.p, params.p_h))
    return params.replace(w=w.to(params.w), p=p, p_h=p_h)


def _added(t: Tensor, source: Tensor, n_memories: int) -> Tensor:
    rows = torch.cat([source.new_zeros(1), source + 1])  # the uniform component stays the first
    return t.new_zeros(n_memories + 1, *t.shape[1:]).index_add_(0, rows, t)


def _pairs(params: Parameters, pull: Tensor, p_bar: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """The cheapest disjoint pairs, at most `limit` and at least one; indices a < b."""
    n = params.n_memories
    v = pull[:, None] * params.w  # (P, N)
    tiny = torch.finfo(v.dtype).tiny
    p, p_h = params.p[1:], params.p_h[1:]
    profile = (p / p_h.clamp_min(tiny)[:, None]).clamp_min(tiny)
    n_near = min(_CANDIDATES, n - 1)
    costs, partners = [], []
    for start in range(0, n, _BLOCK):
        mine = torch.arange(start, min(start + _BLOCK, n), device=v.device)
        cosine = params.w[mine] @ params.w.T  # (M, P)
        # ‖v_a‖ + ‖v_b‖ − ‖v_a + v_b‖ without the cancellation, from 1 − cos of the angle.
        a, b = pull[mine, None], pull[None, :]
        total = (a + b).clamp_min(tiny)
        joined = (total**2 - 2 * a * b * (1 - cosine).clamp_min(0)).clamp_min(0).sqrt()
        cost = params.beta_eff * 2 * a * b * (1 - cosine).clamp_min(0) / (total + joined)
        cost[torch.arange(mine.shape[0]), mine] = torch.inf
        near = cost.topk(n_near, dim=1, largest=False)
        other = near.indices  # (M, K)
        both = (p[mine, None] + p[other]) / (p_h[mine, None] + p_h[other]).clamp_min(tiny)[
            ..., None
        ]
        log_both = both.clamp_min(tiny).log()  # (M, K, C+1)
        labels = (p_bar[mine, None] * (profile[mine, None].log() - log_both)).sum(-1)
        labels = labels + (p_bar[other] * (profile[other].log() - log_both)).sum(-1)
        costs.append(near.values + labels)
        partners.append(other)
    partner = torch.cat(partners).flatten().tolist()
    taken = [False] * n
    chosen: list[tuple[int, int]] = []
    for k in torch.cat(costs).flatten().argsort(stable=True).tolist():
        one, two = k // n_near, partner[k]
        if not (taken[one] or taken[two]):
            taken[one] = taken[two] = True
            chosen.append((min(one, two), max(one, two)))
            if len(chosen) == limit:
                break
    pairs = torch.tensor(chosen, device=v.device)
    return pairs[:, 0], pairs[:, 1]


def _join(
    params: Parameters, pull: Tensor, first: Tensor, second: Tensor
) -> tuple[Parameters, Tensor]:
    """Merge memory second[k] into first[k]; the parameters and the new index of each memory."""
    keep = torch.ones(params.n_memories, dtype=torch.bool, device=params.w.device)
    keep[second] = False
    where = keep.cumsum(0) - 1
    where[second] = where[first]
    # A pair that nothing pulls, or that pulls opposite ways, stays where its first one is.
    pair = pull[first, None] * params.w[first] + pull[second, None] * params.w[second]
    norm = pair.norm(dim=1, keepdim=True)
    w = params.w.clone()
    w[first] = sphere.project(torch.where(norm > 0, pair, params.w[first]))
    return gather(params, w[keep], where), where
