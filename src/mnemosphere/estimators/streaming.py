"""One batch of a stream for a classifier: classes that appear, and those that stop coming."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.labels import as_labels, is_missing
from mnemosphere.files import join_prefixes, strip_prefix
from mnemosphere.model import objectives
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior
from mnemosphere.schema import Array, check_tensors
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.rehearsal import add_columns, give_memories, rehearse, widen_state

_STATE = {
    "w_bar": Array("P N", None), "p_bar": Array("Q C", None, low=0), "col_multipliers": Array("C"),
    "row_multipliers": Array("Q"), "marginal_error": Array(), "passes": Array(low=0),
}  # fmt: skip
_CLASSES = {name: Array("K", "bool", optional=True) for name in ("late", "known", "missing")}


class Snapshot(NamedTuple):
    """The model as it was when it last saw classes that have stopped coming."""

    params: Parameters
    classes: list[Any]
    missing: frozenset[Any]


def known_classes(model: Any, y: Any, classes: Any, *, first: bool) -> NDArray[Any] | None:
    """The classes of the model, with those that are new in this batch; None: those of y."""
    given = None if classes is None else np.unique(np.asarray(classes))
    if first:
        return given
    if given is not None and not set(model.classes_.tolist()) <= set(given.tolist()):
        raise ValueError(
            f"classes {given.tolist()} differ from the model's {model.classes_.tolist()}"
        )
    known: NDArray[Any] = model.classes_ if given is None else given
    labels = as_labels(y)
    if labels.ndim != 1 or (isinstance(labels, Tensor) and labels.is_floating_point()):
        return known
    found = labels.cpu().numpy() if isinstance(labels, Tensor) else labels
    found = found[~is_missing(found, model.unlabeled) & ~is_missing(found, float("nan"))]
    alike = (found.dtype.kind in "biuf") == (known.dtype.kind in "biuf")
    return np.unique(np.concatenate([known, np.unique(found)])) if alike and len(found) else known


def forget_stream(model: Any) -> None:
    """Training starts anew."""
    for name in ("_stream", "_late", "_snapshot"):
        model.__dict__.pop(name, None)


def stream_tensors(model: Any) -> dict[str, Tensor]:
    """What a stream has come to, for a model file; nothing where there was none."""
    state, names = model.__dict__.get("_stream"), model.classes_.tolist()
    if state is None:
        return {}

    def among(some: Any) -> Tensor:
        return torch.tensor([name in some for name in names])

    found = join_prefixes({"state": state})
    if getattr(model, "_late", None):
        found["late"] = among(model._late)
    shot: Snapshot | None = getattr(model, "_snapshot", None)
    if shot is not None:
        found |= join_prefixes({"snapshot": shot.params.to_tensors()})
        found |= {"known": among(shot.classes), "missing": among(shot.missing)}
    return found


def set_stream(model: Any, tensors: dict[str, Tensor]) -> None:
    """Undo `stream_tensors`; ValueError where that is no stream of this model."""
    forget_stream(model)
    if not tensors:
        return
    params, names = model.params_, model.classes_.tolist()
    state, shot = strip_prefix(tensors, "state"), strip_prefix(tensors, "snapshot")
    sizes = {"P": params.n_memories, "N": params.n_features, "Q": params.n_memories + 1,
             "C": params.n_columns}  # fmt: skip
    check_tensors(state, _STATE, sizes)
    masks = {name: t for name, t in tensors.items() if "." not in name}
    check_tensors(masks, _CLASSES, {"K": len(names)})

    def named(mask: str) -> list[Any]:
        return [name for name, here in zip(names, masks[mask].tolist(), strict=True) if here]

    model._stream = state
    if "late" in masks:
        model._late = set(named("late"))
    if shot:
        then = Snapshot(
            Parameters.from_file(tensors, "snapshot"), named("known"), frozenset(named("missing"))
        )
        same = then.params.n_features == params.n_features
        if not same or then.params.n_columns != len(then.classes) + 1 or not (
            then.missing <= {*then.classes}
        ):  # fmt: skip
            raise ValueError("the model that is rehearsed is not one of these classes")
        model._snapshot = then


def take_in_labeled(
    model: Any, dataset: ArrayDataset, before: list[Any], *, first: bool, rehearses: bool
) -> None:
    """One step from a batch; `before`: the classes of the model until now, none on a fresh one."""
    classes, smoothing = model.classes_, model.label_smoothing
    counts = torch.zeros(len(classes), dtype=torch.float64)
    if first:
        forget_stream(model)
    else:
        counts[_places(before, classes)] = _counts(model._label_mass, smoothing)
        if len(before) < len(classes):
            _widen(model, before, classes)
    half_life = getattr(model.solver, "half_life", None)
    if half_life is not None and not rehearses:
        counts = counts * 0.5 ** (dataset.rows.total_weight / half_life)
    old, new = model.params_, _counts(dataset.label_mass().cpu(), smoothing)
    late: set[Any] = getattr(model, "_late", set())
    if not first:
        arrived = ((new > 0.5) & (counts < 0.5)).tolist()
        late |= {label for label, here in zip(classes.tolist(), arrived, strict=True) if here}
    model._late, counts = late, counts + new
    names = len(classes)
    soft = objectives.soft_labels(torch.arange(names), names, smoothing, dtype=torch.float64)
    model._label_mass = counts @ soft
    if late:
        due = torch.cat([counts / counts.sum() * old.n_memories, torch.zeros(1)]).to(old.p)
        state = model.__dict__.get("_stream") or FixedPoint().resume(old)
        model.params_, model._stream = give_memories(
            old, state, dataset.rows, due, [classes.tolist().index(label) for label in late]
        )
    if rehearses and not first:
        dataset = _rehearsed(model, dataset, old, classes, counts, new, soft)
    # A class not seen yet keeps a sliver, so that it can still be learned.
    p_q = model._label_mass + 1e-6 * model._label_mass.sum()
    params = with_class_prior(model.params_, p_q.to(model.params_.p), "hold")
    model._take_in(params, dataset, objectives.joint, first=first)


def _rehearsed(
    model: Any, dataset: ArrayDataset, old: Parameters, classes: NDArray[Any], counts: Tensor,
    new: Tensor, soft: Tensor,
) -> ArrayDataset:  # fmt: skip
    """The batch with rows of the classes that are missing from it."""
    names = classes.tolist()
    missing = [k for k in range(len(names)) if new[k] < 0.5 and counts[k] > 0.5]
    if not missing or not bool((new > 0.5).any()):
        if not missing:
            model._snapshot = None
        return dataset
    labels = frozenset(names[k] for k in missing)
    shot: Snapshot | None = getattr(model, "_snapshot", None)
    if shot is None or not labels <= shot.missing:
        shot = model._snapshot = Snapshot(old, names, labels)
    columns = torch.tensor([shot.classes.index(names[k]) for k in missing])
    present = counts.sum() - counts[missing].sum()
    generator = torch.Generator().manual_seed(len(model.history_))
    rows = rehearse(
        shot.params, columns, dataset.rows, torch.cat([counts[missing], present[None]]),
        soft[missing], generator=generator,
    )  # fmt: skip
    return ArrayDataset(rows)


def _widen(model: Any, before: list[Any], classes: NDArray[Any]) -> None:
    place = torch.cat([_places(before, classes), torch.tensor([len(classes)])])
    place = place.to(model.params_.p.device)
    model.params_ = add_columns(model.params_, place, len(classes) + 1)
    if hasattr(model, "_stream"):
        model._stream = widen_state(model._stream, place, len(classes) + 1)


def _places(before: list[Any], classes: NDArray[Any]) -> Tensor:
    names = classes.tolist()
    return torch.tensor([names.index(label) for label in before])


def _counts(mass: Tensor, smoothing: float) -> Tensor:
    """Rows of each class (C,) whose smoothed label weights sum to `mass` (C+1,)."""
    counts: Tensor = ((mass - smoothing / len(mass) * mass.sum()) / (1 - smoothing))[:-1]
    return counts.clamp_min(0)
