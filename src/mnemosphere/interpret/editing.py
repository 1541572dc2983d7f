"""Memories and classes taken out, relabeled or put in by hand: new models, no training.

The weight p_h of a memory is held but for one factor that keeps the sum at 1. `class_prior`:

    hold     the classes keep their frequencies p_q exactly. Rows of p that were not edited are
             scaled into the polytope of what is left for them, their nearest point in relative
             entropy: memories near the edit in label, not in space, take up the difference.
    follow   rows that were not edited stay; the frequencies of the classes follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from mnemosphere.interpret.exemplars import row_texts
from mnemosphere.model.class_reading import net_class_weights
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.merge import merge
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior as change_prior
from mnemosphere.numerics import polytope, sphere
from mnemosphere.numerics.bessel import mean_resultant

KINDS = ("hold", "follow")
_NEW_MEMORIES = 5  # of a class that is added
_HEAD_START = 0.75  # log-weight: fresh rows lie further from a mean of few than those few
_RIDGE = 1e-3  # of the mean squared length, where no direction is free


def without_memories(
    model: FittedModel, memories: Iterable[int | str], *, class_prior: str = "hold"
) -> FittedModel:
    """The model without some memories (numbers or names), not retrained."""
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
    return _edited(model, new, _exemplars_of(model.exemplars, kept))


def _exemplars_of(behind: Exemplars | None, kept: NDArray[np.int64]) -> Exemplars | None:
    """Those of some memories."""
    if behind is None:
        return None
    names = None if behind.names is None else behind.names[kept]
    return Exemplars(behind.typical[kept], behind.support[kept], names)


def relabel_memory(
    model: FittedModel,
    memory: int | str,
    label: object | Mapping[Any, float],
    *,
    class_prior: str = "hold",
) -> FittedModel:
    """The model in which one memory has another label, {label: weight} or None."""
    params = model.params
    row = 1 + _index(params, memory)
    p = params.p.double().clone()
    p[row] = p[row].sum() * _soft_row(model, label).to(p)
    edited = torch.zeros(len(p), dtype=torch.bool, device=p.device)
    edited[row] = True
    return _edited(model, _settle(params, params.w, p, edited, class_prior), model.exemplars)


def with_memories(model: FittedModel, X: Any, y: Any, *, class_prior: str = "hold") -> FittedModel:
    """The model with these rows as further memories, each of the mean weight of a memory."""
    params, w = model.params, _directed(model, X)
    labels = list(y) if isinstance(y, (list, tuple)) else np.asarray(y).tolist()
    if len(labels) != len(w):
        raise ValueError(f"X has {len(w)} rows but y has {len(labels)}: one label per memory")
    p = params.p.double()
    weight = p[1:].sum() / params.n_memories
    added = torch.stack([weight * _soft_row(model, label).to(p) for label in labels])
    edited = torch.cat([torch.zeros(len(p)), torch.ones(len(added))]).bool().to(p.device)
    p = torch.cat([p, added])
    new = _settle(params, torch.cat([params.w, w]), p / p.sum(), edited, class_prior)
    return _edited(model, new, None)


# Classes.


def add_class(model: FittedModel, X: Any, label: object) -> FittedModel:
    """The model with one more class, from a few rows of it; no other memory or weight changes.

    Its memories are the rows (centers of five groups if there are more), halfway to their mean.
    Trained memories lie further from their rows than a mean does from its own, so these are turned
    towards a direction that neither memories nor rows have, until they lie as far. The weight of
    the class is that of an average one times two. A study chose both (docs/open-world.md).
    Rates and coverages stay those of the held-out rows: `calibrate` again to include the class.
    """
    _check_new(model, label)
    params, net, n_classes = model.params, model.net, len(model.classes)
    x = _directed(model, X).double()
    mean, near = sphere.project(x.mean(0, keepdim=True)), x
    if len(x) > _NEW_MEMORIES:
        generator = torch.Generator(x.device).manual_seed(0)
        near = spherical_kmeans(x, _NEW_MEMORIES, generator=generator).centers
    overlap = mean_resultant(params.beta.double(), params.n_features) / params.varsigma
    turn = (overlap / (x @ mean.T).mean()).clamp(0.0, 1.0)
    free = _free_direction(torch.cat([params.w.double(), x]))
    w = turn * sphere.project(near + mean) + (1 - turn**2).sqrt() * free
    w = torch.cat([params.w, sphere.project(w).to(params.w)])

    def widened(p: Tensor, smoothing: float, factor: float) -> Tensor:
        p = p.double()
        soft = torch.full_like(p[0], smoothing / (n_classes + 2))
        soft = torch.cat([soft[:-1], soft.new_tensor([soft[0] + 1 - smoothing]), soft[-1:]])
        weight = factor * p[1:, :-1].sum() / n_classes / len(near)
        old = torch.cat([p[:, :-1], torch.zeros_like(p[:, :1]), p[:, -1:]], 1)
        found = torch.cat([old, (weight * soft).expand(len(near), -1)])
        return found / found.sum()

    behind, mass = model.exemplars, model.label_mass
    if behind is not None:
        typical = np.full((len(near), behind.typical.shape[1]), -1)
        names = None if behind.names is None else np.full(typical.shape, "", object)
        support = np.full(len(near), len(x) / len(near))
        texts = model.features.texts(X)
        if texts is not None and names is not None:
            order = as_numpy((near @ x.T).topk(min(typical.shape[1], len(x)), dim=1).indices)
            names[:, : order.shape[1]] = row_texts(texts, order)
        behind = Exemplars(
            np.concatenate([behind.typical, typical]),
            np.concatenate([behind.support, support]),
            None if names is None else np.concatenate([behind.names, names]),
        )
    if mass is not None:
        mass = torch.cat([mass[:-1], mass.new_tensor([float(len(x))]), mass[-1:]])
    wide = _reweighted(
        model, w, widened(params.p, model.smoothing, 1.0), widened(net.p, 0.0, np.exp(_HEAD_START))
    ).replace(classes=_with_label(model.classes, label), exemplars=behind, label_mass=mass)
    return _map_classes(wide, wide.classes, torch.eye(n_classes + 2, dtype=torch.float64))


def remove_class(model: FittedModel, label: object) -> FittedModel:
    """The model without a class and the memories that are its own."""
    column, n_classes = int(model.columns_of(np.asarray([label]))[0]), len(model.classes)
    if n_classes == 1:
        raise ValueError(f"{label!r} is the only class: keep it")
    own = (model.net.p[1:, :-1].argmax(1) == column).cpu().numpy()
    if own.all():
        raise ValueError(f"every memory is of class {label!r}: none would be left")
    kept = torch.from_numpy(np.flatnonzero(~own))
    rows = torch.cat([torch.zeros(1, dtype=torch.long), 1 + kept]).to(model.device)
    thin = _reweighted(
        model, model.params.w[kept.to(model.device)], model.params.p[rows], model.net.p[rows]
    )
    table = torch.eye(n_classes + 1, dtype=torch.float64)
    others = [k for k in range(n_classes + 1) if k != column]
    thin = thin.replace(exemplars=_exemplars_of(model.exemplars, kept.numpy()))
    return _map_classes(thin, np.delete(model.classes, column), table[:, others])


def merge_classes(model: FittedModel, labels: Sequence[Any], into: object) -> FittedModel:
    """The model with several classes as one, called `into`: its probability is their sum."""
    columns = np.unique(as_numpy(model.columns_of(np.asarray(labels))))
    names = model.classes.tolist()
    others = [k for k in range(len(names)) if k not in columns]
    if into in [names[k] for k in others]:
        raise ValueError(
            f"there is a class {into!r} already: merge with it, or choose another name"
        )
    table = torch.zeros(len(names) + 1, len(others) + 2, dtype=torch.float64)
    table[others, range(len(others))] = 1.0
    table[columns, len(others)] = 1.0
    table[-1, -1] = 1.0
    return _map_classes(model, _with_label(model.classes[others], into, model.classes), table)


def rename_class(model: FittedModel, label: object, into: object) -> FittedModel:
    """The model with another name for a class."""
    return merge_classes(model, [label], into)


def hide_class(model: FittedModel, label: object) -> FittedModel:
    """The model with a class as part of "none of them": `predict` never names it."""
    column = model.classes.tolist().index(label)
    others = [k for k in range(len(model.classes) + 1) if k != column]
    table = torch.eye(len(model.classes) + 1, dtype=torch.float64)[:, others]
    table[column, -1] = 1.0
    names = np.array(np.delete(model.classes, column).tolist())  # of numbers, if they are
    return _map_classes(model, names, table)


def _check_new(model: FittedModel, label: object) -> None:
    if label in model.classes.tolist():
        raise ValueError(f"there is a class {label!r} already: partial_fit learns more rows of it")


def _with_label(
    classes: NDArray[Any], label: object, like: NDArray[Any] | None = None
) -> NDArray[Any]:
    """The classes and one more label of the same kind."""
    like = classes if like is None else like
    found = np.array([*classes.tolist(), label])
    if found.dtype.kind != like.dtype.kind:
        raise ValueError(f"a label must be like {like[0].item()!r}, got {label!r}")
    return found


def _map_classes(model: FittedModel, classes: NDArray[Any], table: Tensor) -> FittedModel:
    """Columns of p, by a table (C+1, C'+1) of what goes where; classes (C',) are put in order."""
    order = np.argsort(classes, kind="stable")
    table = torch.cat([table[:, :-1][:, order], table[:, -1:]], 1).to(model.device)
    p, net = (part.double() @ table for part in (model.params.p, model.net.p))
    mass = None if model.label_mass is None else model.label_mass.double() @ table.cpu()
    found = _reweighted(model, model.params.w, p, net)
    return found.replace(classes=classes[order], label_mass=mass)


def _reweighted(model: FittedModel, w: Tensor, p: Tensor, net: Tensor) -> FittedModel:
    """The model with other memories and class weights; held-out scores stay."""
    p, net = ((part / part.sum()).to(model.params.p) for part in (p, net))
    params = model.params.replace(w=w, p=p, p_h=p.sum(1), p_q=p.sum(0))
    found = model.replace(params=params, lineage=None, stream=None)
    return found.recalibrate(class_weights=net)


def _directed(model: FittedModel, X: Any) -> Tensor:
    """Unit rows; ValueError if one has no direction."""
    x, lost = on_sphere(model.completed(X).dense(), model.normalizer, model.params.w.dtype)
    if bool(lost.any()):
        raise ValueError(
            f"row {int(lost.nonzero()[0])} of X is {model.normalizer.no_direction}, so it has no "
            "direction: drop it"
        )
    return x


def _free_direction(rows: Tensor) -> Tensor:
    """A unit vector (1, N) that is orthogonal to all rows (M, N), or nearly if they span it all."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(rows.shape[1], generator=generator, dtype=rows.dtype).to(rows)
    gram = rows @ rows.T
    gram.diagonal().add_(_RIDGE * gram.diagonal().mean())
    free = start - torch.linalg.solve(gram, rows @ start) @ rows
    return sphere.project(free[None])


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
    """A fitted classifier out of numbers, such as the attributes of another one.

    memories (P, N) as in `memories_`; class_weights (P+1, C+1) as in `class_weights_`, scaled
    to sum to 1; classes (C,), 0 to C − 1 if None. mean and scale (N,) of the features, with
    normalize="standard". label_smoothing: what the class weights contain of it.
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
    """A fitted classifier with other class frequencies and the same memories, not retrained.

    prior: {label: weight} with every class, or weights (C,) in the order of `classes_`; they
    are scaled to sum to 1. The class "none of them" keeps its share.

    memory_weights: "follow", Bayes' rule: probabilities are reweighted by new over old prior,
    and the weights of memories follow. "hold" keeps the weights of memories: p is scaled to
    its new column sums within the polytope of the old row sums, so memories take other soft
    labels. See the user guide for when that is wanted.
    """
    weights = _prior_weights(model, prior)
    p_q = model.params.p_q.double()
    new = torch.from_numpy(weights / weights.sum()).to(p_q) * p_q[:-1].sum()
    ratio = torch.cat([new / p_q[:-1].clamp_min(1e-300), p_q.new_ones(1)])
    other = model.with_params(
        change_prior(model.params, torch.cat([new, p_q[-1:]]), memory_weights)
    )

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
        index = as_numpy(model.columns_of(np.array(list(prior))))
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
    """A smaller model: the memories that the loss misses least are merged away."""
    check_whole(n_memories, "n_memories")
    rows = labeled_rows(model, X, y)
    merged = merge(model.params, rows, int(n_memories), model.rule).params
    return model.with_params(merged).replace(density=model.density)


def at_level(model: FittedModel, level: int) -> FittedModel:
    """The smaller model at the end of one level of growth.

    The class weights of a clusterer's memory are the sum of those of its descendants.
    """
    if model.lineage is None:
        raise ValueError("this model did not grow: fit with growth=16, say")
    check_whole(level, "level")
    early = model.lineage.at_level(int(level))
    if not model.is_classifier:
        p = model.lineage.sum_up(int(level), model.params.p)
        early = early.replace(p=p, p_q=model.params.p_q)
    return model.with_params(early)


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
        p[~edited] = polytope.project(p[~edited], p[~edited].sum(1), left)
    p = (p / p.sum()).to(params.p)
    return params.replace(w=w, p=p, p_h=p.sum(1), p_q=p.sum(0)).check()


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
        column = n_classes if name is None else int(model.columns_of(np.asarray([name]))[0])
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
