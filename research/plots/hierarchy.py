"""The saddle hierarchy: levels at their loss, memories as pictures, and the way down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mnemosphere.plots.checks import Array
from mnemosphere.plots.growth import branch, tree_places
from mnemosphere.plots.patterns import Box, aspect, draw_pattern, frame, largest
from mnemosphere.plots.style import (
    BLUE,
    GREY,
    PALETTE,
    VERMILLION,
    figure_style,
    plain,
)

_NODE = 0.86  # width of a memory, where leaves are 1 apart
_TEXT = 0.46  # height of the two lines below a memory


@figure_style()
def saddle_hierarchy(
    levels: Any,
    parents: Any,
    memories: Any,
    *,
    loss: Any,
    beta_eff: Any,
    beta_split: Any,
    lambda_min: Any,
    descents: Sequence[tuple[Any, Any]],
    labels: Any,
    classes: Sequence[object],
    image_shape: Sequence[int] | None = None,
) -> Figure:
    """The tree of splits (left) and the descent from each saddle (right), on one axis of loss.

    levels, parents (n,) as for `lineage_tree`; memories (n, N); beta_split, lambda_min, labels
    (n,). loss and beta_eff (L,) are those of the fixed point of each level. A descent is (steps,
    losses) of the way to that level; the first losses are those of the saddle it leaves.
    """
    level, parent, label = np.asarray(levels), np.asarray(parents), np.asarray(labels)
    losses = np.asarray(loss)
    n_levels = int(level.max()) + 1
    height = _NODE * aspect(image_shape)
    gaps = -np.diff(losses)
    # The closest two levels are as far apart as their pictures and text need.
    unit = (height + _TEXT + 0.3) / gaps.min() if len(gaps) else 1.0
    y = unit * losses[level]
    x, n_leaves = tree_places(parent)
    bottom, top = y.min() - height / 2 - _TEXT - 0.1, y.max() + height / 2 + 0.35
    depth = float(top - bottom)
    inch = float(np.clip(9.0 / n_leaves, 0.6, 0.75))
    # Placed by hand: a unit of x and of y are the same length, and both axes share their y.
    wide, high = inch * (n_leaves + 0.4), inch * depth
    across, down = wide + 1.0 + 3.4, high + 0.5
    figure = Figure(figsize=(across, down))
    tree = figure.add_axes((0.9 / across, 0.1 / down, wide / across, high / down))
    course = figure.add_axes(
        ((wide + 1.0) / across, 0.1 / down, 3.3 / across, high / down), sharey=tree
    )

    child = np.flatnonzero(parent >= 0)
    tree.add_collection(
        LineCollection(
            [
                branch(x[parent[k]], y[parent[k]] - height / 2 - _TEXT, x[k], y[k] + height / 2)
                for k in child
            ],
            colors="#9A9A9A",
            linewidths=1.0,
            zorder=1,
        )
    )
    for value in losses:
        tree.axhline(unit * value, color="#EAEAEA", linewidth=0.8, zorder=0)
    scale = largest(memories)
    for k, picture in enumerate(memories):
        box = Box(x[k] - _NODE / 2, y[k] - height / 2, _NODE, height)
        draw_pattern(tree, picture, box, image_shape, vmax=scale)
        saddle = bool(lambda_min[k] < 0)
        color = VERMILLION if saddle else BLUE
        frame(tree, box, color, 1.6)
        name = plain(classes[int(label[k])], 6)
        tree.annotate(name, (box.left, box.bottom + height), (1, 2), **_points(7.5))
        text = f"{_short(beta_split[k])}\n{_short(lambda_min[k])}"
        tree.annotate(
            text,
            (x[k], box.bottom),
            (0, -3),
            **_points(7.0),
            ha="center",
            va="top",
            color=color,
            linespacing=1.15,
        )
    tree.set_xlim(-0.7, n_leaves - 0.3)  # n_leaves + 0.4 wide
    tree.set_ylim(bottom, top)
    tree.set_aspect("auto")
    widths = [int((level == 0).sum())]
    for k in range(1, n_levels):
        # A split ends one node and begins two.
        widths.append(widths[-1] + int((level == k).sum()) // 2)
    names = [
        f"P = {p}\nloss {_short(v)}\n$\\beta_{{\\mathrm{{eff}}}}$ {b:.1f}"
        for p, v, b in zip(widths, losses, beta_eff, strict=True)
    ]
    tree.set_yticks(unit * losses, names)
    tree.set_xticks([])
    tree.tick_params(axis="y", length=0)
    tree.spines[["left", "bottom"]].set_visible(False)
    tree.set_title(
        r"fixed points; below each memory its $\beta_{\mathrm{split}}$ and $\lambda_{\min}$",
        loc="left",
    )
    split_if, rest_if = (
        rf"$\beta_{{\mathrm{{eff}}}} {sign} \beta_{{\mathrm{{split}}}}$" for sign in "><"
    )
    hollow: dict[str, Any] = {"marker": "s", "linestyle": "", "markerfacecolor": "none"}
    handles = [
        Line2D([], [], color=VERMILLION, label=f"saddle if duplicated, {split_if}", **hollow),
        Line2D([], [], color=BLUE, label=f"minimum, {rest_if}", **hollow),
    ]
    _draw_descents(course, descents, unit, widths)
    course.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.08, 0.0), fontsize=8)
    return figure


def _draw_descents(
    ax: Axes, descents: Sequence[tuple[Any, Any]], unit: float, widths: list[int]
) -> None:
    """Each level's descent after the other's, on a scale of steps that shows the first ones."""
    shift = 0.0
    for k, (steps, values) in enumerate(descents):
        s, v = np.asarray(steps), np.asarray(values)
        across: Array = shift + np.log10(1 + s)
        color = PALETTE[k % len(PALETTE)]
        if k > 0:
            ax.plot(across, unit * v, color=color, linewidth=1.8)
            ax.plot(across[0], unit * v[0], "s", color=VERMILLION, markersize=6, zorder=4)
            ax.annotate(
                f"minimum of {widths[k - 1]}, saddle of {widths[k]}",
                (across[0], unit * v[0]),
                (5, 5),
                **_points(7.5),
                color=VERMILLION,
            )
            ax.plot(across[-1], unit * v[-1], "o", color=color, markersize=5, zorder=3)
            ticks = [t for t in (1, 10, 100, 1000, 10000) if t < s[-1]]
            for tick in ticks:
                place = shift + np.log10(1 + tick)
                j = int(np.searchsorted(s, tick))
                ax.plot(place, unit * v[j], "|", color=color, markersize=5)
                if tick in (10, 100, 1000):
                    ax.annotate(f"{tick}", (place, unit * v[j]), (1, 3), **_points(6.0), color=GREY)
            shift = float(across[-1])
    ax.set_xticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(axis="y", length=0, labelleft=False)
    ax.set_title("from saddle to minimum, exact steps (logarithmic)", loc="left")


def _points(size: float) -> dict[str, Any]:
    return {"textcoords": "offset points", "fontsize": size}


def _short(value: float) -> str:
    """Three digits: they must fit below a picture."""
    if not np.isfinite(value):
        return "∞"
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
    return text.replace("-", "−")
