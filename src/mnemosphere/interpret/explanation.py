"""Why a row got its class: a small table one can print, index and draw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.files import plain
from mnemosphere.base.machine import import_extra
from mnemosphere.base.text import Shown, Table, middle_cut, percent, short_text
from mnemosphere.fitted.model import FittedModel, Placed, as_numpy, check_whole, row_names
from mnemosphere.fitted.pulls import Pull, Pulls, column_pulls, word_pulls
from mnemosphere.geometry.base import on_sphere
from mnemosphere.interpret.rejection import familiarity
from mnemosphere.model.mixture import memory_name
from mnemosphere.rows.columns import readable
from mnemosphere.rows.rows import Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_SHOWN = 5  # classes of a title, columns for and against
_FIRST = 3  # columns that would do alone
_TOLD = 0.005  # probability of a class in a title
_HALF = 0.5  # of the vote
_SHORT, _LONG = 24, 36  # letters of row names that share a line, a class; a column, a value
_LEAST_PULL = 0.1  # of the largest pull that is shown
_BAR, _WIDE = 10, 80  # letters of a bar, of a line that has room for one
_CLOSE = 2.0  # odds of a close call
_PURE = 0.95  # of a soft label: a memory of one class
_LITTLE = 1.5  # by which memories may change the odds of a class where its frequency decides
_FEW = 0.1  # share of known rows that are further out, below which a row is unusual
_SIMILAR = 3  # known rows that are shown
_SIGNS = "\"'.,;:!?()"  # beside a word
_NONE_ALIKE = "No memory resembles this row"
_MIXED = "Memories that resemble this row hold, taken together, about the mix of all training rows"
_DECIDES = 0.1  # share of the vote with which a memory takes part in the choice of these


@dataclass(frozen=True)
class Reason:
    """One memory's part in one decision.

    Attributes
    ----------
    memory : int
        Its number, counted from 0.
    share : float
        P(memory | x). Shares times soft labels add up to P(class | x).
    overlap : float
        ⟨w, x⟩, the cosine between memory and row.
    label : object
        The memory's own most likely class; None for "none of them".
    label_weight : float
        Weight of that class in its soft label.
    typical_rows : tuple
        Training rows most like it: numbers, or names.
    n_alike : int
        Memories that this one stands for, because a reader could not distinguish them.

    Examples
    --------
    >>> reason = clf.explain(X_test[:1])[0][0]
    >>> reason.label, reason.name == f"#{reason.memory}"
    (0, True)
    """

    memory: int
    share: float
    overlap: float
    label: object
    label_weight: float
    typical_rows: tuple[Any, ...] = ()
    n_alike: int = 1

    @property
    def name(self) -> str:
        """The name of the memory in tables and pictures, such as "#4"."""
        return memory_name(self.memory)

    @property
    def shown_name(self) -> str:
        """The name, followed by the number of memories that it stands for."""
        return self.name if self.n_alike == 1 else f"{self.name} (×{self.n_alike})"


class SimilarRow(NamedTuple):
    """A known row that is like an explained one.

    Attributes
    ----------
    name : int or str
        What it is called: its number in the rows of `fit`, its index, name or text.
    label : object
        Its label; None for "none of them".
    similarity : float
        The cosine between both rows on the sphere, at most 1.

    Examples
    --------
    >>> clf.explain(X_test[:1]).similar_rows(0)[0].label
    0
    """

    name: Any
    label: Any
    similarity: float


@dataclass(frozen=True)
class Explanation(Shown):
    """Explanations of n rows by the k memories with the largest share of each decision.

    `explanation[row]` is a list of `Reason`, the largest share first. `print` shows tables. Memories
    that a reader cannot distinguish (an overlap of 0.999, the same labels) are shown as one, the
    heaviest, with the sum of their shares.

    Attributes
    ----------
    classes : ndarray of shape (C,)
        Labels.
    proba : ndarray of shape (n, C)
        `predict_proba`, over all memories.
    memory : ndarray of int of shape (n, k)
        Numbers of the memories.
    share : ndarray of shape (n, k)
        P(memory | x).
    overlap : ndarray of shape (n, k)
        Cosine between memory and row.
    uniform_share : ndarray of shape (n,)
        Share of the uniform component.
    frequencies_decide : ndarray of bool of shape (n,)
        Whether the class is the most frequent one, and the odds of no class are more than 1.5 times off
        its frequency.
    rejected : list of n str or None
        Why `predict_or_reject` gives a row no class; None: it does, or the model is not calibrated.
    further_out : ndarray of shape (n,)
        Share of the known rows that calibrate the model which are more novel; NaN without calibration.
    less_sure : ndarray of shape (n,)
        Share of these known rows that are rejected before the row.
    rate : float
        Where that is less, the row has no answer: 0.05, or the least that so few known rows support.
    soft_label : ndarray of shape (n, k, C+1)
        Soft labels of the memories; the last column is "none of them".
    n_alike : ndarray of int of shape (n, k)
        Memories that each one stands for.
    typical_rows : ndarray of shape (n, k, 3) or None
        Training rows like each memory: numbers, −1 for none, or names.
    names : list of n str
        What the rows are called: the index of a frame, or numbers.
    model : FittedModel
        The model that decided.
    given : tensor of shape (n, N)
        The rows as numbers, NaN where missing.
    seen : Placed
        The unit rows.
    similar : ndarray of int of shape (n, k)
        Places of the most similar known rows in `model.held`, −1 for none; k is at most 3.
    similarity : ndarray of shape (n, k)
        Their cosines with the rows.
    texts : list of n str, or None
        The rows, if they are texts or have a column of texts.

    Examples
    --------
    >>> why = clf.explain(X_test[:2], n_memories=3)
    >>> why
    Explanation of 2 rows by 3 memories each
    >>> why[0][0].label
    0
    """

    classes: NDArray[Any]
    proba: NDArray[Any]
    memory: NDArray[Any]
    share: NDArray[Any]
    overlap: NDArray[Any]
    uniform_share: NDArray[Any]
    frequencies_decide: NDArray[np.bool_]
    rejected: list[str | None]
    further_out: NDArray[np.float64]
    less_sure: NDArray[np.float64]
    rate: float
    soft_label: NDArray[Any]
    n_alike: NDArray[np.int64]
    typical_rows: NDArray[Any] | None
    names: list[str] = field(repr=False)
    model: FittedModel = field(repr=False)
    given: Any = field(repr=False)
    seen: Placed = field(repr=False)
    similar: NDArray[np.int64] = field(repr=False)
    similarity: NDArray[np.float64] = field(repr=False)
    texts: list[str | None] | None = field(default=None, kw_only=True)

    @property
    def predicted(self) -> NDArray[Any]:
        """The most probable class of each row, ndarray of shape (n,)."""
        found: NDArray[Any] = self.classes[self._order[:, 0]]
        return found

    @property
    def runner_up(self) -> NDArray[Any]:
        """The second most probable class of each row, ndarray of shape (n,)."""
        found: NDArray[Any] = self.classes[self._order[:, 1 % len(self.classes)]]
        return found

    @property
    def probability(self) -> NDArray[Any]:
        """The probability of the predicted class, ndarray of shape (n,)."""
        found: NDArray[Any] = self.proba.max(axis=1)
        return found

    @cached_property
    def rows(self) -> Any:
        """Unit rows, in the features' units if the geometry keeps them, ndarray of shape (n, N).

        Missing values are completed.
        """
        model = self.model
        completed = model.completed(Rows(self.given, model.device))
        if model.geometry.has_curves:  # they are as they came
            return as_numpy(completed.values).astype(np.float64)
        x, _ = on_sphere(completed, model.geometry, torch.float64)
        return as_numpy(model.restore(x))

    @property
    def _order(self) -> NDArray[np.intp]:
        """(n, C) classes, the most probable first; among equals, as `predict` has them."""
        return np.argsort(-self.proba, axis=1, kind="stable")

    def __len__(self) -> int:
        return len(self.proba)

    def __getitem__(self, row: int) -> list[Reason]:
        names, typical = [*self.classes.tolist(), None], self.typical_rows
        if typical is None:
            typical = np.full((*self.memory.shape, 0), -1)
        return [
            Reason(
                memory=int(self.memory[row, j]),
                share=float(self.share[row, j]),
                overlap=float(self.overlap[row, j]),
                label=names[int(self.soft_label[row, j].argmax())],
                label_weight=float(self.soft_label[row, j].max()),
                typical_rows=tuple(
                    name for name in typical[row, j].tolist() if name not in (-1, "")
                ),
                n_alike=int(self.n_alike[row, j]),
            )
            for j in range(self.memory.shape[1])
        ]

    def __iter__(self) -> Iterator[list[Reason]]:
        return (self[row] for row in range(len(self)))

    def similar_rows(self, row: int = 0) -> list[SimilarRow]:
        """List the known rows most like one row, among those that the same memories hold.

        Known rows are those that the model keeps: training rows, evenly spaced, at most 2,000, and
        all that were added by `add_class` and `add_examples`. A memory holds the known rows in which it
        has the largest share. Those of the row's memories with a tenth of the vote or more are compared,
        by the cosine ⟨x, x'⟩/‖x‖ of unit rows; what is missing in x or x' counts 0.

        Parameters
        ----------
        row : int, default 0
            Place of the row.

        Returns
        -------
        list of SimilarRow
            At most three, the most similar first; none if the model keeps no rows.

        Examples
        --------
        >>> [own.name for own in clf.explain(X_test[:1]).similar_rows(0)]
        [47, 42, 9]
        """
        held, names = self.model.held, [*self.classes.tolist(), None]
        if held is None:
            return []
        return [
            SimilarRow(plain(held.names[k]), names[held.column[k]], float(alike))
            for k, alike in zip(self.similar[row].tolist(), self.similarity[row], strict=True)
            if k >= 0
        ]

    def pulls(self, row: int = 0) -> list[Pull]:
        """Compute how much each column pulls the decision about one row to a class, the most first.

        The pull is what the log-odds of the predicted class against the runner-up would lose if the
        column had its average effect: the mean over values of the training rows, put there one by one
        while all else stays.

        Parameters
        ----------
        row : int, default 0
            Place of the row.

        Returns
        -------
        list of Pull
            Column, its value ("missing" if there is none), what is typical of both classes, and the pull:
            above 0 it speaks for the predicted class.

        Examples
        --------
        >>> pull = clf.explain(X_test[:1]).pulls(0)[0]
        >>> pull.column, pull.pull > 0
        ('flavanoids', True)
        """
        return self._told(row, self._pulls(row))

    def words(self, row: int = 0) -> list[tuple[str, float]]:
        """Compute how much each word of a text pulls the decision, the most first.

        The pull of a word is what the log-odds of the predicted class against the runner-up would lose
        without it. All texts less one word are encoded at once.

        Parameters
        ----------
        row : int, default 0
            Place of the row.

        Returns
        -------
        list of (str, float)
            Words and their pulls; none of rows without text, or of one word or more than a hundred.

        Examples
        --------
        >>> clf.explain(X_test[:1]).words(0)  # a table of numbers
        []
        """
        text = None if self.texts is None else self.texts[row]
        if text is None or len(self.classes) < 2:
            return []
        return word_pulls(self.model, self._given(row), text, self._pair(row))

    def word_line(self, row: int) -> str:
        """The words that matter, for people; empty if there are none."""
        words = self.words(row)
        shown = [own for own in words[:_SHOWN] if abs(own[1]) >= _LEAST_PULL * abs(words[0][1])]
        told = [
            f"{middle_cut(word.strip(_SIGNS) or word, _SHORT)} {pull:+.2f}" for word, pull in shown
        ]
        own, other = (self._called(c) for c in self._pair(row))
        return f"words for {own} (+) or {other} (-): {', '.join(told)}" if told else ""

    def _told(self, row: int, found: Pulls) -> list[Pull]:
        given, lines, said = self._given(row), self.model.columns.user_columns, {}
        own, other = found.typical
        if self.texts is not None and self.texts[row] is not None:
            said[self.model.columns.text_column] = short_text(self.texts[row])
        return [
            Pull(line.name, said.get(line.name, line.written(given)), line.written(own),
                 line.written(other), float(found.pull[j]))
            for j, line in ((j, lines[j]) for j in found.order())
        ]  # fmt: skip

    def _given(self, row: int) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.given[row].double().cpu().numpy()
        return values

    def _pulls(self, row: int) -> Pulls:
        if row not in self._known_pulls:
            stored = Rows(self.given[row : row + 1], self.model.device)
            placed = Placed(self.seen.x[row : row + 1], self.seen.lost[row : row + 1])
            found = column_pulls(self.model, stored, self._pair(row), placed)
            self._known_pulls[row] = found
        return self._known_pulls[row]

    @cached_property
    def _known_pulls(self) -> dict[int, Pulls]:
        return {}

    def _pair(self, row: int) -> NDArray[np.intp]:
        """The predicted class and the runner-up."""
        return self._order[row, [0, 1 % len(self.classes)]]

    @property
    def shows_features(self) -> bool:
        """Whether features can be shown to people, and there are two classes to tell apart."""
        return len(self.classes) > 1 and readable(self.model.columns.shown_names)

    def table(self) -> Any:
        """List all that is known of the memories as a pandas frame: shares, overlaps, soft labels.

        Returns
        -------
        pandas.DataFrame
            One line for each row and memory, with the name of the row, its predicted class and
            probability, the rank of the memory, the attributes of `Reason`, and the known rows most like it.

        Examples
        --------
        >>> table = clf.explain(X_test[:2]).table()
        >>> table["predicted"].tolist()[0], table["rank"].tolist()[0]
        (0, 1)
        """
        predicted, probability = self.predicted, self.probability
        lines = [
            {"row": self.names[row], "predicted": plain(predicted[row]), "rank": rank,
             "probability": float(probability[row]), "name": reason.name, **vars(reason),
             "similar_rows": [own._asdict() for own in self.similar_rows(row)]}
            for row, reasons in enumerate(self) for rank, reason in enumerate(reasons, start=1)
        ]  # fmt: skip
        return import_extra("pandas").DataFrame(lines)

    def title(self, row: int, name: str | None = None) -> str:
        """What a row is taken for, the classes after that, and how familiar it is."""
        order = self._order[row].tolist()
        shown = [c for c in order[2:_SHOWN] if self.proba[row, c] >= _TOLD]
        named = [f"{self._called(c)} {percent(self.proba[row, c])}" for c in [*order[:2], *shown]]
        classes = ", ".join(named) + (", …" if len(named) < len(order) else "")
        name = f"row {self.names[row]}" if name is None else name
        if self.texts is not None:
            name += f" {short_text(self.texts[row])}"
        known, why = familiar(float(self.further_out[row])), self.rejected[row]
        if why is not None and not why.startswith("undecided"):
            return f"{name}: {why}: no answer; the nearest guess is {classes}"
        top, second = self.proba[row, order[:2]] if len(order) > 1 else (1.0, 0.0)
        close = "a close call" if top < _CLOSE * second else ""
        if why:
            share, limit = 100 * (1 - self.less_sure[row]), 100 * (1 - self.rate)
            told = f"less certain than {share:.0f} of 100 known rows, the limit is {limit:.0f}"
            close = f"no answer, too close ({told})"
        remarks = ", ".join(filter(None, (close, known)))
        return f"{name}: {classes}" + (f" – {remarks}" if remarks else "")

    def _called(self, column: int) -> str:
        """A class for people, by its place."""
        return self.model.called([*self.classes.tolist(), "none of them"][column])

    def remark(self, row: int) -> str:
        """What a reader has to know first, if no memory or no column decided; else empty."""
        resembles_none = self.uniform_share[row] > _HALF
        if self.frequencies_decide[row]:
            return f"{_NONE_ALIKE if resembles_none else _MIXED}: class frequencies decide."
        share = percent(self.uniform_share[row])
        told = f"{_NONE_ALIKE}: the uniform component has {share} of the vote."
        return told if resembles_none else ""

    def column_table(self, row: int, width: int = 100) -> Table:
        """The columns that speak for the predicted class and for the runner-up, for people."""
        found, classes = self._pulls(row), self._pair(row).tolist()
        order, largest = self._told(row, found), np.abs(found.pull).max()
        if largest == 0:
            return []
        pair = [middle_cut(self._called(c), _SHORT) for c in classes]
        typical = [f"typical of {pair[0]}", f"typical of {pair[1]}{' ' * (pair[0] == pair[1])}"]
        heads = ["column", "this row", *typical, "pull", *[""] * (width >= _WIDE)]
        lines: Table = []
        for name, sign in zip(pair, (1, -1), strict=True):
            strong = [own for own in order if own.pull * sign >= _LEAST_PULL * largest]
            lines += [dict.fromkeys(heads, "") | {"column": f"for {name}"}] * bool(strong)
            for column, *values, pull in strong[:_SHOWN]:
                cells = [f"  {middle_cut(column, min(_LONG, width // 2))}"]
                cells += [*(middle_cut(v, _LONG) for v in values), f"{pull:+.2f}"]
                bar = "█" * round(_BAR * abs(pull) / largest)
                lines.append(dict(zip(heads, [*cells, bar], strict=False)))
        if len(order) > 1:
            every = {"column": f"all {len(order)} together", "pull": f"{found.together:+.2f}"}
            lines.append(dict.fromkeys(heads, "") | every)
        return lines

    def turning(self, row: int) -> str:
        """Which columns alone would put the runner-up ahead, if they had its typical value."""
        found, lines = self._pulls(row), self.model.columns.user_columns
        names = [lines[j].name for j in found.order() if found.odds[j] < 0]
        other = self._called(self._pair(row)[1])
        if not names:
            return f"No column alone would put {other} ahead."
        told = ", or ".join(middle_cut(name, _LONG) for name in names[:_FIRST])
        left = len(names) - _FIRST
        more = f", or {left} other{'s' * (left > 1)}" if left > 0 else ""
        return f"One column would do to put {other} ahead: {told}{more}."

    def memory_line(self, row: int) -> str:
        """The memories that decided: what they say, their shares, how often they were right."""
        told: list[str] = []
        rest = 1.0
        for reason, column in zip(self[row], self.soft_label[row].argmax(1).tolist(), strict=True):
            if reason.share < _TOLD and told:
                continue
            label = ("" if reason.label_weight >= _PURE else "mostly ") + self._called(column)
            vote = f"{percent(reason.share)} of the vote{self._record(reason)}"
            told.append(f"{reason.shown_name} says {label}, {vote}")
            rest -= reason.share
        told += [f"others {percent(rest)} of the vote"] * (rest >= _TOLD)
        return f"memories: {'; '.join(told)}"

    def _record(self, reason: Reason) -> str:
        """How often a memory was right on held-out rows in which it had the largest share."""
        held = self.model.calibration
        if held is None or reason.n_alike > 1 or not held.record[reason.memory, 0]:
            return ""
        n, right, _ = held.record[reason.memory].tolist()
        return f" (right on {right} of {n} held-out row{'s' * (n > 1)})"

    def similar_lines(self, row: int, width: int = 100) -> list[str | Table]:
        """The known rows most like a row, for people: in a sentence, or texts, cut, in a table."""
        column = {label: k for k, label in enumerate([*self.classes.tolist(), None])}
        told = [(" ".join(str(own.name).split()), self._called(column[own.label]),
                 f"{own.similarity:.2f}") for own in self.similar_rows(row)]  # fmt: skip
        if all(len(name) <= _SHORT for name, *_ in told):
            rows = ", ".join(f"{name} ({label}, {alike})" for name, label, alike in told)
            return [f"known rows like it (label, similarity): {rows}"] if told else []
        heads = ("similarity", "label", "known row like it")
        return [_cut([dict(zip(heads, own[::-1], strict=True)) for own in told], width)]

    def tables(self, row: int, width: int) -> list[str | Table]:
        """What there is to say about a row after its title, for people; texts are cut."""
        remark = self.remark(row)
        found: list[str | Table] = [remark] * bool(remark)
        columns = self.column_table(row, width) if self.shows_features else []
        if columns:
            found += [columns, self.turning(row)]
        words = self.word_line(row)
        found += [words] * bool(words)
        return [*found, *self.similar_lines(row, width), self.memory_line(row)]

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """For each row what it is taken for, and why."""
        found: list[str | Table] = []
        for row in range(len(self))[:most]:
            found += [self.title(row), *self.tables(row, width), ""]
        return found[:-1]

    def __repr__(self) -> str:
        return f"Explanation of {len(self)} rows by {self.memory.shape[1]} memories each"

    def plot(
        self,
        row: int = 0,
        *,
        image_shape: tuple[int, ...] | None = None,
        truth: object = None,
        figure: Figure | SubFigure | None = None,
    ) -> Figure | SubFigure:
        """Draw one row, the memories that decided with their shares, and the predicted class.

        Images are drawn as images. For named features the figure shows what each of them pulls to.
        Else it shows the training rows like these memories if they have names, or the rows as lines.

        Parameters
        ----------
        row : int, default 0
            Number of the row.
        image_shape : (rows, columns) or (rows, columns, 3), default None
            How a row is an image; None: it is none.
        truth : object, default None
            The true class, shown next to the predicted one.
        figure : matplotlib Figure or SubFigure, default None
            Where to draw; None: a new figure.

        Returns
        -------
        matplotlib Figure or SubFigure
            The figure.

        Examples
        --------
        >>> clf.explain(X_test[:1]).plot(0, truth=0)
        <Figure ...>
        """
        from mnemosphere.plots.decision import Decision
        from mnemosphere.plots.features import feature_figure, typical_rows
        from mnemosphere.plots.predictions import explanation_strip

        decision = Decision(
            np.clip(self.share[row] / max(1.0, float(self.share[row].sum())), 0, 1),
            self.soft_label[row], self.proba[row], self.classes.tolist(),
            [reason.shown_name for reason in self[row]], truth,
        )  # fmt: skip
        if image_shape is None and self.shows_features:
            return feature_figure(self.pulls(row), decision, figure=figure)
        named = self.typical_rows is not None and self.typical_rows.dtype == object
        if image_shape is None and named:
            texts = [[str(name) for name in reason.typical_rows] for reason in self[row]]
            return typical_rows(texts, decision, figure=figure)
        w = self.model.memories[self.memory[row]]
        return explanation_strip(self.rows[row], w, decision, image_shape, figure=figure)


def familiar(further_out: float) -> str:
    """How familiar a row is, by the share of the known rows that are more novel; NaN: nobody knows."""
    if np.isnan(further_out):
        return ""
    if further_out == 0:
        return "more unusual than all known rows"
    if further_out >= _FEW:
        return f"familiar ({10 * further_out:.0f} of 10 known rows are more unusual)"
    return f"unusual ({max(1, round(100 * further_out))} of 100 known rows are more unusual)"


def _cut(lines: Table, width: int) -> Table:
    """Lines whose last cell ends where the line must."""
    *names, last = lines[0]
    room = max(_SHORT, width - sum(2 + max(len(n), *(len(r[n]) for r in lines)) for n in names))
    short = (r[last] if len(r[last]) <= room else f"{r[last][: room - 1]}…" for r in lines)
    return [r | {last: text} for r, text in zip(lines, short, strict=True)]


def explain(model: FittedModel, X: Any, n_memories: int = 5) -> Explanation:
    """Explain each prediction by the memories with the largest share P(memory | x).

    For a row with missing values, probabilities and shares are averages over them, as in
    `predict_proba`.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.
    n_memories : int, default 5
        Memories to show.

    Returns
    -------
    Explanation
        Shares, soft labels and typical training rows of these memories.

    Examples
    --------
    >>> print(mn.interpret.explain(model, X_test[:1], n_memories=2))
    row 54: class 0 99.5%, class 1 0.4%, … – familiar (7 of 10 known rows are more unusual)
    column             this row  typical of class 0  typical of class 1   pull
    ──────────────────────────────────────────────────────────────────────────────────────
    for class 0
      flavanoids            2.9                3.17                2.17  +3.38  ██████████
      alcohol             13.74               13.88               12.29  +3.19  █████████
      color_intensity      5.85                5.75                2.85  +2.20  ███████
      hue                  0.92                1.07                1.23  +1.14  ███
    all 4 together                                                       +6.33
    <BLANKLINE>
    One column would do to put class 1 ahead: alcohol.
    known rows like it (label, similarity): 47 (class 0, 0.99), 42 (class 0, 0.97), 9 (class 0, 0.96)
    memories: #3 says class 0, 99% of the vote (right on 17 of 18 held-out rows); #2 says mostly class
    0, 1.0% of the vote (right on 4 of 6 held-out rows)
    """
    check_whole(n_memories, "n_memories", 1)
    votes, given = model.precise_votes, model.stored(X)
    seen = Placed(*on_sphere(given, model.geometry, votes.w.dtype))
    shares, known = model.shares(seen), familiarity(model, seen)
    nearest, share = _largest(model, shares, n_memories)
    memory, proba = as_numpy(nearest), known.log_proba.exp()
    similar, similarity = _similar(model, seen, shares)
    return Explanation(
        classes=model.classes,
        proba=as_numpy(proba),
        memory=memory,
        share=as_numpy(share),
        overlap=_overlap(model, given, seen, nearest),
        uniform_share=as_numpy(1 - shares.sum(1)),
        frequencies_decide=_frequencies_decide(model, proba),
        rejected=known.rejected,
        further_out=known.further_out,
        less_sure=known.less_sure,
        rate=known.rate,
        soft_label=as_numpy(_soft_labels(model, shares, nearest)),
        n_alike=np.bincount(as_numpy(model.standing), minlength=model.n_memories)[memory],
        typical_rows=None if model.exemplars is None else model.exemplars.shown[memory],
        names=row_names(X, given.n_rows),
        model=model,
        given=given.values,
        seen=seen,
        similar=similar,
        similarity=similarity,
        texts=model.columns.texts(X),
    )  # fmt: skip


def _similar(
    model: FittedModel, seen: Placed, shares: Tensor
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(places (n, k) in `model.held`, cosines) of the known rows most like each row: see `similar_rows`."""
    held = model.held
    named = np.zeros(0) if held is None else (held.names != -1) & (held.names != "")
    if held is None or not named.any():
        return np.zeros((shares.shape[0], 0), np.int64), np.zeros((shares.shape[0], 0))
    distinct = torch.zeros_like(shares).index_add_(1, model.standing, shares)
    deciding = distinct >= distinct.amax(1, keepdim=True).clamp_max(_DECIDES)  # (n, P)
    x, known = (part.nan_to_num(0.0).to(shares) for part in (seen.x, held.x.to(shares.device)))
    shown = deciding[:, model.known_owners] & torch.from_numpy(named).to(shares.device)
    overlap = x @ known.T / x.norm(dim=1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    best, place = overlap.masked_fill(~shown, -torch.inf).topk(min(_SIMILAR, len(known)), dim=1)
    return as_numpy(torch.where(best.isinf(), -1, place)), as_numpy(best.double())


def _frequencies_decide(model: FittedModel, proba: Tensor) -> NDArray[np.bool_]:
    """Whether class frequencies decide about rows of these probabilities (n, C)."""
    prior = model.votes.p_q[:-1].double()
    prior = prior / prior.sum()
    most_frequent = prior[proba.argmax(1)] >= prior.max() - 1e-9
    apart = (proba.logit() - prior.logit()).abs().amax(1)
    return as_numpy(most_frequent & (apart <= math.log(_LITTLE)))


def _overlap(model: FittedModel, given: Rows, seen: Placed, nearest: Tensor) -> NDArray[np.float64]:
    """⟨w, x⟩ of these memories (n, k) and completed rows, in double precision."""
    completed, x = model.completed(given), seen.x
    if completed.values is not given.values or x.dtype != torch.float64:
        x, _ = on_sphere(completed, model.geometry, torch.float64)
    some, place = torch.unique(nearest, return_inverse=True)
    return as_numpy((x @ model.precise_votes.w[some].double().T).gather(1, place))


def _soft_labels(model: FittedModel, shares: Tensor, shown: Tensor) -> Tensor:
    """Soft labels (n, k, C+1) of memories shown (n, k): of all that each stands for, by share."""
    soft, standing = model.precise_votes.labels[1:], model.standing
    found = soft[shown]
    for k in range(shown.shape[1] if len(model.distinct) < model.n_memories else 0):
        own = shares * (standing == shown[:, k : k + 1])  # (n, P)
        total = own.sum(1, keepdim=True)
        found[:, k] = torch.where(total > 0, own @ soft / total, found[:, k])
    return found


def _largest(model: FittedModel, shares: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(memories (n, k), their shares), largest first, of shares (n, P).

    Memories that cannot be distinguished count as one, the one that stands for them.
    """
    distinct = model.distinct
    together = torch.zeros_like(shares).index_add_(1, model.standing, shares)[:, distinct]
    share, place = together.sort(dim=1, descending=True, stable=True)
    k = min(k, len(distinct))
    return distinct[place[:, :k]], share[:, :k]
