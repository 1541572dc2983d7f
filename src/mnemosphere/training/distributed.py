"""Training by many processes: what they add up, and what one of them does for all.

A process belongs to a group where torchrun (or anything that sets its environment) has started it,
or where a torch process group exists. Every process runs the same program; rows are divided among
them, sums over rows are added up, and what is small is done by rank 0 and sent to all. Where there
is no group, `Group` does nothing at all.

When a process fails it leaves the cause in the group's store and its connections close; the others
find it there. So all end, and one of them says why.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import multiprocessing
import os
import socket
import sys
import time
import traceback
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from mnemosphere.data.dataset import Batches, Dataset
from mnemosphere.model.sums import Sums

__all__ = ["DistributedError", "Group", "Processes", "alone", "current", "together"]

T = TypeVar("T")

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_TIMEOUT = "MNEMOSPHERE_TIMEOUT"  # seconds that a process waits for the others
_GRACE = 3.0  # seconds in which the processes that live say so
_PLAIN = (ValueError, TypeError, OSError, FloatingPointError)  # errors that need no traceback


class DistributedError(RuntimeError):
    """A process of the group has failed; `tells`: this process is the one to say so."""

    tells = True


class Group(Sums):
    """A process by itself."""

    many = False  # whether there is a group, of one process even

    @property
    def first(self) -> bool:
        """Whether this process is the one that decides, prints and writes."""
        return self.rank == 0

    def sum_on_first(self, *tensors: Tensor) -> list[Tensor]:
        """As `sum`, but what the other processes get means nothing."""
        return list(tensors)

    def from_first(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors of rank 0, which all others have in the same shapes."""
        return list(tensors)

    def same(self, value: T) -> T:
        """What rank 0 has, whatever it is."""
        return value

    def gather(self, value: T) -> list[T]:
        """What each process has, by rank."""
        return [value]

    def once(self, work: Callable[[], T]) -> T:
        """The result of `work`, done by rank 0 alone."""
        return work()

    def shard(self, dataset: Dataset) -> Batches:
        """The rows of this process."""
        return dataset.shard(self.rank, self.size) if self.many else dataset


class Processes(Group):
    """Many processes that train together: the torch process group that there is."""

    many = True

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        config = str(dist.get_backend_config())
        self._types = {part.partition(":")[0] for part in config.split(",")}
        store = dist.distributed_c10d._get_default_store()
        self._store = dist.distributed_c10d.PrefixStore("mnemosphere", store)
        self._world = weakref.ref(dist.group.WORLD)  # whoever made the group has to let it go
        self._store.set(f"host{self.rank}", socket.gethostname())
        self.same(None)  # whoever is missing is named here

    def sum(self, *tensors: Tensor) -> list[Tensor]:
        """Sums over all processes, each in its own precision, as one buffer."""
        return self._sum(tensors, dist.all_reduce)

    def sum_on_first(self, *tensors: Tensor) -> list[Tensor]:
        """As `sum`, but what the other processes get means nothing."""
        return self._sum(tensors, partial(dist.reduce, dst=0))

    def largest(self, tensor: Tensor) -> Tensor:
        """The largest of each number over all processes."""
        exchange = partial(dist.all_reduce, op=dist.ReduceOp.MAX)
        return self._flat([tensor], tensor.dtype, exchange)[0]

    def from_first(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors of rank 0, which all others have in the same shapes."""
        order = sorted(range(len(tensors)), key=lambda k: -tensors[k].element_size())  # aligned
        raw = [tensors[k].reshape(-1).view(torch.uint8) for k in order]
        flat = self._buffer(raw, torch.uint8) if self.first else raw[0].new_empty(
            sum(map(len, raw)), device=self._device(raw[0])
        )  # fmt: skip
        self._try(lambda: dist.broadcast(flat, src=0))
        if self.first:
            return list(tensors)
        parts = torch.split(flat, [len(part) for part in raw])
        found = {k: part.to(tensors[k].device) for k, part in zip(order, parts, strict=True)}
        return [found[k].view(t.dtype).view(t.shape) for k, t in enumerate(tensors)]

    def same(self, value: T) -> T:
        """What rank 0 has, whatever it is."""
        box = [_pack(value) if self.first else None]
        self._try(lambda: dist.broadcast_object_list(box, 0))
        return value if self.first else _unpack(box[0])

    def gather(self, value: T) -> list[T]:
        """What each process has, by rank."""
        box: list[Any] = [None] * self.size
        self._try(lambda: dist.all_gather_object(box, _pack(value)))
        return [_unpack(packed) for packed in box]

    def once(self, work: Callable[[], T]) -> T:
        """The result of `work`, done by rank 0 alone."""
        found: Any = None
        if self.first:
            with alone():
                found = work()
        return self.same(found)  # type: ignore[no-any-return]

    def _sum(self, tensors: Sequence[Tensor], exchange: Callable[[Tensor], Any]) -> list[Tensor]:
        singles = [t for t in tensors if t.dtype == torch.float32]
        others = [t for t in tensors if t.dtype != torch.float32]
        if not singles or not others:
            return self._flat(tensors, torch.float32 if singles else torch.float64, exchange)
        # Doubles go as three singles each, in a place of this process: nothing of them is lost.
        device = singles[0].device
        left = torch.cat([t.reshape(-1).to(device, torch.float64) for t in others])
        table = singles[0].new_zeros(self.size, 3, len(left))
        for part in table[self.rank]:
            part.copy_(left)
            left = left - part
        *singles, table = self._flat([*singles, table], torch.float32, exchange)
        parts = torch.split(table.double().sum((0, 1)), [t.numel() for t in others])
        found = [iter(singles), (p.view(t.shape).to(t) for p, t in zip(parts, others, strict=True))]
        return [next(found[t.dtype != torch.float32]) for t in tensors]

    def _flat(
        self, tensors: Sequence[Tensor], dtype: torch.dtype, exchange: Callable[[Tensor], Any]
    ) -> list[Tensor]:
        flat = self._buffer(tensors, dtype)
        self._try(lambda: exchange(flat))
        parts = torch.split(flat, [t.numel() for t in tensors])
        return [part.view(t.shape).to(t) for part, t in zip(parts, tensors, strict=True)]

    def _buffer(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """All of them in a row, where the group takes them."""
        device = self._device(tensors[0])
        return torch.cat([t.reshape(-1).to(device, dtype) for t in tensors])

    def _device(self, tensor: Tensor) -> torch.device:
        if tensor.device.type in self._types:
            return tensor.device
        return torch.device("cpu" if "cpu" in self._types else "cuda")

    @property
    def exists(self) -> bool:
        """Whether this is still the group that there is."""
        return self._world() is dist.group.WORLD

    # Faults.

    def _try(self, exchange: Callable[[], Any]) -> None:
        try:
            exchange()
        except RuntimeError as error:  # what every fault of a connection is
            raise self._lost(error) from error

    def name(self, rank: int) -> str:
        """How a message calls a process."""
        host = ""
        with contextlib.suppress(Exception):
            if self._store.check([f"host{rank}"]):
                host = f" on {self._store.get(f'host{rank}').decode()}"
        return f"rank {rank} of {self.size}{host}"

    def report(self, error: BaseException) -> DistributedError:
        """Leave the cause to the others, and end the group."""
        text = " ".join(str(error).split()) or type(error).__name__
        what = text if isinstance(error, _PLAIN) else f"{type(error).__name__}: {text}"
        return self._told(f"{self.name(self.rank)} failed: {what}")

    def _told(self, text: str) -> DistributedError:
        """The cause that was left first is what all of them raise."""
        mine = f"{self.rank} {text}"
        with contextlib.suppress(Exception):  # the store may be gone, too
            mine = self._store.compare_set("cause", "", mine).decode()
        teller, _, text = mine.partition(" ")
        found = DistributedError(text)
        found.tells = int(teller) == self.rank
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
        return found

    def _lost(self, error: RuntimeError) -> DistributedError:
        """A connection broke or nobody answered in time: why, as far as the store knows."""
        why = " ".join(str(error).split()).partition("] ")[2].partition(". ")[0] or str(error)
        gone = [0]  # holds the store, unless torchrun does
        with contextlib.suppress(Exception):
            self._store.set(f"alive{self.rank}", "")
            deadline = time.monotonic() + _GRACE
            while time.monotonic() < deadline and not self._store.check(["cause"]):
                time.sleep(0.05)
            gone = [k for k in range(self.size) if not self._store.check([f"alive{k}"])]
        names = ", ".join(map(self.name, gone)) or "the network"
        return self._told(f"{names} did not answer, killed or out of reach ({why})")


def _pack(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpack(packed: Any) -> Any:
    """What another process has packed, with its tensors on the device of this one."""
    return torch.load(
        io.BytesIO(packed), weights_only=False,
        map_location=lambda stored, place: stored.cuda() if "cuda" in place else stored,  # type: ignore[attr-defined]
    )  # fmt: skip


_SOLO = Group()
_joined: Processes | None = None
_alone = 0
_depth = 0


def current() -> Group:
    """The group that this process trains with."""
    global _joined
    if _alone or not dist.is_available():
        return _SOLO
    if not dist.is_initialized():
        if _joined is not None or not _started_by_a_launcher():  # a group that ended is not joined
            return _SOLO
        sys.excepthook = _say_once
        _join()
    if _joined is None or not _joined.exists:
        sys.excepthook = _say_once
        _joined = Processes()
    return _joined


def _started_by_a_launcher() -> bool:
    return multiprocessing.parent_process() is None and all(n in os.environ for n in _ENVIRONMENT)


def _join() -> None:
    if torch.cuda.is_available():
        local = int(os.environ.get("LOCAL_RANK", 0))
        torch.cuda.set_device(local % torch.cuda.device_count())
    timeout = timedelta(seconds=float(os.environ.get(_TIMEOUT, 1800)))
    store, rank, size = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
    start = _agree(store, rank, size, timeout.total_seconds())
    store = dist.distributed_c10d.PrefixStore(start, store)
    dist.init_process_group(store=store, rank=rank, world_size=size, timeout=timeout)
    atexit.register(_part)


def _part() -> None:
    """Close connections before Python ends: it aborts where threads of theirs are left."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _agree(store: Any, rank: int, size: int, seconds: float) -> str:
    """A name for this start of the group, which no process of an earlier one has.

    After a fault torchrun starts processes with the store of those before them, addresses and all.
    Each leaves a name of its own; rank 0 writes down those it finds, until all find theirs there.
    """
    own, deadline = uuid.uuid4().hex, time.monotonic() + seconds

    def read(key: str) -> str:
        return store.get(key).decode() if store.check([key]) else ""

    store.set(f"name{rank}", own)
    while time.monotonic() < deadline:
        if rank == 0:
            store.set("names", " ".join(read(f"name{k}") or "?" for k in range(size)))
        names = read("names")
        if names.split(" ")[rank : rank + 1] == [own]:
            store.set(f"seen{rank}", names)
            if rank == 0 and all(read(f"seen{k}") == names for k in range(size)):
                store.set("start", names)
            if read("start") == names:
                return names.partition(" ")[0]
        time.sleep(0.02)
    late = [k for k in range(size) if read(f"seen{k}") != names] if own in names else [0]
    which = ", ".join(f"rank {k}" for k in late)
    error = DistributedError(f"{which} of {size} did not start within {seconds:g} s, for which "
                             f"rank {rank} on {socket.gethostname()} waited")  # fmt: skip
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    error.tells = store.compare_set(f"late{again}", "", own).decode() == own
    raise error


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Train by itself within, whatever group there is: for what one process does."""
    global _alone
    _alone += 1
    try:
        yield
    finally:
        _alone -= 1


@contextlib.contextmanager
def together() -> Iterator[Group]:
    """The group; what fails within fails for all of it, and rank 0 alone warns."""
    global _depth
    group = current()
    if not isinstance(group, Processes) or _depth:
        yield group
        return
    _depth += 1
    try:
        with warnings.catch_warnings():
            if not group.first:
                warnings.simplefilter("ignore")
            yield group
    except DistributedError:
        raise
    except Exception as error:
        raise group.report(error) from error
    finally:
        _depth -= 1


def _say_once(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The end of a process in a group: one of them says why, in a line where that is enough."""
    if not isinstance(error, DistributedError):
        sys.__excepthook__(kind, error, trace)
        return
    if not error.tells:
        time.sleep(_GRACE)  # a launcher reports who ends first, and ends the others
        return
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    if error.__cause__ is not None and not isinstance(error.__cause__, (*_PLAIN, RuntimeError)):
        traceback.print_exception(error.__cause__)
    print(f"error: {error}", file=sys.stderr, flush=True)
    try:
        raise DistributedError(str(error)) from None
    except DistributedError as told:
        get_error_handler().record_exception(told)  # for the launcher's report
