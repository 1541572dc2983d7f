"""A call recorded once as a CUDA graph and replayed: a chain of small kernels, launched as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Captured", "is_recording"]


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
