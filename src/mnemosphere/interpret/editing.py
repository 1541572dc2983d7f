"""Memories taken out or relabeled by hand: new models, no training.

An edit touches what it names: all other memories keep their soft labels, and their weights but for one
factor that keeps the sum at 1. The frequencies of the classes follow. A joint model has the same memories in
its density, which is edited alike; that of a conditional model stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def without_memories(model: FittedModel, memories: Iterable[int | str]) -> FittedModel:
    """Remove memories, without training.

    The other memories keep their soft labels, and the class frequencies follow.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    memories : iterable of int or str
        Their numbers, or names such as "#3".

    Returns
    -------
    FittedModel
        The smaller model.

    Examples
    --------
    >>> mn.interpret.without_memories(model, ["#0", "#1"]).n_memories
    4
    """
    gone = [_index(model, m) for m in memories]
    kept = np.setdiff1d(np.arange(model.n_memories), gone)
    if kept.size == 0:
        raise ValueError(f"all {model.n_memories} memories would go: keep at least one")
    return _edited(model, torch.from_numpy(kept).to(model.device), {})


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
    every = torch.arange(model.n_memories, device=model.device)
    return _edited(model, every, {1 + _index(model, memory): _soft_label(model, label)})


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
    names = model.classes.tolist()
    if isinstance(prior, Mapping):
        if sorted(map(str, prior)) != sorted(map(str, names)):
            raise ValueError(
                f"prior must name every class once, {names}, got {list(prior)}: "
                "weights are relative, so pass all of them"
            )
        place = as_numpy(model.columns_of(list(prior))).tolist()
        given: Any = [weight for _, weight in sorted(zip(place, prior.values(), strict=True))]
    else:
        given = prior
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


def _edited(model: FittedModel, kept: Tensor, soft: Mapping[int, Tensor]) -> FittedModel:
    """The model with these memories, and these soft labels (C+1,) in rows of p."""

    def change(mixture: Mixture, labels: Mapping[int, Tensor]) -> Mixture:
        before = mixture.p.double()
        p, before = rows_of(before, kept), before.sum(0)
        for row, label in labels.items():
            p[row] = p[row].sum() * label.to(p)
        after = p.sum(0)
        prior = torch.where(before > 0, mixture.p_q * after / before.clamp_min(1e-30), after)
        return remade(mixture, mixture.w[kept], p, prior, kept)

    votes, density, part = model.votes, model.density, model.smoothing
    floored = {row: with_floor(label.to(model.device), votes.p_q) for row, label in soft.items()}
    if model.is_joint:
        smoothed = {row: (1 - part) * label + part / len(label) for row, label in soft.items()}
        density = change(density, smoothed)
    behind = None if model.exemplars is None else model.exemplars.take(as_numpy(kept))
    return renewed(with_mixtures(model, change(votes, floored), density).replace(exemplars=behind))


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
