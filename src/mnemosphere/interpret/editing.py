"""Memories taken out, relabeled or put in by hand: new models, no training.

The weight p_h of a memory is held but for one factor that keeps the sum at 1. `class_prior`:

    hold     the classes keep their frequencies p_q exactly. Rows of p that were not edited are
             scaled into the polytope of what is left for them, their nearest point in relative
             entropy: memories near the edit in label, not in space, take up the difference.
    follow   rows that were not edited stay; the frequencies of the classes follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mnemosphere.data.normalize import NORMALIZATIONS, Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.features import Features
from mnemosphere.fitted import (
    Calibration,
    Exemplars,
    FittedModel,
    Record,
    as_numpy,
    check_whole,
)
from mnemosphere.interpret.certify import labeled_rows
from mnemosphere.labels import Labels
from mnemosphere.model.class_reading import net_class_weights
from mnemosphere.model.merge import merge
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior as change_prior
from mnemosphere.numerics import polytope

KINDS = ("hold", "follow")


def without_memories(
    model: FittedModel, memories: Iterable[int | str], *, class_prior: str = "hold"
) -> FittedModel:
    """Remove memories, without training.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    memories : iterable of int or str
        Their numbers, or names such as "#3".
    class_prior : {"hold", "follow"}, default "hold"
        "hold" keeps the class frequencies: the other memories take other soft labels. "follow" keeps
        the other memories: the class frequencies change.

    Returns
    -------
    FittedModel
        The smaller model.

    Examples
    --------
    >>> mn.interpret.without_memories(model, ["#0", "#1"], class_prior="follow").n_memories
    4
    """
    params = model.params
    gone = [_index(params, m) for m in memories]
    kept = np.setdiff1d(np.arange(params.n_memories), gone)
    if kept.size == 0:
        raise ValueError(f"all {params.n_memories} memories would go: keep at least one")
    p = params.p.double()
    p = torch.cat([p[:1], p[1:][torch.from_numpy(kept).to(p.device)]])
    edited = torch.zeros(len(p), dtype=torch.bool, device=p.device)
    w = params.w[torch.from_numpy(kept).to(params.w.device)]
    new = _settle(params, w, p / p.sum(), edited, class_prior)
    return _edited(model, new, None if model.exemplars is None else model.exemplars.take(kept))


def relabel_memory(
    model: FittedModel,
    memory: int | str,
    label: object | Mapping[Any, float],
    *,
    class_prior: str = "hold",
) -> FittedModel:
    """Give one memory another label, without training.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    memory : int or str
        Its number, or its name such as "#3".
    label : object, or mapping of labels to weights
        Its class or soft label; None: "none of them".
    class_prior : {"hold", "follow"}, default "hold"
        "hold" keeps the class frequencies: the other memories take other soft labels. "follow" keeps
        the other memories: the class frequencies change.

    Returns
    -------
    FittedModel
        The edited model.

    Examples
    --------
    >>> edited = mn.interpret.relabel_memory(model, 0, 2, class_prior="follow")
    >>> mn.interpret.memory_table(edited)["label"].tolist()[0]
    2
    """
    params = model.params
    row = 1 + _index(params, memory)
    p = params.p.double().clone()
    p[row] = p[row].sum() * _soft_row(model, label).to(p)
    edited = torch.zeros(len(p), dtype=torch.bool, device=p.device)
    edited[row] = True
    return _edited(model, _settle(params, params.w, p, edited, class_prior), model.exemplars)


def with_memories(model: FittedModel, X: Any, y: Any, *, class_prior: str = "hold") -> FittedModel:
    """Add rows as memories, each with the mean weight of a memory, without training.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    X : array-like of shape (m, N)
        Rows that become memories.
    y : sequence of m labels
        Their classes or soft labels, as in `relabel_memory`.
    class_prior : {"hold", "follow"}, default "hold"
        "hold" keeps the class frequencies: the other memories take other soft labels. "follow" keeps
        the other memories: the class frequencies change.

    Returns
    -------
    FittedModel
        The larger model.

    Examples
    --------
    >>> mn.interpret.with_memories(model, X_test[:2], [0, 2]).n_memories
    8
    """
    params, w = model.params, directed(model, X)
    labels = list(y) if isinstance(y, list | tuple) else Labels.of(y).tolist()
    if len(labels) != len(w):
        raise ValueError(f"X has {len(w)} rows but y has {len(labels)}: one label per memory")
    p = params.p.double()
    weight = p[1:].sum() / params.n_memories
    added = torch.stack([weight * _soft_row(model, label).to(p) for label in labels])
    edited = torch.cat([torch.zeros(len(p)), torch.ones(len(added))]).bool().to(p.device)
    p = torch.cat([p, added])
    new = _settle(params, torch.cat([params.w, w]), p / p.sum(), edited, class_prior)
    return _edited(model, new, None)


def from_parameters(
    memories: ArrayLike,
    class_weights: ArrayLike,
    *,
    beta: float,
    varsigma: float = 1.0,
    classes: ArrayLike | None = None,
    normalize: str = "unit",
    mean: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    label_smoothing: float = 0.0,
    temperature: float = 1.0,
) -> FittedModel:
    """Make a fitted classifier out of numbers, such as the attributes of another one.

    Parameters
    ----------
    memories : array-like of shape (P, N)
        As in `memories_`.
    class_weights : array-like of shape (P+1, C+1)
        As in `class_weights_`; scaled to sum to 1. Row 0 is the uniform component.
    beta : float
        Inverse temperature.
    varsigma : float in (0, 1], default 1
        The regularizer ς.
    classes : array-like of shape (C,), default None
        Labels; None: 0 to C − 1.
    normalize : str, default "unit"
        How rows are put on the sphere, as in `DAMClassifier`.
    mean : array-like of shape (N,), default None
        Means of the features, for normalize="standard".
    scale : array-like of shape (N,), default None
        Standard deviations of the features, for normalize="standard".
    label_smoothing : float in [0, 1), default 0
        How much of it the class weights contain.
    temperature : float, default 1
        Temperature of the class probabilities.

    Returns
    -------
    FittedModel
        The model.

    Examples
    --------
    >>> weights = np.diag([0.0, 1.0, 1.0])[:, [1, 2, 0]]  # a memory per class, no uniform component
    >>> built = mn.interpret.from_parameters([[1, 0], [0, 1]], weights, beta=5.0)
    >>> mn.as_estimator(built).predict([[3, 1], [1, 2]])
    array([0, 1])
    """
    p = torch.from_numpy(as_numpy(class_weights).astype(np.float64))
    given = torch.from_numpy(as_numpy(memories).astype(np.float64))
    if normalize not in NORMALIZATIONS:
        raise ValueError(f"normalize must be one of {', '.join(NORMALIZATIONS)}")
    if normalize == "standard" and (mean is None or scale is None):
        raise ValueError("normalize='standard' needs the mean and scale of each feature")
    if given.ndim != 2 or p.ndim != 2 or len(p) != len(given) + 1:
        raise ValueError(
            f"memories must be (P, N) and class_weights (P+1, C+1), got {tuple(given.shape)} and "
            f"{tuple(p.shape)}; row 0 of the weights is the uniform component"
        )
    if not bool(((p >= 0) & torch.isfinite(p)).all()) or not bool(p.sum() > 0):
        raise ValueError("class_weights must be finite and >= 0, not all 0")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
    learned = (
        None if v is None else torch.from_numpy(as_numpy(v).astype(np.float64))
        for v in (mean, scale)
    )
    normalizer = Normalizer(normalize, *learned)
    w, lost = normalizer(given)
    if bool(lost.any()):
        raise ValueError(f"memory {int(lost.nonzero()[0])} has no direction: drop it")
    names = np.arange(p.shape[1] - 1) if classes is None else np.asarray(classes)
    if names.shape != (p.shape[1] - 1,):
        raise ValueError(
            f"class_weights has {p.shape[1]} columns for {names.size} classes: one for each and "
            "a last one for 'none of them'"
        )
    p = p / p.sum()
    params = Parameters(
        w, p, torch.tensor(float(beta), dtype=torch.float64), float(varsigma), p.sum(1), p.sum(0)
    ).check()
    settings = {
        "n_memories": len(given), "beta": float(beta), "varsigma": float(varsigma),
        "normalize": normalize, "label_smoothing": float(label_smoothing),
    }  # fmt: skip
    net = net_class_weights(params, label_smoothing)
    return FittedModel(
        "classifier", params, normalizer, Features(int(given.shape[1])), names,
        Calibration(float(temperature), net), smoothing=float(label_smoothing), learns_beta=False,
        label_mass=params.p_q.clone(), record=Record(settings=settings),
    )  # fmt: skip


def with_class_prior(
    model: FittedModel,
    prior: Mapping[Any, float] | ArrayLike,
    *,
    memory_weights: str = "follow",
) -> FittedModel:
    """Change the class frequencies of a classifier, without training.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    prior : mapping of labels to weights, or array-like of shape (C,)
        Weight of every class; scaled to sum to 1. The class "none of them" keeps its share.
    memory_weights : {"follow", "hold"}, default "follow"
        "follow" is Bayes' rule: probabilities are multiplied by new over old prior, and the weights
        of memories follow. "hold" keeps the weights of memories, which take other soft labels.

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
    if memory_weights not in KINDS:
        raise ValueError(
            f"memory_weights must be one of {', '.join(KINDS)}, got {memory_weights!r}"
        )
    weights = _prior_weights(model, prior)
    p_q = model.params.p_q.double()
    new = torch.from_numpy(weights / weights.sum()).to(p_q) * p_q[:-1].sum()
    ratio = torch.cat([new / p_q[:-1].clamp_min(1e-300), p_q.new_ones(1)])
    try:
        params = change_prior(model.params, torch.cat([new, p_q[-1:]]), memory_weights)
    except RuntimeError as error:
        raise ValueError(
            "memories of one class each cannot keep their weights: use memory_weights='follow'"
        ) from error
    other = model.with_params(params)

    # The same change for the weights that classes are read from, and for the density.
    def changed(params: Parameters) -> Parameters:
        return change_prior(params, params.p.double().sum(0) * ratio, memory_weights)

    density = None if model.density is None else changed(model.density)
    return other.replace(density=density).recalibrate(
        temperature=model.calibration.temperature, class_weights=changed(model.net).p
    )


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
        index = as_numpy(model.columns_of(list(prior)))
        weights = np.empty(len(names))
        weights[index] = np.array(list(prior.values()), dtype=np.float64)
    else:
        weights = as_numpy(prior).astype(np.float64)
    if weights.shape != (len(names),) or not (
        np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0
    ):
        raise ValueError(
            f"prior must be {len(names)} finite weights >= 0, not all 0, got {weights.tolist()}"
        )
    return weights


def shrink(
    model: FittedModel, X: Any, y: ArrayLike | None = None, *, n_memories: int
) -> FittedModel:
    """Merge the memories whose loss costs least, without training.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows to measure the loss on.
    y : array-like of shape (n,), default None
        Their labels; a clusterer needs none.
    n_memories : int
        Memories of the smaller model.

    Returns
    -------
    FittedModel
        The smaller model, not calibrated.

    Examples
    --------
    >>> mn.interpret.shrink(model, X_train, y_train, n_memories=3).n_memories
    3
    """
    check_whole(n_memories, "n_memories")
    rows = labeled_rows(model, X, y)
    merged = merge(model.params, rows, int(n_memories), model.rule).params
    return model.with_params(merged).replace(density=model.density)


def at_level(model: FittedModel, level: int) -> FittedModel:
    """Return the smaller model at the end of one level of growth.

    The class weights of a clusterer's memory are the sum of those of its descendants.

    Parameters
    ----------
    model : FittedModel
        A model that grew.
    level : int
        Level of the tree, counted from 0.

    Returns
    -------
    FittedModel
        The smaller model.

    Raises
    ------
    ValueError
        If the model did not grow.

    Examples
    --------
    >>> grown = clf.set_params(growth=3).fit(X_train, y_train).model_
    >>> mn.interpret.at_level(grown, 0).n_memories
    3
    """
    if model.lineage is None:
        raise ValueError("this model did not grow: fit with growth=16, say")
    check_whole(level, "level")
    early = model.lineage.at_level(int(level))
    if not model.is_classifier:
        p = model.lineage.sum_up(int(level), model.params.p)
        early = early.replace(p=p, p_q=model.params.p_q)
    return model.with_params(early)


def directed(model: FittedModel, X: Any) -> Tensor:
    """Unit rows; ValueError if one has no direction."""
    x, lost = on_sphere(model.completed(X).dense(), model.normalizer, model.params.w.dtype)
    if bool(lost.any()):
        raise ValueError(
            f"row {int(lost.nonzero()[0])} of X is {model.normalizer.no_direction}, so it has no "
            "direction: drop it"
        )
    return x


def _settle(
    params: Parameters, w: Tensor, p: Tensor, edited: Tensor, class_prior: str
) -> Parameters:
    """Parameters with the edited rows of p as they are and the others as `class_prior` says."""
    if class_prior not in KINDS:
        raise ValueError(f"class_prior must be one of {', '.join(KINDS)}, got {class_prior!r}")
    if class_prior == "hold":
        p_q = params.p_q.double()
        left = p_q / p_q.sum() - p[edited].sum(0)
        if bool((left < 0).any()):
            column = int(left.argmin())
            raise ValueError(
                f"class {column} would have more weight in the edited memories than it has in "
                "all: use class_prior='follow'"
            )
        p = p.clone()
        p[~edited] = _shared_out(p[~edited], left)
    p = (p / p.sum()).to(params.p)
    return params.replace(w=w, p=p, p_h=p.sum(1), p_q=p.sum(0)).check()


def _shared_out(p: Tensor, left: Tensor) -> Tensor:
    """Rows p (k, C+1) with column sums `left`: memories keep their weights if zeros allow it.

    Memories of one class each have nothing to share out, so their weights change instead.
    """
    try:
        return polytope.project(p, p.sum(1), left)
    except RuntimeError as error:
        total = p.sum(0)
        if bool(((total == 0) & (left > 1e-12)).any()):
            raise ValueError(
                "a class would have no memory left: use class_prior='follow'"
            ) from error
        return p * torch.where(total > 0, left / total.clamp_min(1e-300), 0.0)


def _edited(model: FittedModel, params: Parameters, behind: Exemplars | None) -> FittedModel:
    other = model.with_params(params).replace(exemplars=behind)
    # The temperature is as good a guess as any other.
    return other.recalibrate(temperature=model.calibration.temperature)


def _soft_row(model: FittedModel, label: object | Mapping[Any, float]) -> Tensor:
    """A label, {label: weight} or None ("none of them") as a smoothed soft label (C+1,)."""
    n_classes = len(model.classes)
    soft: NDArray[np.float64] = np.zeros(n_classes + 1)
    weights = label if isinstance(label, Mapping) else {label: 1.0}
    for name, weight in weights.items():
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(f"weights of a soft label must be finite and >= 0, got {weight}")
        column = n_classes if name is None else int(model.columns_of([name])[0])
        soft[column] += weight
    if not soft.sum() > 0:
        raise ValueError(f"a soft label needs a positive weight, got {dict(weights)}")
    smoothing = model.smoothing
    return torch.from_numpy((1 - smoothing) * soft / soft.sum() + smoothing / soft.size)


def _index(params: Parameters, memory: int | str) -> int:
    """The place of a memory, by its number or its name."""
    text = str(memory).removeprefix("#")
    if not text.isdecimal() or int(text) >= params.n_memories:
        raise ValueError(f"there is no memory {memory!r}: they are #0 to #{params.n_memories - 1}")
    return int(text)
