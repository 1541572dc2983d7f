"""The estimators' settings as options of `train` and `cluster`."""

from __future__ import annotations

import functools
import inspect
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

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
    from mnemosphere.estimators.settings import setting_groups, where

    parameters = []
    for key, group in setting_groups(estimator).items():
        own = group[0].owner == estimator
        defaults = dict.fromkeys("none" if s.default is None else str(s.default) for s in group)
        texts = [*dict.fromkeys(s.help for s in group), *([] if own else [f"({where(group)})"])]
        option = typer.Option(
            group[0].flag, help=" ".join(texts), show_default=" or ".join(defaults),
            metavar="|".join(dict.fromkeys(w for s in group for w in s.metavar.split("|"))),
            rich_help_panel="Model and training" if own else "Solver and refinement",
        )  # fmt: skip
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
