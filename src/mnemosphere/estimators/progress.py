"""Progress on standard error: a line that is drawn again and again on a terminal, lines elsewhere.

Nothing is shown in the first second: quick fits stay silent.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from contextlib import AbstractContextManager

from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.distributed import current

_SILENT = 1.0  # seconds before anything is shown
_BETWEEN = {True: 0.1, False: 10.0}  # seconds between two lines of one stage, on a terminal or not


class Progress(Callback, AbstractContextManager["Progress"]):
    """What `verbose` shows: stages of the choice, passes of training.

    Use it as a context. It is also a callback, which watches training.
    """

    def __init__(self, verbose: int) -> None:
        self.shown = bool(verbose) and current().first
        self._live = sys.stderr.isatty()
        self._began, self._last, self._stage, self._figures = time.monotonic(), -math.inf, "", ""

    def __exit__(self, *error: object) -> None:
        if self._live and self._stage:
            print("\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, stage: str, done: float, total: float, note: str = "") -> None:
        """Say that so much of a stage is done."""
        now = time.monotonic()
        pause = 0.0 if stage != self._stage or done >= total else _BETWEEN[self._live]
        if not self.shown or now - self._began < _SILENT or now - self._last < pause:
            return
        self._stage, self._last = stage, now
        line = f"{stage} {int(done):,}/{int(total):,}  {note}".rstrip()
        if self._live:  # the cursor waits in front: what others write takes the place of the line
            line = f"\x1b[K{line[: shutil.get_terminal_size().columns - 1]}\r"
        print(line, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def on_start(self, run: Run) -> None:
        """A training begins."""
        self._figures = ""
        self.on_batch(run, 0.0)

    def on_batch(self, run: Run, share_done: float) -> None:
        """Part of a pass is done."""
        self.show(
            f"training {run.params.n_memories} memories",
            run.n_iter + share_done,
            run.max_iter,
            self._figures,
        )

    def on_pass(self, run: Run) -> None:
        """Show the figures of the pass."""
        record = run.history[-1]
        self._figures = f"loss {record.loss:.3f}  β {record.beta:.3g}"
        if record.validation_loss is not None:
            self._figures += f"  validation {record.validation_loss:.3f}"
        self.on_batch(run, 0.0)
