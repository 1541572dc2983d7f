"""`mnemosphere explore`."""

from __future__ import annotations

from pathlib import Path

from mnemosphere.cli.options import Request
from mnemosphere.cli.output import check_file
from mnemosphere.cli.rows import measured


def run(
    request: Request, model: Path, data: str | None, out: Path, image_shape: str | None, rows: int
) -> None:
    """Write the page of a model."""
    check_file(out, [".html", ".htm"], request.overwrite, model, *([data] if data else []))
    opened, found = measured(request, model, data)
    opened.of_rows("a page").explore(
        out, None if found is None else found.x, None if found is None else found.y, max_rows=rows,
        image_shape=opened.shape(image_shape, found), title=opened.path.parent.name,
    )  # fmt: skip
    size = out.stat().st_size
    request.terminal.result({"page": out, "bytes": size, "model": opened.path})
    request.terminal.say(f"wrote {out} ({size / 1e6:.1f} MB): open it in a browser")
