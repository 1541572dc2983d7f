"""What the commands of research share: options, and output in Rich's tables."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on standard output, nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def typed(ctx: typer.Context) -> list[str]:
    """The arguments as they were typed."""
    return list(ctx.obj or [])


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

    def result(self, content: dict[str, Any]) -> None:
        """Print the result for machines, if that is what was asked for."""
        if self.json_only:
            typer.echo(json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False))


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
