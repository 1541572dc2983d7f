"""A study from its settings to its files: progress, remarks, picture and numbers."""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import torch
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mnemosphere import plots
from mnemosphere.theory import NotConvergedError, ValidityWarning
from research import report
from research.shell import Debug, Json, Quiet, Terminal, typed

PICTURES = (".png", ".svg", ".pdf")

theory_app = typer.Typer(
    help="""The statistical mechanics of the model: phases, overlaps, bifurcations, stability.

A teacher with P* memories draws M = ϱ P* N examples of concentration υN; a student with P memories
samples its posterior at inverse temperature β. Pictures come with their numbers as JSON.""",
    no_args_is_help=True,
)


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
        *,
        seed: int,
        picture: Path | None,
        record: Path | None,
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
        self.seed = seed
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
                self._command, device=self._settings.get("device", "cpu"), seeds=[self.seed]
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


# --- a study as a command


Begin = Callable[[dict[str, Any]], Study]  # with the settings that go into the record


def study_command(name: str, *, picture: bool = True) -> Callable[[Callable[..., None]], None]:
    """A function of `begin` and its own options as a command, with the options that all have."""
    out: Any = Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", show_default=f"{name}.png" if picture else "no file",
            help="Picture, .png, .svg or .pdf; its numbers go next to it as .json."
            if picture else "Write the numbers as .json.",
        ),
    ]  # fmt: skip
    shared = {
        "out": (out, None), "seed": (Annotated[int, typer.Option(help="Same seed, same bits.")], 0),
        "json_": (Json, False), "quiet": (Quiet, False), "debug": (Debug, False),
    }  # fmt: skip

    def register(function: Callable[..., None]) -> None:
        def command(
            ctx: typer.Context, *, out: Path | None, seed: int, json_: bool, quiet: bool,
            debug: bool, **options: Any,
        ) -> None:  # fmt: skip
            terminal = Terminal(json_only=json_, quiet=quiet)
            drawn = (out or Path(f"{name}.png")) if picture else None
            begin = partial(Study, ctx, terminal, seed=seed, picture=drawn, record=out)
            function(begin, **options)

        hints = get_type_hints(function, include_extras=True)
        _, *own = inspect.signature(function).parameters.values()
        keyword = inspect.Parameter.KEYWORD_ONLY
        listed = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
        listed += [option.replace(kind=keyword, annotation=hints[option.name]) for option in own]
        listed += [
            inspect.Parameter(option, keyword, annotation=kind, default=default)
            for option, (kind, default) in shared.items()
        ]
        command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
        command.__annotations__ = {option.name: option.annotation for option in listed}
        command.__doc__ = function.__doc__
        theory_app.command(name)(command)

    return register
