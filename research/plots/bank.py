"""The first picture of README and home: a question to a bank, why it gets its class, and one that gets none."""

from __future__ import annotations

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from mnemosphere import DAMClassifier, load_data
from mnemosphere.interpret import Explanation
from mnemosphere.interpret.explanation import familiar
from mnemosphere.plots.style import BLACK, BLUE, GREY, ORANGE, figure_style, new_figure

KNOWN = "I lost my card and need a new one, how long does it take?"
UNKNOWN = "Where is my pizza?"
_LIGHT, _SHOWN = "#DDDDDD", 4  # classes with bars
_LETTERS = 48  # of a line on a card


def _named(label: object) -> str:
    return str(label).replace("_", " ")


def _card(ax: Axes, x: float, width: float, text: str = "", face: str = "white") -> None:
    shape = FancyBboxPatch(
        (x, 0.04), width, 0.92, boxstyle="round,pad=0,rounding_size=0.03", mutation_aspect=3,
        facecolor=face, edgecolor=GREY, linewidth=0.9,
    )  # fmt: skip
    ax.add_patch(shape)
    ax.text(x + width / 2, 0.5, text, ha="center", va="center", fontsize=12)


def _memory(ax: Axes, x: float, width: float, why: Explanation, j: int, color: str) -> None:
    """A card of a memory: its class, its share as a bar, three training texts."""
    reason = why[0][j]
    _card(ax, x, width)
    inside = width - 0.04
    ax.text(x + 0.02, 0.83, _named(reason.label), fontsize=11, fontweight="bold", color=color)
    ax.barh(0.70, inside, left=x + 0.02, height=0.09, color=_LIGHT)
    ax.barh(0.70, inside * reason.share, left=x + 0.02, height=0.09, color=color)
    ax.text(x + width - 0.02, 0.83, f"share {reason.share:.0%}", fontsize=10, ha="right")
    texts = [textwrap.wrap(f"“{text}”", _LETTERS, max_lines=2, placeholder=" …”")
             for text in reason.typical_rows]  # fmt: skip
    lines = [line if k == 0 else f"   {line}" for text in texts for k, line in enumerate(text)]
    ax.text(x + 0.02, 0.6, "\n".join(lines), fontsize=9, va="top", linespacing=1.35)


def _classes(ax: Axes, why: Explanation, colors: dict[str, str]) -> None:
    order = (-why.proba[0]).argsort()[:_SHOWN]
    for place, k in enumerate(order):
        name, value = str(why.classes[k]), why.proba[0, k]
        ax.barh(place, value, color=colors.get(name, GREY), height=0.7)
        ax.text(value + 0.02, place, f"{value:.0%}", va="center", fontsize=10)
    ax.set_yticks(range(len(order)), [_named(why.classes[k]) for k in order], fontsize=10)
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)


@figure_style()
def picture() -> Figure:
    """A question, two memories with training texts, the classes; below it a question that is rejected."""
    bank = load_data("banking-small")
    model = DAMClassifier(encoder="wordllama", random_state=0).fit(bank.x_train, bank.y_train)
    model.calibrate(bank.x_test, bank.y_test)
    figure = new_figure(12.6, 3.9)
    panels = figure.subplots(2, 2, width_ratios=[4.1, 1.0], height_ratios=[1.5, 1.0])
    for (ax, bars), question in zip(panels, (KNOWN, UNKNOWN), strict=True):
        why = model.explain([question], n_memories=2)
        answer = model.predict_or_reject([question], rate=0.05)[0]
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.set_axis_off()
        _card(ax, 0.0, 0.22, "\n".join(textwrap.wrap(f"“{question}”", 22)), "#F2F5F9")
        if answer is None:
            ax.text(
                0.25,
                0.5,
                f"{familiar(float(why.further_out[0]))}: no answer",
                fontsize=13,
                va="center",
            )
        else:
            labels = list(dict.fromkeys(str(reason.label) for reason in why[0]))
            colors = dict(zip(labels, (BLUE, ORANGE), strict=False))
            for j, reason in enumerate(why[0]):
                _memory(ax, 0.25 + 0.38 * j, 0.36, why, j, colors[str(reason.label)])
        _classes(bars, why, colors if answer is not None else {})
        said = "no answer" if answer is None else _named(answer)
        bars.set_title(said, fontsize=12, fontweight="bold", color=BLACK)
    heads = ("a question", "the memories that decide, with training texts like them")
    for x, text in zip((0.0, 0.25), heads, strict=True):
        panels[0, 0].text(x, 1.06, text, fontsize=10, color=GREY)
    return figure
