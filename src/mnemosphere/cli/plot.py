"""`mnemosphere plot`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from mnemosphere.cli import options
from mnemosphere.cli.options import Request, command, option
from mnemosphere.cli.output import PICTURES, check_file


class Kind(StrEnum):
    """What to draw."""

    memories = "memories"
    history = "history"
    tree = "tree"


@command()
def plot(
    request: Request,
    kind: Annotated[
        Kind,
        typer.Argument(help="memories, history or tree.", metavar="KIND", show_default=False),
    ],
    model: options.Model,
    out: options.Picture = None,
    overwrite: options.Overwrite = False,
    count: Annotated[int, option("Memories in a gallery.", value="N", min=1)] = 25,
    image_shape: options.ImageShape = None,
) -> None:
    """Draw a model: its memories with their classes, the history of training, the tree of splits.

    Without --out the picture is KIND.png.

    For example:

        mnemosphere plot memories run --out memories.png
    """
    from mnemosphere import plots
    from mnemosphere.cli.rows import open_model
    from mnemosphere.plots import fitted
    from mnemosphere.plots.curves import learning_curves

    path = Path(f"{kind.value}.png") if out is None else out
    check_file(path, PICTURES, overwrite=overwrite, inputs=(model,))
    opened = open_model(model)
    shape = opened.shape(image_shape)
    if kind is Kind.memories:
        picture: Any = fitted.memories_of(opened.model.model_, shape, count, opened.pictures)
    elif kind is Kind.history:
        picture = learning_curves(opened.model.history_)
    else:
        picture = fitted.tree_of(opened.of_rows("a tree").model_, shape)
    plots.save(picture, path)
    request.terminal.result({"picture": path, "kind": kind.value, "model": opened.path})
    request.terminal.say(f"wrote {path}")
