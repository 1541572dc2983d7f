"""Memories above the matrix of their class weights, as the paper has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mnemosphere.model.parameters import memory_name
from mnemosphere.plots import memories
from mnemosphere.plots.checks import Array, as_array, as_indices, as_patterns
from mnemosphere.plots.patterns import aspect
from mnemosphere.plots.style import (
    ORANGE,
    SEQUENTIAL,
    figure_style,
    new_axes,
    new_figure,
    plain,
)

_WIDTH = 8.0  # inches
_MAX_NAMES = 50  # that fit under the matrix
_MAX_GRID = 120  # columns of the matrix that lines may separate


def as_soft_labels(p: Any) -> Array:
    """Soft labels (P, C+1) of the memories; row 0 of p, the uniform component, is left out."""
    p = as_array(p, "p", 2)
    if p.shape[0] < 2:
        raise ValueError(
            f"p must have a row for the uniform component and one per memory: {p.shape}"
        )
    if p.min() < 0:
        raise ValueError(f"p must not be negative, got {p.min():g}")
    weight = p[1:].sum(1, keepdims=True)
    if weight.min() <= 0:
        raise ValueError("a row of p is zero: drop the memories without weight")
    soft: Array = p[1:] / weight
    return soft


def as_memories(w: Any, p: Any, image_shape: Sequence[int] | None) -> tuple[Array, Array]:
    """(memories (P, N), their soft labels (P, C+1)), of the same number."""
    w, soft = as_patterns(w, "w", image_shape), as_soft_labels(p)
    if len(soft) != len(w):
        raise ValueError(
            f"w has {len(w)} memories but p has {len(soft) + 1} rows: p needs {len(w) + 1}, "
            "the first for the uniform component"
        )
    return w, soft


def class_names(classes: Sequence[object], n_columns: int) -> list[str]:
    """Names of the label columns: C classes and "none" for a last column they do not name."""
    names = [plain(c) for c in classes]
    if len(names) == n_columns - 1:
        names.append("none")
    if len(names) != n_columns:
        raise ValueError(
            f"there are {n_columns} label columns but {len(names)} classes: "
            f"pass {n_columns}, or {n_columns - 1} where the last column is 'none of them'"
        )
    return names


@figure_style()
def class_weights(
    p: Any, classes: Sequence[object], *, indices: Any = None, ax: Axes | None = None
) -> Axes:
    """Soft labels of memories as a matrix, classes down, memories across.

    p (P+1, C+1) as `class_weights_`; a ring marks the class of each memory.
    """
    soft = as_soft_labels(p)
    names = class_names(classes, soft.shape[1])
    chosen = as_indices(indices, len(soft))
    shown = soft[chosen].T  # (C+1, memories)
    n_classes, n = shown.shape
    if ax is None:
        width = float(np.clip(1.8 + 0.3 * n, 4.4, 9.0))
        ax = new_axes(width, float(np.clip(1.3 + 0.25 * n_classes, 2.0, 9.0)))
    ax.set_title("what they stand for (ring: the class of the memory)")
    image = ax.imshow(shown, aspect="auto", cmap=SEQUENTIAL, vmin=0.0, vmax=max(1.0, shown.max()))
    ax.plot(
        np.arange(n), shown.argmax(0), "o", markersize=float(np.clip(260 / n, 1.5, 6.0)),
        markerfacecolor="none", markeredgecolor=ORANGE, markeredgewidth=1.2,
    )  # fmt: skip
    ax.set_yticks(np.arange(n_classes), names, fontsize=float(np.clip(130 / n_classes, 6.0, 10.0)))
    step = 1 if n <= _MAX_NAMES else math.ceil(n / 20)
    ax.set_xticks(
        np.arange(0, n, step), [memory_name(k) for k in chosen[::step]],
        fontsize=float(np.clip(240 * step / n, 6.5, 9.5)), rotation=90 if n / step > 20 else 0,
    )  # fmt: skip
    ax.spines[["left", "bottom"]].set_visible(False)
    if n <= _MAX_GRID:
        ax.set_xticks(np.arange(n + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(n_classes + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="#DDDDDD", linewidth=0.4)
    ax.tick_params(which="both", length=0)
    ax.set_xlabel("memory")
    ax.set_ylabel("class")
    name = r"soft label $p^\mu_y/p_h(\mu)$"
    ax.figure.colorbar(image, ax=ax, label=name, fraction=0.06, aspect=24, pad=0.01)
    return ax


@figure_style()
def memory_gallery(
    w: Any, p: Any, *, classes: Sequence[object], image_shape: Sequence[int], indices: Any = None
) -> Figure:
    """A gallery of memories w (P, N) above their class weights p (P+1, C+1): Fig. (DAM_memories)."""
    w, soft = as_memories(w, p, image_shape)
    chosen = as_indices(indices, len(w))
    ncols = math.ceil(math.sqrt(len(chosen)))
    tile = min(1.0, 0.8 * _WIDTH / ncols)
    upper = tile * math.ceil(len(chosen) / ncols) * (aspect(image_shape) + 0.36)
    lower = float(np.clip(1.0 + 0.24 * soft.shape[1], 2.0, 6.5))
    figure = new_figure(_WIDTH, upper + lower + 0.5)
    top, bottom = figure.subplots(2, 1, height_ratios=[upper, lower])
    memories(w, image_shape, indices=chosen, ax=top)
    class_weights(p, classes, indices=chosen, ax=bottom)
    return figure
