"""`mnemosphere plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mnemosphere import plots
from mnemosphere.cli.options import Request
from mnemosphere.cli.output import PICTURES, check_file
from mnemosphere.cli.rows import open_model
from mnemosphere.plots import fitted
from mnemosphere.plots.curves import learning_curves


def run(
    request: Request, kind: str, model: Path, out: Path | None, count: int, image_shape: str | None
) -> None:
    """Draw a model."""
    path = Path(f"{kind}.png") if out is None else out
    check_file(path, PICTURES, request.overwrite, model)
    opened = open_model(model)
    shape = opened.shape(image_shape)
    if kind == "memories":
        picture: Any = fitted.memories_of(opened.model.model_, shape, count, opened.pictures)
    elif kind == "history":
        picture = learning_curves(opened.model.history_)
    else:
        picture = fitted.tree_of(opened.of_rows("a tree").model_, shape)
    plots.save(picture, path)
    request.terminal.result({"picture": path, "kind": kind, "model": opened.path})
    request.terminal.say(f"wrote {path}")
