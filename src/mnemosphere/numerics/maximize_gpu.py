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

from mnemosphere.numerics.blocks import power_of_two

__all__ = ["maximize", "usable"]

_MAX_COLUMNS = 32
# Entries that a block of rows holds in registers, by so many warps, and how it takes products
_BLOCK, _WARPS, _PRODUCT = {False: 4096, True: 2048}, 8, {False: "tf32", True: "ieee"}
_SINGLE = 1e-5  # tolerance from which on single precision will do
_STEPS = {False: 8, True: 2}  # of ω at first: each squares its error
# relative size of the vanishing floor under p_bar, as on the host, and what divisors are kept off
_FLOOR, _TINY = {False: 1e-24, True: 1e-30}, {False: 1e-36, True: 1e-300}


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

    Both multipliers are float64; the search starts from lam, and is short where that fits: rows are
    made right first, whatever omega was. A tolerance of 1e-5 or more is reached in single
    precision, which a GPU has ten times as much of.
    Checks nothing and never waits for the device.
    """
    p = torch.empty_like(p_bar, memory_format=torch.contiguous_format)
    change = torch.zeros(len(p), dtype=torch.float64, device=p_bar.device)
    error = torch.empty(1, dtype=torch.float64, device=p_bar.device)
    given = p_bar.contiguous(), rows.contiguous(), cols.contiguous(), lam, omega, change, p, error
    columns = power_of_two(p.shape[1], 16)  # no smaller product there is
    # The first digits of a fine solution are cheaper in single precision.
    for fine in (False, True) if tol < _SINGLE else (False,):
        block = max(16, min(_BLOCK[fine] // columns, power_of_two(len(p))))
        _kernel()[(1,)](
            *given, *p.shape, tol if fine else max(tol, _SINGLE), max_iter, _STEPS[fine],
            FINE=fine, FLOOR=_FLOOR[fine], TINY=_TINY[fine], BLOCK_R=block, BLOCK_C=columns,
            PRODUCT=_PRODUCT[fine], num_warps=_WARPS,
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
    from mnemosphere.numerics.maximize_kernel import kernel

    return kernel
