"""Progress on standard error: a line that is drawn again and again on a terminal, lines elsewhere.

Nothing is shown in the first second: quick fits stay silent.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.dataset import FileDataset
from mnemosphere.training.distributed import current

_LONG = 5.0  # seconds that are told before they pass
_SILENT = 1.0  # seconds before anything is shown
_BETWEEN = {True: 0.1, False: 10.0}  # seconds between two lines of one stage, on a terminal or not


def size_of(n_bytes: float) -> str:
    """A number of bytes in words."""
    power = min(max(int(math.log10(max(n_bytes, 1))) // 3, 1), 4)
    return f"{n_bytes / 1000**power:.3g} {' kMGT'[power]}B"


class Progress(Callback, AbstractContextManager["Progress"]):
    """What `verbose` shows: stages of the choice, scans of files, passes of training.

    Use it as a context. It is also a callback, which watches training.
    """

    def __init__(self, verbose: int) -> None:
        self.shown = bool(verbose) and current().first
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()
        self._stage, self._since, self._from, self._last = "", 0.0, 0.0, -math.inf
        self._training = self._figures = ""

    def __exit__(self, *error: object) -> None:
        if self._live and self._stage:
            print("\x1b[K", end="", file=sys.stderr, flush=True)

    def expect(self, seconds: Callable[[], float]) -> None:
        """Say how long a fit will take, if that is long; `seconds` is asked only if it is told."""
        if self.shown and (about := seconds()) > _LONG:
            print(f"expected: about {_about(about)} on one core", file=sys.stderr)

    def show(self, stage: str, done: float, total: float, note: str = "") -> None:
        """Say that so much of a stage is done."""
        now = time.monotonic()
        if not self.shown or now - self._began < _SILENT:
            return
        if stage != self._stage:  # the time left is that of the stage
            self._stage, self._since, self._from, self._last = stage, now, done, -math.inf
        if now - self._last < _BETWEEN[self._live] and not (self._live and done >= total):
            return
        self._last, went = now, done - self._from
        left = (now - self._since) * (total - done) / went if went > 0 else 0.0
        parts = (
            f"{stage} {int(done):,}/{int(total):,}",
            note.rstrip(),
            left >= 1 and f"{_about(left)} left",
        )
        line = "  ".join(part for part in parts if part)
        if self._live:  # the cursor waits in front: what others write takes the place of the line
            line = f"\x1b[K{line[: shutil.get_terminal_size().columns - 1]}\r"
        print(line, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def counter(self, stage: str, n_rows: int, n_bytes: int) -> Callable[[int], None]:
        """A function to call with the number of rows that went by; n_bytes: of all rows in files."""
        done = 0

        def advance(n: int) -> None:
            nonlocal done
            done = n if done >= n_rows else done + n  # one scan after another
            self.show(stage, done, n_rows, _bytes_done(done / max(n_rows, 1), n_bytes))

        return advance

    @contextmanager
    def scan(self, source: FileDataset) -> Iterator[None]:
        """Show how far scans of all rows have come."""
        source.files.watch = self.counter("scanning rows", source.n_rows, source.n_bytes)
        try:
            yield
        finally:
            source.files.watch = None

    def on_start(self, run: Run) -> None:
        """A training begins."""
        part = f", {run.stage}" if run.stage else ""
        self._training, self._figures = f"training {run.params.n_memories} memories{part}", ""
        self.show(self._training, run.n_iter, run.max_iter)

    def on_batch(self, run: Run, share_done: float) -> None:
        """Part of a pass is done."""
        note = self._figures + _bytes_done(share_done, run.n_bytes)
        self.show(self._training, run.n_iter + share_done, run.max_iter, note)

    def on_pass(self, run: Run) -> None:
        """Show the figures of the pass."""
        record = run.history[-1]
        self._figures = f"loss {record.loss:.3f}  β {record.beta:.3g}  "
        if record.validation_accuracy is not None:
            self._figures += f"{record.validation_accuracy:.1%}  "
        self.show(self._training, run.n_iter, run.max_iter, self._figures)


def _about(seconds: float) -> str:
    """A time in words, one digit of it."""
    size, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= s)
    digits = 10 ** max(0, int(math.log10(seconds / size)))
    return f"{round(seconds / size / digits) * digits} {unit}"


def _bytes_done(share: float, n_bytes: int) -> str:
    return f"{size_of(n_bytes * share)} of {size_of(n_bytes)}" if n_bytes else ""
