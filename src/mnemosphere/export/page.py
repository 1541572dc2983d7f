"""One HTML file: template, style, scripts and the payload; it asks for nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnemosphere.export.payload import payload
from mnemosphere.files import write_atomically
from mnemosphere.theory.stationarity import Certificate

if TYPE_CHECKING:
    from mnemosphere.estimators.portable_model import PortableModel

__all__ = ["render", "write_page"]


def write_page(
    model: PortableModel,
    path: Path,
    X: Any = None,
    y: Any = None,
    *,
    max_rows: int = 500,
    image_shape: Sequence[int] | str | None = "auto",
    layout: str = "auto",
    certificate: Certificate | None = None,
    title: str | None = None,
) -> None:
    """Write the page of a fitted model atomically; `PortableModel.explore` has the details."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    content = render(
        payload(
            model, X, y, max_rows=max_rows, image_shape=image_shape, layout=layout,
            certificate=certificate, title=title,
        )
    )  # fmt: skip
    write_atomically(path, content.encode())


def render(content: dict[str, Any]) -> str:
    """The page that shows a payload."""
    # In ASCII, and without the signs that could end the script element it lies in.
    text = json.dumps(_finite(content), allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    page = _part("template.html")
    for place, part in (
        ("/*style*/", _part("style.css")),
        ("/*model*/", _part("model.js")),
        ("/*page*/", _part("page.js")),
        ("/*views*/", _part("views.js")),
        ("/*payload*/", text),
    ):
        before, found, after = page.partition(place)
        if not found:
            raise ValueError(f"the template has no place for {place}")
        page = before + part + after
    return page


def _finite(value: Any) -> Any:
    """The same with null for every number that JSON cannot hold."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _part(name: str) -> str:
    return files("mnemosphere.export").joinpath("web", name).read_text(encoding="utf-8")
