"""The commands: what one can type, and what `--help` says of it.

The work is done by modules that are imported when a command runs, so that `--help` loads neither
torch nor pandas.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from importlib import import_module
from inspect import Parameter, Signature, getdoc, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from mnemosphere.cli.options import REJECT, Answers, Changes, Columns, Selection, Text, names_in
from mnemosphere.cli.output import Folder
from mnemosphere.cli.settings import Classifier, ClassTraining, Clusterer, Training
from mnemosphere.cli.shell import Shell, Terminal

_WIDEST = 34  # columns of a flag in help

app = typer.Typer(
    cls=Shell,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(value: bool) -> None:
    if value:
        from mnemosphere import __version__

        typer.echo(f"mnemosphere {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Dense associative memory on the sphere: a classifier with memories you can look at.

    Every prediction is the vote of a few memories, each a pattern with a soft label. Try it:

        mnemosphere demo

        mnemosphere train my-table.csv --label species --out run

        mnemosphere train tickets.csv --text message --label intent --out run

        mnemosphere predict run new.csv --out predictions.csv

    Exit codes: 0 success, 2 wrong usage or bad input, 130 interrupted, 141 closed pipe.
    """
    ctx.meta["mnemosphere.debug"] = debug


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
    flags = ", ".join(sorted(parameter.opts, key=len))
    if parameter.is_flag:
        return flags, text
    default = "" if parameter.default in (None, ()) else f" (default: {parameter.default})"
    return f"{flags} {parameter.metavar}", text + default


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command: a group among its parameters becomes options, the terminal's the last."""
    own = signature(function).parameters.values()
    groups: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}

    def run(ctx: typer.Context, **given: Any) -> None:
        _check(ctx, given)
        for name, kind in groups.items():
            given[name] = kind(**{f.name: given.pop(f.name) for f in fields(kind) if f.metadata})
        given["terminal"].command = shlex.join(["mnemosphere", *ctx.meta["mnemosphere.arguments"]])
        function(**given)

    seen = [Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for parameter in sorted(own, key=lambda p: p.name == "terminal"):
        seen += _options(parameter)
    run.__signature__ = Signature(seen)  # type: ignore[attr-defined]
    app.command(function.__name__, cls=Command, help=getdoc(function))(run)
    return function


def _options(parameter: Parameter) -> Iterator[Parameter]:
    """What Typer sees of a parameter: the fields of a group, or itself."""
    if not is_dataclass(parameter.annotation):
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)
        return
    for own in fields(parameter.annotation):
        if own.metadata:
            yield Parameter(own.name, Parameter.KEYWORD_ONLY, default=own.metadata["option"],
                            annotation=own.type)  # fmt: skip


def _check(ctx: typer.Context, given: dict[str, Any]) -> None:
    """Raise if what shall be read is not there, before a command imports anything heavy."""
    from mnemosphere.rows.tables import expand  # NumPy is not for --help

    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError("commands are one process each: drop torchrun, or use it in Python")
    if "" in ctx.meta["mnemosphere.arguments"]:
        raise ValueError("an argument is empty: give a file, a folder or a name")
    for name in ("data", "test", "novel"):
        if given.get(name):
            expand(given[name])
    model = given.get("model")
    if model is not None and not model.exists():
        raise ValueError(f"no model file at {model}: check the path")


def _work(where: str, given: dict[str, Any]) -> None:
    """Do the work of a command, by a function of a module that is loaded now."""
    module, _, name = where.partition(".")
    getattr(import_module(f"mnemosphere.cli.{module}"), name)(**given)


def option(values: str, text: str, *flags: str, **more: Any) -> Any:
    """An option: what one types after its flag, and what it does."""
    return typer.Option(*flags, metavar=values, help=text, **more)


_DATA = "a folder of images, or mnist-small, digits, …"
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The folder of a run, or a model file.")
]
Data = Annotated[
    str, typer.Argument(metavar="DATA", help=f"A file (.csv, .parquet, .npy, …), {_DATA}")
]
SomeData = Annotated[
    Text, typer.Argument(metavar="DATA", help=f"A file (.csv, .parquet, .npy, …), {_DATA}")
]
Files = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help=f"Files (.csv, .parquet, .npy, …), a pattern such as 'rows/*.parquet', {_DATA}",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from OUT.partial.")]
Picture = Annotated[
    Path | None, option("FILE", "Picture to write (.png, .svg, .pdf).", "--out", "-o")
]
Row = Annotated[list[str] | None, option("NAME", "Row, by its id or line; may be repeated.")]
Seed = Annotated[int, option("N", "Random seed: the same seed gives the same result.", min=0)]
MaxMemory = Annotated[
    float | None,
    option(
        "MEGABYTES",
        "Memory for rows; larger files are read in parts. Default: the free memory.",
        min=0,
        hidden=True,
    ),
]
Category = Annotated[
    list[str] | None,
    option(
        "A,B",
        "Columns that are categories, such as numeric codes.",
        callback=names_in,
        hidden=True,
    ),
]
ImageShape = Annotated[Text, option("HxW", "Draw rows as images, such as 28x28.", hidden=True)]
Kind = StrEnum("Kind", ["memories", "history", "tree"])


@command
def demo(
    terminal: Terminal,
    out: Annotated[
        Path, option("OUT", "Folder for the pictures, the model and results.", "--out", "-o")
    ] = Path("mnemosphere-demo"),
    seed: Seed = 0,
) -> None:
    """Learn handwritten digits, look at the memories, ask why.

    It takes half a minute and needs only this package: 5,000 training and 1,000 test digits are
    built in.

    For example:

        mnemosphere demo --out mnemosphere-demo
    """
    folder = Folder(out, overwrite=terminal.overwrite)
    del out
    _work("demo.run", locals())


@command
def train(
    terminal: Terminal,
    data: Files,
    *,
    out: Annotated[Path, option("OUT", "Folder to write.", "--out", "-o")] = Path("run"),
    resume: Resume = False,
    test: Annotated[Text, option("DATA", "Held-out rows in another file.")] = None,
    seed: Seed = 0,
    test_fraction: Annotated[
        float, option("SHARE", "Share of the rows to hold out.", hidden=True)
    ] = 0.2,
    category: Category = None,
    max_memory: MaxMemory = None,
    image_shape: ImageShape = None,
    columns: Columns,
    settings: Classifier,
    training: ClassTraining,
) -> None:
    """Train a model on your data and write it to a folder.

    OUT gets model.safetensors, results.json (every setting, accuracy, history, versions, checksum
    of the data) and pictures. A fifth of each class is held out to measure accuracy and to set the
    threshold of novelty. Ctrl-C leaves OUT.partial; the same command with --resume continues from
    it.

    For example:

        mnemosphere train irises.csv --label species --out run
    """
    folder = Folder(out, overwrite=terminal.overwrite, resume=resume)
    del out, resume
    _work("train.run", locals())


@command
def predict(
    terminal: Terminal,
    model: Model,
    data: Files,
    *,
    out: Annotated[
        Path | None, option("FILE", "Table (.csv, .tsv, .csv.gz or .parquet).", "--out", "-o")
    ] = None,
    answers: Answers,
    max_memory: MaxMemory = None,
    columns: Selection,
) -> None:
    """Predict the class of each row, and whether it is novel.

    A table (--out) also has probabilities, novelty scores and the memories that decided. Columns
    are found by the names the model was trained on; others are ignored. Files larger than memory
    are predicted and written part by part.

    For example:

        mnemosphere predict run new.csv --out predictions.csv
    """
    _work("predict.run", locals())


@command
def evaluate(
    terminal: Terminal,
    model: Model,
    data: Files,
    *,
    novel: Annotated[
        Text, option("DATA", "Rows of another kind that novelty should detect.")
    ] = None,
    reject: Annotated[float | None, option("RATE", REJECT)] = None,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify", help="Report whether each memory is a minimum, a saddle, or not at rest."
        ),
    ] = False,
    out: Picture = None,
    max_memory: MaxMemory = None,
    columns: Selection,
) -> None:
    """Measure a model on rows with labels.

    It prints accuracy, log-loss, calibration, how few memories decide, every class and the worst
    rows. If the model was trained on the file, or the data have a split, it uses the held-out rows;
    --certify uses the training rows. --out draws the confusion matrix.

    For example:

        mnemosphere evaluate run irises.csv --out confusion.png
    """
    _work("evaluate.run", locals())


@command
def explain(
    terminal: Terminal,
    model: Model,
    data: Data,
    *,
    row: Row = None,
    top: Annotated[int, option("N", "Memories to show.", min=1)] = 5,
    changes: Changes,
    out: Picture = None,
    image_shape: ImageShape = None,
    columns: Selection,
) -> None:
    """Why did this row get its class? What would change it?

    It shows how much each column pulls, the memories that decided, their shares and labels, and the
    training rows like them. --counterfactual finds a few columns that would change the class.

    For example:

        mnemosphere explain run irises.csv --row 78 --counterfactual next
    """
    _work("explain.run", locals())


@command
def cluster(
    terminal: Terminal,
    data: Files,
    *,
    out: Annotated[
        Path,
        option(
            "OUT", "Folder for the model, the clusters of the rows, and a picture.", "--out", "-o"
        ),
    ] = Path("clusters"),
    category: Category = None,
    resume: Resume = False,
    seed: Seed = 0,
    max_memory: MaxMemory = None,
    image_shape: ImageShape = None,
    columns: Selection,
    settings: Clusterer,
    training: Training,
) -> None:
    """Find clusters in rows without labels.

    Each cluster consists of a few memories you can look at. Labels are not trained on; they only
    show how well the clusters agree with them. Ctrl-C leaves OUT.partial; the same command with
    --resume continues from it.

    For example:

        mnemosphere cluster customers.csv --id name --out clusters
    """
    folder = Folder(out, overwrite=terminal.overwrite, resume=resume)
    del out, resume
    _work("cluster.run", locals())


@command
def recall(
    terminal: Terminal,
    model: Model,
    data: Data,
    *,
    hide: Annotated[
        Text,
        option(
            "top|bottom|left|right|SHARE",
            "Hide half of each image, or a random share of the features.",
        ),
    ] = None,
    row: Row = None,
    of_class: Annotated[Text, option("LABEL", "Complete as one of this class.", "--class")] = None,
    out: Annotated[
        Path | None,
        option("FILE", "Table of the completed rows, or picture of the first ones.", "--out", "-o"),
    ] = None,
    seed: Seed = 0,
    image_shape: ImageShape = None,
    columns: Selection,
) -> None:
    """Complete missing values of a table, or hidden pixels.

    Known features stay as they are; the others are found by descending the energy.

    For example:

        mnemosphere recall run with-gaps.csv --out completed.csv
    """
    _work("recall.run", locals())


@command
def plot(
    terminal: Terminal,
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="memories, history or tree.")],
    model: Model,
    out: Picture = None,
    count: Annotated[int, option("N", "Memories to draw.", min=1)] = 25,
    image_shape: ImageShape = None,
) -> None:
    """Draw the memories, the history or the tree of a model.

    Memories are drawn with their classes; the tree shows the splits of growth. Without --out the
    picture is KIND.png.

    For example:

        mnemosphere plot memories run --out memories.png
    """
    _work("surfaces.plot", locals())


@command
def explore(
    terminal: Terminal,
    model: Model,
    *,
    data: SomeData = None,
    out: Annotated[Path, option("FILE", "Page to write.", "--out", "-o")] = Path("page.html"),
    image_shape: ImageShape = None,
    rows: Annotated[int, option("N", "Rows in the page, at most.", min=1)] = 500,
    columns: Selection,
) -> None:
    """Write one HTML page in which the model runs.

    Draw, recall, look at the memories, ask why. The page needs no server and no network, and
    contains rows of DATA. If the model was trained on DATA, these are the held-out rows. Without
    held-out rows the page shows no accuracy.

    For example:

        mnemosphere explore run irises.csv --out page.html
    """
    _work("surfaces.explore", locals())


@command
def export(
    terminal: Terminal,
    model: Model,
    *,
    out: Annotated[Path, option("FILE", "Graph to write.", "--out", "-o")] = Path("model.onnx"),
    columns: Selection,
) -> None:
    """Write a model as an ONNX graph.

    For example:

        mnemosphere export run --out model.onnx
    """
    _work("surfaces.export", locals())
