"""Exponentials of a row, relative to its largest: how small they may get."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnemosphere.base.machine import POWERS_OF_2_ARE_FAST, SUBNORMALS_ARE_SLOW
from mnemosphere.gpu import on_gpu

__all__ = ["exponentials", "least_density"]

_HEADROOM = 1e8  # label weights over densities, summed over so many rows, stay finite
_LOG2_E = 1 / math.log(2)
_BELOW = 6.0  # in the exponent: what lies so far below the least density is nothing


def least_density(dtype: torch.dtype) -> float:
    """What a density counts as at least, relative to that of the densest component."""
    return _HEADROOM * torch.finfo(dtype).tiny


def exponentials(h: Tensor, top: Tensor, reach: Tensor | None = None) -> Tensor:
    """exp(h − top), in place of h (..., B, P); top (..., B): at least the largest of each row.

    Where subnormal numbers would slow down all that follows, what lies far below the least density
    is 0. reach: by how much two exponents of a row can differ, where that is known.
    """
    h.sub_(top[..., None])  # first: large ones that differ little keep their digits
    if POWERS_OF_2_ARE_FAST and not on_gpu(h):
        return h.mul_(_LOG2_E).exp2_()
    low = math.log(least_density(h.dtype)) - _BELOW
    slow = SUBNORMALS_ARE_SLOW and not on_gpu(h)
    if not slow or (reach is not None and float(reach.max()) < -low):
        return h.exp_()
    e = h.clamp_min_(low).exp_()
    return torch.threshold_(e, 1.01 * math.exp(low), 0.0)
