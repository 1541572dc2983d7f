"""The training rows that each memory answers for, and names of rows and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mnemosphere.fitted.model import Exemplars, FittedModel, Floats, as_numpy, row_labels
from mnemosphere.geometry import Geometry
from mnemosphere.geometry.base import on_sphere
from mnemosphere.model import one_pass
from mnemosphere.model.gaps import overlaps
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import scores
from mnemosphere.rows.columns import Columns, readable
from mnemosphere.rows.rows import Rows

_MOST_ROWS = 8000  # that are looked through
TYPICAL = 3  # rows of each memory: few enough to read
_LETTERS = 200  # of the name of a row
_KEPT = 500  # rows of a table that a model keeps as they are
_DIGITS = 1000  # shares are compared to a thousandth, then overlaps decide


def find_exemplars(
    votes: Mixture,
    geometry: Geometry,
    stored: Rows,
    sample_weight: Tensor | None = None,
    n_rows: int = 0,
    columns: Columns | None = None,
) -> Exemplars:
    """One forward pass over at most 8,000 rows, evenly spaced; labels are not looked at.

    Typical rows of a memory are those of its largest share in the votes, to three digits, and among
    them of the largest overlap. A row of which it has less than 0.0005 does not count.
    n_rows: of the data set that these rows are a sample of. columns: of rows whose values are kept, if people can read them.
    """
    votes = votes.precise
    larger = max(1.0, n_rows / stored.n_rows)
    weight = torch.ones(stored.n_rows) if sample_weight is None else sample_weight.cpu()
    total, kept = float(weight.double().sum()), (weight > 0).nonzero()[:, 0]
    if len(kept) > _MOST_ROWS:
        kept = kept[torch.linspace(0, len(kept) - 1, _MOST_ROWS, dtype=torch.float64).long()]
    if len(kept) < stored.n_rows:
        stored, weight = stored.take(kept), weight[kept]
    x, lost = on_sphere(stored, geometry, votes.w.dtype)
    place = (~lost).nonzero()[:, 0]
    found = np.full((votes.n_memories, TYPICAL), -1)
    if place.shape[0] == 0:
        return Exemplars(found, np.zeros(votes.n_memories))
    x = x if place.shape[0] == x.shape[0] else x[place]
    weight = weight[place.cpu()].to(x.device, torch.float64)
    support = torch.zeros(votes.n_memories, dtype=torch.float64, device=x.device)
    best = x.new_full((TYPICAL, votes.n_memories), -1.0)
    owner = torch.zeros(len(x), dtype=torch.long)
    number = torch.full_like(best, -1, dtype=torch.long)
    for rows in one_pass.chunks(len(x), votes.n_memories, x.device):
        overlap = overlaps(votes, x[rows])
        share = scores(votes, overlap).softmax(1)[:, 1:]  # (B, P)
        support += weight[rows] @ share.double()
        owner[rows] = share.argmax(1).cpu()
        digits = (share * _DIGITS).round()
        score = torch.where(digits > 0, digits + 0.4 * overlap, -1.0)
        here, order = score.topk(min(TYPICAL, len(score)), dim=0)
        names = torch.cat([number, order + rows.start])
        best, order = torch.cat([best, here]).topk(TYPICAL, dim=0)
        number = names.gather(0, order)
    number = torch.where(best > 0, number, -1)
    taken = number.T.cpu()
    found[(taken >= 0).numpy()] = stored.row_ids(place.cpu()[taken[taken >= 0]])
    # Where only some rows were looked at, or some have no direction, they stand for all.
    scale = larger * total / float(weight.sum())
    values = sample = None
    if columns is not None and readable(columns.shown_names):
        table, each = as_numpy(stored.values)[as_numpy(place)].astype(float), as_numpy(weight)
        nearest, whose = as_numpy(number.T), as_numpy(owner)
        values = np.empty((votes.n_memories, table.shape[1]))
        for m, some in enumerate(nearest):
            own = np.flatnonzero(whose == m)
            own = own if len(own) else some[some >= 0]  # no row has most of its share here
            values[m] = middle(table[own], each[own], columns.multi_number_categories)
        ranks = (np.arange(min(_KEPT, len(table))) + 0.5) / min(_KEPT, len(table)) * each.sum()
        sample = table[np.searchsorted(each.cumsum(), ranks)]
    return Exemplars(found, (support * scale).cpu().numpy(), values=values, sample=sample)


def middle(values: Floats, weight: Floats, categories: Sequence[slice]) -> Floats:
    """Weighted lower medians (N,) of rows (n, N), and what is commonest in each category.

    NaN where most rows lack a value, or there are none: a typical value is one that rows have.
    """
    if not len(values):
        return np.full(values.shape[1], np.nan)
    absent = 2 * (weight @ np.isnan(values)) > weight.sum()
    order = values.argsort(axis=0)  # NaN last
    mass = np.where(np.isnan(values), 0.0, weight[:, None])
    mass = np.take_along_axis(mass, order, 0).cumsum(axis=0)
    at = (mass >= mass[-1] / 2).argmax(axis=0)
    found: Floats = np.take_along_axis(values, np.take_along_axis(order, at[None], 0), 0)[0]
    for place in categories:
        own, back = np.unique(values[:, place], axis=0, return_inverse=True)
        known = weight * ~np.isnan(values[:, place.start])
        found[place] = own[np.bincount(back.ravel(), known).argmax()]
    return np.where(absent, np.nan, found)


def name_rows(model: FittedModel, names: ArrayLike | Mapping[int, str]) -> FittedModel:
    """Name the training rows; explanations, tables, pages and model files show the names.

    Parameters
    ----------
    model : FittedModel
        A model that `fit` made.
    names : array-like of str of shape (n,), or mapping of int to str
        One name for each row of X in the order of `fit`, or names by number, at least for
        `typical_rows_`. Names are cut after 200 letters.

    Returns
    -------
    FittedModel
        The model with names.

    Examples
    --------
    >>> named = mn.interpret.name_rows(model, [f"wine {k}" for k in X_train.index])
    >>> named.exemplars.names[0, 0].startswith("wine")
    True
    """
    if model.exemplars is None:
        raise ValueError("no rows stand behind the memories of this model: fit it first")
    typical, held = model.exemplars.typical, model.held
    if isinstance(names, Mapping):
        named = names
    else:
        given = np.array([str(name)[:_LETTERS] for name in as_numpy(names)], dtype=object)
        if given.ndim != 1 or len(given) <= typical.max():
            raise ValueError(
                f"names has {len(given)} entries, but row {typical.max()} was trained on: pass "
                "one per row of X, as it was given to fit"
            )
        named = dict(enumerate(given))
    if held is not None:
        rows = held.row.numpy()
        own = np.isin(rows, list(named))
        held = replace(held, names=np.where(own, _names_of(rows, named), held.names.astype(object)))
    exemplars = replace(model.exemplars, names=_names_of(typical, named))
    return model.replace(exemplars=exemplars, held=held)


def called_rows(rows: NDArray[np.int64], texts: list[str | None] | None, X: Any) -> NDArray[Any]:
    """What rows of X are called: by their texts, by the index of a frame, or by number; −1: none."""
    if texts is not None:
        return row_texts(texts, rows)
    labels = row_labels(X, len(X)) if hasattr(X, "iloc") else []
    if labels == list(range(len(labels))):
        return rows
    names = [labels[k] if k >= 0 else "" for k in rows.ravel().tolist()]
    numbers = all(isinstance(name, int) for name in names)
    kept = np.array(names if numbers else [*map(str, names)], dtype=int if numbers else object)
    return kept.reshape(rows.shape)


def row_texts(texts: list[str | None], rows: NDArray[np.int64]) -> NDArray[Any]:
    """The texts of these rows, each on one line and cut; "" for row −1."""
    named = {k: " ".join((texts[k] or "").split()) for k in rows.ravel().tolist() if k >= 0}
    return _names_of(rows, named)


def _names_of(typical: NDArray[np.int64], names: Mapping[int, str]) -> NDArray[Any]:
    """(P, 3) what these rows are called."""
    told = [str(names.get(k, ""))[:_LETTERS] for k in typical.ravel().tolist()]
    return np.array(told, dtype=object).reshape(typical.shape)
