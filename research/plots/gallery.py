"""Memories above the matrix of their class weights, as the paper has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mnemosphere.model.mixture import memory_name
from mnemosphere.plots import memories
from mnemosphere.plots.checks import Array, as_indices
from mnemosphere.plots.patterns import aspect
from mnemosphere.plots.style import ORANGE, SEQUENTIAL, figure_style, new_figure

_WIDTH = 8.0  # inches


def soft_labels(p: Any) -> Array:
    """Soft labels (P, C+1) of the memories; row 0 of p, the uniform component, is left out."""
    weights = np.asarray(p, dtype=np.float64)[1:]
    found: Array = weights / weights.sum(1, keepdims=True)
    return found


def class_weights(ax: Axes, p: Any, classes: Sequence[object], chosen: Any) -> None:
    """Soft labels of memories as a matrix, classes down, memories across.

    p (P+1, C+1) as `class_weights_`; a ring marks the class of each memory.
    """
    names = [*map(str, classes), "none"]
    shown = soft_labels(p)[chosen].T  # (C+1, memories)
    n_classes, n = shown.shape
    ax.set_title("what they stand for (ring: the class of the memory)")
    image = ax.imshow(shown, aspect="auto", cmap=SEQUENTIAL, vmin=0.0, vmax=max(1.0, shown.max()))
    ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": ORANGE}
    ax.plot(np.arange(n), shown.argmax(0), "o", markersize=6.0, markeredgewidth=1.2, **ring)
    ax.set_yticks(np.arange(n_classes), names)
    ax.set_xticks(np.arange(n), [memory_name(k) for k in chosen], rotation=90)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.set_xticks(np.arange(n + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(n_classes + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#DDDDDD", linewidth=0.4)
    ax.tick_params(which="both", length=0)
    ax.set_xlabel("memory")
    ax.set_ylabel("class")
    name = r"soft label $p^\mu_y/p_h(\mu)$"
    ax.figure.colorbar(image, ax=ax, label=name, fraction=0.06, aspect=24, pad=0.01)


@figure_style()
def memory_gallery(
    w: Any, p: Any, *, classes: Sequence[object], image_shape: Sequence[int], indices: Any = None
) -> Figure:
    """A gallery of memories w (P, N) above their class weights p (P+1, C+1): Fig. (DAM_memories)."""
    chosen = as_indices(indices, len(w))
    ncols = math.ceil(math.sqrt(len(chosen)))
    tile = min(1.0, 0.8 * _WIDTH / ncols)
    upper = tile * math.ceil(len(chosen) / ncols) * (aspect(image_shape) + 0.36)
    lower = float(np.clip(1.0 + 0.24 * p.shape[1], 2.0, 6.5))
    figure = new_figure(_WIDTH, upper + lower + 0.5)
    top, bottom = figure.subplots(2, 1, height_ratios=[upper, lower])
    memories(w, image_shape, indices=chosen, ax=top)
    class_weights(bottom, p, classes, chosen)
    return figure
