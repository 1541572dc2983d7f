"""`mnemosphere explore` and `mnemosphere export`: a model as a page, a card or a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mnemosphere.cli import options
from mnemosphere.cli.options import Request, command, option
from mnemosphere.cli.output import check_file

if TYPE_CHECKING:
    from mnemosphere.cli.rows import Opened, Rows

_Page = Annotated[Path, option("The page.", "--out", "-o", value="FILE")]
_File = Annotated[Path, option(".onnx for a graph, .md for a card.", "--out", "-o", value="FILE")]


@command(rows=True, split=True)
def explore(
    request: Request,
    model: options.Model,
    data: options.OptionalData = None,
    out: _Page = Path("page.html"),
    overwrite: options.Overwrite = False,
    image_shape: options.ImageShape = None,
    rows: Annotated[int, option("Most rows that the page packs.", value="N", min=1)] = 500,
) -> None:
    """Write one HTML file in which the model runs: draw, recall, look at the memories, ask why.

    It needs no server and no network. Rows of DATA are packed into it. If the model was trained on
    DATA, these are the held-out ones, and without such rows the page has no accuracy.

    For example:

        mnemosphere explore run irises.csv --out page.html
    """
    from mnemosphere.cli.rows import open_model

    inputs = (model,) if data is None else (model, data)
    check_file(out, [".html", ".htm"], overwrite=overwrite, inputs=inputs)
    opened = open_model(model, request.columns.encoder)
    found = None if data is None else _measured(request, opened, data)
    shape = opened.shape(image_shape, found)
    x, y = (None, None) if found is None else (found.x, found.y)
    opened.of_rows("a page").explore(
        out, x, y, max_rows=rows, image_shape=shape, title=opened.path.parent.name
    )
    size = out.stat().st_size
    request.terminal.result({"page": out, "bytes": size, "model": opened.path})
    request.terminal.say(f"wrote {out} ({size / 1e6:.1f} MB): open it in a browser")


@command(rows=True, split=True)
def export(
    request: Request,
    model: options.Model,
    data: options.OptionalData = None,
    out: _File = Path("model.onnx"),
    overwrite: options.Overwrite = False,
) -> None:
    """Write a model as an ONNX graph, or as a model card in Markdown.

    The card has figures on DATA: if the model was trained on it, on the held-out rows.

    For example:

        mnemosphere export run --out model.onnx
    """
    from mnemosphere.cli.rows import open_model
    from mnemosphere.export import model_card, to_onnx
    from mnemosphere.files import write_atomically

    inputs = (model,) if data is None else (model, data)
    check_file(out, [".onnx", ".md"], overwrite=overwrite, inputs=inputs)
    opened = open_model(model, request.columns.encoder)
    if out.suffix == ".onnx":
        to_onnx(opened.whole, out)
    else:
        found = None if data is None else _measured(request, opened, data)
        x, y = (None, None) if found is None else (found.x, found.y)
        write_atomically(out, model_card(opened.model.model_, x, y).encode())
    request.terminal.result({"file": out, "model": opened.path})
    request.terminal.say(f"wrote {out}")


def _measured(request: Request, opened: Opened, data: str) -> Rows:
    """The rows of DATA that figures may be taken on, with labels; see `rows_for`."""
    from mnemosphere.cli.rows import rows_for

    rows = rows_for(opened, data, request.columns, request.split, measured=True)
    if rows.y is None and rows.label is not None:
        request.terminal.note("no rows were held out in training: there are no figures")
    return rows
