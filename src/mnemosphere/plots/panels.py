"""A small panel of curves for each column of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.fitted.model import Floats
from mnemosphere.plots.style import GREY, new_figure, plain

_WIDE = 4  # panels side by side, names of curves


def panels(figure: Figure | SubFigure | None, n: int) -> list[Axes]:
    """Axes of n panels with one scale, in a new figure if there is none."""
    wide = min(_WIDE, n)
    high = -(-n // wide)
    figure = figure or new_figure(max(4.0, 2.4 * wide), 1.9 * high + 0.7)
    axes: list[Axes] = figure.subplots(high, wide, sharey=True, squeeze=False).ravel().tolist()
    for ax in axes[n:]:
        ax.set_axis_off()
    return axes[:n]


def draw_column(
    ax: Axes,
    column: str,
    at: Floats,
    curves: Floats,
    colors: Sequence[str],
    *,
    names: Sequence[str] | None,
    deciles: Floats,
) -> None:
    """Curves (m, K) over the values (K,) of a column; over its names (K,), if values have some."""
    ax.axhline(0.0, color=GREY, linewidth=0.5, zorder=0)
    at = at if names is None else np.arange(float(len(names)))
    for curve, color in zip(curves, colors, strict=True):
        ax.plot(at, curve, "-" if names is None else "o", color=color, linewidth=1.3)
    if names is None:
        ax.plot(deciles, np.zeros(len(deciles)), "|", color=GREY, markersize=4, clip_on=False,
                transform=ax.get_xaxis_transform())  # fmt: skip
        ax.locator_params(axis="x", nbins=4)
    else:
        turn = 0 if len(names) < 4 else 60
        ax.set_xticks(at, [plain(name, 9) for name in names], fontsize=9, rotation=turn)
        ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_title(plain(column, 24), fontsize=10)


def name_curves(axes: Sequence[Axes], colors: Sequence[str], names: Sequence[str], y: str) -> None:
    """A legend above all panels, and what their scale is."""
    figure = axes[0].figure
    handles = [axes[0].plot([], [], color=color)[0] for color in colors]
    figure.legend(handles, list(names), loc="outside upper left", ncols=min(_WIDE, len(names)))
    figure.supylabel(y, fontsize=10)
