"""Statistical mechanics: phases, overlaps, bifurcations, free entropies, stability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap, to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from scipy.optimize import linear_sum_assignment

from mnemosphere.plots.checks import Array
from mnemosphere.plots.style import BLUE, GREY, MARKERS, PALETTE, VERMILLION, figure_style, new_axes

_BETA = r"inverse temperature $\beta$"
_ABOVE: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}  # of a legend


@figure_style()
def phase_diagram(
    x: Array, beta: Array, phase: Array, phases: Sequence[str], line: tuple[Array, Array], *,
    xlabel: str,
) -> Axes:  # fmt: skip
    """A map of phase numbers (len(beta), len(x)), named, with the analytic line on top."""
    ax = new_axes(4.8, 3.6)
    n = len(phases)
    # Pale, so that the line on top stays legible.
    colors = [tuple(0.45 + 0.55 * np.array(to_rgb(PALETTE[k]))) for k in range(n)]
    norm = BoundaryNorm(np.arange(n + 1) - 0.5, n)
    ax.pcolormesh(
        x, beta, phase, cmap=ListedColormap(colors), norm=norm, shading="nearest", rasterized=True
    )
    handles: list[Any] = [
        Patch(color=c, label=name) for c, name in zip(colors, phases, strict=True)
    ]
    ax.plot(*line, color="white", linewidth=3.4)  # a rim keeps the line visible
    handles += ax.plot(*line, color="black", label="analytic line")
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(beta[0], beta[-1])
    ax.set_xlabel(xlabel)
    ax.set_ylabel(_BETA)
    ax.legend(handles=handles, ncols=3, **_ABOVE)
    return ax


@figure_style()
def overlap_curves(
    x: Array, curves: Mapping[str, Any], points: Mapping[str, tuple[Any, Any, Any]], *,
    xlabel: str = _BETA, sampled_label: str = "sampled",
) -> Axes:  # fmt: skip
    """Theory as lines, samples as points with error bars.

    `curves` maps names to values (len(x),), NaN where a solution does not exist; `points` maps
    names to (x, mean, error), (k,) each. A curve and points of the same name share a color.
    """
    ax = new_axes(4.8, 3.2)
    order = list(curves) + [name for name in points if name not in curves]
    for k, name in enumerate(order):
        color = PALETTE[k % len(PALETTE)]
        if name in curves:
            ax.plot(x, curves[name], color=color, label=name)
        if name in points:
            place, mean, error = points[name]
            ax.errorbar(
                place, mean, error, fmt=MARKERS[k % len(MARKERS)], color=color, capsize=2.5,
                elinewidth=1.0, markerfacecolor="white", markeredgewidth=1.2,
                label=name if name not in curves else None,
            )  # fmt: skip
    handles, _ = ax.get_legend_handles_labels()
    if points:
        hollow: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "linestyle": ""}
        handles.append(Line2D([], [], color=GREY, label=sampled_label, **hollow))
    ax.legend(handles=handles, loc="best")
    ax.set_xlabel(xlabel)
    ax.set_ylabel("overlap $m$")
    return ax


@figure_style()
def bifurcation_tree(
    beta: Array, branches: Any, stable: Any, transitions: Sequence[float], *,
    transition_label: str = "", ylabel: str = "overlap $m$",
) -> Axes:  # fmt: skip
    """Solutions followed in β: branches (K, len(beta)), NaN where a branch does not exist.

    `stable` (K, len(beta)), bool: stable stretches are solid, unstable ones dashed. `transitions`
    are values of β to mark, such as β_split, explained by `transition_label`.
    """
    ax = new_axes(4.8, 3.2)
    dashed: dict[str, Any] = {"color": VERMILLION, "linestyle": "--", "linewidth": 1.2}
    dotted: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 0.8}
    for place in transitions:
        ax.axvline(place, zorder=0, **dotted)
    for branch, mask in zip(np.asarray(branches), np.asarray(stable, dtype=bool), strict=True):
        ax.plot(beta, np.where(mask, branch, np.nan), color=BLUE)
        if not mask.all():
            ax.plot(beta, np.where(_touching(~mask), branch, np.nan), zorder=1.5, **dashed)
    handles = [
        Line2D([], [], color=BLUE, label="stable"),
        Line2D([], [], label="unstable", **dashed),
        Line2D([], [], label=transition_label, **dotted),
    ]
    # Branches and transitions fill the axes: the legend stands above them.
    ax.legend(handles=handles, ncols=3, **_ABOVE)
    ax.set_xlim(beta[0], beta[-1])
    ax.set_xlabel(_BETA)
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
    x: Array, branches: Mapping[str, Any], *, ylabel: str = "free entropy $f$",
) -> Axes:  # fmt: skip
    """Free entropies of competing solutions, (len(x),) each, NaN where one does not exist.

    The largest wins: it is drawn strong, the others thin and dashed. A dotted line marks where
    the winner changes, found by linear interpolation (where a new branch appears: its first x).
    """
    table = np.stack(list(branches.values()))  # (branches, len(x))
    winner = np.where(np.isnan(table), -np.inf, table).argmax(0)
    ax = new_axes(4.8, 3.2)
    for k, name in enumerate(branches):
        color, wins = PALETTE[k % len(PALETTE)], winner == k
        label = None if wins.any() else name
        ax.plot(x, table[k], color=color, linewidth=1.0, linestyle="--", label=label)
        if wins.any():
            ax.plot(x, np.where(wins, table[k], np.nan), color=color, linewidth=2.2, label=name)
    for place in _changes(x, table, winner):
        ax.axvline(place, color=GREY, linewidth=0.9, linestyle=":", zorder=0)
        ax.text(place, 1.01, f"{place:.4g}", transform=ax.get_xaxis_transform(), ha="center",
                fontsize=7.5, color="#444444")  # fmt: skip
    ax.set_xlim(x[0], x[-1])
    ax.set_xlabel(_BETA)
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
def jacobian_spectrum(eigenvalues: Array, predicted: Array, *, predicted_label: str) -> Axes:
    """Sorted real eigenvalues of the Jacobian of a fixed-point map: above 1 they are unstable.

    `predicted` values are ringed at the rank of the eigenvalue nearest to each.
    """
    heights = np.sort(np.asarray(eigenvalues, dtype=np.float64))[::-1]
    unstable = heights > 1
    places = np.arange(1, len(heights) + 1)
    ax = new_axes(4.8, 3.2)
    ax.axhline(1.0, color="black", linewidth=1.0)
    size = float(np.clip(400 / len(heights), 2.5, 5.0))
    for mask, color, marker, name in (
        (~unstable, BLUE, "o", "stable"), (unstable, VERMILLION, "s", "unstable"),
    ):  # fmt: skip
        label = f"{name}: {mask.sum()}"
        ax.plot(places[mask], heights[mask], marker, markersize=size, color=color, label=label)
    # Each eigenvalue answers to one prediction at most, so that equal ones take several ranks.
    chosen = linear_sum_assignment(np.abs(predicted[:, None] - heights[None, :]))[1]
    ax.plot(
        places[chosen], predicted, "o", markersize=size + 4, markerfacecolor="none",
        markeredgecolor="black", markeredgewidth=0.8, label=predicted_label,
    )  # fmt: skip
    ax.set_xlim(0.5 - 0.02 * len(heights), len(heights) * 1.02 + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("rank")
    ax.set_ylabel(r"eigenvalue $\lambda$")
    ax.legend(ncols=3, **_ABOVE)
    return ax
