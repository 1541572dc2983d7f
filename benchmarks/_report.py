"""What every stored result tells of itself, and how it is written."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mnemosphere.training.checkpoint import write_atomically

Json = dict[str, Any]


def command(name: str, words: Sequence[str], shown: Mapping[str, str] | None = None) -> str:
    """The command line; `shown` has names for the places of this machine."""
    shown = shown or {}
    return shlex.join(["python", "-m", f"benchmarks.{name}", *(shown.get(w, w) for w in words)])


def made_by(command: str, device: str = "cpu") -> Json:
    """The head of a report: command, versions, device."""
    return {
        "command": command,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def write(path: Path | None, report: Json) -> None:
    """As JSON, whole or not at all; nowhere if there is no path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(report, indent=1) + "\n").encode())


def processor() -> str:
    """Name of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
