"""Options that several commands share, and the request they make."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from mnemosphere.cli.shell import Terminal

_ROWS = "Rows"


def option(help: str, *flags: str, **more: Any) -> Any:
    """An option with its help first."""
    return typer.Option(*flags, help=help, **more)


def _complete_data(incomplete: str) -> list[str]:
    from mnemosphere.data.named import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


_DATA = typer.Argument(
    help="A .csv, .tsv, .parquet, .feather, .arrow, .npy, .npz or IDX file, or mnist-small, digits, …",
    show_default=False,
    autocompletion=_complete_data,
)
Data = Annotated[str, _DATA]
OptionalData = Annotated[str | None, _DATA]
_FILES = typer.Argument(
    help="A .csv, .tsv, .parquet, .feather, .arrow, .npy, .npz or IDX file, several of one kind, a pattern "
    "such as 'rows/*.parquet', or mnist-small, digits, …",
    show_default=False,
    autocompletion=_complete_data,
)
Files = Annotated[list[str], _FILES]
OptionalFiles = Annotated[list[str] | None, _FILES]
Model = Annotated[
    Path, typer.Argument(help="Model file, or the folder of a run.", show_default=False)
]
Overwrite = Annotated[bool, option("Replace what --out names.", "--overwrite")]
Picture = Annotated[Path | None, option("Picture of it.", "--out", "-o", metavar="FILE")]
RowNames = Annotated[list[str] | None, option("Row, by its id or line; may be repeated.")]
Seed = Annotated[int, option("Same seed, same bits.", min=0)]
_MEMORY = "Megabytes for the rows; files that take more are read as they are needed."
MaxMemory = Annotated[
    float | None,
    option(_MEMORY, min=0, show_default="what is free", rich_help_panel=_ROWS),
]
ImageShape = Annotated[
    str | None, option("Draw rows as images, such as 28x28.", metavar="HxW", rich_help_panel=_ROWS)
]
_ALL = {
    "json_": (bool, option("Print the result as JSON, nothing else.", "--json"), False),
    "quiet": (bool, option("No progress and no remarks.", "--quiet", "-q"), False),
}


def _of_rows(help: str, metavar: str = "COLUMNS") -> Any:
    return option(help, metavar=metavar, rich_help_panel=_ROWS)


_LABEL = "Label column, or a .npy or IDX file of labels. Default: label, target, class, y, or last."
_ID = "Column that names the rows. Default: their lines in the file, or counted from 0."
_TEXT = "Column of texts to learn from; encoded by wordllama unless --encoder names another."
_ENCODER = (
    "Images: patches, learned first without labels. Texts: MODULE:NAME, a function from texts to "
    "vectors, or an object with encode or embed."
)
_SPLIT = {"split": (str | None, _of_rows("Rows of data with a split.", "train|test|all"), None)}
_OF_ROWS = {
    "label": (str | None, _of_rows(_LABEL, "COLUMN"), None),
    "id": (str | None, _of_rows(_ID, "COLUMN"), None),
    "drop": (list[str] | None, _of_rows("Columns to leave out, as a,b."), None),
    "features": (list[str] | None, _of_rows("Columns to use alone, as a,b."), None),
    "text": (str | None, _of_rows(_TEXT, "COLUMN"), None),
    "encoder": (str | None, _of_rows(_ENCODER, "patches|MODULE:NAME"), None),
    "no_header": (
        bool,
        option("The first line of a text file is a row.", "--no-header", rich_help_panel=_ROWS),
        False,
    ),
    "max_rows": (
        int | None,
        option("Read so many rows at most, the first ones.", min=1, rich_help_panel=_ROWS),
        None,
    ),
}


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
        features, text = names_in(options.get("features")), options.get("text")
        if text is not None and features:
            raise ValueError("--text is the only column then: leave --features out")
        return cls(
            options.get("label"), options.get("id"), names_in(options.get("drop")),
            features if text is None else (text,), options.get("max_rows"), text,
            options.get("encoder"), bool(options.get("no_header")),
        )  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What every command is asked alike."""

    ctx: typer.Context
    terminal: Terminal
    columns: Columns = field(default_factory=Columns)
    split: str | None = None


def command(*, rows: bool = False, split: bool = False) -> Callable[[Any], Any]:
    """Give a command the shared options; its first argument becomes the `Request` they make."""
    shared = {**(_OF_ROWS if rows else {}), **(_SPLIT if split else {}), **_ALL}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(ctx: typer.Context, **given: Any) -> None:
            asked = {name: given.pop(name) for name in shared}
            terminal = Terminal(json_only=asked["json_"], quiet=asked["quiet"])
            request = Request(ctx, terminal, Columns.given(asked), asked.get("split"))
            function(request, **given)

        hints = get_type_hints(function, include_extras=True)
        parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD,
                                        annotation=typer.Context)]  # fmt: skip
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
        for name, (kind, about, default) in shared.items():
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default,
                                  annotation=Annotated[kind, about])
            )  # fmt: skip
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        del run.__wrapped__  # or its signature would be read
        return run

    return decorate
