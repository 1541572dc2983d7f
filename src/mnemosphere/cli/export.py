"""`mnemosphere export`."""

from __future__ import annotations

from pathlib import Path

from mnemosphere.base.files import write_atomically
from mnemosphere.cli.options import Request
from mnemosphere.cli.output import check_file
from mnemosphere.cli.rows import measured
from mnemosphere.export import model_card, to_onnx


def run(request: Request, model: Path, data: str | None, out: Path) -> None:
    """Write the graph or the card of a model."""
    check_file(out, [".onnx", ".md"], request.overwrite, model, *([data] if data else []))
    graph = out.suffix == ".onnx"
    opened, found = measured(request, model, None if graph else data)
    if graph:
        to_onnx(opened.whole, out)
    else:
        x, y = (None, None) if found is None else (found.x, found.y)
        write_atomically(out, model_card(opened.model.model_, x, y).encode())
    request.terminal.result({"file": out, "model": opened.path})
    request.terminal.say(f"wrote {out}")
