"""Whatever happens ends in one line on standard error and an exit code."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import typer
from typer.core import TyperGroup

from mnemosphere.base.text import Shown, printable

UNEXPECTED, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141  # exit codes, as shells have them
_NARROWEST = 40  # columns; a terminal that claims less is not believed
_BAD = (ValueError, TypeError, OSError, FloatingPointError, ImportError)  # not bugs of ours


class Interrupted(Exception):  # noqa: N818 (not an error: the user asked for it)
    """Ctrl-C was handled; the message says what is left."""


class Shell(TyperGroup):
    """The root command: errors become one line and an exit code, warnings notes."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **named: Any) -> Any:
        """Run a command and leave with an exit code; `--debug` shows the traceback of an error."""
        words = list(sys.argv[1:] if args is None else args)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = lambda message, *_, **__: note(f"note: {message}")
                # What was typed goes along, for records.
                kept = {"standalone_mode": False, "obj": words}
                code = super().main(words, *more, **named | kept)
                sys.stdout.flush()
        except (BrokenPipeError, SystemExit):  # which Typer makes of it
            code = CLOSED_PIPE
            with suppress(OSError, ValueError):  # a stream that is no file
                # What is still buffered would be written, and fail, when Python ends.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (Interrupted, KeyboardInterrupt, typer.Abort) as stop:
            code = INTERRUPTED
            note(str(stop) if isinstance(stop, Interrupted) else "interrupted: nothing was written")
        except Exception as error:
            if "--debug" in words:
                traceback.print_exc()
            text, code = describe(error)
            note(f"error: {text}")
        sys.exit(code if isinstance(code, int) else 0)


def describe(error: Exception) -> tuple[str, int]:
    """(one line, exit code) of an exception."""
    text = " ".join(str(error).split()) or type(error).__name__
    if hasattr(error, "format_message"):  # Typer's own: wrong usage
        where = getattr(error, "ctx", None)
        hint = "" if where is None else f" (see {where.command_path} --help)"
        return " ".join(error.format_message().split()) + hint, BAD_INPUT
    if isinstance(error, OSError) and error.errno is not None:
        place = "" if error.filename is None else f"{error.filename}: "
        return f"{place}{error.strerror or error}: check the path, or choose another", BAD_INPUT
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "not enough memory: use fewer --memories or fewer rows", BAD_INPUT
    if isinstance(error, _BAD):
        return text, BAD_INPUT
    told = f"unexpected {type(error).__name__}: {text} (this is a bug: see mnemosphere --debug …)"
    return told, UNEXPECTED


def note(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(printable(" ".join(text.split())), err=True)


def say(result: object) -> None:
    """Print a result as wide as the terminal; what could command it is shown as it is written."""
    width = max(_NARROWEST, shutil.get_terminal_size().columns)
    text = result.as_text(width) if isinstance(result, Shown) else str(result)
    typer.echo(printable(text, keep="\n"))
