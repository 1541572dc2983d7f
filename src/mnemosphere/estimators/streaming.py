"""One batch of a stream: classes that appear, and those that stop coming."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, StreamedBatch
from mnemosphere.data.encoding import listed
from mnemosphere.fitted import FittedModel, Snapshot, Stream
from mnemosphere.labels import as_labels, is_missing
from mnemosphere.model import objectives
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior
from mnemosphere.schema import warn_user
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.rehearsal import add_columns, give_memories, rehearse, widen_state
from mnemosphere.training.solver import SolverState


def known_classes(
    model: FittedModel | None, y: Any, classes: Any, unlabeled: object
) -> NDArray[Any] | None:
    """The classes of the model, with those that are new in this batch; None: those of y."""
    given = None if classes is None else np.unique(np.asarray(classes))
    if model is None:
        return given
    if given is not None and not set(model.classes.tolist()) <= set(given.tolist()):
        raise ValueError(
            f"classes {given.tolist()} differ from the model's {model.classes.tolist()}"
        )
    known: NDArray[Any] = model.classes if given is None else given
    labels = as_labels(y)
    if labels.ndim != 1 or (isinstance(labels, Tensor) and labels.is_floating_point()):
        return known
    found = labels.cpu().numpy() if isinstance(labels, Tensor) else labels
    found = found[~is_missing(found, unlabeled) & ~is_missing(found, float("nan"))]
    alike = (found.dtype.kind in "biuf") == (known.dtype.kind in "biuf")
    return np.unique(np.concatenate([known, np.unique(found)])) if alike and len(found) else known


def take_in(
    model: FittedModel, dataset: ArrayDataset, rule: LabelRule, solver: object, *,
    params: Parameters | None = None, first: bool = False,
) -> FittedModel:  # fmt: skip
    """The model after one incremental fixed-point step from a batch.

    solver: the setting, of which the half-life counts; params: to start from, in place of those
    of the model; first: nothing was seen before.
    """
    params = model.params if params is None else params
    half_life = getattr(solver, "half_life", None)
    step = FixedPoint(dataset.n_rows, learn_beta=model.learns_beta, half_life=half_life)
    stream = model.stream
    if stream is None:
        stream = Stream((step.start if first else step.resume)(params))
    result = fit(
        params, StreamedBatch(dataset.rows), step, rule=rule, max_iter=1, state=stream.state
    )
    (record,) = result.history
    history = [] if first else model.record.history
    history = [*history, {**record.as_dict(), "n_iter": len(history) + 1}]
    return model.with_params(result.params).replace(
        objective="joint",
        lineage=None if first else model.lineage,
        stream=replace(stream, state=result.state),
        record=replace(model.record, history=history, status="streaming", converged=False),
    )


def take_in_labeled(
    model: FittedModel, classes: NDArray[Any], dataset: ArrayDataset, solver: object, *,
    first: bool, rehearses: bool,
) -> FittedModel:  # fmt: skip
    """The same for a classifier; classes: those of the model and of the batch.

    first: the parameters of the model are where memories start.
    """
    counts = torch.zeros(len(classes), dtype=torch.float64)
    smoothing, before = model.smoothing, model.classes.tolist()
    if not first:
        assert model.label_mass is not None
        counts[_places(before, classes)] = _counts(model.label_mass, smoothing)
        if len(before) < len(classes):
            model = _widen(model, before, classes)
    half_life = getattr(solver, "half_life", None)
    if half_life is not None and not rehearses:
        counts = counts * 0.5 ** (dataset.rows.total_weight / half_life)
    old, new = model.params, _counts(dataset.label_mass().cpu(), smoothing)
    stream = model.stream
    late = frozenset() if stream is None else stream.late
    if not first:
        arrived = ((new > 0.5) & (counts < 0.5)).tolist()
        late |= {label for label, here in zip(classes.tolist(), arrived, strict=True) if here}
        if stream is None:
            _warn_of_losses(model, sorted(late - set(before)))
    counts = counts + new
    names = len(classes)
    soft = objectives.soft_labels(torch.arange(names), names, smoothing, dtype=torch.float64)
    mass = counts @ soft
    params, state = old, None if stream is None else stream.state
    if late:
        due = torch.cat([counts / counts.sum() * old.n_memories, torch.zeros(1)]).to(old.p)
        places = [classes.tolist().index(label) for label in late]
        state = FixedPoint().resume(old) if state is None else state
        params, state = give_memories(old, state, dataset.rows, due, places)
    snapshot = None if stream is None else stream.snapshot
    if rehearses and not first:
        seed = len(model.record.history)
        dataset, snapshot = _rehearsed(
            dataset, snapshot, old, classes.tolist(), counts, new, soft, seed
        )
    # A class not seen yet keeps a sliver, so that it can still be learned.
    p_q = mass + 1e-6 * mass.sum()
    if smoothing == 0:
        p_q[-1] = 0.0  # no label weight ever goes to "none of them"
    try:
        params = with_class_prior(params, p_q.to(params.p), "hold")
    except RuntimeError:  # memories of one class each leave no way to hold their weights
        params = with_class_prior(params, p_q.to(params.p), "follow")
    if state is None:
        state = (FixedPoint().start if first else FixedPoint().resume)(params)
    model = model.replace(classes=classes, label_mass=mass, stream=Stream(state, late, snapshot))
    return take_in(model, dataset, objectives.joint, solver, params=params, first=first)


def _warn_of_losses(model: FittedModel, fresh: list[Any]) -> None:
    """A stream that begins with a fitted model can cost accuracy: say so."""
    again = "if that matters, fit again with all rows"
    if model.objective == "conditional":
        warn_user(
            "partial_fit goes on by the joint likelihood from a model that was trained by the "
            f"conditional one, which costs accuracy: {again}, or with objective='joint' before"
        )
    elif fresh:
        warn_user(
            f"{listed(fresh)} is new to a fitted model: it takes memories of the other classes, "
            f"which costs these accuracy; {again}"
        )


def _rehearsed(
    dataset: ArrayDataset, shot: Snapshot | None, old: Parameters, names: list[Any],
    counts: Tensor, new: Tensor, soft: Tensor, seed: int,
) -> tuple[ArrayDataset, Snapshot | None]:  # fmt: skip
    """(the batch with rows of the classes that are missing from it, the model they come from)."""
    missing = [k for k in range(len(names)) if new[k] < 0.5 and counts[k] > 0.5]
    if not missing:
        return dataset, None
    if not bool((new > 0.5).any()):
        return dataset, shot
    labels = frozenset(names[k] for k in missing)
    if shot is None or not labels <= shot.missing:
        shot = Snapshot(old, names, labels)
    columns = torch.tensor([shot.classes.index(names[k]) for k in missing])
    present = counts.sum() - counts[missing].sum()
    generator = torch.Generator().manual_seed(seed)
    rows = rehearse(
        shot.params, columns, dataset.rows, torch.cat([counts[missing], present[None]]),
        soft[missing], generator=generator,
    )  # fmt: skip
    return ArrayDataset(rows), shot


def _widen(model: FittedModel, before: list[Any], classes: NDArray[Any]) -> FittedModel:
    """The model with columns for classes that are new."""
    n_columns = len(classes) + 1
    place = torch.cat([_places(before, classes), torch.tensor([len(classes)])])
    place = place.to(model.device)
    stream: Stream | None = model.stream
    if stream is not None:
        state: SolverState = widen_state(stream.state, place, n_columns)
        stream = replace(stream, state=state)
    return model.replace(params=add_columns(model.params, place, n_columns), stream=stream)


def _places(before: list[Any], classes: NDArray[Any]) -> Tensor:
    names = classes.tolist()
    return torch.tensor([names.index(label) for label in before])


def _counts(mass: Tensor, smoothing: float) -> Tensor:
    """Rows of each class (C,) whose smoothed label weights sum to `mass` (C+1,)."""
    counts: Tensor = ((mass - smoothing / len(mass) * mass.sum()) / (1 - smoothing))[:-1]
    return counts.clamp_min(0)
