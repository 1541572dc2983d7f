"""The estimators' settings as options of `train` and `cluster`.

They stand in settings.json, which `python -m research pages` writes from the estimators, so that
`--help` and a mistyped option need no torch.
"""

from __future__ import annotations

import functools
import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

FILE = Path(__file__).with_name("settings.json")
_KEY = "mnemosphere.settings"


def settings_command(estimator: str) -> type[TyperCommand]:
    """A kind of command whose options are those of an estimator, read off when they are needed."""

    class SettingsCommand(TyperCommand):
        def get_params(self, ctx: Any) -> list[Any]:
            return [*super().get_params(ctx), *_options(estimator)]

        def invoke(self, ctx: Any) -> Any:
            given = {p.name: ctx.params.pop(p.name, None) for p in _options(estimator)}
            ctx.meta[_KEY] = {name: value for name, value in given.items() if value is not None}
            return super().invoke(ctx)

    return SettingsCommand


def given_settings(ctx: typer.Context) -> dict[str, str]:
    """The estimator's options that were typed, as text."""
    found: dict[str, str] = ctx.meta.get(_KEY, {})
    return found


@functools.cache
def _options(estimator: str) -> tuple[Any, ...]:
    """The options, made by Typer from a signature."""
    told = json.loads(FILE.read_text(encoding="utf-8"))[estimator]
    parameters = []
    for key, about in told.items():
        option = typer.Option("--" + key.replace("_", "-"), **about)
        kind = Annotated[str | None, option]
        parameters.append(
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        )

    def collect(**_: Any) -> None:
        """Carry a signature."""

    collect.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    collect.__annotations__ = {p.name: p.annotation for p in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(collect)
    return tuple(typer.main.get_command(app).params)
