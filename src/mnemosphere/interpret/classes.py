"""Classes added, removed, merged and renamed: new models, no training.

Held-out scores stay as they are, so rates and coverages are about the rows and classes of before:
`calibrate` again to include the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.fitted import FittedModel, as_numpy
from mnemosphere.interpret.editing import directed
from mnemosphere.interpret.exemplars import row_texts
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import mean_resultant

_NEW_MEMORIES = 5
_WEIGHT = {"joint": 1.0, "conditional": 0.4}  # of a new class, relative to an average one
_RIDGE = 1e-3  # of the mean squared length, where no direction is free


def add_class(model: FittedModel, X: Any, label: object) -> FittedModel:
    """Add a class from a few rows of it, without training; the other memories stay.

    The new memories are the rows, or the centers of five groups of them, halfway to their mean, in the
    directions that memories do not share. Memories of a conditional objective lie far from rows, so
    the new ones are placed such that fresh rows overlap with them as rows do with the others.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    X : array-like of shape (n, N)
        Rows of the new class.
    label : object
        Its name.

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
    names = model.classes.tolist()
    if label in names:
        raise ValueError(f"there is a class {label!r} already: partial_fit learns more rows of it")
    x, w = directed(model, X).double(), model.params.w
    near = x
    if len(x) > _NEW_MEMORIES:
        generator = torch.Generator(x.device).manual_seed(0)
        near = spherical_kmeans(x, _NEW_MEMORIES, generator=generator).centers
    new = _memories_like(model.params, x, near)
    table = torch.eye(len(names) + 1, dtype=torch.float64)
    table = torch.cat([table[:, :-1], torch.zeros_like(table[:, :1]), table[:, -1:]], 1)
    wide = _map_classes(model, _with_label(names, label, model.classes), table)
    column = wide.classes.tolist().index(label)

    def extended(p: Tensor, smoothing: float, factor: float) -> Tensor:
        soft = torch.full_like(p[0], smoothing / p.shape[1])
        soft[column] += 1 - smoothing
        weight = factor * p[1:, :-1].sum() / len(names) / len(new)
        return torch.cat([p, (weight * soft).expand(len(new), -1)])

    behind, mass = model.exemplars, wide.label_mass
    if behind is not None:
        behind = behind.take(np.append(np.arange(model.n_memories), np.full(len(new), -1)))
        behind.support[model.n_memories :] = len(x) / len(new)
        texts = model.features.texts(X)
        if texts is not None and behind.names is not None:
            order = as_numpy((near @ x.T).topk(min(behind.names.shape[1], len(x)), dim=1).indices)
            behind.names[model.n_memories :, : order.shape[1]] = row_texts(texts, order)
    if mass is not None:
        mass[column] += len(x)
    density = wide.density
    if density is not None:  # there the rows themselves are memories
        p = extended(density.p, model.smoothing, 1.0)
        density = _weighted(density, torch.cat([density.w, near.to(w)]), p)
    return _reweighted(
        wide, torch.cat([w, new.to(w)]), extended(wide.params.p, model.smoothing, 1.0),
        extended(wide.net.p, 0.0, _WEIGHT[model.objective]),
    ).replace(exemplars=behind, label_mass=mass, density=density)  # fmt: skip


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
    column, n_classes = int(model.columns_of(np.asarray([label]))[0]), len(model.classes)
    kept = as_numpy((model.net.p[1:, :-1].argmax(1) != column).nonzero()[:, 0])
    if n_classes == 1 or not kept.size:
        raise ValueError(f"every memory is of class {label!r}: none would be left")
    left = [k for k in range(n_classes + 1) if k != column]
    table = torch.eye(n_classes + 1, dtype=torch.float64)[:, left]
    thin = _map_classes(model, np.delete(model.classes, column), table)
    memories = torch.from_numpy(kept).to(model.device)
    rows = torch.cat([torch.zeros_like(memories[:1]), 1 + memories])
    density = thin.density
    if density is not None and model.density is not None:
        others = (model.density.p[1:, :-1].argmax(1) != column).nonzero()[:, 0]
        p = density.p[torch.cat([torch.zeros_like(others[:1]), 1 + others])]
        density = _weighted(density, density.w[others], p) if len(others) else None
    behind = None if model.exemplars is None else model.exemplars.take(kept)
    return _reweighted(
        thin, model.params.w[memories], thin.params.p[rows], thin.net.p[rows]
    ).replace(exemplars=behind, density=density)


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
    columns = np.unique(as_numpy(model.columns_of(np.asarray(labels))))
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
    found = np.array([*names, label])
    if found.dtype.kind != like.dtype.kind:
        raise ValueError(f"a label must be like {like[0].item()!r}, got {label!r}")
    return found


def _map_classes(model: FittedModel, classes: NDArray[Any], table: Tensor) -> FittedModel:
    """Columns of p, by a table (C+1, C'+1) of what goes where; classes (C',) are put in order."""
    order = np.argsort(classes, kind="stable")
    table = torch.cat([table[:, :-1][:, order], table[:, -1:]], 1).to(model.device)
    p, net = (part.double() @ table for part in (model.params.p, model.net.p))
    mass = None if model.label_mass is None else model.label_mass.double() @ table.cpu()
    density = model.density
    if density is not None:
        density = _weighted(density, density.w, density.p.double() @ table)
    found = _reweighted(model, model.params.w, p, net)
    return found.replace(classes=classes[order], label_mass=mass, density=density)


def _reweighted(model: FittedModel, w: Tensor, p: Tensor, net: Tensor) -> FittedModel:
    """The model with other memories and class weights, each scaled to sum to 1."""
    params = _weighted(model.params, w, p)
    net = (net.double() / net.double().sum()).to(params.p)
    return model.replace(params=params, lineage=None, stream=None).recalibrate(class_weights=net)


def _memories_like(params: Parameters, x: Tensor, near: Tensor) -> Tensor:
    """New memories (k, N) for rows x (n, N) with centers (k, N), as `add_class` says."""
    w, n = params.w.double(), len(x)
    mean = w.mean(0, keepdim=True)
    shared = mean / mean.norm().clamp_min(1e-12)
    common = (w @ shared.T).mean()

    near = sphere.project(near + sphere.project(x.mean(0, keepdim=True)))
    near = sphere.project(near - (near @ shared.T) * shared)
    own = x - (x @ shared.T) * shared
    squared, of_mean = own.square().sum(1).mean(), own.mean(0).square().sum()
    # Mean overlap of two rows over the length of the mean: that of a fresh row with its direction.
    pairs = (n * of_mean - squared) / (n - 1) if n > 1 else squared
    fresh = pairs.clamp_min(1e-9) / of_mean.sqrt().clamp_min(1e-9)
    usual = mean_resultant(params.beta.double(), params.n_features) / params.varsigma
    most = (1 - common**2).sqrt()
    length = ((usual - common * (x @ shared.T).mean()) / fresh).clamp(torch.zeros_like(most), most)
    free = (1 - common**2 - length**2).clamp_min(0.0).sqrt() * _free_direction(torch.cat([w, x]))
    return sphere.project(common * shared + length * near + free)


def _weighted(params: Parameters, w: Tensor, p: Tensor) -> Parameters:
    """Other memories with these class weights, scaled to sum to 1."""
    p = (p.double() / p.double().sum()).to(params.p)
    return params.replace(w=w, p=p, p_h=p.sum(1), p_q=p.sum(0))


def _free_direction(rows: Tensor) -> Tensor:
    """A unit vector (1, N) that is orthogonal to all rows (M, N), or nearly if they span it all."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(rows.shape[1], generator=generator, dtype=rows.dtype).to(rows)
    gram = rows @ rows.T
    gram.diagonal().add_(_RIDGE * gram.diagonal().mean())
    free = start - torch.linalg.solve(gram, rows @ start) @ rows
    return sphere.project(free[None])
