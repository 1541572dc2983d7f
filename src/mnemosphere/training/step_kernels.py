"""The kernels of `step_gpu`, in a module of their own: importing it needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from mnemosphere.numerics.sweep_kernel import scaled

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
    """Class weights: the step along their means, back to the polytope by sweeps."""
    i = tl.arange(0, BLOCK_R)
    j = tl.arange(0, BLOCK_C)
    live = i < n_rows
    inside = live[:, None] & (j[None, :] < n_cols)
    place = i[:, None] * n_cols + j[None, :]
    r = tl.load(p_h + i, mask=live, other=0.0)
    c = tl.load(p_q + j, mask=j < n_cols, other=0.0)
    v = tl.load(square + i, mask=live, other=0.0)
    size = tl.maximum(tl.maximum(tl.sqrt(v), floor * r * tl.load(typical)), TINY)
    size = -rate * schedule(step, steps, log_a, log_b) / size
    old = tl.load(p + place, mask=inside, other=1.0)
    x = tl.load(mean + place, mask=inside, other=0.0) * size[:, None]
    # Where p = 0 nothing moves.
    x = tl.log(tl.maximum(old, TINY)) + tl.where(old < TINY, old / TINY, 1.0) * x
    x = tl.where(inside, x, -float("inf"))
    tl.store(out + place, scaled(x, r, c, n_rows, n_cols, sweeps, TINY), mask=inside)
