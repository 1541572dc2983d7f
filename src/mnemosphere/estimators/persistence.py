"""Model files: safetensors with versioned JSON metadata. Reading one runs no code."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils._param_validation import make_constraint, validate_parameter_constraints
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.files import opened, plain, strip_prefix, write_tensors
from mnemosphere.schema import (
    Check,
    check_fields,
    flag,
    items,
    mapping,
    records_of,
    text,
    whole,
)
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import PassRecord
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD

FORMAT = "mnemosphere-model"
VERSION, _OLDER = 3, (2,)
# Settings that name things of the machine or the program that trained the model.
_NOT_SAVED = {"callbacks", "device"}
_OBJECTS: dict[str, type[Any]] = {kind.__name__: kind for kind in (FixedPoint, SGD, Adam)}
_ESTIMATORS: dict[str, type[Any]] = {}
_DEFAULTS: dict[str, dict[str, Any]] = {}  # of their settings
_ALLOWED: dict[str, dict[str, list[Any]]] = {}  # what scikit-learn makes of their constraints
_PIPELINE = "Pipeline"
_OF_FILES = ("format", "version")
_LABEL_KINDS = "biufUO"
_LAYERS = re.compile(r"(^|\.)layers\.0\.")  # tensors of a PatchEncoder
_LONGEST_REASON = 200  # a value quoted from a file can be of any length
_MOST_BYTES = 1 << 28  # of an array of labels
# What a file holds of every estimator; `_HEADER` of its class says what else.
_COMMON: dict[str, Check] = {
    "estimator": text,
    "n_features_in": whole(1),
    "feature_names": items(text),
    "settings": lambda value, name: None,  # by the constraints of the estimator
    "history": records_of(PassRecord),
    "status": text,
    "converged": flag,
}
LABELS = mapping({"dtype": text, "values": items(lambda value, name: None, 1)})
Estimator = TypeVar("Estimator", bound="SavedEstimator")


def register(kind: type[Estimator]) -> type[Estimator]:
    """Let `load` give back estimators of this class."""
    parameters = inspect.signature(kind).parameters
    _ESTIMATORS[kind.__name__] = kind
    _DEFAULTS[kind.__name__] = {name: told.default for name, told in parameters.items()}
    constraints: Any = kind._parameter_constraints  # type: ignore[attr-defined]
    _ALLOWED[kind.__name__] = {
        name: [*map(make_constraint, each)]
        for name, each in constraints.items()
        if each != "no_validation"
    }
    return kind


class SavedEstimator(Protocol):
    """What a model file asks of an estimator."""

    _HEADER: ClassVar[dict[str, Check]]  # plain values of `_state`

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Its settings."""
        ...

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What was learned, as plain values and tensors."""
        ...

    def _set_state(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Undo `_state`, after the shape of X is known; ValueError where it does not fit."""
        ...


def save(model: Any, path: str | Path) -> None:
    """Write a fitted estimator, or a pipeline of them, to one file, atomically."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    check_is_fitted(model)
    header, tensors = _take_apart(model)
    try:
        told = json.loads(json.dumps(header))
        _fill(_prepare(told), told, {name: t.numpy(force=True) for name, t in tensors.items()})
    except ValueError as error:  # what could not be read is not written
        raise ValueError(f"this model cannot be saved: {error}") from error
    write_tensors(path, tensors, {"format": FORMAT, "version": VERSION, **header})


def _take_apart(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fitted estimator as plain values and tensors."""
    if isinstance(model, Pipeline):
        steps: list[dict[str, Any]] = []
        tensors: dict[str, Tensor] = {}
        for i, (name, step) in enumerate(model.steps):
            header, own = _take_apart(step)
            steps.append({"name": name, **header})
            tensors |= {f"steps.{i}.{key}": t for key, t in own.items()}
        return {"estimator": _PIPELINE, "steps": steps}, tensors
    if type(model).__name__ not in _ESTIMATORS:
        raise TypeError(
            f"a model file cannot hold a {type(model).__name__}: it holds "
            f"{', '.join(_ESTIMATORS)}, and pipelines of these"
        )
    settings = {k: to_plain(v) for k, v in model.get_params().items() if k not in _NOT_SAVED}
    header, tensors = model._state()
    return {
        "estimator": type(model).__name__,
        "n_features_in": model.n_features_in_,
        "feature_names": plain(getattr(model, "feature_names_in_", [])),
        "settings": settings,
        "history": model.history_,
        "status": model.status_,
        "converged": model.converged_,
        **header,
    }, tensors


def load(path: str | Path) -> Any:
    """Read a model file: the estimator that was saved there, which predicts the same bits."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no model file at {path}: check the path")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the model file in it")
    with opened(path, FORMAT, VERSION, older=_OLDER, norms_of=".w") as (header, read):
        own = {k: v for k, v in header.items() if k not in _OF_FILES}
        with _refusing(path):
            model = _prepare(own)
        arrays = read()
    if header["version"] in _OLDER and any(_LAYERS.search(name) for name in arrays):
        raise ValueError(f"{path} has a PatchEncoder of before its cells were soft: fit it again")
    with _refusing(path):
        return _fill(model, own, arrays)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise ValueError(f"{path} is damaged: {reason}; save the model again") from error


def _prepare(header: dict[str, Any]) -> Any:
    """The estimator with its settings, all that a header says checked; ValueError where it errs."""
    name = header.get("estimator")
    if name == _PIPELINE:
        check_fields(header, {"estimator": text, "steps": items(_step, 1)})
        model = Pipeline([(step["name"], _prepare(_own(step))) for step in header["steps"]])
        model._validate_steps()
        return model
    if not isinstance(name, str) or name not in _ESTIMATORS:
        raise ValueError(f"estimator is {name!r}")
    kind = _ESTIMATORS[name]
    # Files of version 2 know only columns of numbers.
    older: dict[str, Any] = {"columns": []} if "columns" in kind._HEADER else {}
    check_fields(older | header, _COMMON | kind._HEADER)
    try:
        settings = {key: _from_json(value) for key, value in header["settings"].items()}
        model, usual, allowed = kind(**settings), _DEFAULTS[name], _ALLOWED[name]
        # Most are the defaults, which are sound.
        own = {k: v for k, v in settings.items() if type(v) is not type(usual[k]) or v != usual[k]}
        if not all(
            any(one.is_satisfied_by(own[k]) for one in allowed[k]) for k in own.keys() & allowed
        ):
            validate_parameter_constraints(kind._parameter_constraints, own, name)
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"its settings are not those of a {name} ({error})") from error
    model.n_features_in_ = header["n_features_in"]
    names = header["feature_names"]
    if names:
        if len(names) != model.n_features_in_:
            raise ValueError(f"it has {len(names)} names for {model.n_features_in_} features")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.history_, model.status_ = header["history"], header["status"]
    model.n_iter_, model.converged_ = len(model.history_), header["converged"]
    return model


def _fill(model: Any, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    """Give it what it has learned; ValueError where that does not fit."""
    if isinstance(model, Pipeline):
        parts = [step for _, step in model.steps]
        for i, (step, own) in enumerate(zip(parts, header["steps"], strict=True)):
            _fill(step, own, strip_prefix(arrays, f"steps.{i}"))
        for before, after in itertools.pairwise(parts):
            if before._n_features_out != after.n_features_in_:
                raise ValueError("a step of the pipeline does not take what the one before gives")
        return model
    try:
        model._set_state(header, arrays)
    except KeyError as error:
        raise ValueError(f"the tensor {error} is missing") from error
    return model


def _own(step: dict[str, Any]) -> dict[str, Any]:
    """What a step of a pipeline says of its estimator."""
    return {key: value for key, value in step.items() if key != "name"}


def _step(value: Any, name: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(f"{name} is not a step of a pipeline")


def to_plain(value: object) -> object:
    """A setting as JSON can hold it; None for an object it cannot, such as a generator."""
    if type(value).__name__ in _OBJECTS and dataclasses.is_dataclass(value):
        fields = {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"object": type(value).__name__, "fields": fields}
    if isinstance(value, dict):  # as pairs: a name in JSON is always a string
        return {"pairs": [[to_plain(name), to_plain(weight)] for name, weight in value.items()]}
    if isinstance(value, tuple):  # an image_shape, say: a list would be another setting
        return {"tuple": [to_plain(item) for item in value]}
    value = value if isinstance(value, list) else plain(value)
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and "pairs" in value:
        return dict(value["pairs"])
    if isinstance(value, dict) and "tuple" in value:
        return tuple(_from_json(item) for item in value["tuple"])
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict):
        fields = {name: _from_json(field) for name, field in value["fields"].items()}
        return _OBJECTS[value["object"]](**fields)
    return value


def labels_to_json(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels with what is needed to get the same array back."""
    if classes.dtype.kind not in _LABEL_KINDS or not all(
        isinstance(v, (bool, int, float, str)) for v in classes.tolist()
    ):
        raise ValueError(
            f"labels of dtype {classes.dtype} cannot be saved: use numbers, strings or booleans"
        )
    return {"dtype": classes.dtype.str, "values": json.loads(json.dumps(classes.tolist()))}


def labels_from_json(record: dict[str, Any]) -> NDArray[Any]:
    """Undo `labels_to_json`; ValueError where these are no labels."""
    values = record["values"]
    try:
        dtype = np.dtype(record["dtype"])
        if dtype.kind not in _LABEL_KINDS or not 0 <= dtype.itemsize * len(values) <= _MOST_BYTES:
            raise ValueError
        labels = np.array(values, dtype=dtype)
    except (MemoryError, OverflowError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"its labels are not of dtype {record['dtype'][:20]!r}") from error
    known = all(isinstance(v, bool | int | float | str) for v in values)
    # The same values and not others that NumPy makes of them, each of them once.
    if not known or labels.tolist() != values or len(set(values)) < len(values):
        raise ValueError("its labels are not different values of one kind")
    return labels
