"""Training by several processes: plain torch.distributed, as torchrun starts it.

Every process runs the same program on rows of its own. Sums over rows are all-reduced in float64; small
steps are taken by rank 0, whose parameters are broadcast. An exception ends the process that raised
it, and torchrun ends the others. Without a process group, `Group` does nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from mnemosphere.gpu import to_own_gpu, use_own_gpu

T = TypeVar("T")

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_no_group = ContextVar("no_group", default=False)


class DistributedError(RuntimeError):
    """The other processes did not answer: one of them has failed."""


@dataclass(frozen=True)
class Group:
    """The processes that train together, each with a rank; a process by itself does nothing here."""

    rank: int = 0
    size: int = 1

    @property
    def many(self) -> bool:
        """Whether there are other processes."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that decides, prints and writes."""
        return self.rank == 0

    def part(self, n: int, rank: int | None = None) -> slice:
        """Which of n things in a row this process has, where they are divided; rank 0 has the most."""
        rank = self.rank if rank is None else rank
        return slice(-(-n * rank // self.size), -(-n * (rank + 1) // self.size))

    def sum(self, *tensors: Tensor) -> list[Tensor]:
        """Sums over all processes, in float64, by one all-reduce."""
        return _exchange(dist.all_reduce, tensors) if self.many else list(tensors)

    def broadcast_tensors(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors of rank 0, which the others have in the same shapes and types."""
        return _exchange(partial(dist.broadcast, src=0), tensors) if self.many else list(tensors)

    def broadcast(self, value: T) -> T:
        """The value of rank 0, which can be any object."""
        if not self.many:
            return value
        buffer = io.BytesIO()
        if self.first:
            torch.save(value, buffer)
        box: list[Any] = [buffer.getvalue()]
        with _answered():
            dist.broadcast_object_list(box, src=0)
        if self.first:
            return value
        # Tensors come to the device of this process.
        found: T = torch.load(io.BytesIO(box[0]), weights_only=False, map_location=to_own_gpu)
        return found

    def on_rank0(self, work: Callable[[], T]) -> T:
        """The result of `work`, done by rank 0 without the others."""
        if not self.many:
            return work()
        found: Any = None
        if self.first:
            with no_group():
                found = work()
        return self.broadcast(found)  # type: ignore[no-any-return]


def _exchange(collective: Callable[[Tensor], Any], tensors: Sequence[Tensor]) -> list[Tensor]:
    """A collective on all of them at once: float64 holds every type that they have."""
    device, kinds = tensors[0].device, str(dist.get_backend_config())
    if device.type not in kinds:  # of a group that somebody else made
        device = torch.device("cpu" if "cpu" in kinds else "cuda")
    flat = torch.cat([t.reshape(-1).to(device, torch.float64) for t in tensors])
    with _answered():
        collective(flat)
    parts = torch.split(flat, [t.numel() for t in tensors])
    return [part.view(t.shape).to(t) for part, t in zip(parts, tensors, strict=True)]


@contextlib.contextmanager
def _answered() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch has one for every fault of a connection
        why = " ".join(str(error).split())[:200]
        raise DistributedError(
            f"rank {os.environ.get('RANK', '?')} got no answer from the other processes: see the "
            f"error of the one that failed ({why})"
        ) from error


def current() -> Group:
    """The processes that train together: those that torchrun has started, or only this one."""
    if _no_group.get() or not dist.is_available():
        return Group()
    if not dist.is_initialized():
        launched = all(name in os.environ for name in _ENVIRONMENT)
        if not launched or multiprocessing.parent_process() is not None:
            return Group()
        use_own_gpu()
        seconds = float(os.environ.get("MNEMOSPHERE_TIMEOUT", 1800))
        dist.init_process_group(timeout=timedelta(seconds=seconds))
        atexit.register(_leave)
    return Group(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    """Close connections before Python ends: it aborts if threads of theirs are left."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextlib.contextmanager
def no_group() -> Iterator[None]:
    """Train by this process alone within, even if there are others."""
    before = _no_group.set(True)
    try:
        yield
    finally:
        _no_group.reset(before)


@contextlib.contextmanager
def process_group() -> Iterator[Group]:
    """The processes that train together; only rank 0 warns within."""
    group = current()
    with contextlib.nullcontext() if group.first else warnings.catch_warnings(action="ignore"):
        yield group
