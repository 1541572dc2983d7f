"""A study from its settings to its files: progress, remarks, picture and numbers."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mnemosphere import plots
from mnemosphere.theory import NotConvergedError, ValidityWarning
from research import report
from research.shell import Terminal, typed

PICTURES = (".png", ".svg", ".pdf")


class Study:
    """One command that solves, and perhaps draws.

    picture: where it is drawn, the numbers go beside it; None: no picture, and numbers in a file
    only if `record` names one.
    """

    def __init__(
        self,
        ctx: typer.Context,
        terminal: Terminal,
        settings: dict[str, Any],
        seed: int,
        *,
        picture: Path | None,
        record: Path | None = None,
    ) -> None:
        if picture is not None:
            if picture.suffix.lower() not in PICTURES:
                raise ValueError(f"--out must end in .png, .svg or .pdf, got {picture.name!r}")
            record = picture.with_suffix(".json")
        elif record is not None and record.suffix.lower() != ".json":
            raise ValueError(f"--out must end in .json, got {record.name!r}")
        if record is not None:
            report.make_folder(record.parent)
        self.generator = torch.Generator().manual_seed(seed)
        self._command = report.command_line(typed(ctx))
        self._terminal = terminal
        self._settings = settings
        self._seed = seed
        self._picture, self._record = picture, record
        self._remarks: list[str] = []
        self._began = time.perf_counter()

    @contextmanager
    def work(self, text: str) -> Iterator[Callable[[int, int], None]]:
        """Show the progress of a block, told by (steps done, steps in all).

        Warnings about the validity of the equations become remarks; a solver that does not converge
        is bad input, and its message says what to try.
        """
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=self._terminal.err,
            transient=True,
            disable=self._terminal.quiet,
        )
        threads = torch.get_num_threads()
        # The matrices are small: more threads cost more than they bring.
        torch.set_num_threads(1)
        try:
            with bar, warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ValidityWarning)
                task = bar.add_task(text, total=None)
                yield lambda done, total: bar.update(task, completed=done, total=total)
        except NotConvergedError as error:
            raise ValueError(str(error)) from error
        finally:
            torch.set_num_threads(threads)
        for message in dict.fromkeys(str(w.message) for w in caught):
            self.remark(message.replace("n_features", "features"))

    def remark(self, text: str) -> None:
        """Say something now, and keep it in the record."""
        self._remarks.append(text)
        self._terminal.note(f"note: {text}")

    def finish(self, data: dict[str, Any], axes: Any = None, *shown: Any) -> None:
        """Write the picture and the numbers, then show the parts for people, or JSON."""
        if self._picture is not None:
            plots.save(axes, self._picture)
        content = {
            **report.head(
                self._command, device=self._settings.get("device", "cpu"), seeds=[self._seed]
            ),
            "settings": {key: _finite(value) for key, value in self._settings.items()},
            "seconds": time.perf_counter() - self._began,
            "remarks": self._remarks,
            "picture": self._picture,
            "data": data,
        }
        if self._record is not None:
            report.write(self._record, content)
        self._terminal.result(content)
        written = [str(path) for path in (self._picture, self._record) if path is not None]
        self._terminal.show(*shown, *([f"wrote {' and '.join(written)}"] if written else []))


def _finite(value: Any) -> Any:
    """JSON has no infinity, but rho = inf is a setting."""
    return "inf" if isinstance(value, float) and math.isinf(value) else value
