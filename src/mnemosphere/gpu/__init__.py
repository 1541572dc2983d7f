"""What other packages ask of a GPU, and the graphs that run there."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Captured", "has_bfloat16", "is_recording", "on_gpu", "to_own_gpu", "use_own_gpu"]


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


def is_recording(x: Tensor) -> bool:
    """Whether what is done with the tensor is recorded now: then nothing can be asked of it."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


class Captured:
    """`act`, which reads tensors that stay where they are and changes them in place.

    It must not need a device-to-host synchronization. Recording calls it twice, which takes as
    long as many replays; afterwards `changed`, all the tensors that it changes, are as before.
    generators: those it draws from; the host may seed them before each replay.
    """

    def __init__(
        self,
        act: Callable[[], None],
        changed: list[Tensor],
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        before, device = [t.clone() for t in changed], changed[0].device
        self._graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            act()  # libraries allocate what they need at their first calls, and kernels are built
            # Not by torch.cuda.graph: it collects garbage first, which takes longer than all else.
            torch.cuda.synchronize(device)
            for generator in generators:
                self._graph.register_generator_state(generator)
            self._graph.capture_begin()
            try:
                act()
            finally:
                self._graph.capture_end()
        torch.cuda.current_stream(device).wait_stream(side)
        torch._foreach_copy_(changed, before)

    def __call__(self) -> None:
        """Replay it."""
        self._graph.replay()
