"""Progress bars: for training, and for rows that go by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mnemosphere.data.dataset import FileDataset
from mnemosphere.machine import need
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.callbacks import Callback, Run, SplitRecord

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 72  # columns that the whole line takes


def amount(n_rows: int, all_rows: int, n_bytes: int) -> str:
    """Rows done of all rows, and of the bytes of their files.

    n_bytes: of all rows; 0 where they are in no file.
    """
    text = f"{n_rows:,} of {all_rows:,} rows"
    if n_bytes:
        text += f", {size_of(n_bytes * n_rows / max(all_rows, 1))} of {size_of(n_bytes)}"
    return text


def size_of(n_bytes: float) -> str:
    """A number of bytes in words."""
    power = min(max(int(math.log10(max(n_bytes, 1))) // 3, 1), 4)
    return f"{n_bytes / 1000**power:.3g} {' kMGT'[power]}B"


@contextmanager
def track(what: str, n_rows: int, n_bytes: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar for rows that go by; call what comes back with the number of rows that are done."""
    if not shown:
        yield lambda n: None
        return
    bar = _bar(_standard_error(), narrow=False)
    task, done = bar.add_task(what, total=float(n_rows), note=""), 0

    def advance(n: int) -> None:
        nonlocal done
        done = n if done >= n_rows else done + n  # one look after another
        bar.update(task, completed=float(done), note=amount(done, n_rows, n_bytes))

    with bar:
        yield advance


def _standard_error() -> Any:
    return need("rich.console").Console(stderr=True)


def _bar(console: Console, *, narrow: bool) -> Any:
    rich = need("rich.progress")
    return rich.Progress(
        rich.TextColumn("[progress.description]{task.description}"),
        *([] if narrow else [rich.BarColumn(bar_width=16)]),
        rich.TextColumn("{task.fields[note]}"),
        rich.TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
    )


@contextmanager
def looking(source: FileDataset, callbacks: Iterable[Callback]) -> Iterator[None]:
    """Show how far looks at all rows have come, where one of the callbacks is a bar."""
    shown = any(isinstance(callback, ProgressBar) for callback in callbacks)
    with track("looking at", source.n_rows, source.n_bytes, shown=shown) as source.files.watch:
        yield
    source.files.watch = None


class ProgressBar(Callback):
    """Progress bar of a fit on standard error: loss, β, accuracy, rows, bytes and time left.

    Parameters
    ----------
    console : rich.console.Console, default None
        Where the bar is drawn; None: standard error.

    Examples
    --------
    >>> bar = mn.ProgressBar()
    >>> clf.set_params(callbacks=[bar]).fit(X_train, y_train).n_memories_
    6
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _standard_error()
        self._bar: Any = None
        self._note = ""
        self._task: Any = 0

    @property
    def _narrow(self) -> bool:
        """Whether there is room for passes and time left only."""
        return self._console.width < _WIDE

    def on_start(self, run: Run) -> None:
        """Draw the bar."""
        self._bar, self._note = _bar(self._console, narrow=self._narrow), ""
        self._bar.start()
        self._task = self._bar.add_task(
            f"{run.params.n_memories} memories", total=float(run.max_iter), note=""
        )

    def on_batch(self, run: Run, share_done: float) -> None:
        """Move on."""
        if self._bar is None:
            return
        note = self._note
        if run.n_bytes and not self._narrow:  # files take long
            done = amount(round(share_done * run.n_rows), run.n_rows, run.n_bytes)
            note = f"{self._note or f'0/{run.max_iter}'}  {done}"
        self._bar.update(self._task, completed=run.n_iter + share_done, note=note)

    def on_pass(self, run: Run) -> None:
        """Show the figures of the pass."""
        record = run.history[-1]
        note = f"{record.n_iter}/{run.max_iter}"
        if not self._narrow:
            note += f"  loss {record.loss:.3f}  β {record.beta:.3g}"
        if record.validation_accuracy is not None and not self._narrow:
            note += f"  {record.validation_accuracy:.1%}"
        self._note = note
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
