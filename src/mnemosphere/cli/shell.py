"""What all commands share: output, and errors as one line with an exit code."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

UNEXPECTED, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141
_HINTS = {
    errno.ENOENT: "check the path",
    errno.EACCES: "change its permissions or choose another place",
    errno.EPERM: "change its permissions or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some space or choose another place",
    errno.ENOTDIR: "a folder of that path is a file: choose another place",
    errno.EISDIR: "give a file, not a folder",
}
_NARROWEST = 20  # columns; a terminal that claims less is not believed


class Interrupted(Exception):  # noqa: N818 (not an error: the user asked for it)
    """Ctrl-C was handled; the message says what is left."""


class Shell(TyperGroup):
    """The root command: whatever happens ends in one line and an exit code."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Run, and leave with an exit code; no traceback unless --debug asks for one."""
        more["standalone_mode"] = False
        try:
            code = super().main(*args, **more)
        except Exception as error:  # Typer's own: wrong usage
            if not hasattr(error, "format_message"):
                raise
            text = " ".join(error.format_message().split())
            if int(os.environ.get("RANK", 0)) > 0:  # of many processes one says it
                pass
            elif type(error).__name__ == "NoArgsIsHelpError":
                typer.echo(error.format_message(), err=True)
            else:
                known = getattr(error, "ctx", None)
                hint = f" (see {known.command_path} --help)" if known is not None else ""
                _print_error(f"{text}{hint}")
            sys.exit(BAD_INPUT)
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments as they were typed, for the record in results."""
        ctx.meta["mnemosphere.arguments"] = list(args)
        with _closing_pipe():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; warnings become remarks, exceptions one line and an exit code."""
        try:
            with warnings.catch_warnings(), _closing_pipe():
                warnings.filterwarnings("always", category=UserWarning, module="mnemosphere")
                warnings.showwarning = _remarks()
                if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
                    return self._invoke_together(ctx)
                return super().invoke(ctx)
        except typer.Exit:
            raise
        except Interrupted as stop:
            _print_error(str(stop), "")
            _leave(INTERRUPTED)
        except (KeyboardInterrupt, typer.Abort):
            _print_error("interrupted: nothing was written", "")
            _leave(INTERRUPTED)
        except Exception as error:
            if hasattr(error, "exit_code"):
                raise  # Typer's own
            if ctx.meta.get("mnemosphere.debug"):
                traceback.print_exc()
            message, code = describe(error)
            _print_error(message)
            _leave(code)

    def _invoke_together(self, ctx: Any) -> Any:
        """Run as one of several processes: rank 0 prints, and any of them its own error."""
        from mnemosphere.training.distributed import process_group

        left: Exception | None = None
        found = None
        with process_group() as group, open(os.devnull, "w") as nowhere, ExitStack() as stack:
            if not group.first:
                stack.enter_context(redirect_stdout(nowhere))
                stack.enter_context(redirect_stderr(nowhere))
            if group.size > 1 and not {"train", "cluster"} & {*ctx.meta["mnemosphere.arguments"]}:
                raise ValueError("only train and cluster are for many processes: drop torchrun")
            try:
                found = super().invoke(ctx)
            except Exception as error:
                if not hasattr(error, "exit_code"):
                    raise
                left = error  # how Typer ends a command
        if left is not None:
            raise left
        return found


def _leave(code: int) -> NoReturn:
    raise typer.Exit(code) from None


@contextmanager
def _closing_pipe() -> Iterator[None]:
    """End quietly where the reader of our output went away."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with suppress(OSError, ValueError):  # a stream that is no file
            # What is still buffered would be written, and fail, when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(CLOSED_PIPE)


def _print_error(text: str, start: str = "error: ") -> None:
    typer.echo(start + printable(text), err=True)


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
    line, code = _described(error)
    return "; ".join([line, *getattr(error, "__notes__", [])]), code


def _described(error: Exception) -> tuple[str, int]:
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno is not None:
        where = "" if error.filename is None else f"{error.filename}: "
        hint = _HINTS.get(error.errno, "check the path")
        return f"{where}{error.strerror or error}: {hint}", BAD_INPUT
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "not enough memory: use fewer --memories, fewer rows or --device cpu", BAD_INPUT
    lost = type(error).__name__ == "DistributedError"  # another process says why
    if lost or isinstance(
        error, ValueError | TypeError | OSError | FloatingPointError | ImportError
    ):
        return text or type(error).__name__, BAD_INPUT
    return (
        f"unexpected {type(error).__name__}: {text} "
        "(this is a bug: run `mnemosphere --debug …` and report what it prints)",
        UNEXPECTED,
    )


def command_line(ctx: typer.Context) -> str:
    """The command as it was typed, for the record in results."""
    return shlex.join(["mnemosphere", *ctx.meta.get("mnemosphere.arguments", [])])


def was_given(ctx: typer.Context, name: str) -> bool:
    """Whether an option was typed, as opposed to its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


class Terminal:
    """Where a command's output goes: results to standard output, remarks to standard error."""

    def __init__(self, *, json_only: bool = False, quiet: bool = False) -> None:
        self.json_only, self.quiet = json_only, quiet
        self.width = max(_NARROWEST, shutil.get_terminal_size().columns)
        self.live = not quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """A remark on the way."""
        if not self.quiet:
            typer.echo(printable(text), err=True)

    def say(self, *lines: str) -> None:
        """Parts of the result, for people."""
        for line in () if self.json_only else lines:
            typer.echo(printable(line, keep="\n"))

    def prose(self, *sentences: str) -> None:
        """Sentences of the result, as wide as the terminal."""
        for text in sentences:
            self.say(textwrap.fill(text, self.width) if text else "")

    def draw(self, picture: str) -> None:
        """A drawing of ours, which holds escape sequences."""
        if not self.json_only:
            typer.echo(picture)

    def table(self, rows: Sequence[Mapping[str, str]], title: str = "") -> None:
        """Rows for people, in columns, or where these do not fit, one below the other."""
        if rows and not self.json_only:
            from mnemosphere.text import format_table

            cells = [{printable(k): printable(str(v)) for k, v in row.items()} for row in rows]
            self.say(*([title] if title else []), format_table(cells, self.width))

    def facts(self, facts: Mapping[str, str]) -> None:
        """A name and a value per line."""
        left = max(map(len, facts))
        self.say("\n".join(f"{name.ljust(left)}  {value}" for name, value in facts.items()))

    def result(self, content: Mapping[str, Any]) -> None:
        """The result for machines, if that is what was asked for."""
        if self.json_only:
            from mnemosphere.files import to_json

            typer.echo(to_json(content))

    @property
    def color(self) -> bool:
        """Whether colors may be used here."""
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def printable(text: str, keep: str = "") -> str:
    r"""Text that a terminal cannot take for a command: what is not printable becomes \x.."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def cell(value: Any) -> str:
    """A value for people: numbers short, nothing for None."""
    if value is None or value != value:
        return ""
    from mnemosphere.data.encoding import written

    return written(value) if isinstance(value, float) else str(value)


def cells(rows: list[dict[str, Any]], percent: bool = True) -> list[dict[str, str]]:
    """Rows for people, with shares in per cent and spaces in headings."""

    def text(value: Any) -> str:
        return f"{value:.1%}" if percent and isinstance(value, float) else cell(value)

    return [{name.replace("_", " "): text(v) for name, v in row.items()} for row in rows]
