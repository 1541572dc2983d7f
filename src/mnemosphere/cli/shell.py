"""What all commands share: output, and errors as one line with an exit code."""

import errno
import os
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from mnemosphere.base.text import printable
from mnemosphere.cli.options import flag

UNEXPECTED, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141  # exit codes, as shells have them
_HINTS = {
    errno.EACCES: "check its permissions, or choose another place",
    errno.EPERM: "check its permissions, or choose another place",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or choose another place",
    errno.ENOENT: "check the path",
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some space or choose another place",
    errno.EISDIR: "give a file, not a folder",
}
_NARROWEST = 20  # columns; a terminal that claims less is not believed


class Interrupted(Exception):  # noqa: N818 (not an error: the user asked for it)
    """Ctrl-C was handled; the message says what is left."""


class Shell(TyperGroup):
    """The root command: whatever happens ends in one line and an exit code."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Run, and leave with an exit code; no traceback unless --debug asks for one."""
        code = super().main(*args, **more | {"standalone_mode": False})
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments as they were typed, for the record in results."""
        ctx.meta["mnemosphere.arguments"] = list(args)
        with _exit_codes(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; warnings become remarks."""
        with _exit_codes(ctx), warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning, module="mnemosphere")
            warnings.showwarning = _remarks()
            return super().invoke(ctx)


@contextmanager
def _exit_codes(ctx: Any) -> Iterator[None]:
    """Exceptions become one line and an exit code."""
    try:
        yield
        sys.stdout.flush()
    except typer.Exit:
        raise
    except BrokenPipeError:
        code = CLOSED_PIPE
        with suppress(OSError, ValueError):  # a stream that is no file
            # What is still buffered would be written, and fail, when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Interrupted, KeyboardInterrupt, typer.Abort) as stop:
        code = INTERRUPTED
        told = str(stop) if isinstance(stop, Interrupted) else "interrupted: nothing was written"
        typer.echo(printable(told), err=True)
    except Exception as error:
        if ctx.meta.get("mnemosphere.debug"):
            traceback.print_exc()
        text, code = describe(error)
        asked = type(error).__name__ == "NoArgsIsHelpError"
        typer.echo(ctx.get_help() if asked else f"error: {printable(text)}", err=True)
    else:
        return
    raise typer.Exit(code) from None


def _remarks() -> Callable[..., None]:
    """What shows a warning as a remark, each once."""
    told: set[str] = set()

    def remark(message: Warning | str, *_: Any, **__: Any) -> None:
        text = printable(" ".join(str(message).split()))
        if text not in told:
            told.add(text)
            typer.echo(f"note: {text}", err=True)

    return remark


def describe(error: Exception) -> tuple[str, int]:
    """(one line, exit code) of an exception."""
    text, code = " ".join(str(error).split()) or type(error).__name__, BAD_INPUT
    if hasattr(error, "format_message"):  # Typer's own: wrong usage
        where = getattr(error, "ctx", None)
        hint = "" if where is None else f" (see {where.command_path} --help)"
        text = " ".join(error.format_message().split()) + hint
    elif isinstance(error, OSError) and error.errno is not None:
        where = "" if error.filename is None else f"{error.filename}: "
        hint = _HINTS.get(error.errno, "choose another place")
        text = f"{where}{error.strerror or error}: {hint}"
    elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        text = "not enough memory: use fewer --memories, fewer rows or --device cpu"
    elif not isinstance(error, ValueError | TypeError | OSError | FloatingPointError | ImportError):
        code = UNEXPECTED
        text = (
            f"unexpected {type(error).__name__}: {text} "
            "(this is a bug: run `mnemosphere --debug …` and report what it prints)"
        )
    return "; ".join([text, *getattr(error, "__notes__", [])]), code


def _show_all(ctx: typer.Context, value: bool) -> None:
    if value:
        ctx.meta["mnemosphere.all"] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


@dataclass
class Terminal:
    """What every command is asked alike. Results go to standard output, remarks to standard error."""

    overwrite: bool = flag("Replace the existing --out.", "--overwrite")
    json: bool = flag("Print the result as JSON, nothing else.", "--json")
    quiet: bool = flag("Print no progress and no notes.", "--quiet", "-q", hidden=True)
    help_all: bool = flag("Show all options.", "--help-all", callback=_show_all, is_eager=True)
    command: str = ""  # as it was typed, for the record in results

    def __post_init__(self) -> None:
        self.width = max(_NARROWEST, shutil.get_terminal_size().columns)
        self.live = not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """A remark on the way."""
        if not self.quiet:
            typer.echo(printable(text), err=True)

    def say(self, *lines: str) -> None:
        """Parts of the result, for people."""
        for line in () if self.json else lines:
            typer.echo(printable(line, keep="\n"))

    def prose(self, *sentences: str) -> None:
        """Sentences of the result, as wide as the terminal."""
        for text in sentences:
            self.say(textwrap.fill(text, self.width) if text else "")

    def table(self, rows: Sequence[Mapping[str, str]], title: str = "") -> None:
        """Rows for people, in columns, or where these do not fit, one below the other."""
        if rows and not self.json:
            from mnemosphere.base.text import format_table

            cells = [{printable(k): printable(str(v)) for k, v in row.items()} for row in rows]
            self.say(*([title] if title else []), format_table(cells, self.width))

    def facts(self, facts: Mapping[str, str]) -> None:
        """A name and a value per line."""
        left = max(map(len, facts))
        self.say("\n".join(f"{name.ljust(left)}  {value}" for name, value in facts.items()))

    def result(self, content: Mapping[str, Any]) -> None:
        """The result for machines, if that is what was asked for."""
        if self.json:
            from mnemosphere.base.files import to_json

            typer.echo(to_json(content))


def cell(value: Any) -> str:
    """A value for people: numbers short, nothing for None."""
    if value is None or value != value:
        return ""
    from mnemosphere.rows.encoding import written

    return written(value) if isinstance(value, float) else str(value)


def cells(rows: list[dict[str, Any]], percent: bool = True) -> list[dict[str, str]]:
    """Rows for people, with shares in per cent and spaces in headings."""

    def text(value: Any) -> str:
        return f"{value:.1%}" if percent and isinstance(value, float) else cell(value)

    return [{name.replace("_", " "): text(v) for name, v in row.items()} for row in rows]
