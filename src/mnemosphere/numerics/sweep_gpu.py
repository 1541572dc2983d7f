"""Sweeps of Sinkhorn–Knopp as one GPU kernel, where Triton is there to build it.

As separate kernels ten sweeps are forty launches in a row, the longest path through a step of SGD.
The whole matrix fits into the registers of one block of threads.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import torch
from torch import Tensor

from mnemosphere.numerics.blocks import power_of_two

_MAX_ENTRIES = 1 << 16


def sweep(log_k: Tensor, rows: Tensor, cols: Tensor, sweeps: int) -> Tensor | None:
    """As `polytope.sweep`, for one matrix (R, C) on a GPU; None where that cannot be done here."""
    n_rows, n_cols = log_k.shape
    if not usable(n_rows, n_cols):
        return None
    return _launch(log_k, rows, cols, sweeps, blocks(n_rows, n_cols))


def usable(n_rows: int, n_cols: int) -> bool:
    """Whether a matrix of this size fits a block of threads, and kernels can be built."""
    return math.prod(blocks(n_rows, n_cols)) <= _MAX_ENTRIES and _works()


def blocks(n_rows: int, n_cols: int) -> tuple[int, int]:
    """The sizes of the block that holds such a matrix."""
    return power_of_two(n_rows), power_of_two(n_cols)


def warps(block: tuple[int, int]) -> int:
    """How many take part in its sweeps."""
    return min(32, max(4, math.prod(block) // 1024))


def _launch(
    log_k: Tensor, rows: Tensor, cols: Tensor, sweeps: int, block: tuple[int, int]
) -> Tensor:
    out = torch.empty_like(log_k, memory_format=torch.contiguous_format)
    _kernel()[(1,)](
        log_k.contiguous(), rows.contiguous(), cols.contiguous(), out, *log_k.shape, sweeps,
        BLOCK_R=block[0], BLOCK_C=block[1], TINY=torch.finfo(log_k.dtype).tiny,
        num_warps=warps(block),
    )  # fmt: skip
    return out


@functools.cache
def _works() -> bool:
    """Whether a kernel can be built and run; tried once, on the smallest matrix."""
    try:
        one = torch.ones(2, 2, device="cuda")
        return bool(torch.isfinite(_launch(one, one[0], one[0], 2, (2, 2))).all())
    except Exception as error:  # no Triton, no compiler, a GPU too old: anything at all
        warnings.warn(f"steps on this GPU are slower without Triton: {error}", stacklevel=2)
        return False


@functools.cache
def _kernel() -> Any:
    from mnemosphere.numerics.sweep_kernel import kernel

    return kernel
