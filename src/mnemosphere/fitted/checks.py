"""What every model that is returned, edited, written or read has to pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import torch

from mnemosphere.base.schema import Array
from mnemosphere.fitted.model import FittedModel
from mnemosphere.model.kernel import log_joint

_PROBED = 8  # memories whose probabilities must be numbers
_P = ParamSpec("_P")
_MULTIPLIERS = {
    "col_multipliers": Array("C"), "row_multipliers": Array("Q"), "passes": Array(low=0),
}  # fmt: skip


def check_model(model: FittedModel) -> FittedModel:
    """The model; ValueError where its parts do not fit together, or its answers are no numbers."""
    votes, density, features = model.votes.check(), model.density.check(), model.features
    given, n_classes = model.geometry, len(model.classes)
    given.check(features.n_numbers)
    wanted = (given.n_coordinates(features.n_numbers), n_classes + 1)
    for mixture in (votes, density):
        if (mixture.n_features, mixture.n_columns) != wanted:
            raise ValueError(f"it has {mixture.n_features} features, {mixture.n_columns} classes")
    if votes.w.dtype != density.w.dtype:
        raise ValueError(f"its votes are of {votes.w.dtype}, its density of {density.w.dtype}")
    values = None if model.exemplars is None else model.exemplars.values
    seen = None if features.observed is None else features.observed[0]
    for told in (features.named, seen, None if values is None else values[0]):
        if told is not None and len(told) != features.n_numbers:
            raise ValueError(f"it says something of {len(told)} features")
    levels = () if model.lineage is None else model.lineage.models
    if any(level.n_features != votes.n_features for level in levels):
        raise ValueError("a level of growth has another number of features")
    if any(level.n_columns != votes.n_columns for level in levels) and model.is_classifier:
        raise ValueError("a level of growth has another number of classes")
    if model.is_classifier and model.label_mass is None:
        raise ValueError("the tensor 'label_mass' is missing")
    if not model.is_classifier and (
        model.classes.tolist() != list(range(n_classes)) or not model.is_joint
        or (model.labels is not None and model.labels.max(initial=0) >= n_classes)
    ):  # fmt: skip
        raise ValueError(f"its labels are none of {n_classes} clusters")
    _check_parts(model)
    scores = (log_joint(m, m.w[:_PROBED]) for m in (model.precise_votes, votes, density))
    if not all(bool(torch.isfinite(each).all()) for each in scores):
        raise ValueError("probabilities of its own memories are not finite")
    return model


def _check_parts(model: FittedModel) -> None:
    """ValueError unless exemplars, held-out scores, examples and stream are of this model."""
    votes, density, n_classes = model.votes, model.density, len(model.classes)
    if model.classes.ndim != 1 or len({*model.classes.tolist()}) < n_classes:
        raise ValueError("its labels are not different values")
    if model.is_joint and votes.n_memories != density.n_memories:
        raise ValueError("its votes and its density have other memories")
    if model.exemplars is not None and len(model.exemplars.typical) != votes.n_memories:
        raise ValueError(f"it has typical rows of {len(model.exemplars.typical)} memories")
    if model.lineage is not None and len(model.lineage.models) != model.lineage.n_levels:
        raise ValueError("the tree of splits lacks the model of a level")
    if model.label_mass is not None and model.label_mass.shape != votes.prior.shape:
        raise ValueError(f"label_mass is of {model.label_mass.numel()} classes")
    held = model.calibration
    if held is not None and len(held.record) != votes.n_memories:
        raise ValueError(f"it has records of {len(held.record)} memories")
    if (
        held is not None
        and max(held.predicted.max(initial=-1), held.record[:, 2].max()) >= n_classes
    ):
        raise ValueError("its held-out rows have classes that it does not know")
    rows = model.held
    if rows is not None:
        if rows.x.shape[1] != votes.n_features or rows.votes.shape[1] != n_classes + 1:
            raise ValueError("its held-out rows are not of its features and classes")
        if max(rows.column.tolist(), default=0) > n_classes:
            raise ValueError("its held-out rows have classes that it does not know")
    added = model.examples
    if added is not None:
        check_model(added.base)
        same = added.base.classes.tolist() == model.classes.tolist()
        if not same or added.columns.max() > n_classes or len(added.texts) != len(added.x):
            raise ValueError("its examples are none of its classes")
        if added.x.shape[1] != votes.n_features:
            raise ValueError(f"its examples have {added.x.shape[1]} coordinates")
    if model.stream is not None:
        (P, N), (Q, C), dtype = density.w.shape, density.p.shape, str(density.w.dtype)[6:]
        state, sizes = model.stream.state, {"P": P, "N": N, "Q": Q, "C": C}
        known = _MULTIPLIERS | {"w_bar": Array("P N", dtype), "p_bar": Array("Q C", dtype, low=0)}
        for name in sorted(state.keys() ^ known.keys()):
            raise ValueError(f"the tensor {name!r} is {'missing' if name in known else 'unknown'}")
        for name, array in known.items():
            array.check(state[name], name, sizes)
        if not model.stream.late <= {*model.classes.tolist()}:
            raise ValueError("its stream has classes that it does not know")


def checked(edit: Callable[_P, FittedModel]) -> Callable[_P, FittedModel]:
    """A function that returns a model, which is checked."""

    @functools.wraps(edit)
    def run(*args: _P.args, **more: _P.kwargs) -> FittedModel:
        found = edit(*args, **more)
        try:
            return check_model(found)
        except ValueError as error:
            raise ValueError(f"{edit.__name__} would leave no sound model: {error}") from error

    return run
