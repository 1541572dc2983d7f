"""What a search has tried, and progress on standard error: a line that is drawn again and again on a terminal, lines elsewhere.

Nothing is shown in the first second: quick fits stay silent.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from contextlib import AbstractContextManager
from typing import Any

from mnemosphere.base.text import Shown, Table
from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.distributed import current

_SILENT = 1.0  # seconds before anything is shown
_BETWEEN = {True: 0.1, False: 10.0}  # seconds between two lines of one stage, on a terminal or not
# Columns of a printed table.
_COLUMNS = {
    "geometry": "geometry", "n_clusters": "clusters", "n_memories": "memories",
    "objective": "objective", "noise": "noise", "cycles": "cycles", "unlabeled": "unlabeled rows",
    "log_loss": "held-out log-loss", "error": "±", "silhouette": "silhouette",
    "excess": "over one cloud", "chosen": "chosen",
}  # fmt: skip


class Progress(Callback, AbstractContextManager["Progress"]):
    """What `verbose` shows: stages of the choice, passes of training.

    Use it as a context. It is also a callback, which watches training.
    """

    def __init__(self, verbose: int) -> None:
        self.shown = bool(verbose) and current().first
        self._live = sys.stderr.isatty()
        self._began, self._last, self._stage = time.monotonic(), -math.inf, ""

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

    def on_batch(self, run: Run, share_done: float) -> None:
        """Part of a pass is done: show it, with the figures of the last one."""
        told = [f"loss {own.loss:.3f}  β {own.beta:.3g}" for own in run.history[-1:]]
        stage = f"training {run.params.n_memories} memories"
        self.show(stage, run.n_iter + share_done, run.max_iter, *told)

    def on_pass(self, run: Run) -> None:
        """Show the figures of the pass."""
        self.on_batch(run, 0.0)


class SearchTable(Shown, list[dict[str, Any]]):
    """The trials of a search; prints as a table of those on most rows, best first."""

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """The table; columns that say nothing are left out."""
        last = [t for t in self if t.get("rows") == self[-1].get("rows")]
        last.sort(key=lambda t: float(t.get("log_loss", -t.get("silhouette", 0.0))))
        shown = [name for name in _COLUMNS if any(t.get(name) for t in last)]
        lines = [{_COLUMNS[name]: _cell(trial.get(name)) for name in shown} for trial in last]
        return [lines if lines else "no search"]


def _cell(value: Any) -> str:
    """Yes or nothing, up to four decimals, or as it is."""
    value = "yes" * value if isinstance(value, bool) else value
    return f"{round(value, 4):g}" if isinstance(value, float) else str(value or "")
