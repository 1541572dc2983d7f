"""What a search compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mnemosphere.plots.checks import as_array
from mnemosphere.plots.style import BLUE, GREY, VERMILLION, figure_style, new_axes, plain


@figure_style()
def search(trials: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw the candidates of the last rung of the search with standard errors, the best on top.

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
    if len(trials) == 0:
        raise ValueError("trials are empty: nothing was searched")
    score = "log_loss" if "log_loss" in trials[-1] else "agreement"
    if any(name not in trial for trial in trials for name in ("rung", score, "error")):
        raise ValueError("trials lack a rung, a score or an error: pass search_ of a fitted model")
    last = [trial for trial in trials if trial["rung"] == trials[-1]["rung"]]
    last.sort(key=lambda trial: float(trial[score]), reverse=score == "agreement")
    mean = as_array([trial[score] for trial in last], score, 1)
    error = as_array([trial["error"] for trial in last], "error", 1)
    chosen = np.array([bool(trial.get("chosen")) for trial in last])
    if ax is None:
        ax = new_axes(8.0, 1.3 + 0.32 * len(last))
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
        return plain(f"{trial['normalize']}, {words}", 60)
    words = f"{trial['normalize']}, {trial['n_memories']} memories, {trial['objective']}"
    if "sharing" in trial:
        words += f", ς × {trial['sharing']:g}"
    if trial.get("noise"):
        words += f", noise {trial['noise']:g}"
    return plain(words + ", unlabeled rows" * bool(trial.get("unlabeled")), 60)
