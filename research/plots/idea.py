"""Pictures of the page "How it works": each is drawn from a fitted model of data inside scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_wine

from mnemosphere import DAMClassifier
from mnemosphere.plots.checks import Array
from mnemosphere.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    VERMILLION,
    figure_style,
    new_figure,
)

_COLORS = (BLUE, VERMILLION, GREEN)
_COLUMNS = ["flavanoids", "color_intensity"]
_HALF = np.log(2.0)


def _wines(objective: str, n_memories: int) -> tuple[Any, Array, DAMClassifier]:
    wine = load_wine(as_frame=True)
    x, y = wine.data[_COLUMNS], wine.target.to_numpy()
    settings = {"geometry": "standard", "search": None, "random_state": 0}
    return x, y, DAMClassifier(n_memories, objective=objective, **settings).fit(x, y)


def _points(ax: Axes, x: Array, y: Array) -> None:
    for k, color in enumerate(_COLORS):
        ax.scatter(*x[y == k].T, s=14, color=color, alpha=0.45, linewidth=0, label=f"class {k}")


def _memories(ax: Axes, model: DAMClassifier, w: Array) -> None:
    classes = model.class_weights_[1:, :3].argmax(1)
    for point, k in zip(w, classes, strict=True):
        ax.plot(*point, "*", color=_COLORS[k], markersize=17, markeredgecolor=BLACK)


@figure_style()
def memory() -> Figure:
    """Two columns, the same rows on the sphere with memories and caps, and one vote."""
    x, y, model = _wines("joint", 4)
    figure = new_figure(10.4, 3.7)
    flat, ball, bars = figure.subplots(1, 3, width_ratios=[1.0, 1.0, 0.9])
    _points(flat, x.to_numpy(), y)
    _memories(flat, model, model.memories_)
    row = 65
    for ax, place in ((flat, x.to_numpy()[row]), (ball, None)):
        if place is not None:
            ax.plot(*place, "o", markersize=10, markerfacecolor="none", markeredgecolor=BLACK)
    flat.set(xlabel="flavanoids", ylabel="color intensity")
    flat.set_title("rows of a table")
    flat.legend(loc="upper right", handletextpad=0.1, fontsize=9)
    points = model.model_.on_sphere(x, torch.float64)[0].numpy()  # the last coordinate is constant
    votes = model.model_.precise_votes
    angle = np.linspace(0.0, 2 * np.pi, 400)
    ball.plot(np.cos(angle), np.sin(angle), color=GREY, linewidth=1.0)
    _points(ball, points[:, :2], y)
    w = votes.w.numpy()
    _memories(ball, model, w[:, :2])
    reach = np.arccos(1 - _HALF / float(votes.slope))
    for center, k in zip(w, model.class_weights_[1:, :3].argmax(1), strict=True):
        across = np.linalg.svd(center[None])[2][1:]  # two directions along the sphere
        ring = np.cos(reach) * center + np.sin(reach) * (
            np.cos(angle)[:, None] * across[0] + np.sin(angle)[:, None] * across[1]
        )
        ring[ring[:, 2] < 0] = np.nan
        ball.plot(ring[:, 0], ring[:, 1], color=_COLORS[k], linewidth=1.4)
    ball.plot(*points[row, :2], "o", markersize=10, markerfacecolor="none", markeredgecolor=BLACK)
    ball.set_aspect("equal")
    ball.set_axis_off()
    ball.set_title("on the sphere, seen from above")
    shares = model.transform(x[row : row + 1])[0]
    labels = votes.labels.numpy()[1:, :3]
    left = np.zeros(3)
    for k in np.argsort(-shares):
        part, own = shares[k] * labels[k], labels[k].argmax()
        bars.barh(range(3), part, left=left, color=_COLORS[own], edgecolor="white")
        if part[own] > 0.08:
            bars.text(left[own] + part[own] / 2, own, f"{shares[k]:.0%}", ha="center", va="center",
                      color="white", fontsize=9)  # fmt: skip
        left += part
    bars.set_yticks(range(3), [f"class {k}" for k in range(3)])
    bars.invert_yaxis()
    bars.set_xlim(0, 1)
    bars.set_xlabel("probability (labels: shares)")
    bars.set_title("the vote on the circled row")
    return figure


@figure_style()
def objectives() -> Figure:
    """As many memories where the rows are, and where the classes meet."""
    figure = new_figure(9.4, 4.0)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, objective in zip(panels, ("joint", "conditional"), strict=True):
        x, y, model = _wines(objective, 6)
        low, high = x.to_numpy().min(0) - 0.6, x.to_numpy().max(0) + 0.6
        across, up = np.meshgrid(*(np.linspace(a, b, 200) for a, b in zip(low, high, strict=True)))
        rows = x.iloc[:0].reindex(range(across.size))
        rows[_COLUMNS[0]], rows[_COLUMNS[1]] = across.ravel(), up.ravel()
        said = model.predict(rows).reshape(across.shape)
        ax.contourf(across, up, said, levels=[-0.5, 0.5, 1.5, 2.5], colors=_COLORS, alpha=0.1)
        _points(ax, x.to_numpy(), y)
        _memories(ax, model, model.memories_)
        ax.set_xlim(low[0], high[0])
        ax.set_ylim(low[1], high[1])
        ax.set_title(f'objective="{objective}"')
        ax.set_xlabel("flavanoids")
    panels[0].set_ylabel("color intensity")
    panels[0].legend(loc="upper right", handletextpad=0.1, fontsize=9)
    return figure


PICTURES = {
    "idea-memory": memory,
    "idea-objectives": objectives,
}
