"""Classes and examples added, classes renamed, merged and removed: no training.

All but a new name changes the votes, so held-out scores are made anew, from the training rows that the model
holds; if it holds none, they are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from torch import Tensor

from mnemosphere.fitted.exemplars import called_rows, row_texts
from mnemosphere.fitted.model import FittedModel, Floats, HeldOut, as_numpy
from mnemosphere.interpret.editing import directed, remade, rows_of, with_mixtures
from mnemosphere.interpret.rejection import renewed
from mnemosphere.model import retrieval
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.one_pass import log_joint
from mnemosphere.model.soft_labels import label_frequencies
from mnemosphere.numerics import sphere
from mnemosphere.rows.labels import OUT_OF_SCOPE, Labels
from mnemosphere.rows.rows import Rows

_NEW_MEMORIES = 5  # of a class that is added
_FOLDS = 5  # of its rows, to score them
_DRAWN = 1000  # rows of the known classes
_LEAST = 1e-30  # weight: float32 has it


def add_class(model: FittedModel, X: Any, label: object) -> FittedModel:
    """Add a class from a few rows of it, without training; the other memories stay.

    Few rows promise little of their class: rates and sets then hold for all classes together, and
    printing the model says so. Its memories are the rows (centers of five groups if there are more), halfway to their mean:
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
    if label in model.classes.tolist():
        raise ValueError(f"there is a class {label!r} already: add_examples takes more rows of it")
    return extend(model, X, label, model.columns.texts(X))


def extend(
    model: FittedModel, X: Any, label: object, texts: list[str | None] | None
) -> FittedModel:
    """`add_class` of rows with these texts; of a class that is known already, more memories."""
    names = model.classes.tolist()
    x = directed(model, X).double()
    wide, column = model, len(names)  # "none of them"
    if label in names:
        column = names.index(label)
    elif label != OUT_OF_SCOPE:
        wide = mapped_columns(model, {}, (_checked_label(model, label),))
        column = wide.classes.tolist().index(label)
    mass, new = wide.label_mass, wide is not model
    if mass is not None and new:  # smoothing is spread over one more column
        total = model.smoothing * mass.sum()
        mass = mass + total / len(mass) - total / (len(mass) - 1)
        mass[column] += total / (len(mass) - 1)
    weight, part = _likeliest_weight(model, x), _average_weight(model.density.p)
    wide = wide.replace(label_mass=mass)
    found = _imprint(wide, column, x, texts, weight, part)

    def without(fold: Tensor) -> FittedModel:
        return _imprint(wide, column, x[~fold], None, weight, part)

    names = called_rows(np.arange(len(x)), texts, X)
    return renewed(_holding(found, x, column, names, without if len(x) > 1 else None))


def _holding(
    model: FittedModel, x: Tensor, column: int, names: NDArray[Any],
    without: Callable[[Tensor], FittedModel] | None = None,
) -> FittedModel:  # fmt: skip
    """The model that also holds unit rows x (n, N) of a class; rates hold by them as each looks without its fold.

    Without folds they are shown alone.
    """
    names = names if names.dtype == object else np.array([f"added {own}" for own in names], object)
    zeros, held = torch.zeros(len(x), len(model.classes) + 2), model.held
    own = HeldOut(
        x.float().cpu(), torch.full((len(x),), column), zeros[:, 1:], zeros[:, 0],
        model.votes.temperature if held is None else held.temperature,
        torch.full((len(x),), -1), names, zeros[:, 0] > 0,
    )  # fmt: skip
    if held is None:
        return model.replace(held=own)
    if without is None:
        return model.replace(held=held.joined(own))
    own = replace(own, scored=~own.scored)
    fold = torch.arange(len(x)) % _FOLDS
    for k in range(min(_FOLDS, len(x))):
        apart, part = without((fold == k).to(x.device)), own.take(fold == k)
        said, joint = (one.at(held.temperature).class_log_joint(part) for one in (apart, model))
        own.votes[fold == k] = HeldOut.difference(said, joint).float().cpu()
        less = model.novelty_score(part)
        own.novelty[fold == k] = (apart.novelty_score(part) - less).float().cpu()
    return model.replace(held=held.joined(own))


def add_examples(model: FittedModel, X: Any, y: Any) -> FittedModel:
    """Add rows of known classes as memories, without training; the other memories stay.

    Memories and weights are found as by `add_class`: the weight of those of a class is the likeliest
    one, for its rows and for rows that the model draws. The model before them stays as it is, so keep
    it to go back.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    X : array-like of shape (n, N)
        Rows.
    y : array-like of shape (n,)
        Their classes; `mnemosphere.OUT_OF_SCOPE` for rows of none of them.

    Returns
    -------
    FittedModel
        The model with more memories.

    Raises
    ------
    ValueError
        If a label is none of the classes: `add_class` adds one.

    Examples
    --------
    >>> wider = mn.interpret.add_examples(model, X_test[:3], y_test[:3])
    >>> model.n_memories, wider.n_memories
    (6, 9)
    """
    x = directed(model, X).double()
    labels = Labels.of(y, len(x), unlabeled=None)
    columns = np.where(labels.outside, len(model.classes), labels.among(model.classes))
    texts, found = model.columns.texts(X), model
    for column in np.unique(columns).tolist():
        own = np.flatnonzero(columns == column)
        some, mass = x[torch.from_numpy(own).to(x.device)], found.label_mass
        named = None if texts is None else [texts[k] for k in own]
        weight = _likeliest_weight(found, some, column)
        part = 0.0 if mass is None else len(own) / float(mass.sum())  # as many rows of training
        found = _imprint(found, column, some, named, weight, part)
        found = _holding(found, some, column, called_rows(own, texts, X))
    return renewed(found)


def _imprint(
    model: FittedModel, column: int, x: Tensor, texts: list[str | None] | None, weight: float,
    density_weight: float,
) -> FittedModel:  # fmt: skip
    """The model with memories of unit rows x (n, N) of one class, with these weights in all."""
    near = _centers(x)
    new = _imprinted(near, x)

    def extended(p: Tensor, smoothing: float, weight: float) -> Tensor:
        soft = torch.full_like(p[0], smoothing / p.shape[1])
        soft[column] += 1 - smoothing
        return torch.cat([p, (weight / len(new) * soft).expand(len(new), -1)])

    behind, mass = model.exemplars, model.label_mass
    if behind is not None:
        behind = behind.take(np.append(np.arange(model.n_memories), np.full(len(new), -1)))
        behind.support[model.n_memories :] = len(x) / len(new)
        if texts is not None and behind.names is not None:
            order = as_numpy((near @ x.T).topk(min(behind.names.shape[1], len(x)), dim=1).indices)
            behind.names[model.n_memories :, : order.shape[1]] = row_texts(texts, order)
    if mass is not None:
        mass = mass + model.smoothing * len(x) / len(mass)
        mass[column] += (1 - model.smoothing) * len(x)
    votes, density = model.votes, model.density
    rows = new if model.is_joint else near  # a density of its own holds rows as they are
    w, own = (torch.cat([part.w, to.to(part.w)]) for part, to in ((votes, new), (density, rows)))
    prior = None if mass is None else label_frequencies(mass, model.smoothing)
    votes = remade(votes, w, extended(votes.p, 0.0, weight), prior)
    p = extended(density.p, model.smoothing, density_weight)
    found = with_mixtures(model, votes, remade(density, own, p, p.sum(0)))
    return found.replace(exemplars=behind, label_mass=mass)


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


def _likeliest_weight(model: FittedModel, x: Tensor, column: int | None = None) -> float:
    """The weight of memories of rows x (n, N) of a class, at most that of an average class.

    column: that of the class; None: it is new. At the likeliest weight, as many rows of other classes
    are expected to be lost as rows like x to be gained, if they are as frequent as a class. Rows x are
    cross-validated: each counts by the memories of those that are not in its fold. Rows of the
    model are drawn, and have the classes that the model gives them.
    """
    votes, generator = model.precise_votes, torch.Generator().manual_seed(0)
    drawn, _ = retrieval.sample(model.density.to(device="cpu"), _DRAWN, generator=generator)

    def said(rows: Tensor) -> tuple[Floats, Floats]:
        """(log of all votes, of those for the class), (n,) each."""
        joint = log_joint(votes, rows)
        own = joint.new_full((len(rows),), -torch.inf) if column is None else joint[:, column]
        return as_numpy(joint.logsumexp(1)), as_numpy(own)

    def added(rows: Tensor, known: Tensor) -> Floats:
        """Log of the votes of memories of the rows `known`, of weight 1, (n,)."""
        w = _imprinted(_centers(known), known)
        return as_numpy((votes.slope * rows @ w.T - votes.offset).logsumexp(1)) - math.log(len(w))

    x, drawn = x.to(votes.w), drawn.to(votes.w)
    fold = torch.arange(len(x), device=x.device) % _FOLDS
    new = added(x, x)
    if len(x) > 1:
        apart = new.copy()
        for k in range(min(_FOLDS, len(x))):
            apart[as_numpy(fold == k)] = added(x[fold == k], x[fold != k])
        # Few rows are hard to predict from fewer, which is no reason to lose rows of other classes.
        new = apart + (new - apart) / len(x)
    lost, (every, own) = added(drawn, x), said(drawn)
    new_every, new_own = said(x)
    is_own = np.exp(own - every)

    def slope(log_weight: float) -> float:
        """Of the negative log-likelihood."""
        gain = expit(new + log_weight - new_own) - expit(new + log_weight - new_every)
        cost = expit(lost + log_weight - every) - is_own * expit(lost + log_weight - own)
        return float(cost.mean() - gain.mean() / len(model.classes))

    reach = 50 + float(np.abs(np.r_[lost - every, new - new_every]).max())
    found = brentq(slope, -reach, reach)
    return math.exp(np.clip(found, math.log(_LEAST), math.log(_average_weight(votes.p))))


def map_classes(model: FittedModel, names: Mapping[Any, Any]) -> FittedModel:
    """Rename, merge and remove classes, without training.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    names : mapping of labels to labels or None
        New names of some classes. Classes with the same new name become one, and their probabilities add up.
        None: the class is removed, with the memories that are mostly of it. `mnemosphere.OUT_OF_SCOPE`: it
        becomes part of "none of them".

    Returns
    -------
    FittedModel
        The model with other classes.

    Raises
    ------
    ValueError
        If one of the labels is not a class of the model.

    Examples
    --------
    >>> mn.interpret.map_classes(model, {0: 7, 1: 2}).classes  # 0 is renamed, 1 merged into 2
    array([2, 7])
    >>> mn.interpret.map_classes(model, {1: None}).classes
    array([0, 2])
    """
    columns = as_numpy(model.columns_of(list(names))).tolist() if names else []
    place = dict(zip(columns, names.values(), strict=True))
    gone = [column for column, name in place.items() if name is None]
    named = [name for name in place.values() if name is not None and name != OUT_OF_SCOPE]
    if not named and len(place) == len(model.classes):
        raise ValueError("no class would be left: keep one")
    for name in named:
        _checked_label(model, name)
    found = mapped_columns(_without(model, gone) if gone else model, place)
    return found if found.calibration is not None else renewed(found)


def _without(model: FittedModel, columns: list[int]) -> FittedModel:
    """The model without the memories whose commonest class is one of these."""

    def of_others(p: Tensor) -> Tensor:
        most = p[1:, :-1].argmax(1)
        return (~torch.isin(most, torch.tensor(columns, device=p.device))).nonzero()[:, 0]

    votes, density = model.votes, model.density
    kept = of_others(votes.p)
    if not len(kept):
        raise ValueError(f"all {model.n_memories} memories would go: keep a class that has some")
    rows = kept if model.is_joint else of_others(density.p)
    rows = rows if len(rows) else torch.arange(density.n_memories, device=rows.device)
    behind = None if model.exemplars is None else model.exemplars.take(as_numpy(kept))
    if behind is not None and behind.sample is not None:
        owner = model.shares(Rows.of(behind.sample, model.device)).argmax(1)
        behind = replace(behind, sample=behind.sample[as_numpy(torch.isin(owner, kept))])
    p = rows_of(density.p, rows)
    density = remade(density, density.w[rows], p, p.sum(0), rows)
    votes = remade(votes, votes.w[kept], rows_of(votes.p, kept), kept=kept)
    return with_mixtures(model, votes, density).replace(exemplars=behind)


def _checked_label(model: FittedModel, label: object) -> object:
    """The label; ValueError unless it is of the same kind as the classes."""
    found = Labels.of([label]).found
    if label == OUT_OF_SCOPE or not len(found) or found.dtype.kind != model.classes.dtype.kind:
        raise ValueError(f"a label must be like {model.classes[0].item()!r}, got {label!r:.60}")
    return label


def mapped_columns(
    model: FittedModel, names: Mapping[int, Any], new: tuple[Any, ...] = ()
) -> FittedModel:
    """The model with other names for some columns, and new classes; classes of one name are merged.

    `OUT_OF_SCOPE`: a class becomes part of "none of them"; None: it goes. New names alone keep the calibration.
    """
    named: list[Any] = [names.get(k, own) for k, own in enumerate(model.classes.tolist())]
    classes = np.unique(np.array([
        own for own in [*named, *new] if own is not None and own != OUT_OF_SCOPE
    ]))  # fmt: skip
    column = {own: k for k, own in enumerate(classes.tolist())} | {OUT_OF_SCOPE: len(classes)}
    place = np.array([column.get(own, -1) for own in [*named, OUT_OF_SCOPE]])  # −1: it goes
    table = torch.zeros(len(place), len(classes) + 1, dtype=torch.float64)
    table[place >= 0, place[place >= 0]] = 1.0
    mass = None if model.label_mass is None else model.label_mass.double() @ table
    table, held = table.to(model.device), model.calibration
    votes, density = (
        remade(own, own.w, own.p.double() @ table, own.p_q.double() @ table)
        for own in (model.votes, model.density)
    )
    found = with_mixtures(model, votes, density)
    found = found.replace(classes=classes, label_mass=mass, held=_held_of_classes(model, table))
    if held is None or not np.array_equal(np.sort(place), np.arange(len(classes) + 1)):
        return found
    record, place = held.record.copy(), np.append(place[:-1], -1)
    record[:, 2] = place[record[:, 2]]
    return found.replace(calibration=replace(held, record=record))


def _held_of_classes(model: FittedModel, table: Tensor) -> HeldOut | None:
    """The rows that a model holds, with their classes mapped; those of a class that goes are left out."""
    held = model.held
    if held is None:
        return None
    joint = model.at(held.temperature).class_log_joint(held).double()
    least, one = torch.finfo(joint.dtype).tiny, joint.log_softmax(1)
    own, said = (
        (part.softmax(1) @ table.to(joint)).clamp_min(least).log()
        for part in (one, one + held.votes.to(joint))
    )
    to = table.cpu()[held.column]
    found = replace(held, column=to.argmax(1), votes=(said - own).float().cpu())
    return found.take(to.any(1))
