"""What a model learned of each column: how much it pulls, and to which class at which value."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.base.colors import category_colors
from mnemosphere.fitted import pulls
from mnemosphere.fitted.model import FittedModel
from mnemosphere.plots.panels import draw_column, name_curves, panels
from mnemosphere.plots.style import BLUE, figure_style, new_axes, plain

_COLUMNS = 12  # panels
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
    ax = ax or new_axes(6.4, 1.0 + 0.28 * len(order))
    ax.barh(range(len(order)), size[order], 0.7, color=BLUE)
    lines = model.columns.user_columns
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
    axes = panels(figure, len(found))
    two = len(model.classes) == 2
    shown = [*range(len(model.classes))][1 if two else 0 :][:_CLASSES]
    colors = [category_colors(len(model.classes))[c] for c in shown]
    for ax, own in zip(axes, found, strict=True):
        said = own.said[:, shown].T * (2 if two else 1)  # log-odds
        draw_column(ax, own.name, own.at, said, colors, names=own.names, deciles=own.deciles)
    name_curves(axes, colors, [plain(model.classes[c]) for c in shown], "log-odds")
    return axes[0].figure
