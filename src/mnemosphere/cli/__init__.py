"""Layer 4: the command line `mnemosphere`.

Exit codes: 0 success, 1 unexpected failure (a bug: please report), 2 wrong usage or bad input,
130 interrupted by Ctrl-C. Results go to standard output, progress and errors to standard error.

One module per group of commands; each command is a plain function, registered here. Whatever a
command raises is turned into one line and an exit code by `shell.Shell`. Heavy imports stand inside
the commands: `--help` and `--version` load neither torch nor scikit-learn.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mnemosphere.cli import cluster, demo, memory, plot, prior, train, use
from mnemosphere.cli.shell import Shell

__all__ = ["app", "main"]

_HELP = """Dense associative memory on the sphere: a classifier with memories you can look at.

Every prediction is the vote of a few memories, each a pattern with a soft label. Try it:

    mnemosphere demo

    mnemosphere train my-table.csv --out run

    mnemosphere explain run/model.safetensors my-table.csv --row 0

DATA is a built-in data set (mnist-small, digits, mnist, fashion-mnist) or a file of your own
(.csv, .npz, .npy, .parquet). Exit codes: 0 success, 1 unexpected failure, 2 wrong usage or bad
input, 130 interrupted."""

app = typer.Typer(
    cls=Shell,
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("cluster")(cluster.cluster)
app.command("evaluate")(use.evaluate)
app.command("explain")(use.explain)
app.command("certify")(use.certify)
app.command("shrink")(use.shrink)
app.command("prior")(prior.prior)
app.command("recall")(memory.recall)
app.command("sample")(memory.sample)
app.command("novelty")(memory.novelty)
app.command("plot")(plot.plot)


def _show_version(value: bool) -> None:
    if value:
        from mnemosphere import __version__

        typer.echo(f"mnemosphere {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show β shows a question mark instead of a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="mnemosphere")
