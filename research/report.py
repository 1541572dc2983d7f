"""What every measurement shares: its head, its files, parts that are never redone, comparisons.

A report is a JSON file. Its head says how it was made: the command, seeds, versions, device, threads,
and a hash of the estimators' defaults. Files appear whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shlex
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

import mnemosphere
from mnemosphere.base import machine
from mnemosphere.base.files import write_atomically

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).parent / "results"  # what the documentation is made from
PROGRAM = ("python", "-m", "research")

# Options whose value is a place on one machine: named by a word, or left out.
_PLACES = {
    "--data": "DIR",
    "--vectors": "DIR",
    "--texts": "DIR",
    "--cells": None,
    "--out": None,
    "-o": None,
    "--output": None,
}

Json = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Stored = TypeVar("Stored")


# --- the head


def command_line(words: Sequence[str]) -> str:
    """The command as it was typed, less the places of files on one machine."""
    shown: list[str] = []
    left = iter(words)
    for word in left:
        option, joined, _ = word.partition("=")
        if option not in _PLACES:
            shown.append(word)
            continue
        if not joined:
            next(left, None)
        name = _PLACES[option]
        if name is not None:
            shown += [option, name]
    return shlex.join([*PROGRAM, *shown])


def head(
    command: str, *, device: str | torch.device = "cpu", seeds: Iterable[int] = (0,),
) -> Json:  # fmt: skip
    """How a report came about."""
    return {
        "command": command,
        "seeds": list(seeds),
        "versions": {"mnemosphere": mnemosphere.__version__, **machine.versions()},
        "defaults": defaults(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
    }


def device_name(device: torch.device | str = "cpu") -> str:
    """Name of the GPU or processor, as far as the system tells."""
    if str(device).startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def defaults() -> str:
    """A hash of the settings that estimators have by default, but for what they show."""
    estimators = mnemosphere.DAMClassifier(), mnemosphere.DAMClusterer()
    settings = [sorted(e.get_params().items()) for e in estimators]
    texts = [repr([pair for pair in own if pair[0] != "verbose"]) for own in settings]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def synchronize(device: str | torch.device) -> None:
    """Wait for all that a GPU was told to do."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


# --- files


def to_json(value: Any) -> bytes:
    """Strict JSON: what is not a plain value, NaN and infinities are errors."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def plain(value: Any) -> Any:
    """Values that JSON has: arrays as lists, NaN and infinities as None."""
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, torch tensors
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def make_folder(folder: Path) -> None:
    """Make a folder and see that it can be written to, before any work is done for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def write(path: Path, report: Json) -> None:
    """A report as JSON, whole or not at all; arrays become lists, NaN and infinities null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_json(plain(report)))


def read_json(path: Path, advice: str) -> Any:
    """The value in a file; ValueError with `advice` where it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from error


def pack(arrays: Arrays) -> bytes:
    """The bytes of an .npz file: the same for the same arrays."""
    content = io.BytesIO()
    packed: dict[str, Any] = dict(arrays)
    np.savez_compressed(content, **packed)
    return content.getvalue()


def write_arrays(path: Path, arrays: Arrays) -> None:
    """An .npz file, whole or not at all."""
    write_atomically(path, pack(arrays))


def read_arrays(path: Path) -> Arrays:
    """All arrays of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is damaged ({error}): delete its folder to run it again"
        ) from error


# --- parts that are never redone


@dataclass(frozen=True)
class Parts:
    """The finished parts of a run, by which an interrupted one goes on."""

    folder: Path

    def step(self, key: str, function: Callable[[], Stored]) -> Stored:
        """The JSON value of a part: read where it is finished, else computed and stored."""
        path = self.folder / f"{key}.json"
        if path.exists():
            stored: Stored = read_json(path, "delete it to have that part done again")
            return stored
        content = to_json(function())
        write_atomically(path, content)
        # What a run that goes on would read: the same types either way.
        same: Stored = json.loads(content)
        return same

    def save(self, key: str, **arrays: NDArray[Any]) -> None:
        """Store arrays of a part; call it inside the part's function."""
        write_arrays(self.folder / f"{key}.npz", arrays)

    def load(self, key: str) -> Arrays:
        """The arrays of a finished part."""
        return read_arrays(self.folder / f"{key}.npz")


# --- comparisons


@dataclass(frozen=True)
class Comparison:
    """One number beside a published one.

    `low` and `high` bound what agrees with it, given how it is rounded and how much seeds differ;
    both None where there is no number to hold against.
    """

    what: str
    measured: float
    paper: str = ""  # as the paper has it: "79%"; "" where it has none
    low: float | None = None
    high: float | None = None
    unit: str = "%"
    spread: float | None = None  # standard deviation over seeds
    digits: int = 2  # decimals that are worth showing
    note: str = ""  # what it cost, and the like

    def as_dict(self, *, quick: bool) -> Json:
        """Plain values, and whether they agree: None where there is nothing to hold against."""
        within: bool | None = None
        if not quick and self.low is not None and self.high is not None:
            within = self.low <= self.measured <= self.high
        return {**asdict(self), "within": within}


def measured_text(compared: Json, *, n_seeds: int | None = None) -> str:
    """The measured number with its unit, and with its deviation unless there is one seed only."""
    digits = compared["digits"]
    text = f"{compared['measured']:.{digits}f}"
    if compared["spread"] is not None and n_seeds != 1:
        text += f" ± {compared['spread']:.{digits}f}"
    return f"{text}{compared['unit']}"
