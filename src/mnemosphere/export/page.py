"""One HTML file: template, style, scripts and the payload; it asks for nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from mnemosphere.base.files import plain, write_atomically
from mnemosphere.base.text import printable
from mnemosphere.export.payload import payload
from mnemosphere.fitted.model import FittedModel

_HEIGHT = 860  # of a page in a notebook, in pixels


@dataclass(frozen=True)
class Page:
    """A page that was written; as the last line of a notebook's cell it shows itself.

    Attributes
    ----------
    path : Path
        The file.

    Examples
    --------
    >>> page = clf.explore("wine.html", X_test[:3])
    >>> page.path.name
    'wine.html'
    """

    path: Path

    def _repr_html_(self) -> str:
        """The whole file in a frame that can run its script and reach nothing else."""
        page = escape(self.path.read_text(encoding="utf-8"))
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{page}" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )


def explore(
    model: FittedModel, path: str | PathLike[str], X: Any = None, y: Any = None, **more: Any
) -> Page:
    """Write one HTML file in which the model runs: draw, type or change a row, and see why.

    The file needs no server and no network. Everything in it is computed live, with the numbers of Python:
    class or no answer, familiarity, memories, recall.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    path : str or path
        The file.
    X : array-like of shape (n, N), default None
        Rows to measure the model on.
    y : array-like of shape (n,), default None
        Their labels.
    **more
        `max_rows`, `image_shape` and `title`, as in `DAMClassifier.explore`.

    Returns
    -------
    Page
        Where it is; in a notebook it shows itself.

    Examples
    --------
    >>> mn.export.explore(clusterer.model_, "clusters.html").path.name
    'clusters.html'
    """
    write_page(Path(path), payload(model, X, y, **more))
    return Page(Path(path))


def write_page(path: Path, content: dict[str, Any]) -> None:
    """Write the page that shows a payload, atomically."""
    # In ASCII, and without the signs that could end the script element it lies in.
    shown = _printable(plain(content, finite=True))
    text = json.dumps(shown, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    page = _part("template.html")
    for name in ("style.css", "model.js", "page.js", "views.js"):
        page = page.replace(f"/*{name.partition('.')[0]}*/", _part(name), 1)
    write_atomically(path, page.replace("/*payload*/", text, 1).encode())


def _printable(value: Any) -> Any:
    """All texts as a terminal would show them, lines apart."""
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return printable(value, keep="\n\t") if isinstance(value, str) else value


def _part(name: str) -> str:
    return files("mnemosphere.export").joinpath("web", name).read_text(encoding="utf-8")
