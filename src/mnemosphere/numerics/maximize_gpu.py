"""The exact maximizer over the polytope as one GPU kernel, where Triton is there to build it.

On the host a solution takes milliseconds and every step of training would wait for it. Here one
block of threads takes damped Newton steps on the multipliers, as `multipliers` does, from those of
the step before, and nobody waits. Hard problems, which the host hands to the interior-point
method, end with a marginal error that is reported, not raised.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

__all__ = ["maximize", "usable"]

_MAX_COLUMNS = 32
_BLOCK, _WARPS = 4096, 8  # entries that a block of rows holds in registers, by so many warps
_FLOOR = 1e-30  # relative size of the vanishing floor under p_bar, as on the host


def usable(n_columns: int) -> bool:
    """Whether problems with so many columns can be solved here."""
    return n_columns <= _MAX_COLUMNS and _works()


def maximize(
    p_bar: Tensor,
    rows: Tensor,
    cols: Tensor,
    lam: Tensor,
    omega: Tensor,
    *,
    tol: float,
    max_iter: int,
) -> tuple[Tensor, Tensor]:
    """(p (R, C), its largest relative marginal error ()); lam (C,) and omega (R,) are updated.

    Both multipliers are float64; where omega is 0 the search starts anew, else from them. Checks
    nothing and never waits for the device.
    """
    n_rows, n_cols = p_bar.shape
    columns = max(16, 1 << (n_cols - 1).bit_length())  # no smaller product there is
    block = max(16, min(_BLOCK // columns, 1 << (n_rows - 1).bit_length()))
    p = torch.empty_like(p_bar, memory_format=torch.contiguous_format)
    change = torch.empty(n_rows, dtype=torch.float64, device=p_bar.device)
    error = torch.empty(1, dtype=torch.float64, device=p_bar.device)
    _kernel()[(1,)](
        p_bar.contiguous(), rows.contiguous(), cols.contiguous(), lam, omega, change, p, error,
        n_rows, n_cols, tol, max_iter,
        BLOCK_R=block, BLOCK_C=columns, FLOOR=_FLOOR, num_warps=_WARPS,
    )  # fmt: skip
    return p, error[0]


@functools.cache
def _works() -> bool:
    """Whether a kernel can be built and run; tried once, on the smallest problem."""
    try:
        one = torch.ones(2, 2, device="cuda")
        lam, omega = (torch.zeros(2, dtype=torch.float64, device="cuda") for _ in range(2))
        p, _ = maximize(one, one.sum(1), one.sum(0), lam, omega, tol=1e-9, max_iter=5)
        return bool(torch.isfinite(p).all())
    except Exception:  # no Triton, no compiler, a GPU too old: the host does it
        return False


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def load(  # type: ignore[no-untyped-def]
        p_bar, rows, omega_io, first, c, scale, total, n_rows, n_cols,
        BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, FLOOR: tl.constexpr,
    ):  # fmt: skip
        """One block of rows: their sums r, q = p_bar scaled and floored, ω, what is inside."""
        at = first + tl.arange(0, BLOCK_R)
        j = tl.arange(0, BLOCK_C)
        live = at < n_rows
        inside = live[:, None] & (j < n_cols)[None, :]
        r = tl.load(rows + at, mask=live, other=0.0).to(tl.float64)
        q = tl.load(p_bar + at[:, None] * n_cols + j[None, :], mask=inside, other=0.0)
        floor = FLOOR * c[None, :] * r[:, None] / total
        w = tl.load(omega_io + at, mask=live, other=1.0)
        return r, tl.maximum(q.to(tl.float64) * scale, floor), w, inside

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def system(q, r, w, lam, inside):  # type: ignore[no-untyped-def]
        """1/ζ, x = q/ζ, h = x/ζ, how far the row sums are off, one over the sums of h."""
        inverse = 1.0 / (lam[None, :] + w[:, None])
        x = tl.where(inside, q * inverse, 0.0)
        h = x * inverse
        return inverse, x, h, tl.sum(x, 1) - r, 1.0 / tl.maximum(tl.sum(h, 1), 1e-300)

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def relative(off, marginal):  # type: ignore[no-untyped-def]
        ratio = tl.abs(off) / tl.maximum(marginal, 1e-300)
        return tl.max(tl.where(marginal > 0, ratio, 0.0), 0)

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def invert(edges, ground, n_cols, BLOCK_C: tl.constexpr):  # type: ignore[no-untyped-def]
        """The inverse of the Laplacian of `edges`, the node `ground` held: Gauss and Jordan."""
        j = tl.arange(0, BLOCK_C)
        k = tl.arange(0, BLOCK_C)[:, None]
        diagonal = k == j[None, :]
        links = tl.where(diagonal, 0.0, edges)
        degree = tl.sum(links, 0)
        degree = tl.where((degree > 0) & (j != ground), degree, 1.0)
        m = tl.where((k == ground) | (j[None, :] == ground), 0.0, -links)
        m = tl.where(diagonal, degree[None, :], m)
        inv = tl.where(diagonal, 1.0, 0.0) + edges * 0.0
        for a in range(n_cols):
            mine = k == a
            column = tl.sum(tl.where(j[None, :] == a, m, 0.0), 1)
            pivot = tl.sum(tl.where(j == a, column, 0.0), 0)
            factor = tl.where(j == a, 0.0, column)[:, None]
            m_row = tl.sum(tl.where(mine, m, 0.0), 0)[None, :] / pivot
            inv_row = tl.sum(tl.where(mine, inv, 0.0), 0)[None, :] / pivot
            m = tl.where(mine, m_row, m - factor * m_row)
            inv = tl.where(mine, inv_row, inv - factor * inv_row)
        return inv

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def kernel(  # type: ignore[no-untyped-def]
        p_bar, rows, cols, lam_io, omega_io, change_io, out, error_out,
        n_rows, n_cols, tol, max_iter,
        BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, FLOOR: tl.constexpr,
    ):  # fmt: skip
        i = tl.arange(0, BLOCK_R)
        j = tl.arange(0, BLOCK_C)
        real = j < n_cols
        c = tl.load(cols + j, mask=real, other=0.0).to(tl.float64)
        one = tl.sum(c, 0) * 0.0 + 1.0
        total = one * 0.0
        mass = one * 0.0
        for first in range(0, n_rows, BLOCK_R):
            r, q, w, inside = load(
                p_bar, rows, omega_io, first, c, one, one, n_rows, n_cols, BLOCK_R, BLOCK_C, 0.0
            )
            total += tl.sum(r, 0)
            mass += tl.sum(tl.sum(q, 1), 0)
        # p_bar is brought to the total of the marginals: ζ is about 1.
        scale = total / tl.where(mass > 0, mass, total)
        c = c * (total / tl.sum(c, 0))
        lam = tl.load(lam_io + j, mask=real, other=0.0)
        if tl.load(omega_io) == 0.0:  # nothing to start from: the rows right, if λ = 0
            lam = lam * 0.0
            for first in range(0, n_rows, BLOCK_R):
                r, q, w, inside = load(
                    p_bar, rows, omega_io, first, c, scale, total, n_rows, n_cols,
                    BLOCK_R, BLOCK_C, FLOOR,
                )  # fmt: skip
                w = tl.where(r > 0, tl.sum(q, 1) / tl.maximum(r, 1e-300), 1e30)
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
                r, q, w, inside = load(
                    p_bar, rows, omega_io, first, c, scale, total, n_rows, n_cols,
                    BLOCK_R, BLOCK_C, FLOOR,
                )  # fmt: skip
                at = first + i
                moved = tl.load(change_io + at, mask=(at < n_rows) & (iteration > 0), other=0.0)
                w = tl.where(w < 1e29, w + step * moved + low, w)
                tl.store(omega_io + at, w, mask=at < n_rows)
                inverse, x, h, off, spring = system(q, r, w, lam, inside)
                error = tl.maximum(error, relative(off, r))
                sums += tl.sum(x, 0)
                pull += tl.sum(h * (off * spring)[:, None], 0)
                # In single precision: a step may be off by that much, its goal is not.
                # Rows that live on next to nothing have numbers beyond it.
                left = tl.trans((h * spring[:, None]).to(tl.float32))
                right = tl.minimum(h, 1e30).to(tl.float32)
                edges += tl.dot(left, right, input_precision="ieee").to(tl.float64)
            off_c = tl.where(real, sums - c, 0.0)
            error = tl.maximum(error, relative(off_c, c))
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
                    r, q, w, inside = load(
                        p_bar, rows, omega_io, first, c, scale, total, n_rows, n_cols,
                        BLOCK_R, BLOCK_C, FLOOR,
                    )  # fmt: skip
                    inverse, x, h, off, spring = system(q, r, w, lam, inside)
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
            r, q, w, inside = load(
                p_bar, rows, omega_io, first, c, scale, total, n_rows, n_cols,
                BLOCK_R, BLOCK_C, FLOOR,
            )  # fmt: skip
            at = (first + i)[:, None] * n_cols + j[None, :]
            tl.store(out + at, q / (lam[None, :] + w[:, None]), mask=inside)
        tl.store(lam_io + j, lam, mask=real)
        tl.store(error_out + tl.arange(0, 1), error + tl.zeros((1,), tl.float64))

    return kernel
