"""The memories as tables: what stands behind each, its strongest features, how often it is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.base.machine import import_extra
from mnemosphere.fitted.exemplars import TYPICAL
from mnemosphere.fitted.model import Exemplars, FittedModel, as_numpy
from mnemosphere.interpret.rejection import owners, rejection_score
from mnemosphere.model.mixture import memory_name


def memory_table(model: FittedModel) -> Any:
    """List the memories as a pandas frame; those that repeat another share its line.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.

    Returns
    -------
    pandas.DataFrame
        Columns: name (#17, counted from 0, as the index), n_alike (how many memories the line is
        about), label and soft_label net of smoothing, purity (its largest entry), share of all rows,
        support (rows that the memory answers for), features (those of the largest weight in the
        overlap; with geometry="circles" and their values, as "price: 950"), typical_rows (texts,
        names or numbers of rows), held_out (rows in which no other memory had a larger share), right
        (how many of those got their class) and confused_with (the other class of most that did not).

    Examples
    --------
    >>> table = mn.interpret.memory_table(model)
    >>> table["name"].tolist()
    ['#0', '#1', '#2', '#3', '#4', '#5']
    """
    shown, line, n_alike = np.unique(
        as_numpy(model.standing), return_inverse=True, return_counts=True
    )

    def added(values: NDArray[Any]) -> NDArray[Any]:
        found = np.zeros((len(shown), *values.shape[1:]))
        np.add.at(found, line, values)
        return found

    soft = added(as_numpy(model.votes.p[1:].double()))
    soft = soft / soft.sum(axis=1, keepdims=True)
    behind, held, n = model.exemplars, model.calibration, model.n_memories
    if behind is None:  # edited or streamed: nothing is known of the rows
        behind = Exemplars(np.full((n, TYPICAL), -1), np.full(n, np.nan))
    support, names = added(behind.support), np.array([*model.classes.tolist(), None], dtype=object)
    record = (np.zeros((n, 3), np.int64) if held is None else held.record)[shown]
    features, typical = _strongest(model), behind.as_lists()
    return import_extra("pandas").DataFrame(
        {
            "name": [memory_name(m) for m in shown.tolist()],
            "n_alike": n_alike,
            "label": names[soft.argmax(axis=1)],
            "soft_label": [
                {name: float(v) for name, v in zip(names, row, strict=True) if v > 0}
                for row in soft
            ],
            "purity": soft.max(axis=1),
            "share": support / np.nansum(support).clip(1e-300),
            "support": support,
            "features": [features[m] for m in shown],
            "typical_rows": [typical[m] for m in shown],
            "held_out": record[:, 0],
            "right": record[:, 1],
            "confused_with": np.where(record[:, 0] > record[:, 1], names[record[:, 2]], None),
        },
        index=shown,
    )


def _strongest(model: FittedModel) -> list[list[Any]]:
    """Of each memory, the features of the largest weight in the overlap, on circles with their values.

    With a metric, weights are those of features, not of the coordinates behind it. Texts have none:
    numbers of a vector tell nobody anything.
    """
    columns, lines, values = model.columns, model.columns.user_columns, model.typical_values
    each = model.geometry.strengths(model.votes.w)
    named = columns.number_names is not None
    names: Sequence[Any] = [line.name for line in lines] if named else range(len(lines))
    # A category or a text is one feature.
    w = torch.stack([each[:, line.place].norm(dim=1) for line in lines], 1)
    order = w.topk(0 if columns.is_texts else min(TYPICAL, len(lines)), dim=1).indices.tolist()
    if not model.geometry.has_curves:
        return [[names[j] for j in chosen] for chosen in order]
    values = model.memories if values is None else values
    return [
        [f"{names[j]}: {lines[j].written(own)}" for j in chosen]
        for own, chosen in zip(values, order, strict=True)
    ]


def weak_spots(model: FittedModel, X: Any = None, n_rows: int = 3) -> Any:
    """List the memories, those first that were least often right on held-out rows.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    X : array-like of shape (n, N), default None
        Rows without labels, of which some could be labeled.
    n_rows : int, default 3
        How many of them to name for each memory.

    Returns
    -------
    pandas.DataFrame
        Of `memory_table` name, label, held_out (rows), right, confused_with and typical_rows; with X
        also to_label: numbers of its rows with the highest rejection scores.

    Examples
    --------
    >>> mn.interpret.weak_spots(model).columns.tolist()
    ['name', 'label', 'held_out', 'right', 'confused_with', 'typical_rows']
    """
    shown = ["name", "label", "held_out", "right", "confused_with", "typical_rows"]
    table = memory_table(model)[shown]
    right, count = table["right"], table["held_out"]
    # One row of the mean accuracy is added, so that few rows do not decide.
    rate = (right + (right.sum() + 1) / (count.sum() + 1)) / (count + 1)
    table = table.loc[rate.sort_values(kind="stable").index]
    if X is None:
        return table
    owner, ranked = (
        owners(model, X),
        np.argsort(-as_numpy(rejection_score(model, X)), kind="stable"),
    )
    rows = [ranked[owner[ranked] == memory][:n_rows].tolist() for memory in table.index]
    return table.assign(to_label=rows)
