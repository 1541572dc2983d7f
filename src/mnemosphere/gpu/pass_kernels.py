"""The kernels of `fused_pass`, in a module of their own: importing it needs Triton.

Memories, their class weights and the columns of e and r come in whole blocks, so that reads are
wide and need no mask. Beyond their number, memories are copies of the last and class weights 0.

Numbers that differ from call to call are not specialized on, so that each kernel is built once.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LOG_2 = tl.constexpr(0.6931471805599453)


@triton.jit(do_not_specialize=["n_rows", "n_features"])  # type: ignore[untyped-decorator, unused-ignore]
def narrow_kernel(  # type: ignore[no-untyped-def]
    x, out, n_rows, n_features, stride, width, BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Block of a matrix in 16 bits, zero beyond its own columns."""
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    live = rows < n_rows
    values = tl.load(x + rows.to(tl.int64) * stride + n, mask=live & (n < n_features), other=0.0)
    place = out + rows.to(tl.int64) * width + n
    tl.store(place, values.to(out.dtype.element_ty), mask=live & (n < width))


@triton.jit(do_not_specialize=["n_rows", "n_cols", "rows_first"])  # type: ignore[untyped-decorator, unused-ignore]
def score_kernel(  # type: ignore[no-untyped-def]
    x, w, p, e_out, tops_out, joints_out, n_rows, n_memories, n_features, n_cols, rows_first,
    BLOCK_B: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Block of rows, block of memories: exp(l − top), top of the block, joint scaled by it."""
    program = tl.program_id(0)
    blocks, tiles = tl.cdiv(n_rows, BLOCK_B), n_memories // BLOCK_P
    # Neighbors share memories if there are more of them than rows (rows_first), else rows.
    block = tl.where(rows_first > 0, program % blocks, program // tiles)
    tile = tl.where(rows_first > 0, program // blocks, program % tiles)
    rows = block * BLOCK_B + tl.arange(0, BLOCK_B)
    live = rows < n_rows
    at = tile * BLOCK_P + tl.arange(0, BLOCK_P)
    n = tl.arange(0, BLOCK_K)
    j = tl.arange(0, BLOCK_C)
    # Rows beyond the last are read as the last, and not written.
    xs_at = x + tl.minimum(rows, n_rows - 1)[:, None].to(tl.int64) * n_features + n[None, :]
    ws_at = w + at[None, :].to(tl.int64) * n_features + n[:, None]
    h = tl.zeros((BLOCK_B, BLOCK_P), tl.float32)
    for first in range(0, n_features, BLOCK_K):
        known = n < n_features - first
        xs = tl.load(xs_at + first, mask=known[None, :], other=0.0)
        ws = tl.load(ws_at + first, mask=known[:, None], other=0.0)
        h = tl.dot(xs, ws, h)
    h *= LOG2_E
    top = tl.max(h, 1)
    e = tl.exp2(h - top[:, None]).to(x.dtype.element_ty)
    place = rows[:, None].to(tl.int64) * n_memories + at[None, :]
    tl.store(e_out + place, e, mask=live[:, None])
    weights = tl.load(p + at[:, None] * BLOCK_C + j[None, :])
    # In two parts, so that 16 bits of them are left.
    coarse = weights.to(e.dtype)
    joint = tl.dot(e, coarse)
    joint = tl.dot(e, (weights - coarse.to(tl.float32)).to(e.dtype), joint)
    place = tile * n_rows + rows
    tl.store(tops_out + place, top, mask=live)
    inside = live[:, None] & (j < n_cols)[None, :]
    tl.store(joints_out + place[:, None] * n_cols + j[None, :], joint, mask=inside)


@triton.jit(  # type: ignore[untyped-decorator, unused-ignore]
    do_not_specialize=["n_rows", "n_cols", "n_tiles", "target_stride", "ruled", "weighted"]
)
def joint_kernel(  # type: ignore[no-untyped-def]
    tops, joints, p0, log_ratio, uniform_at, top_out, e0_out, joint_out, log_joint_out,
    targets, sample_weight, s_out, losses_out, uniform_out,
    n_rows, n_cols, n_tiles, target_stride, conditional, ruled, weighted,
    FLOOR: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Block of rows: blocks of memories put together, the uniform component added.

    ruled: and `JointConditional` at once, its label weights over joint as s, its loss and what the
    uniform component has of s summed over the block.
    """
    program = tl.program_id(0)
    rows = program * BLOCK_B + tl.arange(0, BLOCK_B)
    live = rows < n_rows
    j = tl.arange(0, BLOCK_C)
    real = j < n_cols
    inside = live[:, None] & real[None, :]
    shift = tl.load(log_ratio) * LOG2_E
    uniform = tl.load(uniform_at) * LOG2_E  # −∞ if it has no weight
    top = tl.full((BLOCK_B,), 0.0, tl.float32) + uniform
    joint = tl.zeros((BLOCK_B, BLOCK_C), tl.float32)
    for first in range(0, n_tiles, BLOCK_T):
        tiles = first + tl.arange(0, BLOCK_T)
        there = (tiles < n_tiles)[:, None] & live[None, :]
        place = tiles[:, None] * n_rows + rows[None, :]
        other = tl.load(tops + place, mask=there, other=-float("inf"))
        other = tl.where(live[None, :], other, 0.0)  # rows beyond the last stay finite
        more = tl.load(joints + place[:, :, None] * n_cols + j[None, None, :],
                       mask=there[:, :, None] & real[None, None, :], other=0.0)  # fmt: skip
        higher = tl.maximum(top, tl.max(other, 0))
        parts = more * tl.exp2(other - higher[None, :])[:, :, None]
        joint = joint * tl.exp2(top - higher)[:, None] + tl.sum(parts, 0)
        top = higher
    e0 = tl.exp2(uniform - top)
    joint += e0[:, None] * tl.load(p0 + j, mask=real, other=0.0)[None, :]
    joint = tl.maximum(joint, FLOOR)
    log_joint = tl.log(joint) - ((shift - top) * LOG_2)[:, None]
    place = rows[:, None] * n_cols + j[None, :]
    tl.store(top_out + rows, top, mask=live)
    if ruled > 0:
        q = tl.load(targets + rows[:, None] * target_stride + j[None, :], mask=inside, other=0.0)
        weight = tl.load(sample_weight + rows, mask=rows < weighted * n_rows, other=1.0)
        total = tl.sum(tl.where(real[None, :], joint, 0.0), 1)
        given = tl.sum(q, 1)
        # As there: rounding is no missing mass.
        on_marginal = tl.where(1 - given > 1e-6, 1 - given, 0.0) - conditional * given
        log_marginal = tl.log(total) - (shift - top) * LOG_2
        loss = -weight * (tl.sum(q * log_joint, 1) + on_marginal * log_marginal)
        s = weight[:, None] * (q / joint + (on_marginal / total)[:, None])
        loss = tl.where(live, loss, 0.0).to(tl.float64)
        s = tl.where(inside, s, 0.0)
        tl.store(s_out + place, s, mask=inside)
        tl.store(losses_out + program, tl.sum(loss, 0))
        tl.store(uniform_out + program * n_cols + j, tl.sum(s * e0[:, None], 0), mask=real)
    else:
        tl.store(joint_out + place, joint, mask=inside)
        tl.store(log_joint_out + place, log_joint, mask=inside)
        tl.store(e0_out + rows, e0, mask=live)


@triton.jit(do_not_specialize=["n_rows", "n_cols", "each"])  # type: ignore[untyped-decorator, unused-ignore]
def backward_kernel(  # type: ignore[no-untyped-def]
    e_io, tops, p, s, top_in, parts_out, n_rows, n_memories, n_cols, each,
    BLOCK_B: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Block of memories, part of the rows: p_bar/p, and r, which takes the place of e."""
    tile, part = tl.program_id(0), tl.program_id(1)
    at = tile * BLOCK_P + tl.arange(0, BLOCK_P)
    j = tl.arange(0, BLOCK_C)
    weights = tl.trans(tl.load(p + at[:, None] * BLOCK_C + j[None, :]))
    ratio = tl.zeros((BLOCK_C, BLOCK_P), tl.float32)
    for first in range(part * each, tl.minimum((part + 1) * each, n_rows), BLOCK_B):
        rows = first + tl.arange(0, BLOCK_B)
        live = rows < n_rows
        top = tl.load(top_in + rows, mask=live, other=0.0)
        place = rows[:, None].to(tl.int64) * n_memories + at[None, :]
        share = tl.load(s + rows[:, None] * n_cols + j[None, :],
                        mask=live[:, None] & (j < n_cols)[None, :], other=0.0)  # fmt: skip
        e = tl.load(e_io + place, mask=live[:, None], other=0.0)
        block_top = tl.load(tops + tile * n_rows + rows, mask=live, other=0.0)
        share *= tl.exp2(block_top - top)[:, None]
        # In two parts, so that 16 bits of it are left.
        coarse = share.to(e.dtype)
        fine = (share - coarse.to(tl.float32)).to(e.dtype)
        ratio = tl.dot(tl.trans(coarse), e, ratio)
        ratio = tl.dot(tl.trans(fine), e, ratio)
        r = e.to(tl.float32) * tl.dot(share, weights, input_precision="tf32")
        tl.store(e_io + place, r.to(e.dtype), mask=live[:, None])
    place = (part * n_memories + at[None, :]) * BLOCK_C + j[:, None]
    tl.store(parts_out + place, ratio)
