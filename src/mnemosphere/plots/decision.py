"""One decision: the classes, and the memories it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from mnemosphere.base.colors import category_colors
from mnemosphere.base.text import percent
from mnemosphere.plots.checks import Array
from mnemosphere.plots.style import plain

_MAX_BARS = 12  # classes in the prediction
_LEAST_LINES = 4  # so that the bars of two classes are not thick
_LETTERS = 26  # of the name of a class
_LEAST = 0.005  # probability that is written beside its bar
REST = "#C8C8C8"  # of a bar: all memories that are not drawn


@dataclass(frozen=True)
class Decision:
    """What the pictures of an explanation show besides the row.

    shares (K,): posterior weights of the memories given x, which sum to at most 1; soft_labels
    (K, C) or (K, C+1), p^μ/p_h(μ); proba (C,): the sum of share · soft label over all memories,
    not only these. truth: None where it is not known.
    """

    shares: Array
    soft_labels: Array
    proba: Array
    classes: Sequence[object]
    names: Sequence[str]  # of the memories
    truth: object = None

    @property
    def predicted(self) -> int:
        """The place of the most probable class."""
        return int(self.proba.argmax())

    @property
    def memory_class(self) -> list[int]:
        """The place of the class of each memory (K,)."""
        found: list[int] = self.soft_labels.argmax(1).tolist()
        return found

    @property
    def class_colors(self) -> dict[int, str]:
        """Colors of the classes that these memories stand for, by the place of the class."""
        colors = category_colors(self.soft_labels.shape[1])
        return {place: colors[place] for place in dict.fromkeys(self.memory_class)}

    def memory(self, k: int, letters: int = 9) -> str:
        """A memory's name, label and how clear that is, in two lines."""
        label = [*self.classes, "none"][self.memory_class[k]]
        soft = self.soft_labels[k].max()
        return f"{plain(self.names[k], 10)}\n{plain(label, letters)} ({soft:.2f})"

    @property
    def title(self) -> str:
        """The predicted class, its probability, and whether it is right."""
        predicted = self.classes[self.predicted]
        known = self.truth is not None
        right = str(self.truth) == str(predicted)
        remark = "" if not known else ", right" if right else f", truth: {plain(self.truth)}"
        return f"{plain(predicted, _LETTERS)}\n{percent(float(self.proba.max()))}{remark}"


def draw_classes(ax: Axes, decision: Decision, colors: Mapping[int, str]) -> None:
    """Probabilities of the classes in their colors, a part for each memory; in grey all others."""
    labels = [plain(c, _LETTERS) for c in decision.classes]
    proba, n = decision.proba, len(labels)
    order = np.arange(n)
    if n > _MAX_BARS:
        order = np.argsort(-proba, kind="stable")[:_MAX_BARS]
    parts: Array = decision.shares[:, None] * decision.soft_labels[:, :n]  # (K, C)
    y, start = np.arange(len(order)), np.zeros(len(order))
    own = [colors.get(int(i), REST) for i in order]
    for part in parts[:, order]:
        ax.barh(y, part, left=start, height=0.8, color=own, edgecolor="white", linewidth=0.5)
        start = start + part
    rest = np.maximum(proba[order] - start, 0.0)
    ax.barh(y, rest, left=start, height=0.8, color=REST)
    top = max(0.05, math.ceil(20 * float(proba.max())) / 20)
    for place, value in zip(y, proba[order], strict=True):
        if value >= _LEAST:
            ax.text(
                value + 0.02 * top, float(place), percent(float(value)), va="center", fontsize=9
            )
    ax.set_yticks(y, [labels[i] for i in order], fontsize=float(np.clip(80 / len(y), 6.5, 10.0)))
    for tick, i in zip(ax.get_yticklabels(), order, strict=True):
        if i == decision.predicted:
            tick.set_fontweight("bold")
    ax.set_ylim(max(len(y), _LEAST_LINES) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0.0, 1.18 * top)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.locator_params(axis="x", nbins=4)
    more = f"\n{len(order)} of {n} classes" if n > len(order) else ""
    ax.set_xlabel(f"probability{more}\n(grey: others)", fontsize=10)
    ax.set_title(decision.title, fontsize=10)
