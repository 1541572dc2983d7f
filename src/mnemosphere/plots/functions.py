"""Memories on circles as functions: one small curve per column that matters."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from mnemosphere.base.colors import category_colors
from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.geometry.circles import curves as curves_of
from mnemosphere.model.mixture import memory_name
from mnemosphere.plots.checks import as_indices
from mnemosphere.plots.panels import draw_column, name_curves, panels
from mnemosphere.plots.style import figure_style, plain
from mnemosphere.rows.columns import UserColumn

_PANELS = 12  # of functions in one picture
_TAILS = 0.01  # of the training rows on either side that an axis may leave out
_MEMORIES = 8
_FEW = 4  # values of a column that are named


@figure_style()
def memory_curves(
    model: FittedModel,
    *,
    indices: Any = None,
    n_features: int = _PANELS,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draw memories of a model with geometry="circles" as functions of the columns.

    The distance between two curves is what a column adds to the log-odds of one memory against the
    other. With one memory per class and no missing values, these sums are the log-odds of the classes, except
    that soft labels limit them. Curves are relative to the mean memory and to the average training row. Gray
    ticks are deciles of the training rows.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    indices : array-like of int, default None
        Memories to draw; None: the first ones of each class, 8 in all.
    n_features : int, default 12
        Columns to draw, those in which memories differ most.
    figure : matplotlib Figure or SubFigure, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Figure or SubFigure
        The figure.

    Examples
    --------
    >>> clf = mn.DAMClassifier(3, objective="conditional", geometry="circles").fit(X_train, y_train)
    >>> mn.plots.memory_curves(clf.model_, n_features=3)
    <Figure ...>
    """
    if n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features}")
    chosen = representative(model, _MEMORIES) if indices is None else indices
    chosen = as_indices(chosen, model.n_memories)
    curves, lines = feature_curves(model), model.columns.user_columns
    spread = [np.sqrt((m * (c[chosen] ** 2)).sum(-1)).max() for _, c, m in curves]
    order = np.argsort(-np.array(spread), kind="stable")[:n_features]
    label = model.votes.p[1:].argmax(1).cpu().numpy()
    by_class = category_colors(len(model.classes) + 1)
    colors = [by_class[label[m]] for m in chosen]
    axes = panels(figure, len(order))
    for ax, k in zip(axes, order, strict=True):
        at, curve, mass = curves[k]
        rank = mass.cumsum() - mass / 2
        deciles = np.interp(np.arange(1, 10) / 10, rank, at)
        names = _value_names(lines[k], at)
        draw_column(ax, lines[k].name, at, curve[chosen], colors, names=names, deciles=deciles)
        low, high = np.interp([_TAILS, 1 - _TAILS], rank, at)
        if names is None and high > low:
            ax.set_xlim(low, high)
    names = [*model.classes.tolist(), "none of them"]
    titles = [f"{memory_name(int(m))} {plain(names[label[m]])}" for m in chosen]
    name_curves(axes, colors, titles, "log-odds, relative to the mean memory")
    return axes[0].figure


def representative(model: FittedModel, count: int) -> NDArray[np.intp]:
    """Memories to show: of each class in turn the next one, in the order of the model."""
    owner = model.votes.p[1:].argmax(1).cpu().numpy()
    before = np.tril(owner[:, None] == owner, -1).sum(axis=1)  # of its class
    shown: NDArray[np.intp] = np.lexsort((owner, before))[:count]
    return shown


def feature_curves(
    model: FittedModel,
) -> list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Of each feature as a user has it (values (K,), curves (P, K), shares of training rows (K,)).

    Curves are in log-odds, less that of the mean memory. Values of a category are their numbers.
    """
    votes = model.precise_votes
    weight = votes.weights[1:] / votes.weights[1:].sum()
    w = votes.w.double() - weight.double() @ votes.w.double()
    knots, overlaps, mass = (as_numpy(part) for part in curves_of(model.geometry, w))
    curves = float(votes.slope) * overlaps  # (P, N, K)
    found = []
    for line in model.columns.user_columns:
        first = line.place.start
        if len(line.column.shown) <= 2:
            own = mass[first] > 0
            found.append((knots[first, own], curves[:, first, own], mass[first, own]))
            continue
        # One number of a category is 1, the others are 0.
        low, high = curves[:, line.indicators, 0], curves[:, line.indicators, -1]
        share = 1 - mass[line.indicators, 0]
        at = np.arange(len(line.column.shown))
        found.append((at, low.sum(1, keepdims=True) + high - low, share / share.sum()))
    return found


def _value_names(line: UserColumn, at: NDArray[Any]) -> list[str] | None:
    """Names of the values of a column, of few or of a category."""
    if line.is_category:
        return [*line.column.shown]
    return [line.written(np.full(line.place.stop, v)) for v in at] if len(at) <= _FEW else None
