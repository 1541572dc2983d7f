"""What a computation runs on: its device, its threads, and the versions of what it uses."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import platform
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_WORTH_A_THREAD = 1 << 24  # multiplications: with fewer, waiting for a thread takes longer


def import_extra(package: str, extra: str = "app") -> Any:
    """A package of an extra, or a part of one; ImportError says how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        raise ImportError(f"this needs {name}: {how_to_install(extra)}") from error


def how_to_install(extra: str) -> str:
    """The command for an extra, as in the README."""
    return f"pip install '.[{extra}]' in a clone of the repository"


# `import torch` takes longer than to predict a few rows, which needs no device: it waits until it
# is needed.


_of_thread = threading.local()  # most: threads that it has outside of all `threads`


def _one_thread() -> None:
    vars(_of_thread).clear()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


# A forked process has one thread, and OpenMP would wait for those of its parent for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread)


def pick_device(name: str) -> torch.device:
    """The device of that name, or ValueError; "auto" is a GPU where there is one."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))  # 'meta' holds no numbers, say
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} cannot be used here: try 'cpu' or 'auto'") from error
    return device


@contextlib.contextmanager
def threads(work: float) -> Iterator[None]:
    """Inside, products of `work` multiplications in all take as many threads as help, but no more than torch has outside.

    Only the calling thread is concerned: torch.set_num_threads would set what later threads begin with, too.
    """
    import torch

    before, outer = torch.get_num_threads(), getattr(_of_thread, "most", None)
    most = before if outer is None else outer
    wanted = max(1, int(min(most, work // _WORTH_A_THREAD)))
    set_openmp, set_mkl = _thread_setters()
    of_mkl = 0
    _of_thread.most = most
    try:
        if wanted != before:
            set_openmp(wanted)
            of_mkl = set_mkl(wanted)
        yield
    finally:
        if wanted != before:
            set_openmp(before)
            set_mkl(of_mkl)
        _of_thread.most = outer


@functools.cache
def _thread_setters() -> tuple[Any, Any]:
    """OpenMP's and MKL's number of threads of the calling thread, as torch has them; the latter returns what it was.

    Where torch has neither, they do nothing.
    """
    import torch

    library = ctypes.CDLL(torch._C.__file__)  # and all that it is linked to
    names = ("omp_set_num_threads", "MKL_Set_Num_Threads_Local")
    openmp, mkl = (getattr(library, name, lambda _: 0) for name in names)
    return openmp, mkl


def available_memory(device: torch.device | str = "cpu") -> float:
    """Bytes that can be had, as far as the system tells; else infinitely many."""
    if str(device).startswith("cuda"):
        import torch

        return float(torch.cuda.mem_get_info(device)[0])
    found = [math.inf]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found += [1024.0 * int(t.split()[1]) for t in lines if t.startswith("MemAvailable")]
    with contextlib.suppress(OSError, ValueError):  # of a container
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text(encoding="utf-8"))
                       for name in ("max", "current"))  # fmt: skip
        found.append(float(limit - used))
    return min(found)


def check_memory(n_bytes: float, device: torch.device | str, what: str, advice: str) -> None:
    """Raise ValueError where more memory is asked for than there is, before it is taken."""
    free = available_memory(device)
    if n_bytes > free:
        raise ValueError(
            f"{what} needs about {n_bytes / 1e9:.3g} GB and {free / 1e9:.3g} GB are free: {advice}"
        )


def versions() -> dict[str, str]:
    """Versions of what the figures depend on."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
