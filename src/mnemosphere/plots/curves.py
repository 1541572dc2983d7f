"""Curves and bars: how training went, what a search compared, how new rows are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mnemosphere.plots.checks import as_array
from mnemosphere.plots.style import (
    BLACK,
    BLUE,
    GREY,
    VERMILLION,
    figure_style,
    new_axes,
    new_figure,
    plain,
)  # fmt: skip

_PANELS = {
    "loss": ("loss", "validation_loss"),
    "validation\naccuracy": ("validation_accuracy",),
    r"$\beta$": ("beta",),
}  # of training, and the curves of each


@figure_style()
def learning_curves(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss, validation accuracy and β over the passes of `history_`, one above the other.

    Dashed lines mark where a phase of growth begins; the title has the number of memories.
    """
    if len(history) == 0:
        raise ValueError("history is empty: train first")
    curves = {
        name: np.array([row.get(name) for row in history], dtype=np.float64)  # None: NaN
        for panel in _PANELS.values()
        for name in panel
    }
    known = {name for name, values in curves.items() if np.isfinite(values).any()}
    panels = {label: known.intersection(names) for label, names in _PANELS.items()}
    shown = {label: sorted(names) for label, names in panels.items() if names}
    phase = [row["phase"] for row in history]
    starts = [k for k in range(1, len(phase)) if phase[k] != phase[k - 1]]
    figure = new_figure(6.8, 1.2 + 1.8 * len(shown))
    axes: Any = figure.subplots(len(shown), 1, sharex=True)
    # A curve of one or a few points is seen by its markers only.
    marks: Any = {"marker": "o" if len(history) <= 40 else "", "markersize": 3.5}
    for ax, (label, names) in zip(axes, shown.items(), strict=True):
        for name in names:
            passes = np.arange(1, len(history) + 1)
            ax.plot(passes, curves[name], label=name.replace("_", " "), **marks)
        for k in starts:
            ax.axvline(k + 0.5, color=GREY, linestyle=(0, (4, 3)), linewidth=0.8, zorder=0)
        ax.set_ylabel(label)
    axes[0].legend()
    first, last = (history[k]["n_memories"] for k in (0, -1))
    width = f"{first} to {last}" if starts else f"{last}"
    axes[0].set_title(f"{len(history)} passes, {width} memories, loss {curves['loss'][-1]:.4g}")
    axes[-1].set_xlabel("pass over the data")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.align_ylabels()
    return figure


@figure_style()
def search(trials: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw the candidates that were tried on most rows with standard errors, the best on top.

    The measure is held-out log-loss for a classifier and agreement for a clusterer. The chosen candidate
    is in color.

    Parameters
    ----------
    trials : sequence of dicts
        `search_` of an estimator.
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> mn.plots.search(clf.search_)
    <Axes: ...>
    """
    if len(trials) == 0 or any("rows" not in trial or "error" not in trial for trial in trials):
        raise ValueError("trials are empty or lack rows and errors: pass search_ of a fitted model")
    score = "log_loss" if "log_loss" in trials[-1] else "agreement"
    stage = [(trial["rows"], trial.get("rung")) for trial in trials]
    last = [trial for trial, own in zip(trials, stage, strict=True) if own == stage[-1]]
    last.sort(key=lambda trial: float(trial[score]), reverse=score == "agreement")
    mean = as_array([trial[score] for trial in last], score, 1)
    error = as_array([trial["error"] for trial in last], "error", 1)
    chosen = np.array([bool(trial.get("chosen")) for trial in last])
    ax = ax or new_axes(8.0, 1.3 + 0.32 * len(last))
    place = np.arange(len(last))
    for own, color, label in ((~chosen, GREY, None), (chosen, VERMILLION, "chosen")):
        if own.any():
            ax.errorbar(
                mean[own], place[own], xerr=error[own], fmt="o", color=color, markersize=6,
                capsize=3, elinewidth=1.6, label=label,
            )  # fmt: skip
    ax.axvline(mean[0], color=BLUE, linewidth=1.0, linestyle=":", zorder=0, label="best")
    ax.set_yticks(place, [_name(trial) for trial in last], fontsize=11)
    ax.set_ylim(len(last) - 0.5, -0.5)
    ax.tick_params(axis="x", labelsize=11)
    what = "held-out log-loss" if score == "log_loss" else "agreement of halves"
    ax.set_xlabel(f"{what} ± standard error", fontsize=11)
    ax.legend(fontsize=11, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderpad=0.0)
    total = len({_name(trial) for trial in trials})
    ax.set_title(f"the last {len(last)} of {total} candidates", fontsize=11)
    return ax


def _name(trial: Mapping[str, Any]) -> str:
    """A candidate in a few words."""
    if "n_clusters" in trial:
        number, each = trial["n_clusters"], trial["memories_per_cluster"]
        words = f"{number} × {each} memories" if number > 1 else "one cloud of rows"
        return plain(f"{trial['geometry']}, {words}", 60)
    words = f"{trial['geometry']}, {trial['n_memories']} memories, {trial['objective']}"
    if trial.get("longer", 1) > 1:
        words += f", {trial['longer']} × the steps"
    if trial.get("noise"):
        words += f", noise {trial['noise']:g}"
    return plain(words + ", unlabeled rows" * bool(trial.get("unlabeled")), 60)


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
        Drawn as a line: rows to its right are rejected; the legend says how many.
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
    ax = ax or new_axes(6.8, 3.6)
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


def drift(found: Any, *, most: int = 20, ax: Axes | None = None) -> Axes:
    """Draw what `compare` has found: shares of known and of new rows, of memories that differ most.

    Parameters
    ----------
    found : Drift
        The comparison.
    most : int, default 20
        Memories to show.
    ax : matplotlib Axes, default None
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> clf = mn.DAMClassifier(random_state=0).fit(X_train, y_train)
    >>> mn.plots.drift(clf.compare(X_test))
    <Axes: ...>
    """
    lines = [found.unlike, *found.memories[:most]]
    ax = ax or new_axes(6.8, 1.2 + 0.28 * len(lines))
    place = np.arange(len(lines))
    for shift, name, color in ((-0.2, "known", GREY), (0.2, "new", BLUE)):
        ax.barh(place + shift, [own[name] for own in lines], 0.4, color=color, label=f"{name} rows")
    named = [
        plain(" ".join(str(own[k]) for k in ("memory", "label") if own[k] is not None), 30)
        + (" *" if own["p"] < found.level else "")
        for own in lines
    ]
    ax.set_yticks(place, named)
    ax.invert_yaxis()
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    ax.set_xlabel("share of rows; *: changed")
    ax.legend()
    ax.set_title("what new rows are like")
    return ax
