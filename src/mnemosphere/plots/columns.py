"""What a model learned of each column: how much it pulls, and to which class at which value."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.fitted import pulls
from mnemosphere.fitted.model import FittedModel
from mnemosphere.plots.style import (
    BLUE,
    GREY,
    category_colors,
    figure_style,
    new_axes,
    new_figure,
    plain,
)

_COLUMNS, _WIDE = 12, 4  # panels, and panels side by side
_CLASSES = 8  # curves in a panel


@figure_style()
def importance(model: FittedModel, X: Any, *, n_features: int = 20, ax: Axes | None = None) -> Axes:
    """Draw how much each column pulls the decisions about rows, on average.

    `Explanation.pulls` lists the pulls of one decision.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows; at most 200, evenly spaced, are used, and fewer if rows are wide.
    n_features : int, default 20
        Columns to draw, the strongest.
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> mn.plots.importance(clf.model_, X_test)
    <Axes: ...>
    """
    size = pulls.importance(model, model.stored(X))
    order = np.argsort(-size, kind="stable")[:n_features]
    if ax is None:
        ax = new_axes(6.4, 1.0 + 0.28 * len(order))
    ax.barh(range(len(order)), size[order], 0.7, color=BLUE)
    lines = model.features.lines
    ax.set_yticks(range(len(order)), [plain(lines[j].name, 36) for j in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("mean absolute pull (log-odds)")
    return ax


@figure_style()
def column_curves(
    model: FittedModel, X: Any, *, n_features: int = _COLUMNS,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:  # fmt: skip
    """Draw what each value of a column says for each class, a panel per column that matters.

    A sample of the rows takes the values of the column in turn, while all other columns stay. A curve
    is the mean log-probability of a class, relative to all classes and to the average value. With one
    memory per class on circles, every row has the same curve, up to a constant. Ticks are deciles of X.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.
    n_features : int, default 12
        Columns to draw, those of the largest mean absolute pull.
    figure : matplotlib Figure or SubFigure, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Figure or SubFigure
        The figure.

    Examples
    --------
    >>> mn.plots.column_curves(clf.model_, X_test, n_features=3)
    <Figure ...>
    """
    found = pulls.column_curves(model, model.stored(X), n_features)
    n_wide = min(_WIDE, len(found))
    height = -(-len(found) // n_wide)
    if figure is None:
        figure = new_figure(max(4.0, 2.4 * n_wide), 1.9 * height + 0.7)
    axes = np.atleast_1d(figure.subplots(height, n_wide, sharey=True, squeeze=False)).ravel()
    two = len(model.classes) == 2
    shown = range(len(model.classes))[1 if two else 0 :][:_CLASSES]
    colors = category_colors(len(model.classes))
    for ax, own in zip(axes, found, strict=False):
        ax.axhline(0.0, color=GREY, linewidth=0.5, zorder=0)
        said = own.said * 2 if two else own.said  # log-odds
        for c in shown:
            ax.plot(own.at, said[:, c], "o" if own.names else "-", color=colors[c], linewidth=1.3)
        if own.names:
            names = [plain(name, 9) for name in own.names]
            ax.set_xticks(own.at, names, fontsize=9, rotation=0 if len(names) < 4 else 60)
        else:
            ax.plot(own.deciles, np.zeros(9), "|", color=GREY, markersize=4, clip_on=False,
                    transform=ax.get_xaxis_transform())  # fmt: skip
            ax.locator_params(axis="x", nbins=4)
        ax.set_title(plain(own.name, 24), fontsize=10)
    for ax in axes[len(found) :]:
        ax.set_axis_off()
    handles = [axes[0].plot([], [], color=colors[c])[0] for c in shown]
    named_classes = [plain(model.classes[c]) for c in shown]
    figure.legend(handles, named_classes, loc="outside upper left", ncols=4)
    figure.supylabel("log-odds", fontsize=10)
    return figure
