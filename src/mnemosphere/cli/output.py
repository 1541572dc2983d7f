"""Files and folders that appear whole or not at all, and never unasked in place of others."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

MODEL, RESULTS, CONFIG = "model.safetensors", "results.json", "config.toml"
CHECKPOINT = "checkpoint.safetensors"
PICTURES = (".png", ".svg", ".pdf")
TABLES = (".csv", ".tsv", ".csv.gz", ".parquet", ".feather", ".json")


def check_file(
    path: Path | None, suffixes: Sequence[str], *, overwrite: bool, inputs: Iterable[str | Path]
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


def _can_resume(draft: Path) -> bool:
    return (draft / CONFIG).is_file() or any(draft.glob(f"{CHECKPOINT}*"))


class Folder:
    """The folder of a run. What is written goes to `draft` beside it, until `finish`."""

    def __init__(self, path: Path, *, overwrite: bool, resume: bool = False) -> None:
        from mnemosphere.training.distributed import current

        self.shown, self.path = path, path.resolve()
        self.draft = self.path.with_name(f"{self.path.name}.partial")
        self._lock = self.path.with_name(f".{self.path.name}.lock")
        self._files, self._group = [RESULTS], current()
        # How often torchrun has started this again, and may: where a machine was exchanged, only
        # the second tells.
        counts = [
            os.environ.get(f"TORCHELASTIC_{n}", "0") for n in ("RESTART_COUNT", "MAX_RESTARTS")
        ]
        again, may = (
            any(n != "0" for n in ns) for ns in zip(*self._group.gather(counts), strict=True)
        )
        left = _can_resume(self.draft), (self.path / RESULTS).is_file()
        begun, ended = self._group.broadcast(left)
        self.resume = resume or (may and begun)
        self.finished = again and ended and not begun and not overwrite
        if self.writes and not self.finished:
            self._check(overwrite, again)
        self._group.broadcast(None)  # nobody looks into the folder before rank 0 has

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return self._group.first

    def _check(self, overwrite: bool, again: bool) -> None:
        path, resume = self.shown, self.resume
        if self._lock.exists():
            with self._alone():
                pass
        self._recover()
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{path} is a file: choose another name with --out")
        if self.path.is_dir() and any(self.path.iterdir()):
            self._check_ours(self.path, overwrite, f"{path} exists and is not empty: choose "
                             "another folder with --out, or pass --overwrite")  # fmt: skip
        if resume and not _can_resume(self.draft):
            raise ValueError(f"nothing to resume at {path}.partial: start without --resume")
        if not resume and not again and self.draft.exists() and any(self.draft.iterdir()):
            self._check_ours(self.draft, overwrite, f"{path}.partial holds an interrupted run: go "
                             "on with --resume, or discard it with --overwrite")  # fmt: skip
        _check_place(self.path)

    @staticmethod
    def _check_ours(folder: Path, overwrite: bool, message: str) -> None:
        """Only with --overwrite, and only what a run has written, is ever replaced."""
        if not overwrite:
            raise ValueError(message)
        try:
            known = set(json.loads((folder / RESULTS).read_text(encoding="utf-8"))["files"])
        except (OSError, ValueError, KeyError, TypeError):
            known = {CONFIG, MODEL, "memories.png", "history.png", "rows.csv", "clusters.png"}
        names = sorted(path.name for path in folder.iterdir())
        others = [n for n in names if n not in known and not n.startswith(CHECKPOINT)]
        if others or not known & set(names):
            raise ValueError(
                f"{folder} holds files that no run has written, such as {(others or names)[0]}: "
                "choose another folder with --out"
            )

    def _recover(self) -> None:
        """Put right what a kill in the middle of `finish` has left: the former run, set aside."""
        ours = re.compile(rf"\.{re.escape(self.path.name)}\.[0-9a-f]{{32}}")
        for left in self.path.parent.glob(".*"):
            if ours.fullmatch(left.name) and left.is_dir():
                if self.path.exists():
                    shutil.rmtree(left)
                else:
                    os.rename(left, self.path)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process writes to the folder meanwhile; ValueError says which one does."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with open(self._lock, "a+", encoding="utf-8") as file:
            try:
                if sys.platform != "win32":
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which ends with the process
                    if os.fstat(file.fileno()).st_ino != os.stat(self._lock).st_ino:
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
        """The draft, rank 0's, which goes away where something fails before a checkpoint."""
        self._group.broadcast(None)  # nobody reads the old one any more
        if not self.writes:
            yield self.draft
            return
        with self._alone():
            yield from self._draft()

    def _draft(self) -> Iterator[Path]:
        if self.draft.exists() and not self.resume:
            shutil.rmtree(self.draft)
        self.draft.mkdir(parents=True, exist_ok=self.resume)
        try:
            yield self.draft
        except BaseException as error:
            stored = self.draft.glob(f"{CHECKPOINT}*")
            if not self.resume and all(path.suffix == ".run" for path in stored):
                shutil.rmtree(self.draft, ignore_errors=True)
            else:
                error.add_note(f"{self.shown}.partial keeps what was trained")
            raise

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write the results and let the folder appear under its name."""
        from mnemosphere.files import to_json, write_atomically

        if not self.writes:
            return
        for path in self.draft.glob(f"{CHECKPOINT}*"):
            path.unlink()
        self._files = sorted({*(path.name for path in self.draft.iterdir()), RESULTS})
        content = to_json({**results, "files": self._files}) + "\n"
        write_atomically(self.draft / RESULTS, content.encode())
        old = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}")
        if self.path.exists():
            os.rename(self.path, old)
        os.rename(self.draft, self.path)
        shutil.rmtree(old, ignore_errors=True)

    def told(self) -> str:
        """What was written, in words."""
        return f"wrote {self.shown}: {', '.join(self._files)}"
