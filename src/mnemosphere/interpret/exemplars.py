"""What stands behind each memory: typical rows, how many rows, features, and all as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mnemosphere.checks import checked
from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from mnemosphere.features import Line
from mnemosphere.fitted import Exemplars, FittedModel, as_numpy, check_whole
from mnemosphere.interpret.certify import certify
from mnemosphere.machine import need
from mnemosphere.model import kernel
from mnemosphere.model.gaps import overlaps
from mnemosphere.model.parameters import memory_name
from mnemosphere.model.scores import Scores
from mnemosphere.model.votes import Votes

_MOST_ROWS = 8000
_TYPICAL = 3
_LETTERS = 200  # of the name of a row
_MEANS = 200  # features of rows whose means are kept: tables that people read have fewer
_DIGITS = 1000  # shares are compared to a thousandth, then overlaps decide


def find_exemplars(
    votes: Votes,
    normalizer: Normalizer,
    stored: StoredRows,
    sample_weight: Tensor | None = None,
    n_rows: int = 0,
) -> Exemplars:
    """One forward pass over at most 8,000 rows, evenly spaced; labels are not looked at.

    Typical rows of a memory are those of its largest share in the votes, to three digits, and among
    them of the largest overlap. A row of which it has less than 0.0005 does not count.
    n_rows: of the data set that these rows are a sample of.
    """
    votes = votes.precise
    larger = max(1.0, n_rows / stored.n_rows)
    weight = torch.ones(stored.n_rows) if sample_weight is None else sample_weight.cpu()
    total, kept = float(weight.double().sum()), (weight > 0).nonzero()[:, 0]
    if len(kept) > _MOST_ROWS:
        kept = kept[torch.linspace(0, len(kept) - 1, _MOST_ROWS, dtype=torch.float64).long()]
    if len(kept) < stored.n_rows:
        stored, weight = stored.take(kept), weight[kept]
    x, lost = on_sphere(stored, normalizer, votes.w.dtype)
    place = (~lost).nonzero()[:, 0]
    nobody = np.full((votes.n_memories, _TYPICAL), -1)
    if place.shape[0] == 0:
        return Exemplars(nobody, np.zeros(votes.n_memories))
    x = x if place.shape[0] == x.shape[0] else x[place]
    weight = weight[place.cpu()].to(x.device, torch.float64)
    support = torch.zeros(votes.n_memories, dtype=torch.float64, device=x.device)
    best = x.new_full((_TYPICAL, votes.n_memories), -1.0)
    values = None
    if stored.is_dense and stored.n_features <= _MEANS:
        values = stored.values.to(x.device)[place].double()
        sums = torch.zeros(2, votes.n_memories, values.shape[1], dtype=torch.float64).to(x.device)
    number = torch.full_like(best, -1, dtype=torch.long)
    scores = Scores(votes, None, len(x))
    for rows in kernel.chunks(len(x), votes.n_memories, x.device):
        overlap = overlaps(votes, x[rows])
        share = scores.of_overlaps(overlap, rows).softmax(1)[:, 1:]  # (B, P)
        support += weight[rows] @ share.double()
        if values is not None:
            part = (share.double() * weight[rows, None]).T  # (P, B)
            known = ~values[rows].isnan()
            sums += torch.stack([part @ values[rows].nan_to_num(0.0), part @ known.double()])
        digits = (share * _DIGITS).round()
        score = torch.where(digits > 0, digits + 0.4 * overlap, -1.0)
        here, order = score.topk(min(_TYPICAL, len(score)), dim=0)
        names = torch.cat([number, order + rows.start])
        best, order = torch.cat([best, here]).topk(_TYPICAL, dim=0)
        number = names.gather(0, order)
    number = torch.where(best > 0, number, -1)
    found = nobody.copy()
    taken = number.T.cpu()
    found[(taken >= 0).numpy()] = stored.call(place.cpu()[taken[taken >= 0]])
    # Where only some rows were looked at, or some have no direction, they stand for all.
    scale = larger * total / float(weight.sum())
    means = None
    if values is not None:
        means = as_numpy(sums[0] / sums[1])
        means[~np.isfinite(means)] = np.nan  # no row, or a sum beyond all numbers
    return Exemplars(found, (support * scale).cpu().numpy(), means=means)


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
        largest weight in the overlap; with normalize="circles" and their values, as "price: 950"),
        typical_rows (texts, names or numbers of rows).

    Examples
    --------
    >>> table = mn.interpret.memory_table(model)
    >>> table["name"].tolist()
    ['#0', '#1', '#2', '#3', '#4', '#5']
    """
    pd = need("pandas")
    n_memories = model.n_memories
    behind, beta_split = model.exemplars, np.full(n_memories, np.nan)
    if X is not None:
        behind = find_exemplars(model.votes, model.normalizer, model.completed(X))
        behind = with_texts(behind, model.features.texts(X))
        beta_split = as_numpy(certify(model, X, y, max_iter=0).beta_split.double())
    if behind is None:  # edited, shrunk or streamed: nothing is known of the rows
        behind = Exemplars(np.full((n_memories, _TYPICAL), -1), np.full(n_memories, np.nan))
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
    nearest, overlap = _nearest(model.votes.w[shown])
    features, typical = _strongest(model, _TYPICAL), behind.as_lists()
    on_circles = model.normalizer.circles is not None
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
                [f"{name}: {value}" if on_circles else name for name, _, value in features[m]]
                for m in shown
            ],
            "typical_rows": [typical[m] for m in shown],
        }
    ).set_index(shown)


def _nearest(w: Tensor) -> tuple[list[int], NDArray[np.float64]]:
    """The memory nearest to each other than itself, and their overlap; −1 and NaN for one alone."""
    w = w.double().cpu()
    if len(w) == 1:
        return [-1], np.array([np.nan])
    nearest, overlaps = [], []
    for rows in kernel.chunks(len(w), len(w), w.device):
        overlap = w[rows] @ w.T
        overlap[torch.arange(len(overlap)), torch.arange(rows.start, rows.stop)] = -torch.inf
        value, index = overlap.max(1)
        nearest += index.tolist()
        overlaps.append(value.numpy())
    return nearest, np.concatenate(overlaps)


def strongest_features(model: FittedModel, n_features: int = 10) -> Any:
    """List the features in which each memory points furthest; for texts, its terms.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    n_features : int, default 10
        Features of each memory.

    Returns
    -------
    pandas.DataFrame
        One line for each memory and feature: memory, label, rank, feature (name or number) and weight
        in the overlap, value (what the memory stands for, as text). A metric is taken into account. With
        normalize="circles" the weight is the length of the feature's part of the memory.

    Examples
    --------
    >>> mn.interpret.strongest_features(model, n_features=2).shape
    (12, 6)
    """
    pd = need("pandas")
    check_whole(n_features, "n_features", 1)
    soft = model.votes.p[1:]
    labels = [*model.classes.tolist(), None]
    lines = [
        (memory_name(m), labels[int(soft[m].argmax())], rank, *line)
        for m, found in enumerate(_strongest(model, n_features))
        for rank, line in enumerate(found, start=1)
    ]
    return pd.DataFrame(lines, columns=["memory", "label", "rank", "feature", "weight", "value"])


def _strongest(model: FittedModel, most: int) -> list[list[tuple[Any, float, str]]]:
    """Of each memory, (name, weight, value) of the features of the largest weight in the overlap.

    With a metric, weights are those of features, not of the coordinates behind it. Texts have none:
    numbers of a vector tell nobody anything.
    """
    n, circles = model.features.n_numbers, model.normalizer.circles
    most = 0 if model.features.encoder is not None else most
    names: Sequence[Any] = model.features.names or range(n)
    values = model.typical_values
    kinds = ["number"] * n if values is None else model.features.kinds
    lines = [
        Line(str(name), slice(i, i + 1), kind)
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    if circles is None:  # without the coordinate that "standard" appends
        w = model.normalizer.pull_back(model.votes.w)[:, :n]
    else:
        lines = model.features.lines
        names = [line.name for line in lines]
        square = circles.lengths(model.votes.w).square()
        w = torch.stack([square[:, line.place].sum(1).sqrt() for line in lines], 1)
    order = w.abs().topk(min(most, w.shape[1]), dim=1)  # (P, k)
    weight = w.gather(1, order.indices).tolist()
    values = model.memories if values is None else values
    return [
        [(names[j], part, lines[j].written(values[m]))
         for j, part in zip(chosen, weight[m], strict=True)]
        for m, chosen in enumerate(order.indices.tolist())
    ]  # fmt: skip


@checked
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
    typical = model.exemplars.typical
    if isinstance(names, Mapping):
        found = _names_of(typical, names)
    else:
        given = np.array([str(name)[:_LETTERS] for name in as_numpy(names)], dtype=object)
        if given.ndim != 1 or len(given) <= typical.max():
            raise ValueError(
                f"names has {len(given)} entries, but row {typical.max()} was trained on: pass "
                "one per row of X, as it was given to fit"
            )
        found = np.where(typical < 0, "", given[typical])
    return model.replace(exemplars=replace(model.exemplars, names=found))


def with_texts(behind: Exemplars, texts: list[str | None] | None) -> Exemplars:
    """Typical rows by their texts, if the rows that they were found among are texts."""
    return behind if texts is None else replace(behind, names=row_texts(texts, behind.typical))


def row_texts(texts: list[str | None], rows: NDArray[np.int64]) -> NDArray[Any]:
    """The texts of these rows, each on one line and cut; "" for row −1."""
    named = {k: " ".join((texts[k] or "").split()) for k in rows.ravel().tolist() if k >= 0}
    return _names_of(rows, named)


def _names_of(typical: NDArray[np.int64], names: Mapping[int, str]) -> NDArray[Any]:
    """(P, 3) what these rows are called."""
    told = [str(names.get(k, ""))[:_LETTERS] for k in typical.ravel().tolist()]
    return np.array(told, dtype=object).reshape(typical.shape)


@checked
def name_features(model: FittedModel, names: ArrayLike) -> FittedModel:
    """Name the features of arrays, sparse matrices and tensors, which have no names of their own.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    names : array-like of str of shape (N,)
        Such as `vectorizer.get_feature_names_out()`.

    Returns
    -------
    FittedModel
        The model with names, which explanations, tables, pages and model files show.

    Examples
    --------
    >>> named = mn.interpret.name_features(model, list("abcd"))
    >>> mn.interpret.explain(named, X_test[:1]).features().names[:2]
    ['a', 'b']
    """
    given = tuple(str(name) for name in as_numpy(names).tolist())
    if len(given) != model.features.n_numbers:
        raise ValueError(
            f"names must have one entry for each of {model.features.n_numbers} features, got "
            f"{len(given)}"
        )
    return model.replace(features=replace(model.features, named=given))
