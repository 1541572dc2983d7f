"""Mean ranks on a line with their critical difference, after Demšar (2006)."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from mnemosphere.plots.style import BLACK, GREY, VERMILLION


def groups(values: list[float], difference: float) -> list[tuple[int, int]]:
    """First and last of every largest run of sorted values that lie within `difference`."""
    found: list[tuple[int, int]] = []
    for first, low in enumerate(values):
        last = max(k for k, value in enumerate(values) if value - low <= difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def critical_difference(
    ax: Axes, ranks: Mapping[str, float], difference: float, *, ours: str = "", title: str = ""
) -> Axes:
    """Methods on an axis of mean ranks, best left; bars join those that do not differ.

    Names that begin with `ours` are in another color.
    """
    names = sorted(ranks, key=ranks.__getitem__)
    values = [ranks[name] for name in names]
    n, half = len(names), (len(names) + 1) // 2
    bars = groups(values, difference)
    top = 0.35 + 0.22 * len(bars)
    for k, (first, last) in enumerate(bars):
        height = -0.25 - 0.22 * k
        ends = [values[first] - 0.06, values[last] + 0.06]
        ax.plot(ends, [height] * 2, color=BLACK, linewidth=3.2, solid_capstyle="butt")
    for k, (name, value) in enumerate(zip(names, values, strict=True)):
        left = k < half
        depth = -top - 0.42 * (k if left else n - 1 - k)
        edge = 0.6 if left else n + 0.4
        line, ink = (VERMILLION,) * 2 if ours and name.startswith(ours) else (GREY, BLACK)
        ax.plot([value, value, edge], [0, depth, depth], color=line, linewidth=0.9)
        ax.text(
            edge + (-0.08 if left else 0.08), depth, f"{name}  {value:.2f}", fontsize=10,
            ha="right" if left else "left", va="center", color=ink,
        )  # fmt: skip
    ax.plot([1, 1 + difference], [0.75, 0.75], color=BLACK, linewidth=1.2, marker="|")
    ax.text(1 + difference / 2, 0.85, f"critical difference {difference:.2f}", fontsize=9.5,
            ha="center", va="bottom")  # fmt: skip
    ax.plot([1, n], [0, 0], color=BLACK, linewidth=0.9)
    for rank in range(1, n + 1):
        ax.plot([rank] * 2, [0, 0.12], color=BLACK, linewidth=0.9)
        ax.text(rank, 0.18, str(rank), fontsize=9.5, ha="center", va="bottom")
    ax.set_xlim(-2.6, n + 3.6)
    ax.set_ylim(-top - 0.42 * half, 1.35)
    ax.set_axis_off()
    ax.set_title(title)
    return ax
