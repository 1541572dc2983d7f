"""Layer −1: what other packages ask of a GPU, and the graphs that run there."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
from torch import Tensor

__all__ = ["has_bfloat16", "on_gpu", "to_own_gpu", "use_own_gpu"]


def on_gpu(place: Tensor | torch.device) -> bool:
    """Whether it is on a GPU: the host then waits for the device to read a number of it."""
    return place.type == "cuda" if isinstance(place, torch.device) else place.is_cuda


@functools.cache
def has_bfloat16(device: torch.device) -> bool:
    """Whether it is a GPU with units for products of bfloat16 operands with float32 sums."""
    if not on_gpu(device) or not hasattr(torch.ops.aten.mm, "dtype"):
        return False
    return torch.cuda.get_device_capability(device.index or 0) >= (8, 0)


def use_own_gpu() -> None:
    """Take the GPU of this process, if there is one: torchrun counts them on each machine."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


def to_own_gpu(stored: Any, place: str) -> Any:
    """For torch.load: tensors of another GPU go to that of this process."""
    return stored.cuda() if "cuda" in place else stored
