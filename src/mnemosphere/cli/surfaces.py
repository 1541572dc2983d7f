"""`mnemosphere plot`, `explore` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mnemosphere import plots
from mnemosphere.cli.options import Selection
from mnemosphere.cli.output import PICTURES, check_file
from mnemosphere.cli.rows import Opened, open_model, rows_for
from mnemosphere.cli.shell import Terminal
from mnemosphere.export import to_onnx
from mnemosphere.plots import fitted
from mnemosphere.plots.curves import learning_curves


def plot(
    terminal: Terminal,
    kind: str,
    model: Path,
    out: Path | None,
    count: int,
    image_shape: str | None,
) -> None:
    """Draw a model."""
    path = Path(f"{kind}.png") if out is None else out
    check_file(path, PICTURES, terminal.overwrite, model)
    opened = open_model(model)
    shape = opened.shape(image_shape)
    if kind == "memories":
        picture: Any = fitted.memories_of(opened.model.model_, shape, count)
    elif kind == "history":
        picture = learning_curves(opened.model.history_)
    else:
        picture = fitted.tree_of(opened.of_rows("a tree").model_, shape)
    plots.save(picture, path)
    terminal.result({"picture": path, "kind": kind, "model": opened.path})
    terminal.say(f"wrote {path}")


def explore(
    terminal: Terminal, columns: Selection, model: Path, data: str | None, out: Path,
    image_shape: str | None, rows: int,
) -> None:  # fmt: skip
    """Write the page of a model."""
    opened, x, y, shape = _measured(terminal, columns, model, data, out, ".html", ".htm")
    opened.of_rows("a page").explore(
        out, x, y, max_rows=rows, image_shape=opened.shape(image_shape, shape),
        title=opened.path.parent.name,
    )  # fmt: skip
    size = out.stat().st_size
    terminal.result({"page": out, "bytes": size, "model": opened.path})
    terminal.say(f"wrote {out} ({size / 1e6:.1f} MB): open it in a browser")


def export(terminal: Terminal, columns: Selection, model: Path, out: Path) -> None:
    """Write the graph of a model."""
    opened, *_ = _measured(terminal, columns, model, None, out, ".onnx")
    to_onnx(opened.model, out)
    terminal.result({"file": out, "model": opened.path})
    terminal.say(f"wrote {out}")


def _measured(
    terminal: Terminal, columns: Selection, model: Path, data: str | None, out: Path, *suffixes: str
) -> tuple[Opened, Any, Any, Any]:
    """A model, and x, y and shape of the rows of DATA that figures may be taken on."""
    check_file(out, suffixes, terminal.overwrite, model, *([data] if data else []))
    opened = open_model(model, columns.encoder)
    if data is None:
        return opened, None, None, None
    rows = rows_for(opened, data, columns, measured=True)
    if rows.y is None and rows.label is not None:
        terminal.note("no rows were held out in training: there are no figures")
    return opened, rows.x, rows.y, rows.image_shape
