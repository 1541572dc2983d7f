"""Files by paths and patterns, and whether memory holds them."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from mnemosphere.data.named import NAMES
from mnemosphere.machine import available_memory

HELD = 3  # times the size of a file, at least, is what reading it takes
STREAMED = (".parquet", ".feather", ".arrow", ".ipc", ".csv", ".tsv", ".npy", "ubyte")


def expand(paths: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[Path]:
    """The files that paths and patterns name."""
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    files: list[Path] = []
    for path in map(str, given):
        pattern = glob.has_magic(path) and not Path(path).exists()
        found = sorted(glob.glob(path, recursive=True)) if pattern else [path]
        if not found:
            raise ValueError(f"no file matches {path!r}: check the pattern")
        files += map(Path, found)
    if not files:
        raise ValueError("no files: pass a path, a list of paths or a pattern")
    return files


def too_large(data: Sequence[str], memory: int | None) -> list[Path] | None:
    """The files, where they are to be read as they are needed; None: memory holds them.

    memory: bytes for them; None: what is free. Several arrays are always read that way.
    """
    if len(data) == 1 and (data[0] in NAMES or Path(data[0]).is_dir()):
        return None
    files = expand(data)
    if not all(path.is_file() and path.name.lower().endswith(STREAMED) for path in files):
        return None  # to be told what is wrong with it where it is read
    arrays = files[0].name.lower().endswith((".npy", "ubyte"))
    budget = available_memory("cpu") if memory is None else memory
    held = HELD * sum(path.stat().st_size for path in files)
    return files if held > budget or (arrays and len(files) > 1) else None
