"""The kernels of `pass_gpu`, in a module of their own: importing it needs Triton.

Memories, their class weights and the columns of l and r come in whole blocks, zero beyond their own
number, so that reads are wide ones and need no mask.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LOG_2 = tl.constexpr(0.6931471805599453)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def logits_of(  # type: ignore[no-untyped-def]
    x, w, logits, rows, live, at, n_memories, n_features,
    MADE: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One block of l, read or made, in units of log 2."""
    if MADE:
        n = tl.arange(0, BLOCK_N)
        known = (n < n_features)[None, :]
        xs = tl.load(x + rows[:, None] * n_features + n[None, :], mask=live[:, None] & known,
                     other=0.0)  # fmt: skip
        ws = tl.load(w + at[:, None] * n_features + n[None, :], mask=known, other=0.0)
        found = tl.dot(xs, tl.trans(ws))
    else:
        place = rows[:, None].to(tl.int64) * n_memories + at[None, :]
        found = tl.load(logits + place, mask=live[:, None], other=0.0)
    return found * LOG2_E


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def forward_kernel(  # type: ignore[no-untyped-def]
    x, w, logits, p, log_ratio, tops_out, joints_out,
    n_rows, n_memories, n_features, each,
    MADE: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Block of rows, part of the memories: the largest exponent, and joint scaled by it."""
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    split = tl.program_id(1)
    live = rows < n_rows
    j = tl.arange(0, BLOCK_C)
    # The exponent of the uniform component, 0 before all are shifted by log Ω_N(β)/Ω_N(0) ≥ 0:
    # what fills up the last block of memories, 0 too, is never the largest.
    top = tl.full((BLOCK_B,), 0.0, tl.float32) + tl.load(log_ratio) * LOG2_E
    joint = tl.zeros((BLOCK_B, BLOCK_C), tl.float32)
    for first in range(split * each, tl.minimum((split + 1) * each, n_memories), BLOCK_P):
        at = first + tl.arange(0, BLOCK_P)
        h = logits_of(x, w, logits, rows, live, at, n_memories, n_features, MADE, BLOCK_N)
        higher = tl.maximum(top, tl.max(h, 1))
        e = tl.exp2(h - higher[:, None])
        weights = tl.load(p + at[:, None] * BLOCK_C + j[None, :])
        joint = joint * tl.exp2(top - higher)[:, None]
        joint += tl.dot(e, weights, input_precision="tf32")
        top = higher
    place = split * n_rows + rows
    tl.store(tops_out + place, top, mask=live)
    tl.store(joints_out + place[:, None] * BLOCK_C + j[None, :], joint, mask=live[:, None])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def joint_kernel(  # type: ignore[no-untyped-def]
    tops, joints, p0, log_ratio, top_out, e0_out, joint_out, log_joint_out,
    n_rows, n_cols, n_splits, FLOOR: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Block of rows: parts of the memories put together, the uniform component added."""
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    live = rows < n_rows
    j = tl.arange(0, BLOCK_C)
    real = j < n_cols
    uniform = tl.load(log_ratio) * LOG2_E
    top = tl.full((BLOCK_B,), 0.0, tl.float32) + uniform
    joint = tl.zeros((BLOCK_B, BLOCK_C), tl.float32)
    for split in range(n_splits):
        place = split * n_rows + rows
        other = tl.load(tops + place, mask=live, other=0.0)
        more = tl.load(
            joints + place[:, None] * BLOCK_C + j[None, :], mask=live[:, None], other=0.0
        )
        higher = tl.maximum(top, other)
        joint = joint * tl.exp2(top - higher)[:, None] + more * tl.exp2(other - higher)[:, None]
        top = higher
    e0 = tl.exp2(uniform - top)
    joint += e0[:, None] * tl.load(p0 + j, mask=real, other=0.0)[None, :]
    joint = tl.maximum(joint, FLOOR)
    log_joint = tl.log(joint) - ((uniform - top) * LOG_2)[:, None]
    place = rows[:, None] * n_cols + j[None, :]
    inside = live[:, None] & real[None, :]
    tl.store(joint_out + place, joint, mask=inside)
    tl.store(log_joint_out + place, log_joint, mask=inside)
    tl.store(top_out + rows, top, mask=live)
    tl.store(e0_out + rows, e0, mask=live)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def backward_kernel(  # type: ignore[no-untyped-def]
    x, w, logits, p, s, top_in, pulls_out, r_out, parts_out,
    n_rows, n_memories, n_cols, n_features, each,
    MADE: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Block of memories, part of the rows: p_bar/p, and r or w̄."""
    at = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    split = tl.program_id(1)
    j = tl.arange(0, BLOCK_C)
    n = tl.arange(0, BLOCK_N)
    weights = tl.trans(tl.load(p + at[:, None] * BLOCK_C + j[None, :]))
    ratio = tl.zeros((BLOCK_C, BLOCK_P), tl.float32)
    pull = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    for first in range(split * each, tl.minimum((split + 1) * each, n_rows), BLOCK_B):
        rows = first + tl.arange(0, BLOCK_B)
        live = rows < n_rows
        h = logits_of(x, w, logits, rows, live, at, n_memories, n_features, MADE, BLOCK_N)
        e = tl.exp2(h - tl.load(top_in + rows, mask=live, other=0.0)[:, None])
        share = tl.load(s + rows[:, None] * n_cols + j[None, :],
                        mask=live[:, None] & (j < n_cols)[None, :], other=0.0)  # fmt: skip
        ratio += tl.dot(tl.trans(share), e, input_precision="tf32")
        r = (e * tl.dot(share, weights, input_precision="tf32")).to(x.dtype.element_ty)
        if MADE:
            xs = tl.load(x + rows[:, None] * n_features + n[None, :],
                         mask=live[:, None] & (n < n_features)[None, :], other=0.0)  # fmt: skip
            pull += tl.dot(tl.trans(r), xs)
        else:
            place = rows[:, None].to(tl.int64) * n_memories + at[None, :]
            tl.store(r_out + place, r, mask=live[:, None])
    place = (split * n_memories + at[None, :]) * BLOCK_C + j[:, None]
    tl.store(parts_out + place, ratio)
    if MADE:
        place = (split * n_memories + at[:, None]) * n_features + n[None, :]
        tl.store(pulls_out + place, pull, mask=(n < n_features)[None, :])
