"""A progress bar for training."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from mnemosphere.model.parameters import Parameters
from mnemosphere.training.callbacks import Callback, Run, SplitRecord

_WIDE = 72  # columns that the whole line takes


class ProgressBar(Callback):
    """Loss, β, accuracy and time left, on standard error."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)

    @property
    def _narrow(self) -> bool:
        """Whether there is room for passes and time left only."""
        return self._console.width < _WIDE

    def on_start(self, run: Run) -> None:
        """Draw the bar."""
        self._bar = Progress(
            TextColumn("[progress.description]{task.description}"),
            *([] if self._narrow else [BarColumn(bar_width=16)]),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(
            f"{run.params.n_memories} memories", total=float(run.max_iter), note=""
        )

    def on_batch(self, run: Run, share_done: float) -> None:
        """Move on."""
        if self._bar is not None:
            self._bar.update(self._task, completed=run.n_iter + share_done)

    def on_pass(self, run: Run) -> None:
        """Show the figures of the pass."""
        record = run.history[-1]
        note = f"{record.n_iter}/{run.max_iter}"
        if not self._narrow:
            note += f"  loss {record.loss:.3f}  β {record.beta:.3g}"
        if record.validation_accuracy is not None and not self._narrow:
            note += f"  {record.validation_accuracy:.1%}"
        if self._bar is not None:
            self._bar.update(self._task, completed=float(record.n_iter), note=note)

    def on_split(self, split: SplitRecord, params: Parameters) -> None:
        """Say that the network has grown."""
        self._console.print(
            f"split {split.n_split} of {split.n_memories} memories "
            f"(λ_min {split.lambda_min:.3g}): {params.n_memories} now"
        )

    def on_end(self, run: Run) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
