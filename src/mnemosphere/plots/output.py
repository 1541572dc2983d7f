"""Pictures into files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.base.files import write_atomically
from mnemosphere.plots.style import figure_style, root_figure

# None removes a field that would carry the time or the version: same data, same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@figure_style()
def save(picture: Figure | SubFigure | Axes, path: str | Path, *, dpi: float = 200) -> Path:
    """Write a picture as PNG, SVG or PDF, by the suffix of the path.

    Missing folders are made. The file appears whole or not at all, and the same data give the same bytes.

    Parameters
    ----------
    picture : matplotlib Figure, SubFigure or Axes
        The figure, or axes of it.
    path : str or path
        The file.
    dpi : float, default 200
        Pixels per inch of a PNG.

    Returns
    -------
    pathlib.Path
        The path.

    Examples
    --------
    >>> axes = mn.plots.importance(clf.model_, X_test)
    >>> mn.plots.save(axes, "importance.png", dpi=50).name
    'importance.png'
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _METADATA:
        raise ValueError(f"cannot write {path.name!r}: end the name in .png, .svg or .pdf")
    content = io.BytesIO()
    root_figure(picture).savefig(
        content, format=suffix[1:], dpi=dpi, bbox_inches="tight", metadata=_METADATA[suffix]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
    return path
