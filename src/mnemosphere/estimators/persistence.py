"""Model files: safetensors with versioned JSON metadata. Reading one runs no code."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.normalize import NORMALIZATIONS, Normalizer
from mnemosphere.files import plain, read_tensors, strip_prefix, write_tensors
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.refine import Refinement
from mnemosphere.training.sgd import SGD

__all__ = ["load", "register", "save"]

FORMAT = "mnemosphere-model"
VERSION = 2
# Settings that name things of the machine or the program that trained the model.
_NOT_SAVED = {"callbacks", "device"}
_OBJECTS: dict[str, type[Any]] = {kind.__name__: kind for kind in (FixedPoint, SGD, Refinement)}
_ESTIMATORS: dict[str, type[Any]] = {}
Estimator = TypeVar("Estimator")


def register(kind: type[Estimator]) -> type[Estimator]:
    """Let `load` give back estimators of this class."""
    _ESTIMATORS[kind.__name__] = kind
    return kind


def save(model: Any, path: Path) -> None:
    """Write a fitted estimator."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    tensors = {f"params.{name}": t for name, t in model.params_.to_tensors().items()}
    for name in ("mean", "scale"):
        value = getattr(model._normalizer, name)
        if value is not None:
            tensors[f"normalizer.{name}"] = value
    if model.lineage_ is not None:
        tensors |= {f"lineage.{name}": t for name, t in model.lineage_.to_tensors().items()}
    if model.typical_rows_ is not None:
        tensors["rows.typical"] = torch.from_numpy(model.typical_rows_)
        tensors["rows.support"] = torch.from_numpy(model.support_)
    tensors |= {f"own.{name}": t for name, t in model._own_tensors().items()}
    settings = {k: _to_json(v) for k, v in model.get_params().items() if k not in _NOT_SAVED}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "estimator": type(model).__name__,
        "normalize": model._normalizer.kind,
        "classes": _labels_to_json(model.classes_),
        "n_features_in": model.n_features_in_,
        "feature_names": plain(getattr(model, "feature_names_in_", [])),
        "settings": settings,
        "history": model.history_,
        "status": model.status_,
        "converged": model.converged_,
        "own": plain(model._own_header()),
    }
    write_tensors(path, tensors, header)


def load(path: str | Path) -> Any:
    """Read a model file: the estimator that was saved there, which predicts the same bits."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no model file at {path}: check the path")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the model file in it")
    header, tensors = read_tensors(path, FORMAT, VERSION)
    try:
        return _rebuild(header, tensors)
    except KeyError as error:
        reason = f"{error} is missing"
    except (AttributeError, TypeError, ValueError) as error:
        reason = str(error)
    raise ValueError(f"{path} is damaged: {reason}; save the model again")


def _rebuild(header: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """The estimator that `save` took apart."""
    settings = {name: _from_json(value) for name, value in header["settings"].items()}
    if header["estimator"] not in _ESTIMATORS:
        raise ValueError(f"estimator is {header['estimator']!r}")
    if header["normalize"] not in NORMALIZATIONS:
        raise ValueError(f"normalize is {header['normalize']!r}")
    model = _ESTIMATORS[header["estimator"]](**settings)
    model._normalizer = Normalizer(header["normalize"], **strip_prefix(tensors, "normalizer"))
    model.normalize_ = header["normalize"]
    model.classes_ = _labels_from_json(header["classes"])
    model.n_features_in_ = int(header["n_features_in"])
    if header["feature_names"]:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    model.history_, model.status_ = header["history"], header["status"]
    model.n_iter_, model.converged_ = len(model.history_), bool(header["converged"])
    lineage = strip_prefix(tensors, "lineage")
    model.lineage_ = Lineage.from_tensors(lineage) if lineage else None
    params = Parameters.from_tensors(strip_prefix(tensors, "params")).check()
    shape = (model.n_features_in_ + model._normalizer.extra, model.classes_.shape[0] + 1)
    if (params.n_features, params.n_columns) != shape:
        raise ValueError(f"it is of {params.n_features} features and {params.n_columns} classes")
    model._set_params(params)
    rows = strip_prefix(tensors, "rows")
    if rows:
        model.typical_rows_, model.support_ = rows["typical"].numpy(), rows["support"].numpy()
    model._set_own(strip_prefix(tensors, "own"), header["own"])
    return model


def _to_json(value: object) -> object:
    """A setting as JSON can hold it; None for an object it cannot, such as a generator."""
    if type(value).__name__ in _OBJECTS and dataclasses.is_dataclass(value):
        fields = {f.name: _to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"object": type(value).__name__, "fields": fields}
    if isinstance(value, dict):  # as pairs: a name in JSON is always a string
        return {"pairs": [[_to_json(name), _to_json(weight)] for name, weight in value.items()]}
    value = plain(value)
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and "pairs" in value:
        return dict(value["pairs"])
    if isinstance(value, dict):
        fields = {name: _from_json(field) for name, field in value["fields"].items()}
        return _OBJECTS[value["object"]](**fields)
    return value


def _labels_to_json(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels with what is needed to get the same array back."""
    if classes.dtype.kind not in "biufUO" or not all(
        isinstance(v, (bool, int, float, str)) for v in classes.tolist()
    ):
        raise ValueError(
            f"labels of dtype {classes.dtype} cannot be saved: use numbers, strings or booleans"
        )
    return {"dtype": classes.dtype.str, "values": json.loads(json.dumps(classes.tolist()))}


def _labels_from_json(record: dict[str, Any]) -> NDArray[Any]:
    return np.array(record["values"], dtype=np.dtype(record["dtype"]))
