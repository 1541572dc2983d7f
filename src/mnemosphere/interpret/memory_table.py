"""The memories as tables: what stands behind each, and its strongest features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.machine import import_extra
from mnemosphere.fitted.exemplars import TYPICAL, called_rows, find_exemplars
from mnemosphere.fitted.model import Exemplars, FittedModel, as_numpy
from mnemosphere.interpret.certify import certify
from mnemosphere.interpret.records import records
from mnemosphere.model import one_pass
from mnemosphere.model.mixture import memory_name


def memory_table(model: FittedModel, X: Any = None, y: Any = None) -> Any:
    """List the memories as a pandas frame; those that repeat another share its line.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N), default None
        Rows to measure everything on; None: as training left it.
    y : array-like of shape (n,), default None
        Their labels.

    Returns
    -------
    pandas.DataFrame
        Columns: name (#17, counted from 0, as the index), n_alike (how many memories the line is
        about), label and soft_label net of smoothing, purity (its largest entry), share of all rows,
        support (rows that the memory answers for), supported (False if that is less than one row),
        beta_split (NaN without rows), nearest memory and nearest_overlap, features (those of the
        largest weight in the overlap; with geometry="circles" and their values, as "price: 950"),
        typical_rows (texts, names or numbers of rows), held_out (rows in which no other memory had a
        larger share), right (how many of those got their class) and confused_with (the other class
        of most that did not).

    Examples
    --------
    >>> table = mn.interpret.memory_table(model)
    >>> table["name"].tolist()
    ['#0', '#1', '#2', '#3', '#4', '#5']
    """
    pd = import_extra("pandas")
    n_memories = model.n_memories
    behind, beta_split = model.exemplars, np.full(n_memories, np.nan)
    if X is not None:
        behind = find_exemplars(model.votes, model.geometry, model.completed(X))
        behind = replace(behind, names=called_rows(behind.typical, model.columns.texts(X), X))
        beta_split = as_numpy(certify(model, X, y, max_iter=0).beta_split.double())
    if behind is None:  # edited, shrunk or streamed: nothing is known of the rows
        behind = Exemplars(np.full((n_memories, TYPICAL), -1), np.full(n_memories, np.nan))
    shown, line, n_alike = np.unique(
        as_numpy(model.standing), return_inverse=True, return_counts=True
    )

    def added(values: NDArray[Any]) -> NDArray[Any]:
        found = np.zeros((len(shown), *values.shape[1:]))
        np.add.at(found, line, values)
        return found

    soft = added(as_numpy(model.votes.p[1:].double()))
    soft = soft / soft.sum(axis=1, keepdims=True)
    support = added(behind.support)
    names = [*model.classes.tolist(), None]
    called = [memory_name(m) for m in shown.tolist()]
    record = records(model)
    count, right, _ = record.T
    nearest, overlap = _nearest(model.votes.w[shown])
    features, typical = _strongest(model, TYPICAL), behind.as_lists()
    by_value = model.geometry.has_curves
    return pd.DataFrame(
        {
            "name": called,
            "n_alike": n_alike,
            "label": np.array([names[k] for k in soft.argmax(axis=1)], dtype=object),
            "soft_label": [
                {name: float(v) for name, v in zip(names, row, strict=True) if v > 0}
                for row in soft
            ],
            "purity": soft.max(axis=1),
            "share": support / np.nansum(support).clip(1e-300),
            "support": support,
            "supported": support >= 1,
            "beta_split": beta_split[shown],
            "nearest": [None if k < 0 else called[k] for k in nearest],
            "nearest_overlap": overlap,
            "features": [
                [f"{name}: {value}" if by_value else name for name, _, value in features[m]]
                for m in shown
            ],
            "typical_rows": [typical[m] for m in shown],
            "held_out": count[shown],
            "right": right[shown],
            "confused_with": [names[k] if n > good else None for n, good, k in record[shown]],
        }
    ).set_index(shown)


def _nearest(w: Tensor) -> tuple[list[int], NDArray[np.float64]]:
    """The memory nearest to each other than itself, and their overlap; −1 and NaN for one alone."""
    w = w.double().cpu()
    if len(w) == 1:
        return [-1], np.array([np.nan])
    nearest, overlaps = [], []
    for rows in one_pass.chunks(len(w), len(w), w.device):
        overlap = w[rows] @ w.T
        overlap[torch.arange(len(overlap)), torch.arange(rows.start, rows.stop)] = -torch.inf
        value, index = overlap.max(1)
        nearest += index.tolist()
        overlaps.append(value.numpy())
    return nearest, np.concatenate(overlaps)


def _strongest(model: FittedModel, most: int) -> list[list[tuple[Any, float, str]]]:
    """Of each memory, (name, weight, value) of the features of the largest weight in the overlap.

    With a metric, weights are those of features, not of the coordinates behind it. Texts have none:
    numbers of a vector tell nobody anything.
    """
    columns, values, each = (
        model.columns,
        model.typical_values,
        model.geometry.strengths(model.votes.w),
    )
    most, lines = 0 if columns.is_texts else most, columns.user_columns
    named = columns.number_names is not None
    names: Sequence[Any] = [line.name for line in lines] if named else range(len(lines))
    # A category or a text is one feature.
    parts = (each[:, line.place] for line in lines)
    w = torch.stack([w.norm(dim=1) if w.shape[1] > 1 else w[:, 0] for w in parts], 1)
    order = w.abs().topk(min(most, w.shape[1]), dim=1)  # (P, k)
    weight = w.gather(1, order.indices).tolist()
    values = model.memories if values is None else values
    return [
        [(names[j], part, lines[j].written(values[m]))
         for j, part in zip(chosen, weight[m], strict=True)]
        for m, chosen in enumerate(order.indices.tolist())
    ]  # fmt: skip
