"""The kernel of `sweep_gpu`, in a module of its own: importing it needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def scaled(x, r, c, n_rows, n_cols, sweeps, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """`polytope.sweep` of a block x that holds the whole matrix, −inf beyond it."""
    i = tl.arange(0, x.shape[0])
    j = tl.arange(0, x.shape[1])
    inside = (i[:, None] < n_rows) & (j[None, :] < n_cols)
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
    return k * a[:, None] * b[None, :]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def kernel(  # type: ignore[no-untyped-def]
    log_k, rows, cols, out, n_rows, n_cols, sweeps,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """The whole matrix in the registers of one block of threads."""
    i = tl.arange(0, BLOCK_R)
    j = tl.arange(0, BLOCK_C)
    place = i[:, None] * n_cols + j[None, :]
    inside = (i[:, None] < n_rows) & (j[None, :] < n_cols)
    x = tl.load(log_k + place, mask=inside, other=-float("inf"))
    r = tl.load(rows + i, mask=i < n_rows, other=0.0)
    c = tl.load(cols + j, mask=j < n_cols, other=0.0)
    tl.store(out + place, scaled(x, r, c, n_rows, n_cols, sweeps, TINY), mask=inside)
