"""One look for every picture: palette, color maps, typography, and how a figure starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure

from mnemosphere.base.colors import BASIC
from mnemosphere.base.text import middle_cut

BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, BROWN = PALETTE = BASIC
GREY = "#7A7A7A"
MARKERS = "osD^vP"

# Lightness falls in a straight line (CIELAB) from paper white through the palette's two blues.
SEQUENTIAL = LinearSegmentedColormap.from_list(
    "mnemosphere",
    [
        "#ffffff", "#c6e1f7", "#86c4ee", "#4aa6de", "#2886c3",
        "#0267a2", "#054979", "#042e53", "#03142f",
    ],
)  # fmt: skip
DIVERGING = mpl.colormaps["RdBu_r"]

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.labelsize": 11,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 6,
    "axes.titlesize": 12,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same everywhere
    "font.size": 11,
    "image.interpolation": "nearest",
    "legend.fontsize": 10,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,  # text stays text
    "savefig.dpi": 200,
    "svg.hashsalt": "mnemosphere",  # ids inside an SVG are random without it
    "text.usetex": False,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw in the look of this package inside a `with` block, or in a function so decorated.

    Afterwards, the settings of matplotlib are restored.

    Yields
    ------
    None
        Nothing.

    Examples
    --------
    >>> from matplotlib import rcParams
    >>> before = rcParams["font.size"]
    >>> with mn.plots.figure_style():
    ...     inside = rcParams["font.size"]
    >>> inside, rcParams["font.size"] == before
    (11.0, True)
    """
    with mpl.rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, size in inches, known to no window system and no global state."""
    return Figure(figsize=(width, height), layout="constrained")


def new_axes(width: float, height: float) -> Axes:
    """The only axes of a new figure."""
    axes = new_figure(width, height).subplots()
    assert isinstance(axes, Axes)
    return axes


def root_figure(picture: Figure | SubFigure | Axes) -> Figure:
    """The whole figure a picture is part of."""
    while not isinstance(picture, Figure):
        owner = picture.figure
        if owner is None:
            raise ValueError("these axes were removed from their figure: draw them again")
        picture = owner
    return picture


def plain(value: object, limit: int = 18) -> str:
    """A user's name as one short line that matplotlib will not take for a formula."""
    return middle_cut(str(value), limit).replace("$", r"\$")
