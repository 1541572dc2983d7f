"""Classes added, removed, merged and renamed: new models, no training.

Held-out scores stay as they are, so rates and coverages are about the rows and classes of before:
`calibrate` again to include the change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from torch import Tensor

from mnemosphere.fitted import FittedModel, Floats, as_numpy
from mnemosphere.interpret.editing import directed
from mnemosphere.interpret.exemplars import row_texts
from mnemosphere.labels import OUT_OF_SCOPE, Labels
from mnemosphere.model import retrieval
from mnemosphere.model.class_reading import label_frequencies
from mnemosphere.model.kernel import exponents, log_joint
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.numerics import sphere

_NEW_MEMORIES = 5
_FOLDS = 5
_DRAWN = 1000  # rows of the known classes
_LEAST = 1e-30  # weight: float32 has it


def add_class(model: FittedModel, X: Any, label: object) -> FittedModel:
    """Add a class from a few rows of it, without training; the other memories stay.

    Its memories are the rows (centers of five groups if there are more), halfway to their mean:
    imprinted weights (Qi et al. 2018). Their weight is the likeliest one, for these rows and for
    rows that the model draws of the known classes.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    X : array-like of shape (n, N)
        Rows of the new class.
    label : object
        Its name; `mnemosphere.OUT_OF_SCOPE`: the rows belong to none of the classes.

    Returns
    -------
    FittedModel
        The model with one more class.

    Raises
    ------
    ValueError
        If there is a class of this name.

    Examples
    --------
    >>> mn.interpret.add_class(model, X_test[:5] * 3, 3).classes
    array([0, 1, 2, 3])
    """
    return extend(model, X, label, model.features.texts(X))


def extend(
    model: FittedModel, X: Any, label: object, texts: list[str | None] | None
) -> FittedModel:
    """`add_class` of rows with these texts."""
    names = model.classes.tolist()
    if label in names:
        raise ValueError(f"there is a class {label!r} already: partial_fit learns more rows of it")
    x = directed(model, X).double()
    near = _centers(x)
    new = _imprinted(near, x)
    wide, column = model, len(names)  # "none of them"
    if label != OUT_OF_SCOPE:
        table = torch.eye(len(names) + 1, dtype=torch.float64)
        table = torch.cat([table[:, :-1], torch.zeros_like(table[:, :1]), table[:, -1:]], 1)
        wide = _map_classes(model, _with_label(names, label, model.classes), table)
        column = wide.classes.tolist().index(label)

    def extended(p: Tensor, smoothing: float, weight: float) -> Tensor:
        soft = torch.full_like(p[0], smoothing / p.shape[1])
        soft[column] += 1 - smoothing
        return torch.cat([p, (weight / len(new) * soft).expand(len(new), -1)])

    behind, mass = model.exemplars, wide.label_mass
    if behind is not None:
        behind = behind.take(np.append(np.arange(model.n_memories), np.full(len(new), -1)))
        behind.support[model.n_memories :] = len(x) / len(new)
        if texts is not None and behind.names is not None:
            order = as_numpy((near @ x.T).topk(min(behind.names.shape[1], len(x)), dim=1).indices)
            behind.names[model.n_memories :, : order.shape[1]] = row_texts(texts, order)
    if mass is not None:
        mass, total = mass + model.smoothing * len(x) / len(mass), model.smoothing * mass.sum()
        mass[column] += (1 - model.smoothing) * len(x)
        if wide is not model:  # smoothing is spread over one more column
            mass += total / len(mass) - total / (len(mass) - 1)
            mass[column] += total / (len(mass) - 1)
    votes, density = wide.votes, wide.density
    p = extended(density.p, model.smoothing, _average_weight(model.density.p))
    rows = new if model.is_joint else near  # a density of its own holds rows as they are
    return _with_weights(
        wide, torch.cat([votes.w, new.to(votes.w)]),
        extended(votes.p, 0.0, _likeliest_weight(model, x)),
        torch.cat([density.w, rows.to(density.w)]), p,
        None if mass is None else label_frequencies(mass, model.smoothing),
    ).replace(exemplars=behind, label_mass=mass)  # fmt: skip


def _centers(x: Tensor) -> Tensor:
    """Unit rows x (n, N) themselves, or the centers of groups if there are many."""
    if len(x) <= _NEW_MEMORIES:
        return x
    generator = torch.Generator(x.device).manual_seed(0)
    return spherical_kmeans(x, _NEW_MEMORIES, generator=generator).centers


def _imprinted(near: Tensor, x: Tensor) -> Tensor:
    """Memories (k, N) of a class, halfway from unit rows near (k, N) to the mean of its rows x."""
    return sphere.project(near + torch.nn.functional.normalize(x.mean(0), dim=0))


def _average_weight(p: Tensor) -> float:
    """Of a class, in class weights p (P+1, C+1)."""
    return float(p[1:, :-1].sum()) / (p.shape[1] - 1)


def _likeliest_weight(model: FittedModel, x: Tensor) -> float:
    """The weight of a new class with rows x (n, N), at most that of an average class.

    At the likeliest one, as many rows of known classes are expected to be lost as rows of the new
    class to be missed, if that is as frequent as the others. The rows of the new class are
    cross-validated: each counts by the memories of those that are not in its fold.
    """
    votes, generator = model.precise_votes, torch.Generator().manual_seed(0)
    drawn, _ = retrieval.sample(model.density.to(device="cpu"), _DRAWN, generator=generator)

    def log_odds(rows: Tensor, known: Tensor) -> Floats:
        """Of the class of the rows `known`, at weight 1, (n,)."""
        w = _imprinted(_centers(known), known)
        h = exponents(votes, rows @ w.T)[:, 1:]
        others = log_joint(votes, rows).logsumexp(1)
        return as_numpy(h.logsumexp(1) - math.log(len(w)) - others)

    x = x.to(votes.w)
    fold = torch.arange(len(x), device=x.device) % _FOLDS
    lost, won = log_odds(drawn.to(x), x), log_odds(x, x)
    if len(x) > 1:
        folds = range(min(_FOLDS, len(x)))
        apart = np.concatenate([log_odds(x[fold == k], x[fold != k]) for k in folds])
        # Few rows are hard to predict from fewer, which is no reason to lose rows of other classes.
        own = won[np.concatenate([np.flatnonzero(as_numpy(fold == k)) for k in folds])]
        won = apart + (own - apart) / len(x)

    def slope(log_weight: float) -> float:
        missed = expit(-won - log_weight).mean() / len(model.classes)
        return float(expit(lost + log_weight).mean() - missed)

    reach = 50 + float(np.abs(np.r_[lost, won]).max())
    found = brentq(slope, -reach, reach)
    return math.exp(np.clip(found, math.log(_LEAST), math.log(_average_weight(votes.p))))


def remove_class(model: FittedModel, label: object) -> FittedModel:
    """Remove a class and the memories of its own.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    label : object
        The class.

    Returns
    -------
    FittedModel
        The model with one class less.

    Examples
    --------
    >>> mn.interpret.remove_class(model, 1).classes
    array([0, 2])
    """
    column, n_classes = int(model.columns_of([label])[0]), len(model.classes)
    kept = _of_others(model.votes.p, column)
    if n_classes == 1 or not len(kept):
        raise ValueError(f"every memory is of class {label!r}: none would be left")
    left = [k for k in range(n_classes + 1) if k != column]
    table = torch.eye(n_classes + 1, dtype=torch.float64)[:, left]
    thin = _map_classes(model, np.delete(model.classes, column), table)
    votes, density = thin.votes, thin.density
    rows = kept if model.is_joint else _of_others(model.density.p, column)
    rows = rows if len(rows) else torch.arange(density.n_memories, device=rows.device)
    behind = None if model.exemplars is None else model.exemplars.take(as_numpy(kept))
    return _with_weights(
        thin, votes.w[kept], _rows_of(votes.p, kept), density.w[rows], _rows_of(density.p, rows)
    ).replace(exemplars=behind)


def _of_others(p: Tensor, column: int) -> Tensor:
    """Numbers of the memories whose commonest class is another one."""
    return (p[1:, :-1].argmax(1) != column).nonzero()[:, 0]


def _rows_of(p: Tensor, memories: Tensor) -> Tensor:
    """Class weights of the uniform component and of these memories."""
    return torch.cat([p[:1], p[1:][memories]])


def merge_classes(model: FittedModel, labels: Sequence[Any], into: object) -> FittedModel:
    """Merge several classes into one; its probability is their sum.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    labels : sequence
        The classes.
    into : object
        The name of the class that replaces them.

    Returns
    -------
    FittedModel
        The model with fewer classes.

    Examples
    --------
    >>> mn.interpret.merge_classes(model, [1, 2], 1).classes
    array([0, 1])
    """
    columns = np.unique(as_numpy(model.columns_of(labels)))
    others = np.setdiff1d(np.arange(len(model.classes)), columns)
    names = model.classes[others].tolist()
    if into in names:
        raise ValueError(f"there is a class {into!r} already: merge it too, or take another name")
    table = torch.zeros(len(model.classes) + 1, len(others) + 2, dtype=torch.float64)
    table[others, np.arange(len(others))] = 1.0
    table[columns, len(others)] = 1.0
    table[-1, -1] = 1.0
    return _map_classes(model, _with_label(names, into, model.classes), table)


def rename_class(model: FittedModel, label: object, into: object) -> FittedModel:
    """Rename a class.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    label : object
        Its present name.
    into : object
        Its new name.

    Returns
    -------
    FittedModel
        The model with the new name.

    Examples
    --------
    >>> mn.interpret.rename_class(model, 2, 7).classes
    array([0, 1, 7])
    """
    return merge_classes(model, [label], into)


def hide_class(model: FittedModel, label: object) -> FittedModel:
    """The model with a class as part of "none of them": `predict` never names it."""
    column = model.classes.tolist().index(label)
    others = [k for k in range(len(model.classes) + 1) if k != column]
    table = torch.eye(len(model.classes) + 1, dtype=torch.float64)[:, others]
    table[column, -1] = 1.0
    names = np.array(np.delete(model.classes, column).tolist())  # of numbers, if they are
    return _map_classes(model, names, table)


def _with_label(names: list[Any], label: object, like: NDArray[Any]) -> NDArray[Any]:
    """Names and one more of the same kind."""
    found = Labels.of([label]).found
    if label == OUT_OF_SCOPE or not len(found) or found.dtype.kind != like.dtype.kind:
        raise ValueError(f"a label must be like {like[0].item()!r}, got {label!r:.60}")
    return np.array([*names, label])


def _map_classes(model: FittedModel, classes: NDArray[Any], table: Tensor) -> FittedModel:
    """Columns of p, by a table (C+1, C'+1) of what goes where; classes (C',) are put in order."""
    order = np.argsort(classes, kind="stable")
    table = torch.cat([table[:, :-1][:, order], table[:, -1:]], 1).to(model.device)
    mass = None if model.label_mass is None else model.label_mass.double() @ table.cpu()
    votes, density = model.votes, model.density
    return _with_weights(
        model,
        votes.w,
        votes.p.double() @ table,
        density.w,
        density.p.double() @ table,
        votes.prior.double() @ table,
    ).replace(classes=classes[order], label_mass=mass)


def _with_weights(
    model: FittedModel, w: Tensor, p: Tensor, density_w: Tensor, density_p: Tensor,
    prior: Tensor | None = None,
) -> FittedModel:  # fmt: skip
    """The model with other memories, class weights and frequencies, scaled to sum to 1."""
    prior = model.votes.prior if prior is None else prior
    p, own, prior = (part.double() / part.double().sum() for part in (p, density_p, prior))
    votes = model.votes.replace(w=w, p=p.to(w), prior=prior.to(w))
    own = own.to(density_w)
    density = model.density.replace(w=density_w, p=own, p_h=own.sum(1), p_q=own.sum(0))
    return model.replace(votes=votes, density=density, lineage=None, stream=None)
