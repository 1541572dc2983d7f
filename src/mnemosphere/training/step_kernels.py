"""The kernels of `step_gpu`, in a module of their own: importing it needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from mnemosphere.numerics.bessel_kernel import evaluate

PI = tl.constexpr(3.141592653589793)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def schedule(step, steps, log_a, log_b):  # type: ignore[no-untyped-def]
    """`Adam._scale`; log_a, log_b: logarithms of the decays to base 2."""
    t = tl.load(step).to(tl.float32)
    fade = 0.5 * (1.0 + tl.cos(tl.minimum(t / steps, 1.0) * PI))
    return fade * tl.sqrt(1.0 - tl.exp2((t + 1.0) * log_b)) / (1.0 - tl.exp2((t + 1.0) * log_a))


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
def mean_kernel(  # type: ignore[no-untyped-def]
    w, w_bar, overlap, mean_in, square_in, beta, count, mean_out, square_out,
    n_features, varsigma, a, b, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One memory: `Adam._means_of_w`."""
    memory = tl.program_id(0)
    n = tl.arange(0, BLOCK_N)
    known = n < n_features
    place = memory.to(tl.int64) * n_features + n
    ws = tl.load(w + place, mask=known, other=0.0)
    old = tl.load(mean_in + place, mask=known, other=0.0)
    slope = -varsigma * tl.load(beta) / tl.load(count).to(tl.float32)
    across = tl.load(w_bar + place, mask=known, other=0.0) - tl.load(overlap + memory) * ws
    old -= tl.sum(old * ws, 0) * ws
    tl.store(mean_out + place, a * old + (1.0 - a) * slope * across, mask=known)
    square = slope * slope * tl.sum(across * across, 0)
    tl.store(square_out + memory, b * tl.load(square_in + memory) + (1.0 - b) * square)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def typical_kernel(  # type: ignore[no-untyped-def]
    square, weight, out, n_memories, BLOCK: tl.constexpr, TINY: tl.constexpr
):
    """The root mean square of √v/p_h that `Adam._size` takes."""
    at = tl.arange(0, BLOCK)
    parts = tl.zeros((BLOCK,), tl.float32)
    weights = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n_memories, BLOCK):
        live = first + at < n_memories
        each = tl.load(weight + first + at, mask=live, other=0.0)
        v = tl.load(square + first + at, mask=live, other=0.0)
        parts += v / tl.maximum(each, TINY)
        weights += each
    tl.store(out, tl.sqrt(tl.sum(parts, 0) / tl.sum(weights, 0)))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def turn_kernel(  # type: ignore[no-untyped-def]
    w, mean, square, weight, typical, step, out,
    n_features, angle, floor, steps, log_a, log_b, BLOCK_N: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """One memory: the step along its mean, on the sphere."""
    memory = tl.program_id(0)
    n = tl.arange(0, BLOCK_N)
    known = n < n_features
    place = memory.to(tl.int64) * n_features + n
    least = floor * tl.load(weight + memory) * tl.load(typical)
    size = tl.maximum(tl.maximum(tl.sqrt(tl.load(square + memory)), least), TINY)
    rate = angle * schedule(step, steps, log_a, log_b) / size
    ws = tl.load(w + place, mask=known, other=0.0)
    ws -= rate * tl.load(mean + place, mask=known, other=0.0)
    tl.store(out + place, ws / tl.sqrt(tl.sum(ws * ws, 0)), mask=known)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def slope_kernel(  # type: ignore[no-untyped-def]
    p, p_bar, p_h, mean_in, square_in, count, mean_out, square_out, n_rows, n_cols, a, b,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """Block of rows of the class weights: the running means of `Adam._step_of_p`, rows centered."""
    i = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    j = tl.arange(0, BLOCK_C)
    live = i < n_rows
    inside = live[:, None] & (j[None, :] < n_cols)
    place = i[:, None] * n_cols + j[None, :]
    r = tl.load(p_h + i, mask=live, other=0.0)
    old = tl.load(p + place, mask=inside, other=0.0)
    bar = tl.load(p_bar + place, mask=inside, other=0.0)
    g = -(bar / tl.maximum(old, TINY)) / tl.load(count).to(tl.float32)
    mean = tl.sum(old * g, 1) / tl.maximum(r, TINY)
    g = old * (g - mean[:, None])
    m = tl.load(mean_in + place, mask=inside, other=0.0)
    tl.store(mean_out + place, a * m + (1.0 - a) * g, mask=inside)
    v = tl.load(square_in + i, mask=live, other=0.0)
    tl.store(square_out + i, b * v + (1.0 - b) * tl.sum(g * g, 1), mask=live)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def beta_kernel(  # type: ignore[no-untyped-def]
    beta, mean, square, p_bar, overlap, resultant, count, step, beta_out, mean_out, square_out,
    n_memories, n_cols, rate, varsigma, a, b, steps, log_a, log_b,
    BLOCK: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """`Adam._step_of_beta`."""
    at = tl.arange(0, BLOCK)
    parts = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n_memories, BLOCK):
        parts += tl.load(overlap + first + at, mask=first + at < n_memories, other=0.0)
    masses = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n_memories * n_cols, BLOCK):
        there = first + at < n_memories * n_cols
        masses += tl.load(p_bar + n_cols + first + at, mask=there, other=0.0)
    now = tl.load(beta)
    slope = tl.load(resultant) * tl.sum(masses, 0) - varsigma * tl.sum(parts, 0)
    slope = now * slope / tl.load(count).to(tl.float32)
    m = a * tl.load(mean) + (1.0 - a) * slope
    v = b * tl.load(square) + (1.0 - b) * slope * slope
    tl.store(mean_out, m)
    tl.store(square_out, v)
    turn = rate * schedule(step, steps, log_a, log_b) * m / tl.maximum(tl.sqrt(v), TINY)
    tl.store(beta_out, now * tl.exp(-turn))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def weights_kernel(  # type: ignore[no-untyped-def]
    p, p_h, p_q, mean, square, typical, step, out,
    n_rows, n_cols, rate, floor, steps, log_a, log_b, sweeps,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """Class weights: the step along their means, back to the polytope by sweeps.

    As `polytope.sweep`, block by block: matrices too large for registers stay in the cache.
    """
    j = tl.arange(0, BLOCK_C)
    real = j < n_cols
    c = tl.load(p_q + j, mask=real, other=0.0)
    no_col = tl.where(real, 0.0, 1.0)  # outside, columns and rows divide by 1 instead of 0
    least = floor * tl.load(typical)
    rate = -rate * schedule(step, steps, log_a, log_b)
    sums = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
    for first in range(0, n_rows, BLOCK_R):
        i = first + tl.arange(0, BLOCK_R)
        live = i < n_rows
        inside = live[:, None] & real[None, :]
        place = i[:, None] * n_cols + j[None, :]
        r = tl.load(p_h + i, mask=live, other=0.0)
        v = tl.load(square + i, mask=live, other=0.0)
        size = rate / tl.maximum(tl.maximum(tl.sqrt(v), least * r), TINY)
        old = tl.load(p + place, mask=inside, other=1.0)
        x = tl.load(mean + place, mask=inside, other=0.0) * size[:, None]
        # Where p = 0 nothing moves.
        x = tl.log(tl.maximum(old, TINY)) + tl.where(old < TINY, old / TINY, 1.0) * x
        x = tl.where(inside, x, -float("inf"))
        e = tl.exp(x - tl.where(live, tl.max(x, 1), 0.0)[:, None])
        k = e * (r / (tl.sum(e, 1) + tl.where(live, 0.0, 1.0)))[:, None]
        k = tl.where(inside, k + TINY, 0.0)
        tl.store(out + place, k, mask=inside)
        sums += k
    b = c / (tl.sum(sums, 0) + no_col)
    before = b
    for _ in range(sweeps - 1):
        tl.debug_barrier()
        before = b
        sums = tl.zeros((BLOCK_R, BLOCK_C), tl.float32)
        for first in range(0, n_rows, BLOCK_R):
            k, a, place, inside = rows_right(
                out, p_h, before, first, n_rows, n_cols, BLOCK_R, BLOCK_C
            )
            sums += k * a[:, None]
        b = c / (tl.sum(sums, 0) + no_col)
    tl.debug_barrier()
    for first in range(0, n_rows, BLOCK_R):
        k, a, place, inside = rows_right(out, p_h, before, first, n_rows, n_cols, BLOCK_R, BLOCK_C)
        a = tl.where(sweeps > 1, a, 1.0)
        tl.store(out + place, k * a[:, None] * b[None, :], mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def rows_right(  # type: ignore[no-untyped-def]
    matrix, p_h, b, first, n_rows, n_cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One block of the matrix, and what makes its rows right where b scales the columns."""
    i = first + tl.arange(0, BLOCK_R)
    j = tl.arange(0, BLOCK_C)
    live = i < n_rows
    inside = live[:, None] & (j < n_cols)[None, :]
    place = i[:, None] * n_cols + j[None, :]
    k = tl.load(matrix + place, mask=inside, other=0.0)
    r = tl.load(p_h + i, mask=live, other=0.0)
    return k, r / (tl.sum(k * b[None, :], 1) + tl.where(live, 0.0, 1.0)), place, inside


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
