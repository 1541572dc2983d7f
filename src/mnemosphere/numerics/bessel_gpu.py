"""The functions of `bessel` where β is on a GPU: one kernel instead of some twenty."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

_BLOCK = 16


def evaluate(
    beta: Tensor, ratio: Tensor, resultant: Tensor, start: int, n: int
) -> tuple[Tensor, Tensor]:
    """(log[Ω_N(β)/Ω_N(0)], A_N(β)) in the dtype of β; see `bessel` for the polynomials."""
    found = torch.empty_like(beta), torch.empty_like(beta)
    _kernel()[(math.ceil(beta.numel() / _BLOCK),)](
        beta.contiguous(), ratio, resultant, *found, beta.numel(), len(ratio), len(resultant),
        start, n, BLOCK=_BLOCK, num_warps=1,
    )  # fmt: skip
    return found


@functools.cache
def usable() -> bool:
    """Whether the kernel can be built and run; tried once."""
    try:
        one = torch.ones(1, dtype=torch.float64, device="cuda")
        return all(bool(torch.isfinite(v).all()) for v in evaluate(one, one, one, 50, 3))
    except Exception:  # no Triton, no compiler, a GPU too old: plain operations do it
        return False


@functools.cache
def _kernel() -> Any:
    from mnemosphere.numerics.bessel_kernel import kernel

    return kernel
