"""Learning as a tree: memories on their way through training, laid on a plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mnemosphere.plots.checks import Array
from mnemosphere.plots.style import BLACK, BLUE, GREEN, VERMILLION, figure_style, new_figure, plain
from research.plots.axes import plain_log

_COLORS = mpl.colormaps["tab10"].colors  # type: ignore[attr-defined]
_OF_RUNS = (BLUE, VERMILLION, GREEN)


@dataclass(frozen=True)
class LearningRun:
    """One run: a point is one memory at one time.

    place (n, 2); label, time, before (n,): class, passes since the start, and the point of the
    same memory (or the one it was split from) one time earlier, −1 for none. near and overlap
    (passes,): memories in the trunk and mean overlap with the mean direction after each pass;
    clusters (times,) at the passes `kept`.
    """

    place: Any
    label: Any
    time: Any
    before: Any
    near: Any
    overlap: Any
    kept: Any
    clusters: Any


def _draw_tree(ax: Axes, place: Any, label: Any, time: Any, before: Any) -> None:
    """Points of memories joined in the order of time, colored by class; see `LearningRun`.

    Later points are bolder and the last ones larger, a ring is around the first ones, and every
    class is named where most of its memories end.
    """
    at, kind, when, earlier = map(np.asarray, (place, label, time, before))
    joined = np.flatnonzero(earlier >= 0)
    colors = np.array([_COLORS[k % len(_COLORS)] for k in kind])
    rank = np.searchsorted(np.unique(when), when)
    faded = np.column_stack([colors, 0.3 + 0.5 * rank / max(int(rank.max()), 1)])  # late is bold
    ax.add_collection(
        LineCollection(
            list(np.stack([at[earlier[joined]], at[joined]], axis=1)),
            colors=list(map(tuple, colors[joined])),
            linewidths=0.35,
            alpha=0.25,
            zorder=1,
            rasterized=True,
        )
    )
    ax.scatter(at[:, 0], at[:, 1], s=2.2, c=faded, linewidths=0, zorder=2, rasterized=True)
    ended = when == when.max()
    ax.scatter(
        at[ended, 0],
        at[ended, 1],
        s=9,
        c=colors[ended],
        edgecolors="white",
        linewidths=0.3,
        zorder=3,
        rasterized=True,
    )
    root = at[when == when.min()].mean(0)
    ax.plot(*root, "o", markersize=9, markerfacecolor="none", color=BLACK, zorder=5)
    _name_classes(ax, at[ended], kind[ended])
    ax.set_xticks([])
    ax.set_yticks([])


def _name_classes(ax: Axes, at: Array, kind: NDArray[np.int64]) -> None:
    """The name of each class at the end point that has most of its own kind around it."""
    for k in np.unique(kind):
        mine = at[kind == k]
        apart = ((mine[:, None] - mine[None]) ** 2).sum(-1)  # (n, n)
        center = mine[np.median(apart, axis=1).argmin()]
        ax.annotate(
            str(k),
            center,
            ha="center",
            va="center",
            fontsize=11,
            fontweight="bold",
            color=_COLORS[k % len(_COLORS)],
            path_effects=[patheffects.withStroke(linewidth=2.5, foreground="white")],
            zorder=6,
        )


@figure_style()
def learning_trees(
    runs: Mapping[str, LearningRun], *, axes: str = "UMAP", trunk: float = 0.9
) -> Figure:
    """Trees of up to three runs on the same plane, and below what they show as numbers.

    Below: memories still in the trunk (overlap with the mean direction above `trunk`), the mean
    overlap, and the clusters of memories, against passes.
    """
    figure = new_figure(3.5 * max(len(runs), 2), 5.6)
    grid = figure.add_gridspec(2, 12, height_ratios=[3.4, 2.0])
    share: Axes | None = None
    span = 12 // len(runs)
    for k, (name, one) in enumerate(runs.items()):
        ax = figure.add_subplot(grid[0, k * span : (k + 1) * span], sharex=share, sharey=share)
        share = ax if share is None else share
        _draw_tree(ax, one.place, one.label, one.time, one.before)
        ax.set_title(plain(name, 60), color=_OF_RUNS[k])
        ax.set_xlabel(f"{axes} 1")
        if k == 0:
            ax.set_ylabel(f"{axes} 2")
    near, overlap, groups = (figure.add_subplot(grid[1, 4 * k : 4 * k + 4]) for k in range(3))
    longest = 1
    for k, one in enumerate(runs.values()):
        look: dict[str, Any] = {"color": _OF_RUNS[k], "linewidth": 1.5}
        passes = np.arange(1, len(one.near) + 1)
        longest = max(longest, len(passes))
        near.plot(passes, one.near, **look)
        near.fill_between(passes, 0, one.near, color=_OF_RUNS[k], alpha=0.15, linewidth=0)
        overlap.plot(passes, one.overlap, **look)
        kept = np.maximum(one.kept, 0.8)
        groups.plot(kept, one.clusters, marker="o", markersize=2.5, **look)
    overlap.axhline(trunk, color="#9A9A9A", linewidth=0.8, linestyle=":")
    for ax in (near, overlap, groups):
        ax.set_xscale("log")
        ax.set_xlim(0.8, longest * 1.1)
        plain_log(ax.xaxis)
        ax.set_xlabel("passes over the data")
    near.set_title(f"memories in the trunk (overlap > {trunk:g})", fontsize=9)
    near.set_ylim(bottom=0)
    overlap.set_title("mean overlap with the mean direction", fontsize=9)
    groups.set_yscale("log")
    plain_log(groups.yaxis)
    groups.set_title("clusters of memories", fontsize=9)
    return figure
