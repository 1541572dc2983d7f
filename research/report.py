"""The files of a run: JSON, arrays, pictures, and what was installed where it ran."""

from __future__ import annotations

import io
import json
import platform
import time
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.training.checkpoint import write_atomically

RESULT, ARRAYS, PARTS = "result.json", "arrays.npz", "parts"
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib")
_MODULES = {"scikit-learn": "sklearn"}

Json = dict[str, Any]
Arrays = dict[str, NDArray[Any]]


def finished_folders(out: Path, name: str) -> list[Path]:
    """The folders of finished runs, oldest first."""
    found = [path.parent for path in (out / name).glob(f"*/{RESULT}")]
    return sorted(found, key=lambda folder: (read_result(folder)["finished"], folder.name))


def read_result(folder: Path) -> Json:
    """What a finished run left."""
    result = read_json(folder / RESULT, "delete its folder to run it again")
    missing = [
        key
        for key in ("name", "settings", "measured", "paper", "finished", "pictures")
        if not isinstance(result, dict) or key not in result
    ]
    if missing:
        raise ValueError(
            f"{folder / RESULT} lacks {', '.join(missing)}: delete its folder to run it again"
        )
    content: Json = result
    return content


def load_arrays(folder: Path) -> Arrays:
    """What `Run.save_arrays` wrote."""
    return read_arrays(folder / ARRAYS)


def save_picture(picture: Any, folder: Path, name: str, result: Json, *, dpi: float = 150) -> Path:
    """Write FOLDER/NAME.png; a quick run's carries a line that says what it is."""
    from mnemosphere.plots import save
    from mnemosphere.plots.look import VERMILLION, root_figure

    if result["quick"]:
        sources = ", ".join(dict.fromkeys(d.partition(",")[0] for d in result["data"].values()))
        text = "quick run" + (f" on {sources}" if sources else "")
        root_figure(picture).text(
            0.0,
            -0.005,
            f"{text}: not the paper's experiment",
            color=VERMILLION,
            fontsize=8,
            va="top",
        )
    return save(picture, folder / f"{name}.png", dpi=dpi)


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {name!r}")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("device cuda: torch finds no GPU here, use cpu")
    return torch.device(name)


def versions() -> dict[str, str]:
    """What was used."""
    import mnemosphere

    found = {"python": platform.python_version(), "mnemosphere": mnemosphere.__version__}
    for name in _PACKAGES:
        found[name] = import_module(_MODULES.get(name, name)).__version__
    return found


def to_json(value: Any) -> bytes:
    """Strict JSON: what is not a plain value, NaN and infinities are errors."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def device_name(device: torch.device) -> str:
    """In words, for the record."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    threads = torch.get_num_threads()
    return f"{platform.machine()} processor, {threads} thread{'s' if threads > 1 else ''}"


def read_json(path: Path, advice: str) -> Any:
    """The value in a file; ValueError with `advice` where it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from error


class Clock:
    """Seconds of work, over interruptions."""

    def __init__(self, path: Path) -> None:
        self._path, self._began = path, time.perf_counter()
        self._before = float(read_json(path, "delete it")) if path.exists() else 0.0

    def stop(self) -> float:
        """Seconds in all, kept for a run that goes on."""
        total = self._before + time.perf_counter() - self._began
        write_atomically(self._path, to_json(total))
        return total


def pack(arrays: Arrays) -> bytes:
    """The bytes of an .npz file: the same for the same arrays."""
    content = io.BytesIO()
    packed: dict[str, Any] = dict(arrays)
    np.savez_compressed(content, **packed)
    return content.getvalue()


def read_arrays(path: Path) -> Arrays:
    """All arrays of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is damaged ({error}): delete its folder to run it again"
        ) from error
