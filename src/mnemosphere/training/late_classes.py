"""Streams whose classes appear late: memories for those that have too few."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.solver import SolverState

_SERVED = 0.8  # a class with fewer of the memories it is due gets more
_NEW_MASS = 0.3  # of what a memory answers for, at first


def give_memories(
    params: Parameters, state: SolverState, batch: Batch, due: Tensor, late: list[int]
) -> tuple[Parameters, SolverState]:
    """Put memories on rows of the classes `late` that have fewer than they are due, (C+1,).

    They are taken from classes with more than is due to them: those memories go that have the
    nearest neighbor of their own class, which takes over what they knew.
    """
    label, own = batch.targets.argmax(1), params.p[1:].argmax(1)
    have = torch.bincount(own, minlength=len(due)).to(due)
    coming = torch.bincount(label, minlength=len(due)).to(due)
    lack = torch.zeros_like(due)
    # A class that has none gets one, however little is due to it.
    least = (have == 0).to(due)
    few = torch.maximum((due - have).floor(), least)
    lack[late] = torch.where(have < _SERVED * due, few, 0.0)[late]
    lack = torch.minimum(lack, coming)
    taken, heirs = _redundant(params.w, own, have - due, int(lack.sum()))
    worst = log_joint(params, batch.x).gather(1, label[:, None])[:, 0].argsort()
    # The worst rows of each class first, as many as the class lacks.
    one_hot = torch.nn.functional.one_hot(label[worst], len(due))
    rank = (one_hot.cumsum(0) * one_hot).sum(1)
    rows = worst[rank <= lack[label[worst]]][: len(taken)]
    taken, heirs = taken[: len(rows)], heirs[: len(rows)]
    if len(rows) == 0:
        return params, state
    x, q = fill_neutrally(batch.x[rows]), batch.targets[rows]
    w_bar, p_bar, w, p = (t.clone() for t in (state["w_bar"], state["p_bar"], params.w, params.p))
    w_bar.index_add_(0, heirs, w_bar[taken])
    p_bar.index_add_(0, heirs + 1, p_bar[taken + 1])
    mass = _NEW_MASS * float(state["p_bar"].sum()) / params.n_memories
    w_bar[taken], p_bar[taken + 1], w[taken] = mass * x, mass * q, x
    p[taken + 1] = params.p_h[taken + 1, None] * q / q.sum(1, keepdim=True)
    return params.replace(w=w, p=p, p_q=p.sum(0)), {**state, "w_bar": w_bar, "p_bar": p_bar}


def _redundant(w: Tensor, own: Tensor, spare: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """(memories that can go, who takes over): at most n, and as many of a class as it can spare."""
    overlap = w @ w.T
    overlap.fill_diagonal_(-2.0)
    overlap = torch.where(own[:, None] == own, overlap, -2.0)
    nearest, heir = overlap.max(1)
    left: list[float] = spare.tolist()
    fixed, found = set[int](), list[tuple[int, int]]()
    for memory in nearest.argsort(descending=True).tolist():
        k = int(own[memory])
        if len(found) == n or nearest[memory] < -1.5:
            break
        if left[k] >= 1 and memory not in fixed and int(heir[memory]) not in fixed:
            left[k] -= 1
            fixed |= {memory, int(heir[memory])}
            found.append((memory, int(heir[memory])))
    pairs = torch.tensor(found, dtype=torch.long, device=w.device).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
