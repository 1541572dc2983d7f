"""Files and folders that appear whole or not at all, and never unasked in place of others."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

MODEL, RESULTS, CONFIG = "model.safetensors", "results.json", "config.toml"
CHECKPOINT, COLUMNS = "checkpoint.safetensors", "columns.png"
PICTURES = (".png", ".svg", ".pdf")
TABLES = (".csv", ".tsv", ".csv.gz", ".parquet")


def check_file(
    path: Path | None, suffixes: Sequence[str], overwrite: bool, *inputs: str | Path
) -> None:
    """Raise where a file must not or cannot be written; nothing is created."""
    if path is None:
        return
    if not path.name.lower().endswith(tuple(suffixes)):
        raise ValueError(f"cannot write {path.name!r}: end the name in {', '.join(suffixes)}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file in it")
    if path.exists():
        if any(Path(other).exists() and path.samefile(other) for other in inputs):
            raise ValueError(f"{path} is what is read: choose another name with --out")
        if not overwrite:
            raise ValueError(f"{path} exists: choose another name with --out, or pass --overwrite")
    _check_place(path)


def _check_place(path: Path) -> None:
    """The first folder above that exists must take files."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        what = "cannot be written to" if above.is_dir() else "is a file"
        raise ValueError(f"{above} {what}: choose another place with --out")


class Folder:
    """The folder of a run. What is written goes to `draft` beside it, until `finish`."""

    def __init__(self, path: Path, *, overwrite: bool, resume: bool = False) -> None:
        self.shown, self.path, self.resumes = path, path.resolve(), resume
        self.trained = False  # whether a failure from here on is not one of training
        if not self.path.name:
            raise ValueError(f"{path} is the root of all folders: choose another with --out")
        self.draft = self.path.with_name(f"{self.path.name}.partial")
        self._lock = self.path.with_name(f".{self.path.name}.lock")
        if self._lock.exists():
            with self._alone():
                pass
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{path} is a file: choose another name with --out")
        self._check_ours(self.path, overwrite, f"{path} exists and is not empty: choose another "
                         "folder with --out, or pass --overwrite")  # fmt: skip
        begun = (self.draft / CONFIG).is_file() or any(self.draft.glob(f"{CHECKPOINT}*"))
        if resume and not begun:
            raise ValueError(f"nothing to resume at {path}.partial: start without --resume")
        if not resume:
            self._check_ours(self.draft, overwrite, f"{path}.partial holds an interrupted run: go "
                             "on with --resume, or discard it with --overwrite")  # fmt: skip
        _check_place(self.path)

    @staticmethod
    def _check_ours(folder: Path, overwrite: bool, message: str) -> None:
        """Only with --overwrite, and only what a run has written, is ever replaced."""
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if names and not overwrite:
            raise ValueError(message)
        try:
            known = set(json.loads((folder / RESULTS).read_text(encoding="utf-8"))["files"])
        except (OSError, ValueError, KeyError, TypeError):
            known = {
                CONFIG,
                MODEL,
                COLUMNS,
                "memories.png",
                "history.png",
                "rows.csv",
                "clusters.png",
            }
        others = [n for n in names if n not in known and not n.startswith(CHECKPOINT)]
        if others or (names and not known & set(names)):
            raise ValueError(
                f"{folder} holds files that no run has written, such as {(others or names)[0]}: "
                "choose another folder with --out"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process writes to the folder meanwhile; ValueError says which one does."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with open(self._lock, "a+", encoding="utf-8") as file:
            try:
                if sys.platform != "win32":
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which ends with the process
                    if os.fstat(file.fileno()).st_nlink == 0:
                        raise OSError  # the one before has just removed it
            except OSError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise ValueError(
                    f"{holder} is writing to {self.shown} now: wait for it, or choose another "
                    "folder with --out"
                ) from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            try:
                yield
            finally:
                self._lock.unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """The draft, which goes away if something fails; an interrupted training stays."""
        with self._alone():
            if not self.resumes:
                shutil.rmtree(self.draft, ignore_errors=True)
            self.draft.mkdir(parents=True, exist_ok=True)
            try:
                yield self.draft
            except BaseException as error:
                failed = self.trained and isinstance(error, Exception)
                stored = self.draft.glob(f"{CHECKPOINT}*")
                if self.resumes or (not failed and any(path.suffix != ".run" for path in stored)):
                    error.add_note(f"{self.shown}.partial keeps what was trained")
                else:
                    shutil.rmtree(self.draft, ignore_errors=True)
                raise

    def finish(self, results: Mapping[str, Any]) -> str:
        """Write the results and let the folder appear under its name; what was written, in words."""
        from mnemosphere.base.files import to_json, write_atomically

        for path in self.draft.glob(f"{CHECKPOINT}*"):
            path.unlink()
        files = sorted({*(path.name for path in self.draft.iterdir()), RESULTS})
        content = to_json({**results, "files": files}) + "\n"
        write_atomically(self.draft / RESULTS, content.encode())
        if self.path.exists():
            shutil.rmtree(self.path)
        os.rename(self.draft, self.path)
        return f"wrote {self.shown}: {', '.join(files)}"
