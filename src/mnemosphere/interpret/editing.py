"""Memories relabeled and class frequencies changed by hand: new models, no training.

An edit touches what it names: all other memories keep their soft labels, and their weights but for one
factor that keeps the sum at 1. The frequencies of the classes follow. A joint model has the same memories in
its density, which is edited alike; that of a conditional model stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.geometry.base import on_sphere
from mnemosphere.interpret.rejection import renewed
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.soft_labels import reweighted, with_floor


def relabel_memory(
    model: FittedModel, memory: int | str, label: object | Mapping[Any, float]
) -> FittedModel:
    """Give one memory another label, without training.

    The other memories keep their soft labels, and the class frequencies follow.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    memory : int or str
        Its number, or its name such as "#3".
    label : object, or mapping of labels to weights
        Its class or soft label; None: "none of them".

    Returns
    -------
    FittedModel
        The edited model.

    Examples
    --------
    >>> edited = mn.interpret.relabel_memory(model, 0, 2)
    >>> mn.interpret.memory_table(edited)["label"].tolist()[0]
    2
    """
    row, soft, part = 1 + _index(model, memory), _soft_label(model, label), model.smoothing

    def change(mixture: Mixture, own: Tensor) -> Mixture:
        p = mixture.p.double()
        before, p = p.sum(0), p.clone()
        p[row] = p[row].sum() * own.to(p)
        after = p.sum(0)
        prior = torch.where(before > 0, mixture.p_q * after / before.clamp_min(1e-30), after)
        return remade(mixture, mixture.w, p, prior)

    votes = change(model.votes, with_floor(soft.to(model.device), model.votes.p_q))
    smoothed = (1 - part) * soft + part / len(soft)
    density = change(model.density, smoothed) if model.is_joint else model.density
    return renewed(with_mixtures(model, votes, density))


def with_class_prior(model: FittedModel, prior: Mapping[Any, float] | ArrayLike) -> FittedModel:
    """Change the class frequencies of a classifier, without training.

    By Bayes' rule: probabilities are multiplied by new over old prior, and the weights of memories follow.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    prior : mapping of labels to weights, or array-like of shape (C,)
        Weight of every class; scaled to sum to 1. The class "none of them" keeps its share.

    Returns
    -------
    FittedModel
        The model with another prior.

    Examples
    --------
    >>> rare = mn.interpret.with_class_prior(model, {0: 0.01, 1: 0.5, 2: 0.49})
    >>> before, after = clf.predict(X_test), mn.as_estimator(rare).predict(X_test)
    >>> bool(sum(after == 0) <= sum(before == 0))
    True
    """
    weights = _prior_weights(model, prior)
    votes, density = model.votes, model.density
    old = votes.p_q.double()
    new = torch.from_numpy(weights / weights.sum()).to(old) * old[:-1].sum()
    new = torch.cat([new, old[-1:]])
    ratio = torch.where(old > 0, new / old.clamp_min(1e-300), 1.0)
    own = torch.where((old > 0) | (new == 0), votes.p.double().sum(0) * ratio, new)
    p = reweighted(votes.p, own)
    density = density.with_classes(reweighted(density.p, density.p.double().sum(0) * ratio))
    share = votes.p_h * (p.sum(1).to(votes.p) / votes.weights).nan_to_num(0.0)
    votes = votes.with_classes(p, new, share)
    return model.changed(votes, density)


def _prior_weights(
    model: FittedModel, prior: Mapping[Any, float] | ArrayLike
) -> NDArray[np.float64]:
    names, given = model.classes.tolist(), prior
    if isinstance(prior, Mapping):
        if set(prior) != set(names):
            raise ValueError(
                f"prior must name every class once, {names}, got {list(prior)}: "
                "weights are relative, so pass all of them"
            )
        given = [prior[name] for name in names]
    try:
        weights = as_numpy(given).astype(np.float64)
    except (TypeError, ValueError):
        weights = np.zeros(0)  # not numbers
    if weights.shape != (len(names),) or not (
        np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0
    ):
        raise ValueError(
            f"prior must be {len(names)} finite weights >= 0, not all 0, got {given!r:.80}"
        )
    return weights


def directed(model: FittedModel, X: Any) -> Tensor:
    """Unit rows; ValueError if one has no direction."""
    x, lost = on_sphere(model.completed(X), model.geometry, model.votes.w.dtype)
    if bool(lost.any()):
        raise ValueError(
            f"row {int(lost.nonzero()[0])} of X is {model.geometry.no_direction}, so it has no "
            "direction: drop it"
        )
    return x


def rows_of(p: Tensor, memories: Tensor) -> Tensor:
    """Class weights of the uniform component and of these memories."""
    return torch.cat([p[:1], p[1:][memories]])


def remade(
    mixture: Mixture, w: Tensor, p: Tensor, prior: Tensor | None = None, kept: Tensor | None = None
) -> Mixture:
    """A mixture with other memories, class weights and frequencies, scaled to sum to 1.

    kept: the memories that come first, in order; None: all of them. Mean shares follow the weights.
    """
    prior = mixture.p_q if prior is None else prior
    p, prior = (part.double() / part.double().sum() for part in (p, prior))
    ratio = torch.where(mixture.weights > 0, mixture.p_h / mixture.weights, 1.0).double()
    share, ratio = p.sum(1), ratio if kept is None else rows_of(ratio, kept)
    share[: len(ratio)] *= ratio
    return mixture.replace(w=w).with_classes(p, prior, share)


def with_mixtures(model: FittedModel, votes: Mixture, density: Mixture) -> FittedModel:
    """The model with other mixtures; the rows that it knows stay."""
    return model.changed(votes, density, exemplars=model.exemplars, held=model.held)


def _soft_label(model: FittedModel, label: object | Mapping[Any, float]) -> Tensor:
    """A label, {label: weight} or None ("none of them") as a soft label (C+1,)."""
    n_classes = len(model.classes)
    soft = torch.zeros(n_classes + 1, dtype=torch.float64)
    weights = label if isinstance(label, Mapping) else {label: 1.0}
    for name, weight in weights.items():
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(f"weights of a soft label must be finite and >= 0, got {weight}")
        column = n_classes if name is None else int(model.columns_of([name])[0])
        soft[column] += weight
    if not float(soft.sum()) > 0:
        raise ValueError(f"a soft label needs a positive weight, got {dict(weights)}")
    return soft / soft.sum()


def _index(model: FittedModel, memory: int | str) -> int:
    """The place of a memory, by its number or its name."""
    text = str(memory).removeprefix("#")
    if not text.isdecimal() or int(text) >= model.n_memories:
        raise ValueError(f"there is no memory {memory!r}: they are #0 to #{model.n_memories - 1}")
    return int(text)
