"""Commands as commands.toml describes them, and what is made of the options they share.

The module of a command's name does the work. It is imported when the command runs, so that `--help`
loads neither torch nor pandas.
"""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from mnemosphere.cli.output import Folder
from mnemosphere.cli.settings import ESTIMATORS
from mnemosphere.cli.shell import Terminal

_ABOUT = tomllib.loads(Path(__file__).with_name("commands.toml").read_text(encoding="utf-8"))
_GROUPS = _ABOUT["groups"] | ESTIMATORS
_KINDS: dict[str, Any] = {
    "text": str, "texts": list[str], "path": Path, "folder": Path, "whole": int, "number": float, "flag": bool,
    "picture": StrEnum("Picture", ["memories", "history", "tree"]),
}  # fmt: skip
_WIDEST = 34  # columns of a flag in help


def names_in(texts: list[str] | None) -> tuple[str, ...]:
    """Names that stand apart by commas, of an option that may be repeated."""
    return tuple(n.strip() for text in texts or () for n in text.split(",") if n.strip())


@dataclass(frozen=True)
class Columns:
    """What the user says about the columns of a table."""

    label: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    max_rows: int | None = None
    text: str | None = None
    encoder: str | None = None
    no_header: bool = False

    @classmethod
    def given(cls, options: Mapping[str, Any]) -> Columns:
        """From the options."""
        own: dict[str, Any] = {field.name: options.get(field.name) for field in fields(cls)}
        own |= {name: names_in(own[name]) for name in ("drop", "features")}
        if own["text"] is not None and own["text"] not in own["features"]:
            own["features"] += (own["text"],)
        return cls(**own)

    @property
    def texts_alone(self) -> bool:
        """Whether rows are texts and nothing else."""
        return self.features == (self.text,)


@dataclass(frozen=True)
class Request:
    """What every command is asked alike."""

    ctx: typer.Context
    terminal: Terminal
    columns: Columns
    split: str | None
    overwrite: bool
    settings: dict[str, str]  # of an estimator, as they were typed


def commands() -> Iterator[tuple[str, str, Callable[..., None]]]:
    """(name, help, function) of every command."""
    for name, about in _ABOUT["commands"].items():
        help_text = f"{about['help'].strip()}\n\nFor example:\n\n    {about['example']}"
        yield name, help_text, _command(name, about)


def _command(name: str, about: Mapping[str, Any]) -> Callable[..., None]:
    """What Typer runs: `run` of the module of that name, which gets a `Request` and all else."""
    groups = [*about.get("groups", ()), "all"]
    shared = {key: known for group in groups for key, known in _GROUPS[group].items()}
    settings = {key for group in groups if group in ESTIMATORS for key in _GROUPS[group]}
    named = about["options"].items()
    options = {k: _ABOUT["shared"][v] if isinstance(v, str) else v for k, v in named} | shared

    def run(ctx: typer.Context, **given: Any) -> None:
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise ValueError("commands are one process each: drop torchrun, or use it in Python")
        _check_inputs(ctx, given)
        asked = {key: given.pop(key) for key in shared}
        if options.get("out", {}).get("kind") == "folder":
            again = given.pop("resume", False)
            given["out"] = Folder(given["out"], overwrite=asked["overwrite"], resume=again)
        typed = {key: asked[key] for key in settings if asked[key] is not None}
        del given["help_all"]
        terminal = Terminal(json_only=asked["json"], quiet=asked["quiet"])
        columns, split = Columns.given(asked), asked.get("split")
        request = Request(ctx, terminal, columns, split, asked["overwrite"], typed)
        import_module(f"mnemosphere.cli.{name}").run(request, **given)

    own = [_parameter(key, known) for key, known in options.items()]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *own, _HELP_ALL])  # type: ignore[attr-defined]
    return run


def _check_inputs(ctx: typer.Context, given: Mapping[str, Any]) -> None:
    """Raise if what shall be read is not there, before a command imports anything heavy."""
    from mnemosphere.rows.tables import expand  # NumPy is not for --help

    if "" in ctx.meta["mnemosphere.arguments"]:
        raise ValueError("an argument is empty: give a file, a folder or a name")
    for name in ("data", "test", "novel"):
        if given.get(name):
            expand(given[name])
    model = given.get("model")
    if model is not None and not model.exists():
        raise ValueError(f"no model file at {model}: check the path")


def _parameter(name: str, about: Mapping[str, Any], **more: Any) -> inspect.Parameter:
    """An option or an argument, as Typer reads it from a signature."""
    typed = "argument" in about or "value" in about
    kind = _KINDS[about.get("kind", "text" if typed else "flag")]
    default = about.get("default", None if typed else False)
    where = f" With {', '.join(about['solver'])}." if "solver" in about else ""
    if "argument" in about:
        made = typer.Argument(metavar=about["argument"], help=about["help"])
    else:
        flags = about.get("flags", ["--" + name.replace("_", "-")])
        made = typer.Option(
            *flags, help=about["help"] + where, metavar=about.get("value"), hidden=about.get("rare", False),
            min=about.get("min"), show_default=about.get("shown", True), **more,
        )  # fmt: skip
    if about.get("required"):
        default = inspect.Parameter.empty
    annotation: Any = Annotated[kind | None if default is None else kind, made]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _show_all(ctx: typer.Context, value: bool) -> None:
    if value:
        ctx.meta["mnemosphere.all"] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


_HELP_ALL = _parameter("help_all", {"help": "Show all options."}, callback=_show_all, is_eager=True)


class Command(TyperCommand):
    """A command whose help says what one types."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, what it does, an example, arguments and options."""
        every: list[Any] = self.get_params(ctx)
        rare = "mnemosphere.all" in ctx.meta
        arguments = [p for p in every if p.param_type_name == "argument"]
        options = [p for p in every if p.param_type_name == "option" and (rare or not p.hidden)]
        words = [str(p.metavar) if p.required else f"[{p.metavar}]" for p in arguments]
        formatter.write_usage(ctx.command_path, " ".join([*words, "[OPTIONS]"]))
        self.format_help_text(ctx, formatter)
        for title, shown in (("Arguments", arguments), ("Options", options)):
            if shown:
                with formatter.section(title):
                    formatter.write_dl([_line(p) for p in shown], col_max=_WIDEST)


def _line(parameter: Any) -> tuple[str, str]:
    """(what one types, what it does) of an argument or an option."""
    text = parameter.help or ""
    if parameter.param_type_name == "argument":
        return parameter.metavar, text
    default = parameter.show_default
    if default is True and not (parameter.is_flag or parameter.default in (None, ())):
        default = str(parameter.default)
    flags = ", ".join(sorted(parameter.opts, key=len))
    typed = flags if parameter.is_flag else f"{flags} {parameter.metavar}"
    return typed, f"{text} (default: {default})" if isinstance(default, str) else text
