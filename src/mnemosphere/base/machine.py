"""What a computation ran on: its device, and the versions of what it used."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


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


def _one_thread() -> None:
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
