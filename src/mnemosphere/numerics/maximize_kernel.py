"""The kernel of `maximize_gpu`, in a module of its own: importing it needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl

LEAST = tl.constexpr(1e-36)  # that divisors in single precision can have
LATER = tl.constexpr(2)  # steps of ω after one of λ: each squares its error


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def load(  # type: ignore[no-untyped-def]
    p_bar, rows, first, c, scale, total, n_rows, n_cols,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, FLOOR: tl.constexpr,
):  # fmt: skip
    """One block of rows: their sums r, q = p_bar scaled and floored, what is inside."""
    at = first + tl.arange(0, BLOCK_R)
    j = tl.arange(0, BLOCK_C)
    live = at < n_rows
    inside = live[:, None] & (j < n_cols)[None, :]
    r = tl.load(rows + at, mask=live, other=0.0).to(c.dtype)
    q = tl.load(p_bar + at[:, None] * n_cols + j[None, :], mask=inside, other=0.0)
    floor = (FLOOR * c / total)[None, :] * r[:, None]
    return r, tl.maximum(q.to(c.dtype) * scale, floor), inside


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def multipliers(omega_io, first, c, n_rows, BLOCK_R: tl.constexpr):  # type: ignore[no-untyped-def]
    """ω of one block of rows."""
    at = first + tl.arange(0, BLOCK_R)
    return tl.load(omega_io + at, mask=at < n_rows, other=1.0).to(c.dtype)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def reciprocal(z):  # type: ignore[no-untyped-def]
    """1/z of z ≥ 0: a division in double precision takes as long as ten of these."""
    z = tl.maximum(z, LEAST)
    y = (1.0 / z.to(tl.float32)).to(z.dtype)
    if z.dtype == tl.float64:
        y = y * (2.0 - z * y)
    return y


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def right_rows(q, r, old, lam, inside, steps, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """ω that makes the rows right, given λ ≥ 0, from an old ω: an old λ suits new rows too.

    Σ_y q/(λ + ω) falls with ω and is convex, so Newton steps from below stay below.
    """
    inverse_r = 1.0 / tl.maximum(r, TINY)
    # At least what one term alone, or all of them at the largest λ, would ask for.
    w = tl.max(tl.where(inside, q * inverse_r[:, None] - lam[None, :], 0.0), 1)
    held = lam < 1e29
    most = tl.max(tl.where(held, lam, 0.0), 0)
    low = tl.maximum(w, tl.sum(tl.where(inside & held[None, :], q, 0.0), 1) * inverse_r - most)
    w = tl.where((old > low) & (old < 1e29), old, low)
    for _ in range(steps):
        inverse = reciprocal(lam[None, :] + w[:, None])
        x = tl.where(inside, q * inverse, 0.0)
        w += (tl.sum(x, 1) - r) / tl.maximum(tl.sum(x * inverse, 1), TINY)
        w = tl.maximum(w, low)
    return w


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def system(q, r, w, lam, inside, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """1/ζ, x = q/ζ, h = x/ζ, how far the row sums are off, one over the sums of h."""
    inverse = reciprocal(lam[None, :] + w[:, None])
    x = tl.where(inside, q * inverse, 0.0)
    h = x * inverse
    return inverse, x, h, tl.sum(x, 1) - r, 1.0 / tl.maximum(tl.sum(h, 1), TINY)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def relative(off, marginal, TINY: tl.constexpr):  # type: ignore[no-untyped-def]
    """The largest error of a marginal, relative to it."""
    ratio = tl.abs(off) / tl.maximum(marginal, TINY)
    return tl.max(tl.where(marginal > 0, ratio, 0.0), 0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def invert(edges, ground, n_cols, BLOCK_C: tl.constexpr):  # type: ignore[no-untyped-def]
    """The inverse of the Laplacian of `edges`, the node `ground` held.

    By the sweep operator, which stays symmetric and in place: few sums across threads.
    """
    j = tl.arange(0, BLOCK_C)
    k = tl.arange(0, BLOCK_C)[:, None]
    diagonal = k == j[None, :]
    links = tl.where(diagonal, 0.0, edges)
    degree = tl.sum(links, 0)
    degree = tl.where((degree > 0) & (j != ground), degree, 1.0)
    m = tl.where((k == ground) | (j[None, :] == ground), 0.0, -links)
    m = tl.where(diagonal, degree[None, :], m)
    for a in range(n_cols):
        down, across = k == a, j[None, :] == a
        row = tl.sum(tl.where(down, m, 0.0), 0)[None, :]
        column = tl.sum(tl.where(across, m, 0.0), 1)[:, None]
        pivot = 1.0 / tl.sum(tl.where(across, row, 0.0), 1)[:, None]
        rest = tl.where(down, row * pivot, m - column * (row * pivot))
        m = tl.where(across, tl.where(down, -pivot, column * pivot), rest)
    return -m


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def kernel(  # type: ignore[no-untyped-def]
    p_bar, rows, cols, lam_io, omega_io, change_io, out, error_out,
    n_rows, n_cols, tol, max_iter, first_steps,
    FINE: tl.constexpr, FLOOR: tl.constexpr, TINY: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """Damped Newton steps on λ and ω, by one block of threads: see `maximize_gpu`."""
    number: tl.constexpr = tl.float64 if FINE else tl.float32
    i = tl.arange(0, BLOCK_R)
    j = tl.arange(0, BLOCK_C)
    real = j < n_cols
    c = tl.load(cols + j, mask=real, other=0.0).to(number)
    one = tl.sum(c, 0) * 0.0 + 1.0
    total = one * 0.0
    mass = one * 0.0
    for first in range(0, n_rows, BLOCK_R):
        r, q, inside = load(p_bar, rows, first, c, one, one, n_rows, n_cols, BLOCK_R, BLOCK_C, 0.0)
        total += tl.sum(r, 0)
        mass += tl.sum(tl.sum(q, 1), 0)
    # p_bar is brought to the total of the marginals: ζ is about 1.
    scale = total / tl.where(mass > 0, mass, total)
    c = c * (total / tl.sum(c, 0))
    lam = tl.load(lam_io + j, mask=real, other=0.0).to(number)
    lam = tl.where(tl.sum(lam, 0) * 0.0 == 0.0, lam, 0.0)  # where some are no numbers, from none
    for first in range(0, n_rows, BLOCK_R):
        r, q, inside = load(
            p_bar, rows, first, c, scale, total, n_rows, n_cols, BLOCK_R, BLOCK_C, FLOOR
        )
        w = multipliers(omega_io, first, c, n_rows, BLOCK_R)
        w = tl.where(r > 0, right_rows(q, r, w, lam, inside, first_steps, TINY), 1e30)
        tl.store(omega_io + first + i, w, mask=first + i < n_rows)
    free = real & (c > 0)
    lam = tl.where(free, lam, 1e30)
    d_lam = c * 0.0
    step = one * 0.0
    error = one
    iteration = 0
    going = True
    while going:
        # First sweep: take the step, restore the gauge min λ = 0, build the Newton system.
        lam = tl.where(free, lam + step * d_lam, lam)
        low = tl.min(lam, 0)
        lam = tl.where(free, lam - low, lam)
        tl.debug_barrier()  # what one thread wrote to memory another will read
        sums = c * 0.0
        pull = c * 0.0
        edges = c[:, None] * 0.0 + c[None, :] * 0.0
        error = one * 0.0
        for first in range(0, n_rows, BLOCK_R):
            r, q, inside = load(
                p_bar, rows, first, c, scale, total, n_rows, n_cols, BLOCK_R, BLOCK_C, FLOOR
            )
            w = multipliers(omega_io, first, c, n_rows, BLOCK_R)
            at = first + i
            moved = tl.load(change_io + at, mask=at < n_rows, other=0.0)
            moved = moved.to(number)
            # Rows follow λ exactly, and not to first order alone: half as many steps of λ do.
            w = tl.where(w < 1e29, w + step * moved + low, w)
            w = tl.where(r > 0, right_rows(q, r, w, lam, inside, LATER, TINY), w)
            tl.store(omega_io + at, w, mask=at < n_rows)
            inverse, x, h, off, spring = system(q, r, w, lam, inside, TINY)
            error = tl.maximum(error, relative(off, r, TINY))
            sums += tl.sum(x, 0)
            pull += tl.sum(h * (off * spring)[:, None], 0)
            # In single precision: a step may be off by that much, its goal is not.
            # Rows that live on next to nothing have numbers beyond it.
            left = tl.trans((h * spring[:, None]).to(tl.float32))
            right = tl.minimum(h, 1e30).to(tl.float32)
            edges += tl.dot(left, right, input_precision=PRODUCT).to(number)
        off_c = tl.where(real, sums - c, 0.0)
        error = tl.maximum(error, relative(off_c, c, TINY))
        going = (error > tol) & (iteration < max_iter)
        if going:
            ground = tl.argmin(lam, 0)
            moving = free & (j != ground)
            inv = invert(edges, ground, n_cols, BLOCK_C)
            b = tl.where(moving, off_c - pull, 0.0)
            d_lam = tl.where(moving, tl.sum(inv * b[None, :], 1), 0.0)
            # Second sweep: the step of ω, and how far both may go.
            lowest = one * 0.0
            tl.debug_barrier()
            for first in range(0, n_rows, BLOCK_R):
                r, q, inside = load(
                    p_bar, rows, first, c, scale, total, n_rows, n_cols, BLOCK_R, BLOCK_C, FLOOR
                )
                w = multipliers(omega_io, first, c, n_rows, BLOCK_R)
                inverse, x, h, off, spring = system(q, r, w, lam, inside, TINY)
                at = first + i
                d_w = (off - tl.sum(h * d_lam[None, :], 1)) * spring
                d_w = tl.where(r > 0, d_w, 0.0)
                tl.store(change_io + at, d_w, mask=at < n_rows)
                delta = tl.where(inside, (d_lam[None, :] + d_w[:, None]) * inverse, 0.0)
                lowest = tl.minimum(lowest, tl.min(tl.min(delta, 1), 0))
            step = 0.9 / tl.maximum(-lowest, 0.9)
            iteration += 1
    tl.debug_barrier()
    for first in range(0, n_rows, BLOCK_R):
        r, q, inside = load(
            p_bar, rows, first, c, scale, total, n_rows, n_cols, BLOCK_R, BLOCK_C, FLOOR
        )
        w = multipliers(omega_io, first, c, n_rows, BLOCK_R)
        at = (first + i)[:, None] * n_cols + j[None, :]
        tl.store(out + at, q * reciprocal(lam[None, :] + w[:, None]), mask=inside)
    tl.store(lam_io + j, lam, mask=real)
    tl.store(error_out + tl.arange(0, 1), error.to(tl.float64) + tl.zeros((1,), tl.float64))
