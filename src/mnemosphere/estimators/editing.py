"""Memories taken out, relabeled or put in by hand: new models, no training.

The weight p_h of a memory is held but for one factor that keeps the sum at 1. `class_prior`:

    hold     the classes keep their frequencies p_q exactly. Rows of p that were not edited are
             scaled into the polytope of what is left for them, their nearest point in relative
             entropy: memories near the edit in label, not in space, take up the difference.
    follow   rows that were not edited stay; the frequencies of the classes follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.normalize import NORMALIZATIONS, Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.estimators.base import as_numpy
from mnemosphere.estimators.memory_table import RowsBehind
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import polytope

if TYPE_CHECKING:
    from mnemosphere.estimators.portable_model import PortableModel

KINDS = ("hold", "follow")
Model = TypeVar("Model", bound="PortableModel")


def without_memories(model: Model, memories: Iterable[int | str], class_prior: str) -> Model:
    """The model without these memories."""
    check_is_fitted(model, "params_")
    params = model.params_
    gone = [_index(params, m) for m in memories]
    kept = np.setdiff1d(np.arange(params.n_memories), gone)
    if kept.size == 0:
        raise ValueError(f"all {params.n_memories} memories would go: keep at least one")
    p = params.p.double()
    p = torch.cat([p[:1], p[1:][torch.from_numpy(kept).to(p.device)]])
    edited = torch.zeros(len(p), dtype=torch.bool, device=p.device)
    w = params.w[torch.from_numpy(kept).to(params.w.device)]
    new = _settle(params, w, p / p.sum(), edited, class_prior)
    behind = model._rows_behind
    if behind is not None:
        behind = RowsBehind(behind.typical[kept], behind.support[kept],
                            None if behind.names is None else behind.names[kept])  # fmt: skip
    return _edited(model, new, behind)


def relabel_memory(
    model: Model, memory: int | str, label: object | Mapping[Any, float], class_prior: str
) -> Model:
    """The model in which one memory has another label, or soft label."""
    check_is_fitted(model, "params_")
    params = model.params_
    row = 1 + _index(params, memory)
    p = params.p.double().clone()
    p[row] = p[row].sum() * _soft_row(model, label).to(p)
    edited = torch.zeros(len(p), dtype=torch.bool, device=p.device)
    edited[row] = True
    return _edited(model, _settle(params, params.w, p, edited, class_prior), model._rows_behind)


def with_memories(model: Model, X: Any, y: Any, class_prior: str) -> Model:
    """The model with these rows as further memories, each of the mean weight of a memory."""
    check_is_fitted(model, "params_")
    params = model.params_
    w, lost = on_sphere(model._stored(X, reset=False), model._normalizer, params.w.dtype)
    if bool(lost.any()):
        raise ValueError(
            f"row {int(lost.nonzero()[0])} of X is {model._no_direction}, so it has no direction: "
            "drop it"
        )
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


def given_parameters(
    model: Model,
    memories: ArrayLike,
    class_weights: ArrayLike,
    classes: ArrayLike | None,
    normalizer: Normalizer,
) -> Model:
    """Make a fitted model of one that has only its settings; memories as in `memories_`."""
    p = torch.from_numpy(as_numpy(class_weights).astype(np.float64))
    given = torch.from_numpy(as_numpy(memories).astype(np.float64))
    if normalizer.kind not in NORMALIZATIONS:
        raise ValueError(f"normalize must be one of {', '.join(NORMALIZATIONS)}")
    if normalizer.kind == "standard" and (normalizer.mean is None or normalizer.scale is None):
        raise ValueError("normalize='standard' needs the mean and scale of each feature")
    if given.ndim != 2 or p.ndim != 2 or len(p) != len(given) + 1:
        raise ValueError(
            f"memories must be (P, N) and class_weights (P+1, C+1), got {tuple(given.shape)} and "
            f"{tuple(p.shape)}; row 0 of the weights is the uniform component"
        )
    if not bool(((p >= 0) & torch.isfinite(p)).all()) or not bool(p.sum() > 0):
        raise ValueError("class_weights must be finite and >= 0, not all 0")
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
    beta = torch.tensor(float(model.beta), dtype=torch.float64)
    params = Parameters(w, p, beta, float(model.varsigma), p.sum(1), p.sum(0)).check()
    model.classes_, model._normalizer, model.normalize_ = names, normalizer, normalizer.kind
    model.n_features_in_ = int(given.shape[1])
    model.history_, model.lineage_ = [], None
    model.status_, model.n_iter_, model.converged_ = "given", 0, False
    model._set_params(params)
    return model


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


def _edited(model: Model, params: Parameters, behind: RowsBehind | None) -> Model:
    other = model._copy_with(params)
    other._set_rows_behind(behind)
    if hasattr(model, "temperature_"):  # of a classifier: as good a guess as any other
        other.temperature_ = model.temperature_
    return other


def _soft_row(model: PortableModel, label: object | Mapping[Any, float]) -> Tensor:
    """A label, {label: weight} or None ("none of them") as a smoothed soft label (C+1,)."""
    n_classes = len(model.classes_)
    soft: NDArray[np.float64] = np.zeros(n_classes + 1)
    weights = label if isinstance(label, Mapping) else {label: 1.0}
    for name, weight in weights.items():
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(f"weights of a soft label must be finite and >= 0, got {weight}")
        column = n_classes if name is None else int(model._class_index(np.asarray([name]))[0])
        soft[column] += weight
    if not soft.sum() > 0:
        raise ValueError(f"a soft label needs a positive weight, got {dict(weights)}")
    smoothing = model._smoothing
    return torch.from_numpy((1 - smoothing) * soft / soft.sum() + smoothing / soft.size)


def _index(params: Parameters, memory: int | str) -> int:
    """The place of a memory, by its number or its name."""
    text = str(memory).removeprefix("#")
    if not text.isdecimal() or int(text) >= params.n_memories:
        raise ValueError(f"there is no memory {memory!r}: they are #0 to #{params.n_memories - 1}")
    return int(text)
