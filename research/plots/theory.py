"""Statistical mechanics: phases, overlaps, bifurcations, free entropies, stability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap, to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch
from matplotlib.ticker import MaxNLocator
from scipy.optimize import linear_sum_assignment

from mnemosphere.plots.checks import Array, as_array, same_length
from mnemosphere.plots.style import (
    BLUE,
    GREY,
    MARKERS,
    PALETTE,
    SEQUENTIAL,
    VERMILLION,
    figure_style,
    new_axes,
    plain,
)
from research.plots.checks import increasing


@figure_style()
def phase_diagram(
    x: Any,
    y: Any,
    values: Any,
    *,
    phases: Sequence[object] | None = None,
    lines: Mapping[str, tuple[Any, Any]] | None = None,
    xlabel: str = "x",
    ylabel: str = "y",
    value_label: str = "order parameter",
    ax: Axes | None = None,
) -> Axes:
    """A map over two parameters, values (len(y), len(x)), with transition lines on top.

    With `phases` the values are phase numbers, colored and named; otherwise an order parameter
    with a color bar. `lines` maps names to (x, y) of transition lines.
    """
    x, y = increasing(x, "x"), increasing(y, "y")
    values = as_array(values, "values", 2)
    if values.shape != (len(y), len(x)):
        raise ValueError(
            f"values must have shape (len(y), len(x)) = {(len(y), len(x))}, got {values.shape}"
        )
    if len(x) < 2 or len(y) < 2:
        raise ValueError(f"a map needs two values per axis, got {len(x)} and {len(y)}")
    if ax is None:
        ax = new_axes(4.8, 3.6)
    handles: list[Any] = []
    if phases is None:
        mesh = ax.pcolormesh(x, y, values, cmap=SEQUENTIAL, shading="nearest", rasterized=True)
        ax.figure.colorbar(mesh, ax=ax, label=value_label)
    else:
        n = len(phases)
        if not np.isin(values, np.arange(n)).all():
            raise ValueError(f"with {n} phases, values must be whole numbers 0..{n - 1}")
        # Pale, so that lines and labels on top stay legible.
        colors = [tuple(0.45 + 0.55 * np.array(to_rgb(PALETTE[k % 8]))) for k in range(n)]
        norm = BoundaryNorm(np.arange(n + 1) - 0.5, n)
        ax.pcolormesh(
            x, y, values, cmap=ListedColormap(colors), norm=norm, shading="nearest", rasterized=True
        )
        handles += [
            Patch(color=c, label=plain(name, 30)) for c, name in zip(colors, phases, strict=True)
        ]
    for k, (name, (line_x, line_y)) in enumerate((lines or {}).items()):
        line_x, line_y = (
            as_array(line_x, f"x of {name!r}", 1),
            as_array(line_y, f"y of {name!r}", 1),
        )
        same_length(len(line_x), f"point of {name!r}", y=line_y)
        # A white rim keeps the line visible on dark and light cells.
        ax.plot(line_x, line_y, color="white", linewidth=3.4)
        look = "-" if k == 0 else ("--", ":", "-.")[(k - 1) % 3]
        handles += ax.plot(line_x, line_y, color="black", linestyle=look, label=plain(name, 30))
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(y[0], y[-1])
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if handles:
        ax.legend(
            handles=handles,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=_columns([str(handle.get_label()) for handle in handles]),
        )
    return ax


def _columns(labels: Sequence[str]) -> int:
    """Columns of a legend above narrow axes: as many as there is room for, three at most."""
    return max(1, min(3, len(labels), 60 // (max(map(len, labels)) + 5)))


@figure_style()
def overlap_curves(
    x: Any,
    curves: Mapping[str, Any],
    points: Mapping[str, tuple[Any, Any, Any]] | None = None,
    *,
    xlabel: str = r"inverse temperature $\beta$",
    ylabel: str = "overlap $m$",
    sampled_label: str = "sampled",
    ax: Axes | None = None,
) -> Axes:
    """Theory as lines, samples as points with error bars.

    `curves` maps names to values (len(x),), NaN where a solution does not exist; `points` maps
    names to (x, mean, error), (k,) each. A curve and points of the same name share a color.
    """
    x = increasing(x, "x")
    if len(curves) == 0:
        raise ValueError("curves is empty: pass at least one")
    if ax is None:
        ax = new_axes(4.8, 3.2)
    order = list(curves) + [name for name in (points or {}) if name not in curves]
    for k, name in enumerate(order):
        color = PALETTE[k % len(PALETTE)]
        if name in curves:
            curve = as_array(curves[name], f"curve {name!r}", 1, missing=True)
            same_length(len(x), f"value of x (curve {name!r})", curve=curve)
            ax.plot(x, curve, color=color, label=plain(name, 40))
        if points and name in points:
            place, mean, error = (as_array(v, f"points {name!r}", 1) for v in points[name])
            same_length(len(place), f"point of {name!r}", mean=mean, error=error)
            ax.errorbar(
                place,
                mean,
                error,
                fmt=MARKERS[k % len(MARKERS)],
                color=color,
                capsize=2.5,
                elinewidth=1.0,
                markerfacecolor="white",
                markeredgewidth=1.2,
                label=plain(name, 40) if name not in curves else None,
            )
    handles, _ = ax.get_legend_handles_labels()
    if points:
        handles.append(
            Line2D(
                [],
                [],
                color=GREY,
                marker="o",
                markerfacecolor="white",
                linestyle="",
                label=plain(sampled_label, 40),
            )
        )
    ax.legend(handles=handles, loc="best")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    return ax


@figure_style()
def bifurcation_tree(
    beta: Any,
    branches: Any,
    *,
    stable: Any = None,
    transitions: Sequence[float] = (),
    transition_label: str | None = None,
    ylabel: str = "overlap $m$",
    ax: Axes | None = None,
) -> Axes:
    """Solutions followed in β: branches (K, len(beta)), NaN where a branch does not exist.

    `stable` (K, len(beta)), bool: stable stretches are solid, unstable ones dashed. `transitions`
    are values of β to mark, such as β_split, explained by `transition_label`.
    """
    beta = increasing(beta, "beta")
    branches = as_array(branches, "branches", 2, missing=True)
    same_length(len(beta), "value of beta", branches=branches.T)
    steady = (
        np.ones(branches.shape, bool) if stable is None else as_array(stable, "stable", 2) > 0.5
    )
    if steady.shape != branches.shape:
        raise ValueError(
            f"stable must have the shape {branches.shape} of branches, got {steady.shape}"
        )
    if ax is None:
        ax = new_axes(4.8, 3.2)
    for place in transitions:
        ax.axvline(place, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    for branch, mask in zip(branches, steady, strict=True):
        ax.plot(beta, np.where(mask, branch, np.nan), color=BLUE)
        if not mask.all():
            ax.plot(
                beta,
                np.where(_touching(~mask), branch, np.nan),
                color=VERMILLION,
                linestyle="--",
                linewidth=1.2,
                zorder=1.5,
            )
    handles = []
    if stable is not None:
        handles = [
            Line2D([], [], color=BLUE, label="stable"),
            Line2D([], [], color=VERMILLION, linestyle="--", linewidth=1.2, label="unstable"),
        ]
    if len(transitions) and transition_label is not None:
        handles.append(
            Line2D([], [], color=GREY, linewidth=0.8, linestyle=":", label=transition_label)
        )
    if handles:
        # Branches and transitions fill the axes: the legend stands above them.
        ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    ax.set_xlim(beta[0], beta[-1])
    ax.set_xlabel(r"inverse temperature $\beta$")
    ax.set_ylabel(ylabel)
    return ax


def _touching(mask: Any) -> Any:
    """A mask grown by one on both sides, so that stretches meet without a gap."""
    grown = mask.copy()
    grown[1:] |= mask[:-1]
    grown[:-1] |= mask[1:]
    return grown


@figure_style()
def free_entropy_branches(
    x: Any,
    branches: Mapping[str, Any],
    *,
    xlabel: str = r"inverse temperature $\beta$",
    ylabel: str = "free entropy $f$",
    ax: Axes | None = None,
) -> Axes:
    """Free entropies of competing solutions, (len(x),) each, NaN where one does not exist.

    The largest wins: it is drawn strong, the others thin and dashed. A dotted line marks where
    the winner changes, found by linear interpolation (where a new branch appears: its first x).
    """
    x = increasing(x, "x")
    if len(branches) == 0:
        raise ValueError("branches is empty: pass at least one")
    values = []
    for name, branch in branches.items():
        value = as_array(branch, f"branch {name!r}", 1, missing=True)
        same_length(len(x), f"value of x (branch {name!r})", branch=value)
        values.append(value)
    table = np.stack(values)  # (branches, len(x))
    empty = np.isnan(table).all(0)
    if empty.any():
        raise ValueError(f"no branch has a value at x = {x[empty][0]:g}: leave that x out")
    winner = np.where(np.isnan(table), -np.inf, table).argmax(0)
    if ax is None:
        ax = new_axes(4.8, 3.2)
    for k, name in enumerate(branches):
        color = PALETTE[k % len(PALETTE)]
        wins = winner == k
        label = plain(name, 40)
        ax.plot(
            x,
            table[k],
            color=color,
            linewidth=1.0,
            linestyle="--",
            label=None if wins.any() else label,
        )
        if wins.any():
            ax.plot(x, np.where(wins, table[k], np.nan), color=color, linewidth=2.2, label=label)
    for place in _changes(x, table, winner):
        ax.axvline(place, color=GREY, linewidth=0.9, linestyle=":", zorder=0)
        ax.annotate(
            f"{place:.4g}",
            (place, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
            color="#444444",
        )
    ax.set_xlim(x[0], x[-1])
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.legend(loc="best")
    return ax


def _changes(x: Array, table: Array, winner: Any) -> list[float]:
    places = []
    for k in np.flatnonzero(np.diff(winner)):
        old, new = winner[k], winner[k + 1]
        gap = table[old, k : k + 2] - table[new, k : k + 2]  # falls through 0 at a crossing
        if np.isnan(gap).any():
            places.append(float(x[k + 1]))
        else:
            places.append(float(x[k] + (x[k + 1] - x[k]) * gap[0] / (gap[0] - gap[1])))
    return places


@figure_style()
def jacobian_spectrum(
    eigenvalues: Any,
    *,
    predicted: Any = None,
    predicted_label: str = "predicted",
    ax: Axes | None = None,
) -> Axes:
    """Eigenvalues of the Jacobian of a fixed-point map: beyond 1 in modulus they are unstable.

    Complex ones lie in the plane with the unit circle; real ones (an array of real type, or with
    no imaginary part) are sorted, with lines at 1 and, where any is negative, at -1. `predicted`
    are real values, ringed at the rank of the eigenvalue nearest to each.
    """
    if isinstance(eigenvalues, torch.Tensor):
        eigenvalues = eigenvalues.detach().cpu().numpy()
    given = np.asarray(eigenvalues)
    real = as_array(given.real, "eigenvalues", 1)
    imaginary = as_array(given.imag, "eigenvalues", 1)
    unstable = np.hypot(real, imaginary) > 1
    count = int(unstable.sum())
    labels = (f"stable: {len(real) - count}", f"unstable: {count}")
    plane = bool((imaginary != 0).any())
    if ax is None:
        ax = new_axes(3.8, 3.8) if plane else new_axes(4.8, 3.2)
    if plane:
        ax.add_patch(Circle((0, 0), 1.0, fill=False, edgecolor="black", linewidth=1.0))
        ax.axhline(0, color="#DDDDDD", linewidth=0.7, zorder=0)
        ax.axvline(0, color="#DDDDDD", linewidth=0.7, zorder=0)
        places, heights = real, imaginary
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_xlabel(r"Re $\lambda$")
        ax.set_ylabel(r"Im $\lambda$")
    else:
        order = np.argsort(-real)
        heights, unstable = real[order], unstable[order]
        places = np.arange(1, len(real) + 1, dtype=np.float64)
        ax.axhline(1.0, color="black", linewidth=1.0)
        if real.min() < -1e-9:  # below that it is rounding
            ax.axhline(-1.0, color="black", linewidth=1.0)
        ax.set_xlim(0.5 - 0.02 * len(real), len(real) * 1.02 + 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.set_xlabel("rank")
        ax.set_ylabel(r"eigenvalue $\lambda$")
    size = float(np.clip(400 / len(real), 2.5, 5.0))
    for mask, color, marker, label in zip(
        (~unstable, unstable), (BLUE, VERMILLION), "os", labels, strict=True
    ):
        ax.plot(places[mask], heights[mask], marker, markersize=size, color=color, label=label)
    if predicted is not None:
        if plane:
            raise ValueError("predicted values need real eigenvalues: these are complex")
        expected = as_array(predicted, "predicted", 1)
        if len(expected) > len(real):
            raise ValueError(f"{len(expected)} predicted values exceed the {len(real)} eigenvalues")
        # Each eigenvalue answers to one prediction at most, so that equal ones take several ranks.
        distance = np.abs(expected[:, None] - heights[None, :])
        chosen = linear_sum_assignment(distance)[1]
        ax.plot(
            places[chosen],
            expected,
            "o",
            markersize=size + 4,
            markerfacecolor="none",
            markeredgecolor="black",
            markeredgewidth=0.8,
            label=plain(predicted_label, 40),
        )
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2 if predicted is None else 3)
    return ax
