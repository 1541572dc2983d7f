"""Model files: safetensors with versioned JSON metadata. Reading one runs no code.

A file holds the fields of a `FittedModel`, as `schema` takes them apart. What is written is checked as it would be
by reading it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnemosphere.base.files import plain, read_tensors, write_tensors
from mnemosphere.base.schema import Scalar, put_together, take_apart
from mnemosphere.fitted.model import FittedModel
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import PassRecord
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD

__all__ = ["FORMAT", "VERSION", "estimator_of", "read", "to_plain", "write"]

Settings = dict[str, Any]
SettingsCheck = Callable[[str, Mapping[str, Any]], None]  # estimator, settings; ValueError if bad
Tensors = dict[str, Tensor]

FORMAT = "mnemosphere-model"
VERSION = 8
_ESTIMATORS = ("DAMClassifier", "DAMClusterer")
# Settings that name things of the machine or the program that trained the model.
_NOT_SAVED = {"callbacks", "device"}
_OBJECTS: dict[str, type[Any]] = {kind.__name__: kind for kind in (FixedPoint, SGD, Adam)}
_LONGEST_REASON = 200  # a value quoted from a file can be of any length


def estimator_of(model: FittedModel) -> str:
    """The class of estimators that hold such a model."""
    return "DAMClassifier" if model.is_classifier else "DAMClusterer"


# Writing.


def write(model: FittedModel, path: str | Path, check_settings: SettingsCheck) -> None:
    """Write a fitted model to one file, atomically."""
    try:  # what could not be read is not written
        header, tensors = check(model, check_settings)
    except ValueError as error:
        raise ValueError(f"this model cannot be saved: {error}") from error
    write_tensors(Path(path), tensors, {"format": FORMAT, "version": VERSION, **header})


def check(
    model: FittedModel, check_settings: SettingsCheck | None = None
) -> tuple[dict[str, Any], Tensors]:
    """(header, tensors) of a model that `read` would give back; ValueError if it would refuse it."""
    header, tensors = _take_apart(model)
    header = json.loads(json.dumps(header))
    _put_together(header, tensors, check_settings or (lambda name, settings: None))
    return header, tensors


def _take_apart(model: FittedModel) -> tuple[dict[str, Any], Tensors]:
    """A fitted model as plain values and tensors."""
    tensors: Tensors = {}
    header = take_apart(type(model), _with_settings(model, _settings_out), tensors)
    for votes, density in _memories(tensors):
        both = tensors[votes], tensors[density]
        if both[0].dtype == both[1].dtype and torch.equal(*both):
            del tensors[density]  # a joint model has one set of memories
    return {"estimator": estimator_of(model), **header}, tensors


def _memories(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Names of the memories of votes and density, of each model that a file holds."""
    for name in [name for name in tensors if name.endswith("votes.w")]:
        yield name, name.removesuffix("votes.w") + "density.w"


def _with_settings(model: FittedModel, change: Callable[[str, Settings], Settings]) -> Any:
    """The model with other settings; so is the one that examples were added to."""
    record = replace(model.record, settings=change(estimator_of(model), model.record.settings))
    model = replace(model, record=record)
    if model.examples is None:
        return model
    base = _with_settings(model.examples.base, change)
    return replace(model, examples=replace(model.examples, base=base))


def _settings_out(name: str, settings: Settings) -> Settings:
    return {key: to_plain(value) for key, value in settings.items() if key not in _NOT_SAVED}


# Reading.


def read(path: str | Path, check_settings: SettingsCheck) -> FittedModel:
    """What a model file holds, every field of it checked; ValueError names the file and why."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no model file at {path}: check the path")
    header, tensors = read_tensors(path, FORMAT, VERSION)
    own = {k: v for k, v in header.items() if k not in ("format", "version")}
    try:
        return _put_together(own, tensors, check_settings)
    except (KeyError, ValueError) as error:
        told = f"the setting {error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(told.split())[:_LONGEST_REASON]
        raise ValueError(f"{path} is damaged: {reason}; save the model again") from error


def _put_together(
    header: dict[str, Any], tensors: Tensors, check_settings: SettingsCheck
) -> FittedModel:
    """Undo `_take_apart`; ValueError where fields or numbers make no model."""
    name, fields = header.get("estimator"), {k: v for k, v in header.items() if k != "estimator"}
    if name not in _ESTIMATORS:
        raise ValueError(f"estimator is {name!r}")
    shared = {density: tensors[votes] for votes, density in _memories(tensors)}
    model: FittedModel = put_together(FittedModel, fields, shared | tensors)
    if estimator_of(model) != name or model.features.owner != name:
        raise ValueError(f"it is the model of another estimator than {name}")

    def settings_in(name: str, settings: Settings) -> Settings:
        try:
            found = {key: _from_plain(value) for key, value in settings.items()}
        except (AttributeError, KeyError, OverflowError, TypeError) as error:
            raise ValueError(f"its settings are not those of a {name} ({error})") from error
        check_settings(name, found)
        return found

    model = _with_settings(model, settings_in)
    put_together(list[PassRecord], model.record.history, {}, "history")
    put_together(list[dict[str, Scalar]], model.record.search, {}, "search")
    return model


# Settings.


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


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict) and "pairs" in value:
        return dict(value["pairs"])
    if isinstance(value, dict) and "tuple" in value:
        return tuple(_from_plain(item) for item in value["tuple"])
    if isinstance(value, list):
        return [_from_plain(item) for item in value]
    if isinstance(value, dict):
        fields = {name: _from_plain(field) for name, field in value["fields"].items()}
        return _OBJECTS[value["object"]](**fields)
    return value
