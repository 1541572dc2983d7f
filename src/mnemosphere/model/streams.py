"""Work that a GPU may do beside other work, while a step is captured. Elsewhere: in order.

One step is a long chain of small kernels; parts of it that do not need each other can overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_LANES = 3


class _Lanes:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.streams = [
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            for _ in range(_LANES)
        ]
        self.busy: set[int] = set()
        # What the lanes read: freed too early, its memory would be written over.
        self.held: list[Tensor] = []


_lanes: ContextVar[_Lanes | None] = ContextVar("lanes", default=None)


@contextmanager
def overlapping(device: torch.device) -> Iterator[None]:
    """Let `aside` take effect inside; whoever uses it calls `together` before the end."""
    token = _lanes.set(_Lanes(device))
    try:
        yield
    finally:
        _lanes.reset(token)


@contextmanager
def aside(*read: Tensor, lane: int = 0, after: int | None = None) -> Iterator[None]:
    """What is inside may run beside what comes after it, until `together`.

    It waits for all that came before it, in its own lane and outside the lanes; and for another
    lane if asked to. read: the tensors it reads that may be dropped before `together`.
    """
    lanes = _lanes.get()
    if lanes is None:
        yield
        return
    lanes.held.extend(read)
    lanes.busy.add(lane)
    stream = lanes.streams[lane]
    stream.wait_stream(torch.cuda.current_stream(lanes.device))
    if after in lanes.busy:
        stream.wait_stream(lanes.streams[after])
    with torch.cuda.stream(stream):
        yield


def together() -> None:
    """Go on only when everything aside is done."""
    lanes = _lanes.get()
    if lanes is not None:
        for lane in lanes.busy:
            torch.cuda.current_stream(lanes.device).wait_stream(lanes.streams[lane])
        lanes.busy.clear()
        lanes.held.clear()
