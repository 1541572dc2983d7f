"""Live progress of a fit: what is being chosen, then loss, β, accuracy and time left."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.status import Status
from torch import Tensor

from mnemosphere.cli.rows import Part
from mnemosphere.estimators import DAMClassifier, ProgressBar
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.callbacks import Record

_SHOWN_ROWS = 500  # enough to see accuracy rise, few enough to cost nothing


class Live(ProgressBar):
    """A spinner while settings are chosen, a bar while memories are trained.

    Where training itself watches no held-out rows, the accuracy shown is that on some test rows;
    it is shown only, and decides nothing.
    """

    def __init__(self, console: Console, test: Part | None) -> None:
        super().__init__(console)
        self.training_began: float | None = None
        self._watched = None if console.quiet or test is None else test
        self._rows: tuple[Tensor, NDArray[Any]] | None = None
        self._model: DAMClassifier | None = None
        self._status: Status | None = None
        self._spinner = console

    def watch(self, model: DAMClassifier) -> Self:
        """Say whose training this is."""
        self._model = model
        return self

    def __enter__(self) -> Self:
        self._spin("looking at the data to choose what is automatic")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._still()
        super().on_end("")  # takes a bar away that an error left behind

    def on_start(self, params: Parameters, max_epochs: int) -> None:
        """Choosing is over, training begins."""
        if self.training_began is None:
            self.training_began = time.perf_counter()
        self._still()
        self._total = max_epochs
        # Narrow enough for 80 columns.
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._spinner,
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(
            f"{params.n_memories} memories", total=float(max_epochs), note=f"pass 1/{max_epochs}"
        )

    def on_epoch(self, record: Record, params: Parameters) -> None:
        """Show the figures of the pass, with an accuracy."""
        accuracy = record.validation_accuracy
        if accuracy is None and self._watched is not None:
            accuracy = self._accuracy(params)
        note = f"pass {record.epoch}/{self._total} loss {record.loss:.4g} β {record.beta:.4g}"
        if accuracy is not None:
            note += f" accuracy {accuracy:.1%}"
        if self._bar is not None:
            self._bar.update(self._task, completed=float(record.epoch), note=note)

    def on_end(self, status: str) -> None:
        """Take the bar away; where the network grows, curvature comes next."""
        super().on_end(status)
        if self._model is not None and self._model.growth and status != "interrupted":
            self._spin("measuring the curvature of every memory")

    def _accuracy(self, params: Parameters) -> float:
        assert self._watched is not None
        if self._rows is None:
            assert self._model is not None
            part = self._watched.judged()
            x = self._model._normalizer(part.x[:_SHOWN_ROWS].astype(np.float64))
            unit = params.w.new_tensor(x)
            self._rows = unit / unit.norm(dim=1, keepdim=True), part.labels[:_SHOWN_ROWS]
        assert self._model is not None
        unit, y = self._rows
        best = log_joint(params, unit)[:, :-1].argmax(1).cpu().numpy()
        return float(np.mean(self._model.classes_[best] == y))

    def _spin(self, text: str) -> None:
        self._status = self._spinner.status(text)
        self._status.start()

    def _still(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
