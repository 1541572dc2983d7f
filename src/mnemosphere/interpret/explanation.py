"""Why a row got its class: a small table one can print, index and draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.files import plain
from mnemosphere.base.text import Shown, Table, readable, short_text
from mnemosphere.fitted.model import FittedModel, as_numpy, check_whole, row_names
from mnemosphere.geometry.place import on_sphere
from mnemosphere.interpret.decision import spread
from mnemosphere.interpret.feature_contributions import (
    FeatureContributions,
    Source,
    feature_contributions,
)
from mnemosphere.interpret.rejection import is_out_of_scope
from mnemosphere.model import retrieval
from mnemosphere.model.parameters import memory_name
from mnemosphere.model.scores import Scores
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.rows.stored import StoredRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_SHOWN = 5  # classes of a title
_TOLD = 0.005  # probability of a class in a title
_HALF = 0.5  # of the vote
_SHORT = 24  # letters of row names that share a line


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

    @property
    def soft_label(self) -> str:
        """The memory's label and its weight, as text."""
        return f"{'none of them' if self.label is None else self.label} ({self.label_weight:.0%})"


@dataclass(frozen=True)
class Explanation(Shown):
    """Explanations of n rows by the k memories with the largest share of each decision.

    `explanation[row]` is a list of `Reason`, the largest share first. `print` shows tables. Memories
    that a reader cannot distinguish (an overlap of 0.999, the same labels) are shown as one, the
    heaviest, with the sum of their shares.

    Attributes
    ----------
    rows : ndarray of shape (n, N)
        Unit rows; in the features' units with normalize="standard", "whitened" and "circles". Sparse rows stay
        sparse.
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
        Whether the class is the most frequent one, with probabilities within 0.1 of the class frequencies.
    out_of_scope : ndarray of bool of shape (n,)
        Whether the row is more like rows labeled `OUT_OF_SCOPE` than like any class, so that
        `predict_or_reject` gives it none.
    soft_label : ndarray of shape (n, k, C+1)
        Soft labels of the memories; the last column is "none of them".
    n_alike : ndarray of int of shape (n, k)
        Memories that each one stands for.
    patterns : ndarray of shape (m, N)
        Each of these memories once, in the order of their numbers.
    typical_rows : ndarray of shape (n, k, 3) or None
        Training rows like each memory: numbers, −1 for none, or names.
    names : list of n str
        What the rows are called: the index of a frame, or numbers.
    source : Source
        The model and the rows that `features` reads.
    texts : list of n str, or None
        The rows, if they are texts.

    Examples
    --------
    >>> why = clf.explain(X_test[:2], n_nearest=3)
    >>> why
    Explanation of 2 rows by 3 memories each
    >>> why[0][0].label
    0
    """

    rows: Any
    classes: NDArray[Any]
    proba: NDArray[Any]
    memory: NDArray[Any]
    share: NDArray[Any]
    overlap: NDArray[Any]
    uniform_share: NDArray[Any]
    frequencies_decide: NDArray[np.bool_]
    out_of_scope: NDArray[np.bool_]
    soft_label: NDArray[Any]
    n_alike: NDArray[np.int64]
    patterns: NDArray[Any] = field(repr=False)
    typical_rows: NDArray[Any] | None
    names: list[str] = field(repr=False)
    source: Source = field(repr=False)
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

    @property
    def memories(self) -> NDArray[Any]:
        """The memories of each row, in the units of `rows`, ndarray of shape (n, k, N)."""
        _, place = np.unique(self.memory, return_inverse=True)
        found: NDArray[Any] = self.patterns[place.reshape(self.memory.shape)]
        return found

    @property
    def _order(self) -> NDArray[np.intp]:
        """(n, C) classes, the most probable first; among equals, as `predict` has them."""
        return np.argsort(-self.proba, axis=1, kind="stable")

    def __len__(self) -> int:
        return len(self.proba)

    def __getitem__(self, row: int) -> list[Reason]:
        names = [*self.classes.tolist(), None]
        return [
            Reason(
                memory=int(self.memory[row, j]),
                share=float(self.share[row, j]),
                overlap=float(self.overlap[row, j]),
                label=names[int(self.soft_label[row, j].argmax())],
                label_weight=float(self.soft_label[row, j].max()),
                typical_rows=self._typical(row, j),
                n_alike=int(self.n_alike[row, j]),
            )
            for j in range(self.memory.shape[1])
        ]

    def _typical(self, row: int, j: int) -> tuple[Any, ...]:
        if self.typical_rows is None:
            return ()
        return tuple(name for name in self.typical_rows[row, j].tolist() if name not in (-1, ""))

    def __iter__(self) -> Iterator[list[Reason]]:
        return (self[row] for row in range(len(self)))

    def features(self, row: int = 0) -> FeatureContributions:
        """Compute what each feature contributed to the decision about one row.

        Parameters
        ----------
        row : int, default 0
            Number of the row.

        Returns
        -------
        FeatureContributions
            Parts of the log-odds of the predicted class against the runner-up, which add up exactly.

        Examples
        --------
        >>> parts = clf.explain(X_test[:1]).features(0)
        >>> int(parts.predicted), len(parts.names)
        (0, 4)
        """
        order = self._order[row].tolist()
        pair = order[0], order[1 % len(order)]
        return feature_contributions(self.source, row, self.memory[row], pair, self.proba[row])

    @property
    def shows_features(self) -> bool:
        """Whether features can be shown to people, and there are two classes to tell apart."""
        return len(self.classes) > 1 and readable(self.source.model.features.shown_names)

    def as_dicts(self) -> list[dict[str, Any]]:
        """List the explanation as flat dicts, for a data frame or JSON.

        Returns
        -------
        list of n · k dicts
            One for each row and memory.

        Examples
        --------
        >>> first = clf.explain(X_test[:2]).as_dicts()[0]
        >>> first["row"], first["predicted"], first["rank"]
        (0, 0, 1)
        """
        predicted, probability = self.predicted, self.probability
        return [
            {
                "row": row,
                "predicted": plain(predicted[row]),
                "probability": float(probability[row]),
                "rank": rank,
                **vars(reason),
            }
            for row, reasons in enumerate(self)
            for rank, reason in enumerate(reasons, start=1)
        ]

    def title(self, row: int, name: str | None = None) -> str:
        """What a row is taken for, and the classes after that."""
        order = self._order[row].tolist()
        shown = [c for c in order[2:_SHOWN] if self.proba[row, c] >= _TOLD]
        named = (f"{self.classes[c]} ({self.proba[row, c]:.1%})" for c in [*order[:2], *shown])
        first, *rest = named
        more = ", …" if len(rest) + 1 < len(order) else ""
        after = f", then {', '.join(rest)}{more}" if rest else ""
        name = f"row {self.names[row]}" if name is None else name
        if self.texts is not None:
            name += f" {short_text(self.texts[row])}"
        return f"{name}: {first}{after}"

    def remark(self, row: int) -> str:
        """What a reader has to know first, if no class or no memory decided, say; else empty."""
        if self.out_of_scope[row]:
            return "Like rows known to be out of scope, more than like any class: it is rejected."
        if self.frequencies_decide[row]:
            if self.uniform_share[row] > _HALF:
                return "No memory resembles this row: class frequencies decide."
            return (
                "The memories that resemble this row hold, taken together, about the same mix of "
                "classes as all training rows: class frequencies decide."
            )
        if self.uniform_share[row] > _HALF:
            share = f"{self.uniform_share[row]:.0%}"
            return f"No memory resembles this row: the uniform component has {share} of the vote."
        if self.shows_features:
            why = self.features(row)
            if why.difference_rest > why.difference.sum() + why.difference_constant:
                return (
                    f"The weights and soft labels of the memories decide between {why.predicted} "
                    f"and {why.runner_up}, more than the features."
                )
        return ""

    def tables(self, row: int, width: int) -> list[tuple[str, Table]]:
        """(heading, lines) of what there is to say about a row, for people; texts are cut."""
        reasons = self[row]
        long = any(len(str(name)) > _SHORT for r in reasons for name in r.typical_rows)
        lines = [
            {
                "memory": r.shown_name, "share": f"{r.share:.1%}", "overlap": f"{r.overlap:.3f}",
                "soft label": r.soft_label,
                "typical rows": "" if long else ", ".join(map(str, r.typical_rows)),
            }
            for r in reasons
        ]  # fmt: skip
        uniform = float(self.uniform_share[row])
        rest = max(0.0, 1 - float(self.share[row].sum()) - uniform)
        empty = dict.fromkeys(lines[0], "")
        if int(self.n_alike[row].sum()) < self.source.model.n_memories:
            lines += [empty | {"memory": "others", "share": f"{rest:.1%}"}]
        lines += [empty | {"memory": "uniform", "share": f"{uniform:.1%}"}]
        if not any(line["typical rows"] for line in lines):
            lines = [{k: v for k, v in line.items() if k != "typical rows"} for line in lines]
        found = [(self.remark(row), lines)]
        if long:
            named = [(r.name, str(name)) for r in reasons for name in r.typical_rows]
            texts = [{"memory": m, "typical row": " ".join(name.split())} for m, name in named]
            found.append(("training rows like these memories", _cut(texts, width)))
        if self.shows_features:
            features = self.features(row)
            found.append((features.title, features.table()))
        return found

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """For each row what it is taken for, and the tables."""
        found: list[str | Table] = []
        for row in range(len(self))[:most]:
            found.append(self.title(row))
            for heading, lines in self.tables(row, width):
                found += [heading, lines] if heading else [lines]
        return found

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

        Images are drawn as images. For named features the figure shows what each of them contributed.
        Else it shows the training rows like these memories if they have names, or the rows as lines.

        Parameters
        ----------
        row : int, default 0
            Number of the row.
        image_shape : (rows, columns) or (rows, columns, 3), default None
            How a row is an image; None: it is none.
        truth : object, default None
            The true class, to be shown beside the predicted one.
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
            return feature_figure(self.features(row), decision, figure=figure)
        named = self.typical_rows is not None and self.typical_rows.dtype == object
        if image_shape is None and named:
            texts = [
                [str(name) for name in self._typical(row, j)] for j in range(len(self.share[row]))
            ]
            return typical_rows(texts, decision, figure=figure)
        return explanation_strip(
            np.asarray(self.rows[row]), self.memories[row], decision, image_shape, figure=figure
        )


def _cut(lines: Table, width: int) -> Table:
    """Lines whose last cell ends where the line must."""
    *names, last = lines[0]
    room = max(_SHORT, width - sum(2 + max(len(n), *(len(r[n]) for r in lines)) for n in names))
    short = (r[last] if len(r[last]) <= room else f"{r[last][: room - 1]}…" for r in lines)
    return [r | {last: text} for r, text in zip(lines, short, strict=True)]


def explain(model: FittedModel, X: Any, n_nearest: int = 5) -> Explanation:
    """Explain each prediction by the memories with the largest share P(memory | x).

    For a row with missing values, probabilities and shares are averages over them, as in
    `predict_proba`. Its features are shown as `encode` fills them in.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.
    n_nearest : int, default 5
        Memories to show.

    Returns
    -------
    Explanation
        Shares, soft labels and typical training rows of these memories.

    Examples
    --------
    >>> print(mn.interpret.explain(model, X_test[:1], n_nearest=2))
    row 54: 0 (99.7%), then 1 (0.2%), …
    memory   share  overlap  soft label  typical rows
    ─────────────────────────────────────────────────
    #3       99.7%    0.965  0 (100%)      54, 40, 30
    #2        0.3%    0.854  0 (75%)         98, 1, 7
    others    0.0%
    uniform   0.0%
    <BLANKLINE>
    why 0 rather than 1: odds 457 to 1, log-odds +6.13
    feature              value  predicted  runner-up  overlap #3  difference
    ────────────────────────────────────────────────────────────────────────
    color_intensity       5.85       6.05      4.112      +0.025       +2.64
    alcohol              13.74      13.88      13.28      +0.164       +1.07
    flavanoids             2.9      3.147       2.41      +0.173       +0.85
    hue                   0.92      1.069      1.088      -0.012       +0.61
    (being average)                                       +0.615       +0.13
    (soft labels)                                                      +2.03
    (class frequencies)                                                -1.22
    sum                                                   +0.965       +6.13
    """
    check_whole(n_nearest, "n_nearest", 1)
    votes, given = model.precise_votes, model.stored(X)
    completed = model.completed(given)
    exact, _ = on_sphere(completed, model.normalizer, torch.float64)
    seen, lost = on_sphere(given, model.normalizer, votes.w.dtype)
    nearest, share = _shares(model, seen, lost, n_nearest)
    memory, voted = as_numpy(nearest), spread(model, given)
    return Explanation(
        rows=_rows(model, exact, completed),
        classes=model.classes,
        proba=as_numpy(model.log_proba(given).exp()),
        memory=memory,
        share=as_numpy(share),
        overlap=as_numpy((exact @ votes.w.double().T).gather(1, nearest)),
        uniform_share=voted.uniform,
        frequencies_decide=voted.undecided,
        out_of_scope=is_out_of_scope(model, given),
        soft_label=as_numpy(_soft_labels(model, seen, lost, nearest)),
        n_alike=np.bincount(as_numpy(model.standing), minlength=model.n_memories)[memory],
        patterns=model.memories[np.unique(memory)],
        typical_rows=None if model.exemplars is None else model.exemplars.shown[memory],
        names=row_names(X, given.n_rows),
        source=Source(model, completed.values, given.values),
        texts=model.features.texts(X),
    )  # fmt: skip


def _rows(model: FittedModel, x: Tensor, completed: StoredRows) -> Any:
    """Unit rows in the features' units."""
    if model.normalizer.has_curves:  # they are as they came
        return as_numpy(completed.dense().values).astype(np.float64)
    return x if isinstance(x, SparseRows) else as_numpy(model.restore(x))


def _soft_labels(model: FittedModel, x: Tensor, lost: Tensor, shown: Tensor) -> Tensor:
    """Soft labels (n, k, C+1) of memories shown (n, k): of all that each stands for, by share."""
    votes, standing = model.precise_votes, model.standing
    soft = votes.labels[1:]
    found = soft[shown]
    if len(model.distinct) < model.n_memories and not bool(lost.all()):
        scores = Scores(votes, None, x.shape[0])(x[~lost], (~lost).nonzero()[:, 0])[:, 1:]
        for k in range(shown.shape[1]):
            others = standing != shown[~lost, k : k + 1]  # (n, P)
            found[~lost, k] = scores.masked_fill(others, -torch.inf).softmax(1) @ soft
    return found


def deciding(model: FittedModel, X: Any, n_memories: int) -> dict[str, NDArray[Any]]:
    """Columns memory_1, share_1, …: the memories that decided about each row."""
    dtype = model.precise_votes.w.dtype
    parts = [_shares(model, x, lost, n_memories) for x, lost in model.unit_rows(X, dtype)]
    memory, share = (as_numpy(torch.cat(part)) for part in zip(*parts, strict=True))
    columns: dict[str, NDArray[Any]] = {}
    for k in range(memory.shape[1]):
        names = np.array([memory_name(m) for m in memory[:, k]])
        columns |= {f"memory_{k + 1}": names, f"share_{k + 1}": share[:, k]}
    return columns


def _shares(model: FittedModel, x: Tensor, lost: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(memories (n, k), their shares), largest first; a row without direction is like none of them.

    Memories that cannot be distinguished count as one, the one that stands for them.
    """
    distinct = model.distinct
    n, k = x.shape[0], min(k, len(distinct))
    memory, share = distinct[:k].repeat(n, 1), x.new_zeros(n, k)
    if not bool(lost.all()):
        top = retrieval.shares(model.precise_votes, x[~lost], None, k, model.standing)
        memory[~lost], share[~lost] = top.indices, top.shares
    return memory, share
