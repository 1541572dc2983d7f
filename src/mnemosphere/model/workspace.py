"""Memory that one pass after another works in, on a processor.

An array of some megabytes is new memory each time, which the system hands out page by page: in a
fit that took as long as the exponentials do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

__all__ = ["reused", "room"]

_held: ContextVar[dict[str, Tensor] | None] = ContextVar("workspace", default=None)


@contextmanager
def reused() -> Iterator[None]:
    """Inside, the arrays that a pass works in stay for the next one; they go at the end."""
    held = _held.get()
    token = _held.set({} if held is None else held)
    try:
        yield
    finally:
        _held.reset(token)


def room(name: str, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
    """An array of that name for a result, what it held is lost; None where none is kept."""
    held = _held.get()
    if held is None or like.device.type != "cpu":
        return None
    size, there = math.prod(shape), held.get(name)
    # What was made in inference mode cannot be written to outside of it.
    barred = there is not None and there.is_inference() and not torch.is_inference_mode_enabled()
    if there is None or there.dtype != like.dtype or there.numel() < size or barred:
        there = held[name] = like.new_empty(size)
    return there[:size].view(shape)
