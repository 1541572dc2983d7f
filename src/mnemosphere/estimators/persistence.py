"""Model files: safetensors with versioned JSON metadata. Reading one runs no code."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mnemosphere.estimators.preparation import NORMALIZATIONS, Normalizer
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.checkpoint import read_tensors, write_tensors
from mnemosphere.training.lineage import Lineage

if TYPE_CHECKING:
    from mnemosphere.estimators.base import SphereEstimator
    from mnemosphere.estimators.classifier import DAMClassifier
    from mnemosphere.estimators.clusterer import DAMClusterer

FORMAT = "mnemosphere-model"
VERSION = 1
# Settings that name things of the machine or the program that trained the model.
_NOT_SAVED = {"callbacks", "checkpoint", "device"}
_CALIBRATED = {"temperature", "novelty_threshold"}


def save(model: SphereEstimator, path: Path) -> None:
    """Write a fitted estimator."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    tensors: dict[str, Tensor] = {}
    for field in dataclasses.fields(model.params_):
        if field.name != "varsigma":
            tensors[f"params.{field.name}"] = getattr(model.params_, field.name)
    for name in ("mean", "scale"):
        tensors[f"normalizer.{name}"] = torch.as_tensor(getattr(model._normalizer, name))
    tensors |= {name: t for name, t in _own_tensors(model).items() if t is not None}
    if model.lineage_ is not None:
        tensors |= {f"lineage.{name}": t for name, t in model.lineage_.to_tensors().items()}
    about: Any = model  # what scikit-learn's base class and the two kinds of estimator add
    settings = {k: _plain(v) for k, v in about.get_params().items() if k not in _NOT_SAVED}
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "estimator": type(model).__name__,
        "varsigma": model.params_.varsigma,
        "normalize": model._normalizer.kind,
        "classes": _labels_to_json(about.classes_),
        "n_features_in": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", np.array([])).tolist(),
        "settings": settings,
        "selection": getattr(model, "selection_", []),
        "history": about.history_,
        "status": about.status_,
    }
    # What held-out rows settled; absent from older files.
    meta |= {name: getattr(model, name + "_") for name in _CALIBRATED if hasattr(model, name + "_")}
    write_tensors(path, tensors, meta)


def _own_tensors(model: Any) -> dict[str, Tensor | None]:
    """Arrays that only one kind of estimator has."""
    labels = getattr(model, "labels_", None)
    return {
        "seen": getattr(model, "_seen", None),
        "labels": None if labels is None else torch.from_numpy(labels.astype(np.int32)),
    }


def load(path: str | Path) -> DAMClassifier | DAMClusterer:
    """Read a model file: the estimator that was saved there, which predicts the same bits."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no model file at {path}: check the path")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the model file in it")
    meta, tensors = read_tensors(path, FORMAT, VERSION)
    try:
        return _rebuild(meta, tensors)
    except KeyError as error:
        reason = f"{error} is missing"
    except (TypeError, ValueError) as error:
        reason = str(error)
    raise ValueError(f"{path} is damaged: {reason}; save the model again")


def load_classifier(path: str | Path) -> DAMClassifier:
    """Read a model file that must hold a classifier."""
    from mnemosphere.estimators.classifier import DAMClassifier

    model = load(path)
    if not isinstance(model, DAMClassifier):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, which has latent classes and no labels: "
            "give a model that was trained with labels"
        )
    return model


def _rebuild(meta: dict[str, Any], tensors: dict[str, Tensor]) -> DAMClassifier | DAMClusterer:
    """The estimator that `save` took apart."""
    from mnemosphere.estimators.classifier import DAMClassifier
    from mnemosphere.estimators.clusterer import DAMClusterer

    def part(prefix: str) -> dict[str, Tensor]:
        start = prefix + "."
        return {k[len(start) :]: v for k, v in tensors.items() if k.startswith(start)}

    settings = dict(meta["settings"])
    if isinstance(settings.get("class_weight"), list):
        settings["class_weight"] = dict(settings["class_weight"])
    kinds: dict[str, type[DAMClassifier | DAMClusterer]] = {
        kind.__name__: kind for kind in (DAMClassifier, DAMClusterer)
    }
    if meta["estimator"] not in kinds:
        raise ValueError(f"estimator is {meta['estimator']!r}")
    model: Any = kinds[meta["estimator"]](**settings)
    if meta["normalize"] not in NORMALIZATIONS:
        raise ValueError(f"normalize is {meta['normalize']!r}")
    numbers = {name: t.numpy() for name, t in part("normalizer").items()}
    model._normalizer = Normalizer(meta["normalize"], **numbers)
    model._device = torch.device("cpu")
    if isinstance(model, DAMClassifier):
        model._seen = tensors["seen"]
        model.selection_ = meta["selection"]
    else:
        model.labels_ = tensors["labels"].numpy().astype(np.int64)
    model.classes_ = _labels_from_json(meta["classes"])
    model.n_features_in_ = int(meta["n_features_in"])
    if meta["feature_names"]:
        model.feature_names_in_ = np.array(meta["feature_names"], dtype=object)
    model.normalize_ = meta["normalize"]
    model.history_ = meta["history"]
    model.status_ = meta["status"]
    lineage = part("lineage")
    model.lineage_ = Lineage.from_tensors(lineage) if lineage else None
    params = Parameters(varsigma=float(meta["varsigma"]), **part("params")).check()
    shape = (model.n_features_in_ + model._normalizer.extra, model.classes_.shape[0] + 1)
    if (params.n_features, params.n_columns) != shape:
        raise ValueError(f"it is of {params.n_features} features and {params.n_columns} classes")
    model._dtype = params.w.dtype
    model._keep(params)
    for name in _CALIBRATED & meta.keys():
        setattr(model, name + "_", None if meta[name] is None else float(meta[name]))
    fitted: DAMClassifier | DAMClusterer = model
    return fitted


def _plain(value: object) -> object:
    """A setting as JSON can hold it; None for an object it cannot, such as a generator."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):  # as pairs: a name in JSON is always a string
        return [[_plain(name), _plain(weight)] for name, weight in value.items()]
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _labels_to_json(classes: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Labels with what is needed to get the same array back."""
    if classes.dtype.kind not in "biufUO" or not all(
        isinstance(v, (bool, int, float, str)) for v in classes.tolist()
    ):
        raise ValueError(
            f"labels of dtype {classes.dtype} cannot be saved: use numbers, strings or booleans"
        )
    return {"dtype": classes.dtype.str, "values": json.loads(json.dumps(classes.tolist()))}


def _labels_from_json(record: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array(record["values"], dtype=np.dtype(record["dtype"]))
