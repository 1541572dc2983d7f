"""`mnemosphere plot`, `explore` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mnemosphere import plots
from mnemosphere.base.files import write_atomically
from mnemosphere.cli.options import Selection
from mnemosphere.cli.output import PICTURES, check_file
from mnemosphere.cli.rows import Opened, open_model, rows_for
from mnemosphere.cli.shell import Terminal
from mnemosphere.export import model_card, to_onnx
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


def export(
    terminal: Terminal, columns: Selection, model: Path, data: str | None, out: Path
) -> None:
    """Write the graph or the card of a model."""
    graph = out.suffix == ".onnx"
    opened, x, y, _ = _measured(
        terminal, columns, model, None if graph else data, out, ".onnx", ".md"
    )
    if graph:
        to_onnx(opened.model, out)
    else:
        write_atomically(out, model_card(opened.model.model_, x, y).encode())
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
