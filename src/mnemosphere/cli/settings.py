"""The estimators' settings as options of `train` and `cluster`, and as a configuration file."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Mapping
from pathlib import Path
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


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file; keys are the names of the flags, with - or _."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not a TOML file ({error}): start from a config.toml that train wrote"
        ) from error
    return {key.replace("-", "_"): value for key, value in content.items()}


def to_toml(values: Mapping[str, Any], remark: str) -> str:
    """A file that `read_config` reads back to the same settings."""
    return "\n".join([f"# {remark}", *(f"{k} = {_toml(v)}" for k, v in values.items()), ""])


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return str(value)
    text = "none" if value is None else str(value)
    return '"' + "".join(
        c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text
    ) + '"'  # fmt: skip
