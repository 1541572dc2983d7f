"""The large products of a pass: operands in bfloat16 where that is wanted, sums in float32.

A matrix unit takes bfloat16 operands several times as fast as float32 ones. Only x wᵀ, rᵀ x and r w
are large; all else, and the memories themselves, stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from mnemosphere.base.machine import POWERS_OF_2_ARE_FAST, SUBNORMALS_ARE_SLOW
from mnemosphere.gpu import has_bfloat16, on_gpu

__all__ = [
    "add_product", "exponentials", "least_density", "narrow", "narrowed", "operands", "product",
]  # fmt: skip

_HEADROOM = 1e8  # label weights over densities, summed over so many rows, stay finite
_LOG2_E = 1 / math.log(2)
_BELOW = 6.0  # in the exponent: what lies so far below the least density is nothing
_ALIGNED = 16  # columns: matrix units are slow on rows of bfloat16 that start between whole reads
_wanted: ContextVar[str] = ContextVar("operands", default="float32")


@contextmanager
def operands(precision: str) -> Iterator[None]:
    """Inside, passes in float32 take operands of this precision.

    "auto": bfloat16 on a GPU that has units for it; "bfloat16": everywhere; else none.
    """
    token = _wanted.set(precision)
    try:
        yield
    finally:
        _wanted.reset(token)


def narrowed(w: Tensor) -> bool:
    """Whether products with these memories are to take bfloat16 operands."""
    wanted = _wanted.get()
    if w.dtype != torch.float32 or w.ndim != 2:
        return False
    return wanted == "bfloat16" or (wanted == "auto" and has_bfloat16(w.device))


def narrow(x: Tensor) -> Tensor:
    """The matrix in bfloat16; on a GPU with columns of zeros behind its own.

    Elsewhere numbers are rounded all the same, and stay float32.
    """
    if not has_bfloat16(x.device):
        return x.to(torch.bfloat16).to(x.dtype)
    n_rows, n_columns = x.shape
    rounded = x.new_empty(n_rows, n_columns + -n_columns % _ALIGNED, dtype=torch.bfloat16)
    rounded[:, :n_columns] = x
    rounded[:, n_columns:] = 0
    return rounded


def product(a: Tensor, b: Tensor) -> Tensor:
    """The product; sums of bfloat16 operands are float32."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.dtype == torch.bfloat16 else a @ b


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add the product to `total`; matrices, or as many matrices each."""
    if a.dtype == torch.bfloat16:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        (total.addmm_ if total.ndim == 2 else total.baddbmm_)(a, b)


def least_density(dtype: torch.dtype) -> float:
    """What a density counts as at least, relative to that of the densest component."""
    return _HEADROOM * torch.finfo(dtype).tiny


def exponentials(h: Tensor, top: Tensor, reach: Tensor | None = None) -> Tensor:
    """exp(h − top), in place of h; top: at least the largest of each row, or column.

    Where subnormal numbers would slow down all that follows, what lies far below the least density
    is 0. reach: by how much two exponents of a row can differ, where that is known.
    """
    h.sub_(top)  # first: large ones that differ little keep their digits
    if POWERS_OF_2_ARE_FAST and not on_gpu(h):
        return h.mul_(_LOG2_E).exp2_()
    low = math.log(least_density(h.dtype)) - _BELOW
    slow = SUBNORMALS_ARE_SLOW and not on_gpu(h)
    if not slow or (reach is not None and float(reach.max()) < -low):
        return h.exp_()
    e = h.clamp_min_(low).exp_()
    return torch.threshold_(e, 1.01 * math.exp(low), 0.0)
