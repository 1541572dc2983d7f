"""Where an image and memories of images agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.plots.checks import Array
from mnemosphere.plots.patterns import Box, aspect, frame, largest
from mnemosphere.plots.predictions import strip_height
from mnemosphere.plots.style import BLUE, DIVERGING, GREY, figure_style, new_figure

_PREDICTION = 1.7  # width of the prediction beside the memories, as in the strip above


def agreement_map(ax: Axes, values: Array, image: Array, scale: float) -> None:
    """Parts of an overlap on the pixels, (rows, columns), with the outline of the image on top.

    A map of one row, of a signal, is a line.
    """
    height, width = values.shape
    if height == 1:
        ax.fill_between(np.arange(width) + 0.5, values[0], step="mid", color=BLUE, alpha=0.6)
        ax.axhline(0.0, color=GREY, linewidth=0.5)
        ax.set_ylim(-scale, scale)
        ax.set_yticks([])
        return
    # Pixel centers at half numbers, so that the outline lies where the image is.
    ax.imshow(values, extent=(0, width, height, 0), cmap=DIVERGING, vmin=-scale, vmax=scale)
    if image.max() > image.min():
        level = (float(image.max()) + float(image.min())) / 2
        across, down = np.arange(width) + 0.5, np.arange(height) + 0.5
        ax.contour(across, down, image, levels=[level], colors="black", linewidths=0.8)
    frame(ax, Box(0.0, 0.0, width, height))
    ax.set_axis_off()


@figure_style()
def agreement_figure(
    strip: Callable[[Figure | SubFigure], object],
    image: Array,
    maps: Array,
    overlaps: Array,
    image_shape: Sequence[int] | None,
    *,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """An explanation above, drawn by `strip`, and below each of k memories where it agrees.

    image (pixels,), maps (k, rows, columns) parts of the overlaps (k,).
    """
    n, height = len(maps), 0.4 if image_shape is None else aspect(image_shape)
    upper, lower = strip_height(height), 1.05 * height + 0.4
    figure = figure or new_figure(1.1 * (n + 1) + 2.6, upper + lower)
    parts: Any = figure.subfigures(2, 1, height_ratios=[upper, lower])
    top, bottom = parts
    strip(top)
    grid = bottom.add_gridspec(1, n + 2, width_ratios=[1.0] * (n + 1) + [_PREDICTION])
    label = bottom.add_subplot(grid[0, 0])
    label.set_axis_off()
    label.text(0.5, 0.5, "where they\nagree", ha="center", va="center", fontsize=10)
    outline = image.reshape(*maps.shape[1:], -1).mean(2)  # channels averaged
    scale = largest(maps)
    for k in range(n):
        ax = bottom.add_subplot(grid[0, k + 1])
        agreement_map(ax, maps[k], outline, scale)
        ax.set_title(f"overlap {overlaps[k]:.2f}", fontsize=10, loc="center")
    return figure
