"""What one can type: the commands with their options, and what `--help` says of them.

The work is done by the module of the same name, which is imported when its command runs.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from mnemosphere.cli import options
from mnemosphere.cli.options import argument, command, option, output


class Kind(StrEnum):
    """What to draw."""

    memories = "memories"
    classes = "classes"
    history = "history"
    tree = "tree"


_PICTURES = output("Folder for the pictures, the model and results.", "OUT")
_TEST = option("Held-out rows in a file of their own.", value="DATA")
_FRACTION = option("Share of the rows to hold out.", value="SHARE", rare=True)
_CONFIG = option("Settings in a TOML file; options win.", value="FILE", rare=True)
_MERGE = option("Merge memories down to so many.", value="N", rare=True, min=1)
_TABLE = output("Table (.csv, .parquet, .json, …); .npy: probabilities.", "FILE")
_PRIOR = option("Expect other class frequencies than in training.", value="LABEL=NUMBER,…")
_REJECT = option("No prediction for rows as doubtful as this share of held-out rows.", value="RATE")
_RADIUS = option("How far each row may move before its class changes, proven.", "--radius")
_NOVEL = option("Rows of another kind, to be told apart by novelty.", value="DATA")
_RATE = option("Share of rows like the held-out ones that may be rejected.", value="RATE")
_CERTIFY = option("Is each memory a minimum, a saddle, or not at rest?", "--certify")
_OTHER = option("What would have to change for this class; next: the runner-up.", value="LABEL")
_FIXED = option("Columns that --counterfactual must leave as they are.", value="A,B")
_CLUSTERS = output("Folder for model, rows with their clusters, picture.", "OUT")
_HIDE = option("Hide a half of the images, or a share of the features at random.",
               value="top|bottom|left|right|SHARE")  # fmt: skip
_CLASS = option("Complete as one of this class.", "--class", value="LABEL")
_COMPLETED = output("Table of completed rows, or picture of the first.", "FILE")


@command()
def demo(
    out: Annotated[Path, _PICTURES] = Path("mnemosphere-demo"), seed: options.Seed = 0
) -> None:
    """See it work in half a minute: learn handwritten digits, look at the memories, ask why.

    Needs nothing but this package: 5,000 training and 1,000 test digits are built in.

    For example:

        mnemosphere demo --out mnemosphere-demo
    """


@command(rows=True, settings="DAMClassifier")
def train(
    data: options.OptionalFiles = None,
    out: Annotated[Path, output("Folder to write.", "OUT")] = Path("run"),
    resume: options.Resume = False,
    test: Annotated[str | None, _TEST] = None,
    seed: options.Seed = 0,
    test_fraction: Annotated[float, _FRACTION] = 0.2,
    config: Annotated[Path | None, _CONFIG] = None,
    merge_to: Annotated[int | None, _MERGE] = None,
    yes: Annotated[bool, option("Go on where it would ask.", "--yes", "-y", rare=True)] = False,
    max_memory: options.MaxMemory = None,
    image_shape: options.ImageShape = None,
) -> None:
    """Train a model on your data and write it with everything needed to make it again.

    OUT gets model.safetensors, config.toml (every setting), results.json (accuracy, history,
    versions, checksum of the data) and pictures. A fifth of each class is held out for the accuracy
    and to tell what is novel. Ctrl-C leaves OUT.partial, from which --resume goes on.

    For example:

        mnemosphere train irises.csv --label species --out run
    """


@command(rows=True, split=True)
def predict(
    model: options.Model,
    data: options.Files,
    out: Annotated[Path | None, _TABLE] = None,
    top: Annotated[int, option("Deciding memories per row.", value="N", min=0)] = 3,
    prior: Annotated[str | None, _PRIOR] = None,
    reject: Annotated[float | None, _REJECT] = None,
    radius: Annotated[bool, _RADIUS] = False,
    max_memory: options.MaxMemory = None,
) -> None:
    """Predict rows: class, probabilities, novelty, and the memories that decided.

    Columns are found by the names the model was trained on; others are left alone. Files that
    memory does not hold are predicted part by part, and written as it goes.

    For example:

        mnemosphere predict run new.csv --out predictions.csv
    """


@command(rows=True, split=True)
def evaluate(
    model: options.Model,
    data: options.Files,
    novel: Annotated[str | None, _NOVEL] = None,
    reject: Annotated[float | None, _RATE] = None,
    certify: Annotated[bool, _CERTIFY] = False,
    out: options.Picture = None,
    max_memory: options.MaxMemory = None,
) -> None:
    """Measure a model: accuracy, log-loss, calibration, how few memories decide, the worst rows.

    Of a file that the model was trained on, and of data with a split, the held-out rows are taken,
    for --certify those trained on. --out draws the confusions.

    For example:

        mnemosphere evaluate run irises.csv --out confusion.png
    """


@command(rows=True, split=True)
def explain(
    model: options.Model,
    data: options.Data,
    row: options.RowNames = None,
    top: Annotated[int, option("How many memories to show.", value="N", min=1)] = 5,
    counterfactual: Annotated[str | None, _OTHER] = None,
    fixed: Annotated[list[str] | None, _FIXED] = None,
    out: options.Picture = None,
    image_shape: options.ImageShape = None,
) -> None:
    """Why did this row get its class, and what would have to change for another?

    The memories that decided, their shares and labels, the training rows like them, and what each
    feature did. --counterfactual finds the smallest change that changes the predicted class.

    For example:

        mnemosphere explain run irises.csv --row 78 --counterfactual next
    """


@command(rows=True, split=True, settings="DAMClusterer")
def cluster(
    data: options.Files,
    out: Annotated[Path | None, _CLUSTERS] = None,
    resume: options.Resume = False,
    seed: options.Seed = 0,
    max_memory: options.MaxMemory = None,
    image_shape: options.ImageShape = None,
) -> None:
    """Find clusters in rows without labels, each held by a few memories you can look at.

    A label column (--label, or one called label, target, class or y, never just the last) is not
    trained on: it only tells how far the clusters agree with it. Ctrl-C leaves OUT.partial, from
    which the same command with --resume goes on.

    For example:

        mnemosphere cluster customers.csv --id name --out clusters
    """


@command(rows=True, split=True)
def recall(
    model: options.Model,
    data: options.Data,
    hide: Annotated[str | None, _HIDE] = None,
    row: options.RowNames = None,
    of_class: Annotated[str | None, _CLASS] = None,
    out: Annotated[Path | None, _COMPLETED] = None,
    seed: options.Seed = 0,
    image_shape: options.ImageShape = None,
) -> None:
    """Complete rows: missing values of a table, or hidden pixels of images, as the memories have them.

    Features that are known stay as they are; the others are found by descending the energy.

    For example:

        mnemosphere recall run with-gaps.csv --out completed.csv
    """


@command()
def plot(
    kind: Annotated[Kind, argument("KIND", "memories, classes, history or tree.")],
    model: options.Model,
    out: options.Picture = None,
    count: Annotated[int, option("Memories in a gallery.", value="N", min=1)] = 25,
    image_shape: options.ImageShape = None,
) -> None:
    """Draw a model: its memories, their classes, the history of training, the tree of splits.

    Without --out the picture is KIND.png.

    For example:

        mnemosphere plot memories run --out memories.png
    """


@command(rows=True, split=True)
def explore(
    model: options.Model,
    data: options.OptionalData = None,
    out: Annotated[Path, output("The page.", "FILE")] = Path("page.html"),
    image_shape: options.ImageShape = None,
    rows: Annotated[int, option("Most rows that the page packs.", value="N", min=1)] = 500,
) -> None:
    """Write one HTML file in which the model runs: draw, recall, look at the memories, ask why.

    It needs no server and no network. Rows of DATA are packed into it. If the model was trained on
    DATA, these are the held-out ones, and without such rows the page has no accuracy.

    For example:

        mnemosphere explore run irises.csv --out page.html
    """


@command(rows=True, split=True)
def export(
    model: options.Model,
    data: options.OptionalData = None,
    out: Annotated[Path, output(".onnx for a graph, .md for a card.", "FILE")] = Path("model.onnx"),
) -> None:
    """Write a model as an ONNX graph, or as a model card in Markdown.

    The card has figures on DATA: if the model was trained on it, on the held-out rows.

    For example:

        mnemosphere export run --out model.onnx
    """


COMMANDS = (demo, train, predict, evaluate, explain, cluster, recall, plot, explore, export)
