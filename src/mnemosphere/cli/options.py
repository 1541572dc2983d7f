"""Options that several commands share, what is made of them, and how help shows them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from mnemosphere.cli.settings import known_settings
from mnemosphere.cli.shell import Terminal

_WIDEST = 34  # columns of a flag in help
_EVERY = "mnemosphere.every"  # whether help shows rare options too


def option(help: str, *flags: str, value: str = "", rare: bool = False, **more: Any) -> Any:
    """An option: what it does, what one types after it; rare: shown by --help-all alone."""
    return typer.Option(*flags, help=help, metavar=value or None, hidden=rare, **more)


def _complete_data(incomplete: str) -> list[str]:
    from mnemosphere.data.named import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


def output(help: str, value: str) -> Any:
    """The option --out."""
    return option(help, "--out", "-o", value=value)


def argument(name: str, help: str, **more: Any) -> Any:
    """An argument: what help calls it, and what it is."""
    return typer.Argument(metavar=name, help=help, show_default=False, **more)


_DATA = argument(
    "DATA", "A file (.csv, .parquet, .npy, …), a folder of images, or mnist-small, digits, …",
    autocompletion=_complete_data,
)  # fmt: skip
_FILES = argument(
    "DATA...", "A file (.csv, .parquet, .npy, …), several, a pattern such as 'rows/*.parquet', a "
    "folder of images, or mnist-small, digits, …", autocompletion=_complete_data,
)  # fmt: skip
Data = Annotated[str, _DATA]
OptionalData = Annotated[str | None, _DATA]
Files = Annotated[list[str], _FILES]
OptionalFiles = Annotated[list[str] | None, _FILES]
Model = Annotated[Path, argument("MODEL", "The folder of a run, or a model file.")]
Resume = Annotated[bool, option("Go on with OUT.partial.", "--resume")]
Picture = Annotated[Path | None, output("Draw it (.png, .svg, .pdf).", "FILE")]
RowNames = Annotated[
    list[str] | None, option("Row, by its id or line; may be repeated.", value="NAME")
]
Seed = Annotated[int, option("Same seed, same bits.", value="N", min=0)]
MaxMemory = Annotated[
    float | None,
    option("Memory for rows; larger files are read in parts. Default: what is free.", value="MEGABYTES",
           rare=True, min=0),
]  # fmt: skip
ImageShape = Annotated[
    str | None, option("Draw rows as images, such as 28x28.", value="HxW", rare=True)
]


def _show_all(ctx: typer.Context, value: bool) -> None:
    if value:
        ctx.meta[_EVERY] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


_ALL = {
    "overwrite": (bool, option("Replace what --out names.", "--overwrite"), False),
    "json_": (bool, option("Print the result as JSON, nothing else.", "--json"), False),
    "quiet": (bool, option("No progress and no remarks.", "--quiet", "-q", rare=True), False),
    "help_all": (
        bool, option("Show all options.", "--help-all", callback=_show_all, is_eager=True), False,
    ),
}  # fmt: skip
_SPLIT = {"split": (str | None, option("Rows of data with a split.", value="train|test|all"), None)}
_OF_ROWS = {
    "label": (
        str | None,
        option("Label column, or a .npy or IDX file. Default: label, target, class, y, or the last.",
               value="COLUMN"),
        None,
    ),
    "id": (str | None, option("Column that names the rows. Default: lines.", value="COLUMN"), None),
    "drop": (list[str] | None, option("Columns to leave out.", value="A,B"), None),
    "text": (str | None, option("Column of texts to learn from.", value="COLUMN"), None),
    "features": (list[str] | None, option("Columns to use alone.", value="A,B", rare=True), None),
    "encoder": (
        str | None,
        option("Of images: patches; of texts: a function, or an object with encode or embed. Default: "
               "none, wordllama for texts.", value="patches|MODULE:NAME", rare=True),
        None,
    ),
    "no_header": (
        bool, option("The first line of a text file is a row.", "--no-header", rare=True), False,
    ),
    "max_rows": (
        int | None, option("Read the first rows alone.", value="N", rare=True, min=1), None,
    ),
}  # fmt: skip


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
    def given(cls, options: dict[str, Any]) -> Columns:
        """From the options."""
        own: dict[str, Any] = {field.name: options.get(field.name) for field in fields(cls)}
        own |= {name: names_in(own[name]) for name in ("drop", "features")}
        if own["text"] is not None:
            if own["features"]:
                raise ValueError("--text is the only column then: leave --features out")
            own["features"] = (own["text"],)
        return cls(**own)


@dataclass(frozen=True)
class Request:
    """What every command is asked alike."""

    ctx: typer.Context
    terminal: Terminal
    columns: Columns
    split: str | None
    overwrite: bool
    settings: dict[str, str]  # of an estimator, as they were typed


def _settings(estimator: str) -> dict[str, tuple[Any, Any, Any]]:
    """The settings of an estimator as options."""
    found = {}
    for key, about in known_settings(estimator).items():
        where = f" With {', '.join(about['solver'])}." if "solver" in about else ""
        own = option(
            f"{about['help']}{where}", value=about["value"], rare=not about.get("common"),
            show_default=about["default"],
        )  # fmt: skip
        found[key] = str | None, own, None
    return found


def command(
    *, rows: bool = False, split: bool = False, settings: str | None = None
) -> Callable[[Any], Any]:
    """Give a command the shared options; the module of its name runs it.

    `run` there gets the `Request` that shared options make, and all other options by name.
    """
    own = {} if settings is None else _settings(settings)
    shared = {**(_OF_ROWS if rows else {}), **(_SPLIT if split else {}), **own, **_ALL}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(ctx: typer.Context, **given: Any) -> None:
            if int(os.environ.get("WORLD_SIZE", 1)) > 1:
                raise ValueError("commands are one process each: drop torchrun, or use it in Python")
            asked = {name: given.pop(name) for name in shared}
            typed = {name: asked[name] for name in own if asked[name] is not None}
            terminal = Terminal(json_only=asked["json_"], quiet=asked["quiet"])
            columns, split = Columns.given(asked), asked.get("split")
            request = Request(ctx, terminal, columns, split, asked["overwrite"], typed)
            import_module(f"mnemosphere.cli.{function.__name__}").run(request, **given)

        hints = get_type_hints(function, include_extras=True)
        after = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("ctx", after, annotation=typer.Context)]
        for parameter in inspect.signature(function).parameters.values():
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=after))
        for name, (kind, about, default) in shared.items():
            parameters.append(
                inspect.Parameter(name, after, default=default, annotation=Annotated[kind, about])
            )
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        del run.__wrapped__  # or its signature would be read
        return run

    return decorate


class Command(TyperCommand):
    """A command whose help says what one types."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, what it does, an example, arguments and options."""
        every: list[Any] = self.get_params(ctx)
        arguments = [p for p in every if p.param_type_name == "argument"]
        rare = ctx.meta.get(_EVERY, False)
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
