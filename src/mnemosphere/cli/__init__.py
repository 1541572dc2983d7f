"""The command line `mnemosphere`: demo, train, predict, explain, explore.

Exit codes: 0 success, 2 wrong usage or bad input, 130 interrupted by Ctrl-C, 141 the reader of our
output went away; 1 is a bug. Results go to standard output, progress, notes and errors to standard
error. `--help` loads neither torch nor pandas.
"""

from __future__ import annotations

import os
import sys

try:
    import typer  # noqa: F401
except ImportError:
    sys.exit(
        "error: the command line needs more packages: pip install '.[app]' in a clone of the "
        "repository"
    )

from mnemosphere.cli.commands import app

__all__ = ["app", "main"]


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
