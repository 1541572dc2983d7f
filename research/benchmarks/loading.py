"""What the checks cost when a model file is loaded, beside the time to read its bytes.

python -m research loading

Cold: the file comes from the disk. Warm: the system still holds it in memory, where reading is a
copy. The checks are switched off one moment and on the next, in turns.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

_TURNS = 25


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


@contextmanager
def unchecked(path: Path) -> Iterator[None]:
    """Let `load` believe what this file says."""
    with path.open("rb") as file:  # mapped into memory it could not be forgotten
        about = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    told = json.loads(about["__metadata__"]["mnemosphere"])["checksum"]
    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    with (
        mock.patch.object(files, "_sums", return_value=b""),
        mock.patch.object(files, "_digest", return_value=told),
        mock.patch.object(files, "check_depth", nothing),
        mock.patch.object(persistence, "check_fields", nothing),
        mock.patch.object(persistence, "validate_parameter_constraints", nothing),
        mock.patch.object(memory_model, "check_tensors", nothing),
        mock.patch.object(portable_model, "check_tensors", nothing),
        mock.patch.object(schema.Array, "check", nothing),
        mock.patch.object(Parameters, "check", lambda self: self),
    ):
        yield


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


def timed(action: Callable[[Path], object], path: Path, *, cold: bool) -> float:
    """Milliseconds."""
    if cold:
        forget(path)
    began = time.perf_counter()
    action(path)
    return 1e3 * (time.perf_counter() - began)


def measure(path: Path, *, cold: bool) -> dict[str, float]:
    """The best of all turns: reading, loading, and loading without checks, in milliseconds."""
    found: dict[str, list[float]] = {"read": [], "load": [], "unchecked": []}
    for _ in range(_TURNS):
        found["read"].append(timed(read, path, cold=cold))
        found["load"].append(timed(mn.load, path, cold=cold))
        with unchecked(path):
            found["unchecked"].append(timed(mn.load, path, cold=cold))
    return {name: min(values) for name, values in found.items()}


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
