"""Work that a GPU may do beside other work while a step is captured. Elsewhere: in order.

One step is a long chain of small kernels; parts of it that do not need each other can overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_LANES = 3


class _SideStreams:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.streams = [
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            for _ in range(_LANES)
        ]
        self.busy: set[int] = set()
        # What the side streams read: freed too early, its memory would be written over.
        self.held: list[Tensor] = []


_active: ContextVar[_SideStreams | None] = ContextVar("side_streams", default=None)


@contextmanager
def overlapping(device: torch.device) -> Iterator[None]:
    """Let `side_stream` take effect inside; whoever uses it calls `join` before the end."""
    token = _active.set(_SideStreams(device))
    try:
        yield
    finally:
        _active.reset(token)


@contextmanager
def side_stream(*read: Tensor, lane: int = 0, after: int | None = None) -> Iterator[None]:
    """What is inside may run beside what comes after it, until `join`.

    It waits for all that came before it, in its own lane and on the main stream, and for another
    lane if asked to. read: the tensors it reads that may be dropped before `join`.
    """
    side = _active.get()
    if side is None:
        yield
        return
    side.held.extend(read)
    side.busy.add(lane)
    stream = side.streams[lane]
    stream.wait_stream(torch.cuda.current_stream(side.device))
    if after in side.busy:
        stream.wait_stream(side.streams[after])
    with torch.cuda.stream(stream):
        yield


def beside(act: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The same beside whatever the GPU has been given since now, without waiting for that."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))

    def there() -> None:
        with torch.cuda.stream(stream):
            act()

    return there


def join() -> None:
    """Go on only when everything on side streams is done."""
    side = _active.get()
    if side is not None:
        for lane in side.busy:
            torch.cuda.current_stream(side.device).wait_stream(side.streams[lane])
        side.busy.clear()
        side.held.clear()
