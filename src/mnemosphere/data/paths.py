"""Files by paths and patterns; this module and tables need no torch."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

MEMORY = 256 << 20  # bytes of rows that are held at a time
IPC, TEXT = (".feather", ".arrow", ".ipc"), (".csv", ".tsv", ".csv.gz", ".tsv.gz")
SUFFIXES = (".parquet", *IPC, ".csv", ".tsv", ".npy")  # read in pieces

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def expand(paths: Paths) -> list[Path]:
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
