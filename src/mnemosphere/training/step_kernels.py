"""The kernels of `step_gpu`, in a module of their own: importing it needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from mnemosphere.numerics.bessel_kernel import evaluate

PI = tl.constexpr(3.141592653589793)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def noise_kernel(  # type: ignore[no-untyped-def]
    x, normal, out, n_features, length, overlap, BLOCK_N: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """One row: `SphereNoise.lay` of numbers that are drawn already."""
    n = tl.arange(0, BLOCK_N)
    known = n < n_features
    place = tl.program_id(0).to(tl.int64) * n_features + n
    row = tl.load(x + place, mask=known, other=0.0)
    u = tl.load(normal + place, mask=known, other=0.0)
    u -= tl.sum(row * u, 0) * row
    across = length * overlap / tl.maximum(tl.sqrt(tl.sum(u * u, 0)), TINY)
    tl.store(out + place, overlap * row + across * u, mask=known)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def double(high, low):  # type: ignore[no-untyped-def]
    """A number in double precision out of two in single precision, which arguments have."""
    return tl.zeros((), tl.float64) + high + low


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def rate_of(after, share, SHORTEST: tl.constexpr, GROWING: tl.constexpr):  # type: ignore[no-untyped-def]
    """What a batch counts in the running mean, as `FixedPoint.step` has it."""
    growing = tl.full((), GROWING, tl.float64)
    window = tl.maximum(growing * (after - 1.0), tl.full((), SHORTEST, tl.float64))
    return tl.minimum(share / tl.minimum(after, window), 1.0).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def direction_kernel(  # type: ignore[no-untyped-def]
    w, w_bar, pull, passes, count, w_out, w_bar_out, norm_out, n_features, share_high, share_low,
    SHORTEST: tl.constexpr, GROWING: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One memory: the running mean of w̄, its length, and its direction."""
    memory = tl.program_id(0)
    n = tl.arange(0, BLOCK_N)
    known = n < n_features
    place = memory.to(tl.int64) * n_features + n
    share = double(share_high, share_low)
    rate = rate_of(tl.load(passes) + share, share, SHORTEST, GROWING)
    old = tl.load(w_bar + place, mask=known, other=0.0)
    new = tl.load(pull + place, mask=known, other=0.0) / tl.load(count).to(tl.float32)
    mean = old + rate * (new - old)
    # Over the largest entry first: squares of small ones vanish.
    top = tl.max(tl.abs(mean), 0)
    unit = mean / tl.where(top > 0, top, 1.0)
    length = tl.sqrt(tl.sum(unit * unit, 0))
    tl.store(w_bar_out + place, mean, mask=known)
    tl.store(norm_out + memory, length * top)
    kept = tl.load(w + place, mask=known, other=0.0)  # where nothing pulls
    unit = tl.where(top > 0, unit / tl.where(top > 0, length, 1.0), kept)
    tl.store(w_out + place, unit, mask=known)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def rest_kernel(  # type: ignore[no-untyped-def]
    p_bar, sums, norms, passes, count, beta, p_bar_out, beta_out, passes_out,
    ratio, resultant, n_ratio, n_resultant, start, n_features, n_memories, n_cols,
    share_high, share_low, varsigma_high, varsigma_low,
    SHORTEST: tl.constexpr, GROWING: tl.constexpr, LEAST: tl.constexpr, SLOPE: tl.constexpr,
    LEARN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The running mean of p̄, and one Newton step of β as `m_step.approach_beta` takes it."""
    at = tl.arange(0, BLOCK)
    share = double(share_high, share_low)
    after = tl.load(passes) + share
    rate = rate_of(after, share, SHORTEST, GROWING)
    rows = tl.load(count).to(tl.float32)
    mass = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, (n_memories + 1) * n_cols, BLOCK):
        place = first + at
        there = place < (n_memories + 1) * n_cols
        old = tl.load(p_bar + place, mask=there, other=0.0)
        mean = old + rate * (tl.load(sums + place, mask=there, other=0.0) / rows - old)
        tl.store(p_bar_out + place, mean, mask=there)
        mass += tl.where(place >= n_cols, mean, 0.0).to(tl.float64)  # of the memories
    b = tl.load(beta).to(tl.float64)
    new = b
    if LEARN:
        length = tl.zeros((BLOCK,), tl.float64)
        for first in range(0, n_memories, BLOCK):
            there = first + at < n_memories
            length += tl.load(norms + first + at, mask=there, other=0.0).to(tl.float64)
        least = tl.full((), LEAST, tl.float64)
        pull = double(varsigma_high, varsigma_low) * tl.sum(length, 0) / tl.sum(mass, 0)
        pull = tl.minimum(tl.maximum(pull, least), 1.0 - least)
        _, a = evaluate(b, ratio, resultant, n_ratio, n_resultant, start, n_features)
        slope = 1.0 - a * a - (n_features - 1) * a / b
        slope = tl.maximum(slope, tl.full((), SLOPE, tl.float64))
        new = tl.minimum(tl.maximum(b - (a - pull) / slope, b / 4), b * 4)
    tl.store(beta_out, new.to(beta_out.dtype.element_ty))
    tl.store(passes_out, after)
