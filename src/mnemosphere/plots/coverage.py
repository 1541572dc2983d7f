"""How accurate answers are if the doubtful rows get none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from mnemosphere.plots.style import PALETTE, figure_style, new_axes, plain


@figure_style()
def coverage_curve(
    curves: Mapping[str, Sequence[Mapping[str, float]]], *, ax: Axes | None = None
) -> Axes:
    """Draw the accuracy of answered rows against their share, one line per name.

    Parameters
    ----------
    curves : mapping of str to lists of dicts
        Each list has "coverage" and "accuracy", as `interpret.coverage_curve` returns it.
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> curve = mn.interpret.coverage_curve(model, X_test, y_test)
    >>> mn.plots.coverage_curve({"six memories": curve})
    <Axes: ...>
    """
    if not curves or not all(curves.values()):
        raise ValueError("curves must be {name: points}, each with a point at least")
    if ax is None:
        ax = new_axes(6.0, 4.0)
    for k, (name, points) in enumerate(curves.items()):
        share, accuracy = ([point[key] for point in points] for key in ("coverage", "accuracy"))
        color = PALETTE[k % len(PALETTE)]
        ax.plot(share, accuracy, "-o", color=color, markersize=3, label=plain(name, 40))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlim(0.0, 1.02)
    ax.set_xlabel("rows answered")
    ax.set_ylabel("answers that are right")
    ax.legend(loc="lower left")
    ax.set_title("accuracy of the answers, the most doubtful rows rejected first")
    return ax
