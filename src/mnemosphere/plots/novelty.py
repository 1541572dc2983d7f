"""A picture of novelty: how far rows lie from all memories, those of the data and out-of-distribution rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mnemosphere.plots.checks import as_array
from mnemosphere.plots.style import BLACK, BLUE, VERMILLION, figure_style, new_axes, plain


@figure_style()
def novelty_histogram(
    inside: Any,
    outside: Any = None,
    *,
    threshold: float | None = None,
    rate: float | None = None,
    names: tuple[object, object] = ("data", "others"),
    bins: int = 60,
    ax: Axes | None = None,
) -> Axes:
    """Draw novelty scores of rows like the training rows, and of other rows.

    Each histogram is in shares of its own rows.

    Parameters
    ----------
    inside : array-like of shape (n,)
        Scores of rows like the training rows.
    outside : array-like of shape (m,), default None
        Scores of other rows.
    threshold : float, default None
        Drawn as a line: rows to its right are rejected, and the legend says how many.
    rate : float, default None
        The rate that was promised, named in the legend.
    names : (object, object), default ("data", "others")
        Names of the two kinds of rows.
    bins : int, default 60
        Bars of the histograms.
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> scores = clf.novelty_score(X_test), clf.novelty_score(-X_test)
    >>> mn.plots.novelty_histogram(*scores, threshold=clf.novelty_threshold_)
    <Axes: ...>
    """
    groups = [(as_array(inside, "inside", 1), names[0], BLUE)]
    if outside is not None:
        groups.append((as_array(outside, "outside", 1), names[1], VERMILLION))
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    low = min(float(scores.min()) for scores, _, _ in groups)
    high = max(float(scores.max()) for scores, _, _ in groups)
    edges = np.linspace(low, high if high > low else low + 1.0, bins + 1)
    if ax is None:
        ax = new_axes(6.8, 3.6)
    for scores, name, color in groups:
        share = np.histogram(scores, edges)[0] / scores.size
        label = plain(name, 30)
        if threshold is not None:
            label += f": {np.mean(scores > threshold):.1%} rejected"
        ax.stairs(share, edges, fill=True, color=color, alpha=0.35)
        ax.stairs(share, edges, color=color, linewidth=1.4, label=label)
    if threshold is not None:
        name = "threshold" if rate is None else f"threshold: at most {rate:.1%} promised"
        ax.axvline(threshold, color=BLACK, linewidth=1.2, linestyle="--", label=name)
    ax.set_ylim(bottom=0.0)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    ax.set_xlabel("novelty score: far from all memories →")
    ax.set_ylabel("share of rows")
    ax.legend()
    ax.set_title("how new rows are to the model")
    return ax
