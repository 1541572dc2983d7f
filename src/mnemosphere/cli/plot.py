"""`mnemosphere plot`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from mnemosphere.cli.options import (
    ImageShape, Model, Overwrite, Picture, Request, command, option,
)  # fmt: skip
from mnemosphere.cli.output import PICTURES, check_file


class Kind(StrEnum):
    """What to draw."""

    memories = "memories"
    classes = "classes"
    history = "history"
    tree = "tree"


@command()
def plot(
    request: Request,
    kind: Annotated[Kind, typer.Argument(help="What to draw.", show_default=False)],
    model: Model,
    out: Picture = None,
    overwrite: Overwrite = False,
    count: Annotated[int, option("Memories in a gallery.", min=1)] = 25,
    image_shape: ImageShape = None,
) -> None:
    """Draw a model: its memories, their classes, the history of training, the tree of splits.

    Without --out the picture is KIND.png.
    """
    from mnemosphere import plots
    from mnemosphere.cli.rows import open_model

    path = Path(f"{kind.value}.png") if out is None else out
    check_file(path, PICTURES, overwrite=overwrite, inputs=(model,))
    opened = open_model(model)
    plots.save(_draw(kind, opened, opened.shape(image_shape), count), path)
    request.terminal.result({"picture": path, "kind": kind.value, "model": opened.path})
    request.terminal.say(f"wrote {path}")


def _draw(kind: Kind, opened: Any, shape: Any, count: int) -> Any:
    import numpy as np

    from mnemosphere import plots
    from mnemosphere.cli import report

    model = opened.model
    if kind is Kind.memories:
        return report.memory_picture(opened, shape, count)
    if kind is Kind.classes:
        shown, weights = report.representative(model, count), model.class_weights_
        return plots.class_weights(weights, opened.classes, p_h=model.memory_prior_, indices=shown)
    if kind is Kind.history:
        return plots.learning_curves(model.history_)
    tree = model.lineage_
    if tree is None:
        raise ValueError("this model did not grow: train with --growth 16, say, for a tree")
    w = np.zeros((tree.n_nodes, model.n_features_in_))
    label = np.zeros(tree.n_nodes, dtype=np.int64)
    for level, nodes in enumerate(tree.members):  # a node is drawn as it was last
        then = model.at_level(level)
        w[nodes.numpy()] = then.memories_
        label[nodes.numpy()] = then.class_weights_[1:].argmax(axis=1)
    return plots.lineage_tree(
        tree.level.numpy(), tree.parent.numpy(), memories=w, image_shape=shape, labels=label,
        classes=[*opened.classes, "none"],
    )  # fmt: skip
