"""The functions of `bessel` as one GPU kernel; importing it needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl

HUGE = tl.constexpr(1e100)  # its square is far from overflow


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def log1p(t):  # type: ignore[no-untyped-def]
    """log(1 + t), t ≥ 0: what 1 + t has lost of t is put right."""
    u = 1.0 + t
    lost = tl.where(u == 1.0, 1.0, u - 1.0)
    return tl.where(u == 1.0, t, tl.log(u) * (t / lost))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def horner(coefficients, n, q):  # type: ignore[no-untyped-def]
    """The polynomial of q, coefficients lowest power first."""
    total = q * 0.0
    for k in range(n):
        total = total * q + tl.load(coefficients + (n - 1 - k))
    return total


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def evaluate(b, ratio, resultant, n_ratio, n_resultant, start, n):  # type: ignore[no-untyped-def]
    """`bessel._log_ratio` and `bessel._resultant` in float64, the recurrences from `start` on."""
    nu = (tl.zeros((), tl.float64) + (start - 2)) / 2
    z = b / nu
    s = tl.where(z < HUGE, tl.sqrt(1.0 + tl.minimum(z, HUGE) * tl.minimum(z, HUGE)), z)
    q = 1.0 / s
    t = z * (z / (1.0 + s))  # s − 1
    value = nu * (t - log1p(t / 2)) - log1p(t) / 2 - t / s * horner(ratio, n_ratio, q)
    a = z / s * (1.0 / (1.0 + q) - horner(resultant, n_resultant, q))
    for step in range((start - n) // 2):
        k = tl.zeros((), tl.float64) + (start - 2 - 2 * step)
        value += log1p(b * a / k)
        a = b / (k + b * a)
    return value, tl.minimum(a, 1.0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def kernel(  # type: ignore[no-untyped-def]
    beta, ratio, resultant, log_ratio_out, resultant_out, n_values, n_ratio, n_resultant,
    start, n, BLOCK: tl.constexpr,
):  # fmt: skip
    """Both for each β."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n_values
    b = tl.load(beta + at, mask=live, other=1.0).to(tl.float64)
    value, a = evaluate(b, ratio, resultant, n_ratio, n_resultant, start, n)
    tl.store(log_ratio_out + at, value.to(log_ratio_out.dtype.element_ty), mask=live)
    tl.store(resultant_out + at, a.to(resultant_out.dtype.element_ty), mask=live)
