"""Noise on the rows of a batch, which stays on the sphere: the regularizer of Adam."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu
from mnemosphere.model.gaps import split

_TABLE = 1 << 18  # places in a table of normal numbers


def noisy(x: Tensor, length: float, generator: torch.Generator) -> Tensor:
    """Turn each unit row by one angle into a direction drawn uniformly: x → (x + σu)/√(1+σ²), σ the length.

    u is uniform among the unit vectors orthogonal to x, so every draw has the overlap 1/√(1+σ²) with its row.
    Given its angle, a point of the von Mises–Fisher law around x looks just like that, and in many dimensions its
    angle hardly varies: the noise is that law at the concentration κ with A_N(κ) = 1/√(1+σ²). Gaps stay.
    x (..., N); generator: one of the device of x.
    """
    if x.ndim > 2:
        return noisy(x.flatten(0, 1), length, generator).view_as(x)
    overlap, g = 1 / math.hypot(1.0, length), _normal(x, generator)
    # A GPU is not asked whether there are gaps: that would wait for it.
    known, gaps = (x.nan_to_num(0.0), x) if on_gpu(x) else split(x)
    u = torch.addcmul(g, torch.linalg.vecdot(g, known)[:, None], known, value=-1)
    norm = torch.linalg.vector_norm(u, dim=1, keepdim=True)
    across = length * overlap / norm.clamp_min(torch.finfo(x.dtype).tiny)
    turned = u.mul_(across).add_(known, alpha=overlap)
    return turned if gaps is None else torch.where(x.isnan(), x, turned)


def _normal(x: Tensor, generator: torch.Generator) -> Tensor:
    """Normal numbers like x (n, N); on a processor windows at random places of one table of them.

    To draw them anew would take longer there than the pass that they are for.
    """
    n, features = x.shape
    if on_gpu(x):
        return torch.randn(n, features, generator=generator, dtype=x.dtype, device=x.device)
    places = torch.randint(_TABLE, (n,), generator=generator)
    return _table(features, x.dtype).unfold(0, features, 1).index_select(0, places)


@lru_cache(maxsize=4)
def _table(features: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(_TABLE + features, generator=torch.Generator().manual_seed(0), dtype=dtype)
