"""Growth by splitting: who descends from whom, and who may split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from mnemosphere.plots.checks import Array, as_array, as_patterns, same_length
from mnemosphere.plots.patterns import Box, aspect, draw_pattern, frame, largest
from mnemosphere.plots.style import (
    BLUE,
    VERMILLION,
    category_style,
    figure_style,
    new_axes,
    plain,
    plain_log,
)

_MAX_PICTURED = 32  # leaves of a tree that are still drawn as memories
_NODE = 0.84  # width of a memory in a tree, where leaves are 1 apart


@figure_style()
def lineage_tree(
    levels: Any,
    parents: Any,
    memories: Any,
    *,
    labels: Any,
    classes: Sequence[object],
    names: Sequence[str],
    image_shape: Sequence[int] | None = None,
) -> Axes:
    """The tree of splits, roots above, one row per level.

    levels, parents (n,) of the nodes, parent −1: a root. memories (n, N) are drawn as the nodes with at
    most 32 leaves, with names (n,) below; else nodes are dots. labels (n,) are places among the classes.
    """
    level, parent = checked_tree(levels, parents)
    label = np.asarray(labels, dtype=np.int64)
    x, n_leaves = tree_places(parent)
    pictures = as_patterns(memories, "memories", image_shape)
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
    ax.add_collection(
        LineCollection(
            [branch(x[parent[k]], y[parent[k]] - reach, x[k], y[k] + reach) for k in child],
            colors="#9A9A9A",
            linewidths=0.9 if n_leaves <= 64 else 0.5,
            zorder=1,
        )
    )
    if pictured:
        called = [plain(classes[k], 6) for k in label]
        _draw_nodes(ax, x, y, pictures, image_shape, label, called)
        for k, name in enumerate(names):
            ax.annotate(name, (x[k], y[k] - reach), (0, -2), textcoords="offset points",
                        ha="center", va="top", fontsize=8)  # fmt: skip
    else:
        _draw_dots(ax, x, y, label, classes, n_leaves)
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


def checked_tree(levels: Any, parents: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Levels and parents (n,) of the nodes of a tree, or a clear error."""
    level = as_array(levels, "levels", 1).astype(np.int64)
    parent = as_array(parents, "parents", 1).astype(np.int64)
    same_length(len(level), "node", parents=parent)
    if parent.min() < -1 or parent.max() >= len(level):
        raise ValueError(f"parents must be node numbers 0..{len(level) - 1}, or -1 for a root")
    child = np.flatnonzero(parent >= 0)
    wrong = child[level[parent[child]] >= level[child]]
    if len(wrong):
        k = int(wrong[0])
        raise ValueError(
            f"node {k} at level {level[k]} has parent {parent[k]} at level {level[parent[k]]}: "
            "a parent must lie above its children"
        )
    return level, parent


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
    ax: Axes,
    x: Array,
    y: Array,
    label: NDArray[np.int64],
    classes: Sequence[object],
    n_leaves: int,
) -> None:
    size = float(np.clip(1800 / n_leaves, 4.0, 45.0))
    for k in np.unique(label):
        color, marker = category_style(int(k))
        mine = label == k
        ax.scatter(
            x[mine], y[mine], s=size, color=color, marker=marker, zorder=2, edgecolors="#444444",
            linewidths=0.3, label=plain(classes[k]),
        )  # fmt: skip
    ax.set_xlim(-0.02 * n_leaves - 0.5, 1.02 * n_leaves - 0.5)
    ax.set_ylim(y.min() - 0.4, y.max() + 0.4)
    ax.legend(title="class", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_nodes(
    ax: Axes,
    x: Array,
    y: Array,
    pictures: Array,
    image_shape: Sequence[int] | None,
    label: NDArray[np.int64],
    called: Sequence[str],
) -> None:
    height = _NODE * aspect(image_shape)
    scale = largest(pictures)
    for k, picture in enumerate(pictures):
        box = Box(x[k] - _NODE / 2, y[k] - height / 2, _NODE, height)
        draw_pattern(ax, picture, box, image_shape, vmax=scale)
        # The name too: more classes than colors, and frames have no markers.
        frame(ax, box, category_style(int(label[k]))[0], 2.0)
        place = (box.left, box.bottom + height)
        ax.annotate(called[k], place, (0, 2), textcoords="offset points", fontsize=9)
    ax.set_xlim(x.min() - 0.55, x.max() + 0.55)
    ax.set_ylim(y.min() - height / 2 - 0.1, y.max() + height / 2 + 0.25)
    ax.set_aspect("equal")


@figure_style()
def split_spectrum(beta_split: Any, beta_eff: float, *, ax: Axes | None = None) -> Axes:
    """Draw β_split of all memories in increasing order, against β_eff.

    A memory with β_split < β_eff is a saddle of the grown network: it gains by splitting. The others are
    minima. An infinite β_split (a memory whose rows do not spread) is a triangle at the upper edge.

    Parameters
    ----------
    beta_split : array-like of shape (P,)
        As in a `Certificate`.
    beta_eff : float
        ς·β of the model.
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> certificate = clf.certify(X_train, y_train)
    >>> mn.plots.split_spectrum(certificate.beta_split, certificate.beta_eff)
    <Axes: ...>
    """
    values = as_array(beta_split, "beta_split", 1, infinite=True)
    if values.min() <= 0 or not beta_eff > 0:
        raise ValueError(
            f"beta_split and beta_eff must be positive, got {values.min():g} and {beta_eff:g}"
        )
    ordered = np.sort(values)
    rank = np.arange(1, len(ordered) + 1)
    known = np.isfinite(ordered)
    saddle = ordered < beta_eff
    if ax is None:
        ax = new_axes(5.8, 3.8)
    drawn = np.append(ordered[known], beta_eff)
    low, high = drawn.min() / 1.25, drawn.max() * 1.25
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.set_xlim(0.5 - 0.01 * len(rank), len(rank) + 0.5 + 0.01 * len(rank))
    ax.axhspan(low, beta_eff, color=VERMILLION, alpha=0.09, linewidth=0)
    ax.axhline(beta_eff, color="black", linewidth=1.0)
    size = float(np.clip(300 / len(rank), 2.0, 5.0))
    for which, mark, color, label in (
        (saddle, "s", VERMILLION, f"saddle: {saddle.sum()}"),
        (known & ~saddle, "o", BLUE, f"minimum: {(~saddle).sum()}"),
    ):
        ax.plot(rank[which], ordered[which], mark, markersize=size, color=color, label=label)
    if not known.all():
        label, rim = f"of them infinite: {(~known).sum()}", ax.get_xaxis_transform()
        ax.plot(rank[~known], np.ones((~known).sum()), "^", markersize=size, color=BLUE,
                clip_on=False, label=label, transform=rim)  # fmt: skip
    ax.annotate(
        rf"$\beta_{{\mathrm{{eff}}}} = {beta_eff:.4g}$",
        (0.99, beta_eff),
        xycoords=("axes fraction", "data"),
        xytext=(0, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=10,
    )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel(r"memories, by $\beta_{\mathrm{split}}$")
    ax.set_ylabel(r"$\beta_{\mathrm{split}}$")
    plain_log(ax.yaxis)
    ax.legend(loc="upper left")
    return ax
