"""What the checks cost when a model file is loaded, beside the time to read its bytes.

python -m research loading

Cold: the file comes from the disk. Warm: the system still holds it in memory, where reading is a
copy. The cost is the time spent in the checks and what sums over blocks add to reading, without
and with them in turns.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import mnemosphere as mn
from mnemosphere import files, schema
from mnemosphere.estimators import memory_model, persistence, portable_model
from mnemosphere.model import from_memories
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere
from research import report
from research.benchmarks import _options

_TURNS = 15


def model_of(n_memories: int, n_features: int) -> Any:
    """A classifier of that size; what its memories are does not matter."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50, n_features, generator=generator, dtype=torch.float64).numpy()
    fitted = mn.DAMClassifier(
        7, objective="joint", normalize="center", varsigma=0.9, max_iter=1, random_state=0
    )
    fitted.fit(x, np.arange(50) % 10)
    w = sphere.sample_uniform(
        n_memories, n_features, generator=generator, dtype=torch.float64, device="cpu"
    )
    params = from_memories(w, fitted.params_.p_q, beta=5.0, varsigma=0.9)
    return fitted._copy_with(params.to(dtype=torch.float32))  # as fits of that size have it


@dataclass
class Watch:
    """Milliseconds spent in some functions, those that they call included."""

    spent: float = 0.0
    within: bool = False

    def over(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """`action`, timed."""

        def timed(*args: Any, **more: Any) -> Any:
            if self.within:
                return action(*args, **more)
            began, self.within = time.perf_counter(), True
            try:
                return action(*args, **more)
            finally:
                self.spent += 1e3 * (time.perf_counter() - began)
                self.within = False

        return timed


def load(path: Path, *, sums: bool) -> tuple[float, float, float]:
    """Milliseconds that it takes to load a file, in the checks and reading the arrays."""
    checks, reading = Watch(), Watch()
    places = [
        (files, "_digest"), (files, "check_depth"), (persistence, "check_fields"),
        (persistence, "validate_parameter_constraints"), (schema.Array, "check"),
        (memory_model, "check_tensors"), (portable_model, "check_tensors"), (Parameters, "check"),
    ]  # fmt: skip
    with ExitStack() as stack:
        for place, name in places:
            timed = checks.over(getattr(place, name))
            stack.enter_context(mock.patch.object(place, name, timed))
        timed = reading.over(files._read_data)
        stack.enter_context(mock.patch.object(files, "_read_data", timed))
        if not sums:  # such a file is refused, after it was read
            stack.enter_context(mock.patch.object(files, "_sums", return_value=b""))
            stack.enter_context(suppress(ValueError))
        began = time.perf_counter()
        mn.load(path)
    return 1e3 * (time.perf_counter() - began), checks.spent, reading.spent


def read(path: Path) -> None:
    """Read all bytes of a file into memory."""
    with path.open("rb", buffering=0) as file:
        content = np.empty(path.stat().st_size, np.uint8)
        assert file.readinto(content.data) == content.size


def forget(path: Path) -> None:
    """Let the system drop what it holds of a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(path: Path, *, cold: bool) -> dict[str, float]:
    """The best of all turns, in milliseconds."""
    found: dict[str, list[float]] = {}

    def take(**values: float) -> None:
        for name, value in values.items():
            found.setdefault(name, []).append(value)
        if cold:
            forget(path)

    for _ in range(_TURNS):
        take()
        began = time.perf_counter()
        read(path)
        take(read=1e3 * (time.perf_counter() - began))
        total, checks, reading = load(path, sums=True)
        take(load=total, checks=checks, with_sums=reading)
        take(without=load(path, sums=False)[2])
    best = {name: min(values) for name, values in found.items()}
    sums = max(0.0, best["with_sums"] - best["without"])
    return {"read": best["read"], "load": best["load"], "sums": sums, "checks": best["checks"]}


def main(arguments: list[str]) -> None:
    """Measure, and write the report."""
    made = _options.parser(__doc__, "loading")
    made.add_argument("--memories", type=int, nargs="+", default=[100, 1_000, 65_536])
    made.add_argument("--features", type=int, default=784)
    asked = made.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for n_memories in asked.memories:
            model_of(n_memories, asked.features).save(path)
            for cold in (True, False):
                row = {"memories": n_memories, "bytes": path.stat().st_size, "cold": cold}
                rows.append(row | measure(path, cold=cold))
                print({k: round(v, 2) for k, v in rows[-1].items()})
    command = report.command_line(["loading", *arguments])
    report.write(asked.out, {**report.head(command), "features": asked.features, "rows": rows})
