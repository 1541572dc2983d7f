"""Growth by splitting: who descends from whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from mnemosphere.base.colors import category_colors
from mnemosphere.plots.checks import Array
from mnemosphere.plots.patterns import Box, aspect, draw_pattern, frame, largest
from mnemosphere.plots.style import figure_style, new_axes, plain

_MAX_PICTURED = 32  # leaves of a tree that are still drawn as memories
_NODE = 0.84  # width of a memory in a tree, where leaves are 1 apart


@figure_style()
def lineage_tree(
    level: NDArray[np.int64],
    parent: NDArray[np.int64],
    memories: Array,
    *,
    labels: NDArray[np.int64],
    classes: Sequence[object],
    names: Sequence[str],
    image_shape: Sequence[int] | None = None,
) -> Axes:
    """The tree of splits, roots above, one row per level.

    level, parent (n,) of the nodes, parent −1: a root. memories (n, N) are drawn as the nodes with at
    most 32 leaves, with names (n,) below; else nodes are dots. labels (n,) are places among the classes.
    """
    x, n_leaves = tree_places(parent)
    pictured = n_leaves <= _MAX_PICTURED
    depth = int(level.max() - level.min())
    spacing = 0.8 * aspect(image_shape) + 0.75 if pictured else 1.0
    y = -spacing * (level - level.min())
    if pictured:
        unit = float(np.clip(7.8 / n_leaves, 0.42, 1.0))  # inches per leaf
        ax = new_axes(max(2.5, unit * n_leaves + 1.2), unit * (depth * spacing + 1.6) + 0.3)
    else:
        width = float(np.clip(0.05 * n_leaves, 7.0, 9.0))
        ax = new_axes(width, float(np.clip(1.0 + 0.7 * depth, 2.2, 8.0)))
    child = np.flatnonzero(parent >= 0)
    reach = _NODE / 2 * aspect(image_shape) if pictured else 0.0  # lines end at the frames
    lines = [branch(x[parent[k]], y[parent[k]] - reach, x[k], y[k] + reach) for k in child]
    width = 0.9 if n_leaves <= 64 else 0.5
    ax.add_collection(LineCollection(lines, colors="#9A9A9A", linewidths=width, zorder=1))
    colors = category_colors(len(classes))
    if pictured:
        called = [plain(classes[k], 6) for k in labels]
        _draw_nodes(ax, x, y, memories, image_shape, [colors[k] for k in labels], called)
        for k, name in enumerate(names):
            ax.annotate(name, (x[k], y[k] - reach), (0, -2), textcoords="offset points",
                        ha="center", va="top", fontsize=8)  # fmt: skip
    else:
        _draw_dots(ax, x, y, labels, classes, n_leaves, colors)
    roots = int((parent < 0).sum())
    ax.set_title(f"growth from {roots} to {n_leaves} memories, one row per level of splits")
    shown = np.unique(level)
    shown = shown[:: 1 + len(shown) // 20]
    ax.set_yticks(-spacing * (shown - level.min()), [str(k) for k in shown])
    ax.set_ylabel("level")
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    return ax


def tree_places(parent: NDArray[np.int64]) -> tuple[Array, int]:
    """Place from left to right of each node: leaves in a row, parents above their children."""
    n = len(parent)
    children: list[list[int]] = [[] for _ in range(n)]
    roots: list[int] = []
    for k, mother in enumerate(parent):
        (roots if mother < 0 else children[mother]).append(k)
    x = np.zeros(n)
    n_leaves = 0
    stack = [(root, False) for root in reversed(roots)]
    while stack:  # by hand: a long lineage would pass the recursion limit
        node, done = stack.pop()
        if not children[node]:
            x[node] = n_leaves
            n_leaves += 1
        elif done:
            x[node] = x[children[node]].mean()
        else:
            stack.append((node, True))
            stack.extend((kid, False) for kid in reversed(children[node]))
    return x, n_leaves


def branch(x0: float, y0: float, x1: float, y1: float) -> Array:
    """A smooth line down from parent to child."""
    t = np.linspace(0.0, 1.0, 21)
    ease = t * t * (3 - 2 * t)
    return np.column_stack([x0 + (x1 - x0) * ease, y0 + (y1 - y0) * t])


def _draw_dots(
    ax: Axes, x: Array, y: Array, label: NDArray[np.int64], classes: Sequence[object],
    n_leaves: int, colors: Sequence[str],
) -> None:  # fmt: skip
    size = float(np.clip(1800 / n_leaves, 4.0, 45.0))
    for k in np.unique(label):
        mine = label == k
        ax.scatter(
            x[mine], y[mine], s=size, color=colors[k], zorder=2, edgecolors="#444444",
            linewidths=0.3, label=plain(classes[k]),
        )  # fmt: skip
    ax.set_xlim(-0.02 * n_leaves - 0.5, 1.02 * n_leaves - 0.5)
    ax.set_ylim(y.min() - 0.4, y.max() + 0.4)
    ax.legend(title="class", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_nodes(
    ax: Axes, x: Array, y: Array, pictures: Array, image_shape: Sequence[int] | None,
    colors: Sequence[str], called: Sequence[str],
) -> None:  # fmt: skip
    height = _NODE * aspect(image_shape)
    scale = largest(pictures)
    for k, picture in enumerate(pictures):
        box = Box(x[k] - _NODE / 2, y[k] - height / 2, _NODE, height)
        draw_pattern(ax, picture, box, image_shape, vmax=scale)
        frame(ax, box, colors[k], 2.0)
        place = (box.left, box.bottom + height)
        ax.annotate(called[k], place, (0, 2), textcoords="offset points", fontsize=9)
    ax.set_xlim(x.min() - 0.55, x.max() + 0.55)
    ax.set_ylim(y.min() - height / 2 - 0.1, y.max() + height / 2 + 0.25)
    ax.set_aspect("equal")
