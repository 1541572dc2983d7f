"""What the checks cost when a model file is loaded: with them and without them, in turns.

python -m research loading

Without: the same load, where nothing is hashed and no field, setting or number is looked at. Cold:
the file comes from the disk, and that none of it lies in memory is seen to before every turn. Warm:
the system still holds it.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import mnemosphere as mn
from mnemosphere import files, schema
from mnemosphere.data import normalize
from mnemosphere.estimators import memory_model, persistence, portable_model
from mnemosphere.model import from_memories
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere
from research import report
from research.benchmarks import _options

_TURNS, _FEWEST, _BYTES = 200, 20, 1 << 30  # so many, or what takes about as long
_PAGE = 1 << 16  # bytes, of each of which one is asked for
_PASSES = 20  # whose records the file has


def model_of(n_memories: int, n_features: int) -> Any:
    """A classifier of that size; what its memories are does not matter."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50, n_features, generator=generator, dtype=torch.float64).numpy()
    fitted = mn.DAMClassifier(
        7,
        objective="joint",
        normalize="center",
        varsigma=0.9,
        max_iter=_PASSES,
        tol=0,
        random_state=0,
    )
    fitted.fit(x, np.arange(50) % 10)
    w = sphere.sample_uniform(
        n_memories, n_features, generator=generator, dtype=torch.float64, device="cpu"
    )
    params = from_memories(w, fitted.params_.p_q, beta=5.0, varsigma=0.9)
    return fitted._copy_with(params.to(dtype=torch.float32))  # as fits of that size have it


class _AnyDigest:
    """A hash that no file differs from."""

    def hexdigest(self) -> Any:
        return mock.ANY


class _NoSums:
    """Sums of nothing."""

    def __init__(self, *args: Any) -> None:
        self.take = self.add_to = lambda *args: None


def unchecked() -> ExitStack:
    """Files are what they are taken for."""

    def nothing(*args: Any, **more: Any) -> None:
        """Look at nothing."""

    places: list[tuple[Any, str, Any]] = [
        (files, "_Sums", _NoSums), (files, "_MANY", math.inf),  # no second thread either
        (persistence, "opened", lambda *where, norms_of, **more: files.opened(*where, **more)),
        (files.hashlib, "sha256", lambda head: _AnyDigest()),
        (files, "check_depth", nothing), (schema.Array, "check", nothing),
        *((place, "check_fields", nothing) for place in (persistence, schema)),
        *((place, "check_tensors", nothing) for place in (memory_model, normalize, portable_model)),
        (persistence, "validate_parameter_constraints", nothing),
        (Parameters, "check", lambda params, norms: params),
    ]  # fmt: skip
    with ExitStack() as stack:
        for place, name, instead in places:
            stack.enter_context(mock.patch.object(place, name, instead))
        return stack.pop_all()


def read(path: Path) -> None:
    """Read all bytes of a file into memory."""
    with path.open("rb", buffering=0) as file:
        content = np.empty(path.stat().st_size, np.uint8)
        assert file.readinto(content.data) == content.size


def forget(path: Path) -> None:
    """Let the system drop what it holds of a file, and see that it has."""
    with path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())
        for at in range(0, path.stat().st_size, _PAGE):
            while True:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                try:  # what lies in memory is there at once
                    os.preadv(file.fileno(), [bytearray(1)], at, os.RWF_NOWAIT)
                except BlockingIOError:
                    break


def measure(path: Path, n_turns: int, *, cold: bool) -> dict[str, float]:
    """Milliseconds: the best of all turns and the median, and what the checks add to either."""
    found: dict[str, list[float]] = {}

    def take(name: str, action: Callable[[Path], Any]) -> None:
        if cold:
            forget(path)
        began = time.perf_counter()
        action(path)
        found.setdefault(name, []).append(1e3 * (time.perf_counter() - began))

    for _ in range(n_turns):
        take("bytes_ms", read)
        take("load_ms", mn.load)
        with unchecked():
            take("unchecked_ms", mn.load)
    best = {name: min(values) for name, values in found.items()}
    median = {f"median_{name}": statistics.median(values) for name, values in found.items()}
    return best | median


def main(arguments: list[str]) -> None:
    """Measure, and write the report."""
    made = _options.parser(__doc__, "loading")
    made.add_argument("--memories", type=int, nargs="+", default=[100, 1_000, 10_000, 65_536])
    made.add_argument("--features", type=int, default=784)
    asked = made.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for n_memories in asked.memories:
            model_of(n_memories, asked.features).save(path)
            for cold in (True, False):
                size = path.stat().st_size
                n_turns = max(_FEWEST, min(_TURNS, _BYTES // size))
                row = {"memories": n_memories, "bytes": size, "cold": cold, "turns": n_turns}
                rows.append(row | measure(path, n_turns, cold=cold))
                print({k: round(v, 2) for k, v in rows[-1].items()})
    command = report.command_line(["loading", *arguments])
    report.write(asked.out, {**report.head(command), "features": asked.features, "rows": rows})
