"""Work that a GPU may do beside other work, while a step is captured. Elsewhere: in order.

One step is a long chain of small kernels; halves of it that do not need each other can overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Side:
    stream: torch.cuda.Stream
    # What the other stream reads: freed too early, its memory would be written over.
    held: list[Tensor] = field(default_factory=list)


_side: ContextVar[_Side | None] = ContextVar("side", default=None)


@contextmanager
def overlapping(device: torch.device) -> Iterator[None]:
    """Let `aside` take effect inside; whoever uses it calls `together` before the end."""
    token = _side.set(_Side(torch.cuda.Stream(device)))  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        _side.reset(token)


@contextmanager
def aside(*read: Tensor) -> Iterator[None]:
    """What is inside may run beside what comes after it, until `together`.

    read: the tensors it reads that may be dropped before then.
    """
    side = _side.get()
    if side is None:
        yield
        return
    side.held.extend(read)
    side.stream.wait_stream(torch.cuda.current_stream(side.stream.device))
    with torch.cuda.stream(side.stream):
        yield


def together() -> None:
    """Go on only when everything aside is done."""
    side = _side.get()
    if side is not None:
        torch.cuda.current_stream(side.stream.device).wait_stream(side.stream)
        side.held.clear()
