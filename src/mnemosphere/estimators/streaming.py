"""One batch of a stream for a classifier: classes that appear, and those that stop coming."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.estimators.labels import as_labels, is_missing
from mnemosphere.model import objectives
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.rehearsal import add_columns, give_memories, rehearse, widen_state

__all__ = ["forget_stream", "known_classes", "take_in_labeled"]


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
