"""The large products of a pass: operands in bfloat16 where that is wanted, sums in float32.

A matrix unit takes bfloat16 operands several times as fast as float32 ones. Only x wᵀ, rᵀ x and r w
are large; all else, and the memories themselves, stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from mnemosphere.gpu import fused_pass, has_bfloat16, on_gpu

__all__ = ["add_product", "narrow", "narrowed", "operands", "product", "supported"]

_wanted: ContextVar[str] = ContextVar("operands", default="float32")
_onednn_products: Any = getattr(torch.backends.mkldnn, "matmul", None)


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


def supported(device: torch.device) -> bool:
    """Whether products of bfloat16 operands with float32 sums are there, and fast."""
    if on_gpu(device):
        return has_bfloat16(device)
    return device.type == "cpu" and _processor_has_units()


@functools.cache
def _processor_has_units() -> bool:
    """Whether oneDNN takes float32 operands as bfloat16 ones, by AMX or the like."""
    return _onednn_products is not None and torch.cpu._is_amx_tile_supported()


def narrowed(w: Tensor) -> bool:
    """Whether products with these memories are to take bfloat16 operands."""
    wanted = _wanted.get()
    if w.dtype != torch.float32 or w.ndim != 2:
        return False
    return wanted == "bfloat16" or (wanted == "auto" and on_gpu(w) and supported(w.device))


def narrow(x: Tensor, factor: Tensor | None = None) -> Tensor:
    """The matrix (times the factor) in bfloat16; on a GPU with columns of zeros behind its own.

    On a processor the product itself takes float32 as bfloat16, or has no such units: then numbers
    are rounded all the same.
    """
    if on_gpu(x) and supported(x.device):
        return fused_pass.narrow(x, factor)
    x = x if factor is None else x * factor
    return x if supported(x.device) else x.to(torch.bfloat16).to(x.dtype)


def product(a: Tensor, b: Tensor, *, narrow: bool = False) -> Tensor:
    """The product; narrow: of operands that `narrow` made."""
    if a.dtype == torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32)
    with _units(narrow):
        return a @ b


def add_product(total: Tensor, a: Tensor, b: Tensor, *, narrow: bool = False) -> None:
    """Add the product to `total`; matrices, or as many matrices each."""
    if a.dtype == torch.bfloat16:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
        return
    with _units(narrow):
        (total.addmm_ if total.ndim == 2 else total.baddbmm_)(a, b)


def _units(wanted: bool) -> Any:
    """Products of float32 matrices inside take bfloat16 operands, on a processor that can."""
    if not wanted or not _processor_has_units():
        return nullcontext()
    return _Bfloat16Products()


class _Bfloat16Products:
    """The setting is that of all threads: it is there for one product only."""

    def __enter__(self) -> None:
        self._before = _onednn_products.fp32_precision
        _onednn_products.fp32_precision = "bf16"

    def __exit__(self, *_: object) -> None:
        _onednn_products.fp32_precision = self._before
