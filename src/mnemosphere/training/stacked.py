"""Small problems of one shape trained side by side: all together take about as long as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import pad

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.m_step import fit_class_weights_free_prior, move_memories
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import accumulate
from mnemosphere.training.joint import EXACT_STEPS, start_joint, start_memories

# Few memories, trained to distinguish classes, do not describe the rows: a density has one for so
# many of them, and at most so many.
_ROWS_OF_DENSITY, _MOST_OF_DENSITY = 5, 500
ROWS_OF_DENSITY = _ROWS_OF_DENSITY * _MOST_OF_DENSITY  # more are not needed


def stack(params: Sequence[Mixture], *rows: Sequence[Batch]) -> tuple[Any, ...]:
    """Problems along a leading axis, their parameters and any rows of theirs; one as it is.

    Smaller ones get memories without weight, and coordinates that are 0: nothing changes by them.
    """
    if len(params) == 1:
        return params[0], *(own[0] for own in rows)
    n_memories, n = (max(p.w.shape[axis] for p in params) for axis in (0, 1))
    widened = []
    for own in params:
        more, w = n_memories - own.n_memories, pad(own.w, (0, n - own.n_features))
        w = torch.cat([w, w[:1].expand(more, -1)])
        p, p_h = pad(own.p, (0, 0, 0, more)), pad(own.p_h, (0, more))
        widened.append(own.replace(w=w, p=p, p_h=p_h))
    batches = ([replace(b, x=pad(b.x, (0, n - b.x.shape[1]))) for b in own] for own in rows)
    return Mixture.stack(widened), *map(Batch.stack, batches)


def densities(several: Sequence[Batch], *, generator: torch.Generator) -> list[Mixture]:
    """A joint model of each set of rows, ς = 1: what rows look like, and whether one is known."""
    found: dict[int, Mixture] = {}
    alike: dict[tuple[object, ...], list[int]] = {}
    for k, rows in enumerate(several):
        alike.setdefault((*rows.x.shape, rows.sample_weight is None), []).append(k)
    for numbers in alike.values():
        some = [several[k] for k in numbers]
        n_memories = min(_MOST_OF_DENSITY, max(1, some[0].n_rows // _ROWS_OF_DENSITY))
        starts = []
        for rows in some:
            start = start_memories(rows, n_memories, own_labels=True, generator=generator)
            starts.append(start_joint(start, rows, varsigma=1.0))
        trained = joint(*stack(starts, some), learn_beta=True, max_iter=EXACT_STEPS)
        found.update(zip(numbers, trained.unstacked(), strict=True))
    return [found[k] for k in range(len(several))]


def joint(params: Mixture, rows: Batch, *, learn_beta: bool, max_iter: int) -> Mixture:
    """Fixed-point steps for the joint likelihood, weights of memories learned, β by a Newton step each.

    params and rows have a leading axis of problems, or are one.
    """
    for _ in range(max_iter):
        stats = accumulate(params, rows, objectives.joint)
        params = move_memories(params, stats.w_bar, stats.p_bar, learn_beta=learn_beta, exact=False)
        params = fit_class_weights_free_prior(params, stats.p_bar)
    return params
