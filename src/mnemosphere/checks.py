"""What every model that is returned, edited, written or read has to pass."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import ParamSpec

import torch

from mnemosphere.data.normalize import Normalizer
from mnemosphere.fitted import FittedModel
from mnemosphere.model.kernel import log_joint

_PROBED = 8  # memories whose probabilities must be numbers
_P = ParamSpec("_P")


def check_model(model: FittedModel) -> FittedModel:
    """The model; ValueError where its parts do not fit together, or its answers are no numbers."""
    params, calibration = model.params, model.calibration
    params.check()
    given = model.normalizer
    numbers = {name: t.cpu() for name, t in given.to_tensors().items()}
    Normalizer.from_tensors(given.kind, numbers, model.features.n_numbers)
    wanted = model.normalizer.n_coordinates(model.features.n_numbers)
    if params.n_features != wanted or params.n_columns != len(model.classes) + 1:
        raise ValueError(f"it has {params.n_features} features, {params.n_columns} classes")
    density = model.row_density
    density.check()
    if (density.n_features, density.n_columns) != (params.n_features, params.n_columns):
        raise ValueError(f"its density has {density.n_features} features")
    levels = () if model.lineage is None else model.lineage.models
    if any(level.n_features != params.n_features for level in levels):
        raise ValueError("a level of growth has another number of features")
    if any(level.n_columns != params.n_columns for level in levels) and model.is_classifier:
        raise ValueError("a level of growth has another number of classes")
    n_clusters = len(model.classes)
    if not model.is_classifier and (
        model.classes.tolist() != list(range(n_clusters))
        or (model.labels is not None and model.labels.max(initial=0) >= n_clusters)
    ):
        raise ValueError(f"its labels are none of {n_clusters} clusters")
    if not 0 < calibration.temperature < math.inf:
        raise ValueError(f"temperature is {calibration.temperature}")
    if model.is_classifier:
        net = calibration.class_weights
        if net is None or not abs(float(net.double().sum()) - 1) <= 1e-3:
            raise ValueError("net_class_weights do not sum to 1")
    x = params.w[:_PROBED].to(model.class_params.w)
    scores = [model.class_forward(x), *(log_joint(p, p.w[:_PROBED]) for p in (params, density))]
    if not all(bool(torch.isfinite(each).all()) for each in scores):
        raise ValueError("probabilities of its own memories are not finite")
    return model


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
