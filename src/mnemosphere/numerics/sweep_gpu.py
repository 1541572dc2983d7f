"""Sweeps of Sinkhorn–Knopp as one GPU kernel, where Triton is there to build it.

As separate kernels ten sweeps are forty launches in a row, the longest path through a step of SGD.
The whole matrix fits into the registers of one block of threads.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

_MAX_ENTRIES = 1 << 16


def sweep(log_k: Tensor, rows: Tensor, cols: Tensor, sweeps: int) -> Tensor | None:
    """As `polytope.sweep`, for one matrix (R, C) on a GPU; None where that cannot be done here."""
    n_rows, n_cols = log_k.shape
    block = _power_of_two(n_rows), _power_of_two(n_cols)
    if block[0] * block[1] > _MAX_ENTRIES or not _works():
        return None
    return _launch(log_k, rows, cols, sweeps, block)


def _power_of_two(n: int) -> int:
    return int(1 << (n - 1).bit_length())


def _launch(
    log_k: Tensor, rows: Tensor, cols: Tensor, sweeps: int, block: tuple[int, int]
) -> Tensor:
    out = torch.empty_like(log_k, memory_format=torch.contiguous_format)
    _kernel()[(1,)](
        log_k.contiguous(), rows.contiguous(), cols.contiguous(), out, *log_k.shape, sweeps,
        BLOCK_R=block[0], BLOCK_C=block[1], TINY=torch.finfo(log_k.dtype).tiny,
        num_warps=min(32, max(4, block[0] * block[1] // 1024)),
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
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def kernel(  # type: ignore[no-untyped-def]
        log_k, rows, cols, out, n_rows, n_cols, sweeps,
        BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, TINY: tl.constexpr,
    ):  # fmt: skip
        i = tl.arange(0, BLOCK_R)
        j = tl.arange(0, BLOCK_C)
        place = i[:, None] * n_cols + j[None, :]
        inside = (i[:, None] < n_rows) & (j[None, :] < n_cols)
        x = tl.load(log_k + place, mask=inside, other=-float("inf"))
        r = tl.load(rows + i, mask=i < n_rows, other=0.0)
        c = tl.load(cols + j, mask=j < n_cols, other=0.0)
        # Outside, rows and columns divide by 1 instead of 0.
        no_row = tl.where(i < n_rows, 0.0, 1.0).to(x.dtype)
        no_col = tl.where(j < n_cols, 0.0, 1.0).to(x.dtype)
        top = tl.where(i < n_rows, tl.max(x, 1), 0.0)
        e = tl.exp(x - top[:, None])
        k = e * (r / (tl.sum(e, 1) + no_row))[:, None]
        k = tl.where(inside, k + TINY, 0.0)
        a = tl.where(i < n_rows, 1.0, 0.0).to(x.dtype)
        b = c / (tl.sum(k, 0) + no_col)
        for _ in range(sweeps - 1):
            a = r / (tl.sum(k * b[None, :], 1) + no_row)
            b = c / (tl.sum(k * a[:, None], 0) + no_col)
        tl.store(out + place, k * a[:, None] * b[None, :], mask=inside)

    return kernel
