"""Layer 5: the command line `mnemosphere`.

Exit codes: 0 success, 2 wrong usage or bad input, 130 interrupted by Ctrl-C, 141 the reader of our
output went away; 1 is a bug. Results go to standard output, progress, remarks and errors to
standard error. `--help` loads neither torch nor pandas: see `commands`.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

try:
    import typer
except ImportError:
    sys.exit(
        "error: the command line needs more packages: pip install '.[app]' in a clone of the "
        "repository"
    )

from mnemosphere.cli.options import Command, commands
from mnemosphere.cli.shell import Shell

__all__ = ["app", "main"]

_HELP = """Dense associative memory on the sphere: a classifier with memories you can look at.

Every prediction is the vote of a few memories, each a pattern with a soft label. Try it:

    mnemosphere demo

    mnemosphere train my-table.csv --label species --out run

    mnemosphere train tickets.csv --text message --label intent --out run

    mnemosphere predict run new.csv --out predictions.csv

Exit codes: 0 success, 2 wrong usage or bad input, 130 interrupted, 141 closed pipe."""

app = typer.Typer(
    cls=Shell,
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _name, _about, _run in commands():
    app.command(_name, help=_about, cls=Command)(_run)


def _show_version(value: bool) -> None:
    if value:
        from mnemosphere import __version__

        typer.echo(f"mnemosphere {__version__}")
        raise typer.Exit


_VERSION = typer.Option(
    "--version", callback=_show_version, is_eager=True, help="Show the version."
)
_DEBUG = typer.Option("--debug", help="Show the traceback of an error.")


@app.callback()
def _global_options(
    ctx: typer.Context,
    version: Annotated[bool, _VERSION] = False,
    debug: Annotated[bool, _DEBUG] = False,
) -> None:
    ctx.meta["mnemosphere.debug"] = debug


def main() -> None:
    """Entry point of the console script."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show β shows a question mark instead of a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="mnemosphere")
