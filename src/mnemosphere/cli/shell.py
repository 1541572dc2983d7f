"""What all commands share: options, output, and errors as one line with an exit code."""

from __future__ import annotations

import errno
import json
import re
import shlex
import traceback
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console

UNEXPECTED, BAD_INPUT, INTERRUPTED = 1, 2, 130
_ARGUMENTS, _DEBUG = "mnemosphere.arguments", "mnemosphere.debug"

# Flags whose name differs from the estimator's parameter.
FLAGS = {"n_memories": "memories", "max_epochs": "epochs", "random_state": "seed"}
_HINTS = {
    errno.ENOENT: "check the path",
    errno.EACCES: "change its permissions or choose another place",
    errno.EPERM: "change its permissions or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some space or choose another place",
    errno.ENOTDIR: "a folder of that path is a file: choose another place",
    errno.EISDIR: "pass a file, not a folder",
}


class Interrupted(Exception):  # noqa: N818 (not an error: the user asked for it)
    """Ctrl-C was handled; the message says what is left."""


class Shell(TyperGroup):
    """The root command: no exception leaves it as a traceback unless --debug asks for one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments as they were typed, for the record in results."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors become one line on standard error and an exit code."""
        try:
            return super().invoke(ctx)
        except Interrupted as stop:
            typer.echo(str(stop), err=True)
            raise typer.Exit(INTERRUPTED) from None
        except KeyboardInterrupt:
            typer.echo("interrupted: nothing was saved", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise  # the reader of our output went away; Typer ends quietly
        except Exception as error:
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise  # Typer's own
            if ctx.meta.get(_DEBUG):
                traceback.print_exc()
            message, code = describe(error)
            typer.echo(f"error: {message}", err=True)
            raise typer.Exit(code) from None


def describe(error: Exception) -> tuple[str, int]:
    """(one line, exit code) of an exception."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno is not None:
        where = "" if error.filename is None else f"{error.filename}: "
        hint = _HINTS.get(error.errno, "check the path")
        return f"{where}{error.strerror or error}: {hint}", BAD_INPUT
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "not enough memory: use fewer --memories, fewer rows or --device cpu", BAD_INPUT
    if isinstance(error, ValueError | TypeError | OSError | FloatingPointError):
        return _in_flags(text) or type(error).__name__, BAD_INPUT
    return (
        f"unexpected {type(error).__name__}: {text} "
        "(this is a bug: run again with --debug and report what it prints)",
        UNEXPECTED,
    )


def _in_flags(text: str) -> str:
    """scikit-learn's message about a parameter in the words of the command line."""
    found = re.fullmatch(r"The '(\w+)' parameter of \w+ must be (.*)\. Got (.*) instead\.", text)
    if found is None:
        return text
    name, wanted, got = found.groups()
    return f"{flag(FLAGS.get(name, name))} must be {wanted}, got {got}"


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def typed(ctx: typer.Context) -> list[str]:
    """The arguments as they were typed."""
    arguments: list[str] = ctx.meta.get(_ARGUMENTS, [])
    return arguments


def command_line(ctx: typer.Context) -> str:
    """The command as it was typed, for the record in results."""
    return shlex.join(["mnemosphere", *typed(ctx)])


def _set_debug(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.meta[_DEBUG] = True
    return value


def _complete_data(incomplete: str) -> list[str]:
    from mnemosphere.datasets import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on standard output, nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
Debug = Annotated[
    bool, typer.Option("--debug", callback=_set_debug, help="Show the traceback of an error.")
]
Model = Annotated[
    Path, typer.Argument(help="Model file, as `train` writes it.", show_default=False)
]
DATA_HELP = "mnist-small, digits, mnist, fashion-mnist, or a .csv, .npz, .npy or .parquet file."
Data = Annotated[
    str, typer.Argument(help=DATA_HELP, show_default=False, autocompletion=_complete_data)
]
OptionalData = Annotated[
    str | None, typer.Argument(help=DATA_HELP, show_default=False, autocompletion=_complete_data)
]
Label = Annotated[
    str | None,
    typer.Option(
        help="Label column: its name, or its number from 0 (--label=-1 is the last).",
        show_default="a column called label, class, target or y, or a last column of text",
    ),
]
Labels = Annotated[
    str | None, typer.Option(help="File with the labels, for rows in a .npy file.", metavar="NPY")
]
Directory = Annotated[
    str | None,
    typer.Option(help="Folder with the IDX files of mnist or fashion-mnist.", metavar="DIR"),
]
ImageShape = Annotated[
    str | None,
    typer.Option(
        help="Draw rows as images, such as 28x28.",
        show_default="known for built-in data and their models",
        metavar="HxW",
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="Which rows of data with a fixed split: train, test or all.", metavar="train|test|all"
    ),
]


class Terminal:
    """Where a command's output goes."""

    def __init__(self, *, json_only: bool = False, quiet: bool = False) -> None:
        self.json_only = json_only
        self.quiet = quiet

    @cached_property
    def out(self) -> Console:
        """Standard output."""
        from rich.console import Console

        return Console(highlight=False)

    @cached_property
    def err(self) -> Console:
        """Standard error; silent with --quiet."""
        from rich.console import Console

        return Console(stderr=True, quiet=self.quiet, highlight=False)

    def note(self, text: str) -> None:
        """A remark on the way."""
        self.err.print(text, markup=False, soft_wrap=True)

    def show(self, *parts: Any) -> None:
        """Print parts of the result for people."""
        if not self.json_only:
            for part in parts:
                self.out.print(part, soft_wrap=isinstance(part, str))

    def draw(self, gallery: str) -> None:
        """Print a drawing that holds its own escape sequences."""
        if not self.json_only:
            self.out.file.write(gallery + "\n")

    def result(self, content: dict[str, Any]) -> None:
        """Print the result for machines, if that is what was asked for."""
        if self.json_only:
            typer.echo(to_json(content))

    @property
    def color(self) -> Any:
        """The colours that `plots.terminal_gallery` may use here."""
        if self.out.no_color or self.out.color_system is None:
            return "none"
        return "truecolor" if self.out.color_system == "truecolor" else "256"


def to_json(content: Any) -> str:
    """Strict JSON: arrays become lists, NaN and infinities null."""
    return json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Values that JSON has: arrays as lists, NaN and infinities as None."""
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, torch tensors
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    if isinstance(value, Path):
        return str(value)
    return value
