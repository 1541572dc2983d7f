"""Memories on circles as functions: one small curve per column that matters."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.model.parameters import memory_name
from mnemosphere.plots.checks import as_indices
from mnemosphere.plots.style import GREY, category_colors, figure_style, new_figure, plain
from mnemosphere.rows.features import Line

_PANELS, _COLUMNS = 12, 4
_TAILS = 0.01  # of the training rows on either side that an axis may leave out
_MEMORIES = 8
_FEW = 4  # values of a column that are named
_LETTERS = 9  # of the name of a category


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
    curves, lines = feature_curves(model), model.features.lines
    spread = [np.sqrt((m * (c[chosen] ** 2)).sum(-1)).max() for _, c, m in curves]
    order = np.argsort(-np.array(spread), kind="stable")[:n_features]
    label = model.votes.p[1:].argmax(1).cpu().numpy()
    by_class = category_colors(len(model.classes) + 1)
    colors = [by_class[label[m]] for m in chosen]
    ncols = min(_COLUMNS, len(order))
    nrows = -(-len(order) // ncols)
    if figure is None:
        figure = new_figure(max(4.0, 2.4 * ncols), 1.9 * nrows + 0.7)
    axes = np.atleast_1d(figure.subplots(nrows, ncols, sharey=True, squeeze=False)).ravel()
    for ax, k in zip(axes, order, strict=False):
        ax.axhline(0.0, color=GREY, linewidth=0.5, zorder=0)
        at, curve, mass = curves[k]
        _panel(ax, lines[k], at, curve[chosen], mass, colors)
        ax.set_title(plain(lines[k].name, 24), fontsize=10)
    for ax in axes[len(order) :]:
        ax.set_axis_off()
    names = [*model.classes.tolist(), "none of them"]
    handles = [axes[0].plot([], [], color=color)[0] for color in colors]
    titles = [f"{memory_name(int(m))} {plain(names[label[m]])}" for m in chosen]
    figure.legend(handles, titles, loc="outside upper left", ncols=min(4, len(titles)))
    figure.supylabel("log-odds, relative to the mean memory", fontsize=10)
    return figure


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
    knots, overlaps, mass = (as_numpy(part) for part in model.geometry.curves(w))
    curves = float(votes.slope) * overlaps  # (P, N, K)
    found = []
    for line in model.features.lines:
        first = line.place.start
        if len(line.categories) <= 2:
            own = mass[first] > 0
            found.append((knots[first, own], curves[:, first, own], mass[first, own]))
            continue
        # One number of a category is 1, the others are 0.
        low, high = curves[:, line.indicators, 0], curves[:, line.indicators, -1]
        share = 1 - mass[line.indicators, 0]
        at = np.arange(len(line.categories))
        found.append((at, low.sum(1, keepdims=True) + high - low, share / share.sum()))
    return found


def _panel(
    ax: Axes, line: Line, at: NDArray[Any], curves: NDArray[Any], mass: NDArray[Any],
    colors: list[str],
) -> None:  # fmt: skip
    if line.categories:
        for curve, color in zip(curves, colors, strict=True):
            ax.plot(at, curve, "o", color=color, markersize=5)
        names = [plain(name, _LETTERS) for name in line.categories]
        ax.set_xticks(at, names, fontsize=9, rotation=0 if len(at) < 4 else 60)
        ax.set_xlim(at[0] - 0.5, at[-1] + 0.5)
        return
    few = len(at) <= _FEW
    for curve, color in zip(curves, colors, strict=True):
        ax.plot(at, curve, "o-" if few else "-", color=color, linewidth=1.3)
    if few:
        ax.set_xticks(
            at, [line.written(np.full(line.place.stop, value)) for value in at], fontsize=9
        )
        return
    rank = mass.cumsum() - mass / 2
    low, high = np.interp([_TAILS, 1 - _TAILS], rank, at)
    if high > low:
        ax.set_xlim(low, high)
    deciles = np.interp(np.arange(1, 10) / 10, rank, at)
    ax.plot(deciles, np.zeros(9), "|", color=GREY, markersize=4, clip_on=False,
            transform=ax.get_xaxis_transform())  # fmt: skip
    ax.locator_params(axis="x", nbins=4)
