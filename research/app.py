"""The commands with many options: `reproduce` and the group `theory`.

Errors are one line and an exit code, as in the command line of the package.
"""

from __future__ import annotations

import typer

from mnemosphere.cli.shell import Shell
from research.paper.command import reproduce
from research.theory import commands  # noqa: F401  they register commands
from research.theory.study import theory_app

app = typer.Typer(
    cls=Shell,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("reproduce")(reproduce)
app.add_typer(theory_app, name="theory")


def theory_commands() -> dict[str, str]:
    """First line of the help of every study of the theory."""
    found = {}
    for command in theory_app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        found[name] = (command.callback.__doc__ or "").partition("\n")[0]
    return found
