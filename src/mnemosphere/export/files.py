"""Model files: safetensors with versioned JSON metadata. Reading one runs no code.

A file holds a `FittedModel`, a `FittedEncoder`, or the named steps of a pipeline of them. `FIELDS` and `ARRAYS`
say what may stand in it: what is written and what is read is checked by them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.checks import check_model
from mnemosphere.data.encoding import COLUMNS, Encoding
from mnemosphere.data.normalize import NORMALIZATIONS, Normalizer
from mnemosphere.data.texts import TextEncoder
from mnemosphere.encoder import FittedEncoder, patch_layer, windows_of
from mnemosphere.features import Features
from mnemosphere.files import join_prefixes, plain, read_tensors, strip_prefix, write_tensors
from mnemosphere.fitted import (
    Calibration,
    Examples,
    Exemplars,
    FittedModel,
    Record,
    Stream,
    trained_with,
)
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.votes import Votes
from mnemosphere.schema import (
    Array,
    Check,
    check_fields,
    check_tensors,
    flag,
    items,
    mapping,
    maybe,
    number,
    one_of,
    records_of,
    scalars,
    text,
    whole,
)
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import PassRecord
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.sgd import SGD

__all__ = ["FORMAT", "VERSION", "Saved", "Steps", "estimator_of", "read", "to_plain", "write"]

Saved = FittedModel | FittedEncoder
Steps = list[tuple[str, Saved]]  # of a pipeline
SettingsCheck = Callable[[str, Mapping[str, Any]], None]  # estimator, settings; ValueError if bad
Tensors = dict[str, Tensor]

FORMAT = "mnemosphere-model"
VERSION = 5
_KINDS = {"DAMClassifier": "classifier", "DAMClusterer": "clusterer"}
_ENCODER, _PIPELINE = "PatchEncoder", "Pipeline"
_VOTES = ("w", "p", "slope", "offset", "prior")
# Settings that name things of the machine or the program that trained the model.
_NOT_SAVED = {"callbacks", "device"}
_OBJECTS: dict[str, type[Any]] = {kind.__name__: kind for kind in (FixedPoint, SGD, Adam)}
_LABEL_KINDS = "biufUO"
_LONGEST_REASON = 200  # a value quoted from a file can be of any length
_MOST_BYTES = 1 << 28  # of an array of labels


# The fields of a file.


def _any(value: Any, name: str) -> None:
    """A setting: the estimator knows what it may be."""


def _mapping(value: Any, name: str) -> None:
    check_fields(value, dict.fromkeys(value if isinstance(value, dict) else (), _any), name)


_optional = partial(Array, optional=True)
_COMMON: dict[str, Check] = {
    "estimator": text,
    "n_features_in": whole(1),
    "feature_names": items(text),
    "settings": _mapping,
    "history": records_of(PassRecord),
    "status": text,
    "converged": flag,
}
_TEXT_ENCODER = {"name": text, "numbers": whole(1), "fingerprint": items(number(), 1)}
# Headers of the estimators.
_MODEL: dict[str, Check] = _COMMON | {
    "objective": one_of("joint", "conditional"),
    "temperature": number(0, 1e300, above=True),
    "normalize": one_of(*NORMALIZATIONS),
    "classes": mapping({"dtype": text, "values": items(_any, 1)}),
    "columns": COLUMNS,
    "encoder": maybe(mapping(_TEXT_ENCODER)),
    "search": items(scalars),
    "novelty_spread": maybe(number(0, 1e300, above=True)),
    "base": maybe(_mapping),  # the model before examples were added
}
FIELDS: dict[str, dict[str, Check]] = {
    **dict.fromkeys(_KINDS, _MODEL),
    _ENCODER: _COMMON | {"image_shape": items(whole(1), 1)},
}
# Of a model: P memories, Q = P+1 components, C columns of K classes and none of them.
ARRAYS: dict[str, Array] = {
    "w": Array("P N", None),
    "p": Array("Q C", None, low=0),
    "slope": Array("", None, low=0),
    "offset": Array("", None),
    "prior": Array("C", None, low=0),
    "label_mass": _optional("C", None, low=0),
    "labels": _optional("rows", "int32", low=0),  # of a clusterer
    "held_out_scale": _optional("3"),
    "held_out_novelty": _optional("held", nan=True),
    "held_out_rejection": _optional("held", nan=True),
    "held_out_label": _optional("labeled"),
    "held_out_predicted": _optional("held", "int64", low=-1),
    "held_out_right": _optional("held", "int64", low=-1),
    "held_out_outside": _optional("outside", nan=True),
    "held_out_temperature": _optional(low=0),
    "typical": _optional("P 3", "int64", low=-1),
    "support": _optional("P", low=0, nan=True),
    "row_means": _optional("P numbers", nan=True),
    "row_names": _optional("letters", "uint8"),
    "named": _optional("characters", "uint8"),
    "observed": _optional("3 numbers"),
    # Of a stream, with S memories and R = S+1 components.
    "w_bar": _optional("S N", None),
    "p_bar": _optional("R C", None, low=0),
    "col_multipliers": _optional("C"),
    "row_multipliers": _optional("R"),
    "passes": _optional(low=0),
    "late": _optional("K", "bool"),
}
# Tensors with names such as density.w: what they belong to checks them.
_PARTS = {"density", "examples", "normalizer", "lineage"}
_STATE = ("w_bar", "p_bar", "col_multipliers", "row_multipliers", "passes")
_SCORES = tuple(part.name for part in dataclasses.fields(Calibration))


def estimator_of(model: Saved) -> str:
    """The class of estimators that hold such a model."""
    if isinstance(model, FittedEncoder):
        return _ENCODER
    return next(name for name, kind in _KINDS.items() if kind == model.kind)


# Writing.


def write(model: Saved | Steps, path: str | Path, check_settings: SettingsCheck) -> None:
    """Write a fitted model, or the steps of a pipeline, to one file, atomically."""
    try:  # what could not be read is not written
        header, tensors = check(model, check_settings)
    except ValueError as error:
        raise ValueError(f"this model cannot be saved: {error}") from error
    write_tensors(Path(path), tensors, {"format": FORMAT, "version": VERSION, **header})


def check(
    model: Saved | Steps, check_settings: SettingsCheck | None = None
) -> tuple[dict[str, Any], Tensors]:
    """(header, tensors) of a model that `read` would give back; ValueError if it would refuse it."""
    header, tensors = _take_apart(model)
    header = json.loads(json.dumps(header))
    _put_together(header, tensors, check_settings or (lambda name, settings: None))
    return header, tensors


def _take_apart(model: Saved | Steps) -> tuple[dict[str, Any], Tensors]:
    """A fitted model as plain values and tensors."""
    if isinstance(model, list):
        parts = [(name, *_take_apart(step)) for name, step in model]
        tensors = join_prefixes({f"steps.{i}": own for i, (_, _, own) in enumerate(parts)})
        steps = [{"name": name, **header} for name, header, _ in parts]
        return {"estimator": _PIPELINE, "steps": steps}, tensors
    record, features = model.record, model.features
    header: dict[str, Any] = {
        "estimator": estimator_of(model),
        "n_features_in": features.n_columns,
        "feature_names": list(features.columns or ()),
        "settings": {k: to_plain(v) for k, v in record.settings.items() if k not in _NOT_SAVED},
        "history": record.history,
        "status": record.status,
        "converged": record.converged,
    }
    if isinstance(model, FittedEncoder):
        header["image_shape"] = list(model.image_shape)
        layers = {f"layers.{i}": layer.params.to_tensors() for i, layer in enumerate(model.layers)}
        tensors = join_prefixes(layers)
    else:
        own, tensors = _model_out(model)
        header |= own
    return header, {name: t.detach().cpu() for name, t in tensors.items()}


def _model_out(model: FittedModel) -> tuple[dict[str, Any], Tensors]:
    """What a model has more than other steps of a pipeline."""
    features, votes, behind = model.features, model.votes, model.exemplars
    encoder = features.encoder
    header: dict[str, Any] = {
        "objective": model.objective,
        "temperature": votes.temperature,
        "normalize": model.normalizer.kind,
        "classes": _labels_out(model.classes),
        "columns": [] if features.encoding is None else features.encoding.to_json(),
        "encoder": None,
        "search": plain(model.record.search),
        "novelty_spread": model.record.novelty_spread,
        "base": None,
    }
    if encoder is not None:
        values = encoder.name, encoder.n_numbers, list(encoder.fingerprint)
        header["encoder"] = dict(zip(_TEXT_ENCODER, values, strict=True))
    tensors: Tensors = {name: getattr(votes, name) for name in _VOTES}
    if model.label_mass is not None:
        tensors["label_mass"] = model.label_mass
    if model.labels is not None:
        tensors["labels"] = torch.from_numpy(model.labels.astype(np.int32))
    found = {"observed": features.observed, "named": _as_bytes(features.named)}
    if behind is not None:
        found |= {"typical": behind.typical, "support": behind.support, "row_means": behind.means}
        found["row_names"] = _as_bytes(behind.names)
    if model.calibration is not None:
        # The score of a row without direction is infinite; files hold finite numbers and NaN.
        finite = partial(np.nan_to_num, nan=np.nan, posinf=np.nan)
        found |= {f"held_out_{k}": finite(np.array(v)) for k, v in vars(model.calibration).items()}
    tensors |= {k: torch.from_numpy(np.array(v)) for k, v in found.items() if v is not None}
    parts = {"density": model.density.to_tensors(), "normalizer": model.normalizer.to_tensors()}
    if model.is_joint:  # one set of memories
        del parts["density"]["w"]
    if model.lineage is not None:
        parts["lineage"] = model.lineage.to_tensors()
    if model.examples is not None:
        header["base"], parts["examples"] = _examples_out(model.examples)
    if model.stream is not None:
        late = [label in model.stream.late for label in model.classes.tolist()]
        tensors |= {**model.stream.state, "late": torch.tensor(late)}
    return header, tensors | join_prefixes(parts)


def _examples_out(added: Examples) -> tuple[dict[str, Any], Tensors]:
    """(header of the model before, its tensors and the rows); it has the first of the memories."""
    header, tensors = _take_apart(added.base)
    own = {k: t for k, t in tensors.items() if k not in ("w", "density.w")}
    rows = {"x": added.x, "columns": torch.tensor(added.columns)}
    texts = torch.from_numpy(_as_bytes([text or "" for text in added.texts]))
    return header, join_prefixes({"base": own}) | rows | {"texts": texts}


# Reading.


def read(path: str | Path, check_settings: SettingsCheck) -> Saved | Steps:
    """What a model file holds, every field of it checked; ValueError names the file and why."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no model file at {path}: check the path")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the model file in it")
    header, tensors = read_tensors(path, FORMAT, VERSION)
    own = {k: v for k, v in header.items() if k not in ("format", "version")}
    try:
        return _put_together(own, tensors, check_settings)
    except (KeyError, ValueError) as error:
        told = f"the tensor {error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(told.split())[:_LONGEST_REASON]
        raise ValueError(f"{path} is damaged: {reason}; save the model again") from error


def _put_together(
    header: dict[str, Any], tensors: Tensors, check_settings: SettingsCheck
) -> Saved | Steps:
    """Undo `_take_apart`; ValueError where fields or numbers make no model."""
    name = header.get("estimator")
    if name == _PIPELINE:
        return _pipeline(header, tensors, check_settings)
    if not isinstance(name, str) or name not in FIELDS:
        raise ValueError(f"estimator is {name!r}")
    check_fields(header, FIELDS[name])
    try:
        settings = {key: _from_plain(value) for key, value in header["settings"].items()}
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"its settings are not those of a {name} ({error})") from error
    check_settings(name, settings)
    record = Record(settings, header["history"], header["status"], header["converged"])
    if name == _ENCODER:
        return _encoder(header, tensors, record)
    check_tensors({k: t for k, t in tensors.items() if k.partition(".")[0] not in _PARTS}, ARRAYS)
    base = None
    if header["base"] is not None:
        base = _put_together(header["base"], _base_tensors(tensors), check_settings)
    return _model(header, tensors, record, base)


def _pipeline(header: dict[str, Any], tensors: Tensors, check_settings: SettingsCheck) -> Steps:
    check_fields(header, {"estimator": text, "steps": items(_step, 1)})
    names = [step["name"] for step in header["steps"]]
    if len({*names}) < len(names) or any("__" in step for step in names):
        raise ValueError(f"the steps of the pipeline are called {names}")
    steps: Steps = []
    for i, step in enumerate(header["steps"]):
        own = {key: value for key, value in step.items() if key != "name"}
        made = _put_together(own, strip_prefix(tensors, f"steps.{i}"), check_settings)
        if isinstance(made, list):
            raise ValueError("a step of the pipeline is a pipeline")
        steps.append((step["name"], made))
    if sum(len(strip_prefix(tensors, f"steps.{i}")) for i in range(len(steps))) < len(tensors):
        raise ValueError("it has a tensor of a step that is unknown")
    for (_, before), (_, after) in itertools.pairwise(steps):
        given = before.n_out if isinstance(before, FittedEncoder) else before.n_memories
        if given != after.features.n_columns:
            raise ValueError("a step of the pipeline does not take what the one before gives")
    return steps


def _step(value: Any, name: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(f"{name} is not a step of a pipeline")


def _features(header: dict[str, Any], **more: Any) -> Features:
    names, n_features = header["feature_names"], header["n_features_in"]
    if names and len(names) != n_features:
        raise ValueError(f"it has {len(names)} names for {n_features} features")
    return Features(n_features, tuple(names) or None, owner=header["estimator"], **more)


def _encoder(header: dict[str, Any], tensors: Tensors, record: Record) -> FittedEncoder:
    settings, shape, features = record.settings, tuple(header["image_shape"]), _features(header)
    if math.prod(shape) != features.n_columns:
        raise ValueError(f"its images are of shape {shape}")
    layers = []
    for i, windows in enumerate(windows_of(settings, shape)):
        params = Parameters.from_file(tensors, f"layers.{i}")
        if params.n_features != windows.n_features:
            raise ValueError(f"its patches are of {params.n_features} numbers")
        layers.append(patch_layer(settings, windows, params))
    if len({layer.params.w.dtype for layer in layers}) > 1:
        raise ValueError("its patch memories are of several precisions")
    if sum(len(layer.params.to_tensors()) for layer in layers) != len(tensors):
        raise ValueError("it has a tensor that is unknown")
    return FittedEncoder(features, shape, tuple(layers), float(settings["power"]), record)


def _model(
    header: dict[str, Any], tensors: Tensors, record: Record, base: Saved | Steps | None
) -> FittedModel:
    columns, encoder, labels = header["columns"], header["encoder"], tensors.get("labels")
    if columns and [column["name"] for column in columns] != header["feature_names"]:
        raise ValueError("feature_names and the names of its columns differ")
    features = _features(
        header,
        encoding=Encoding.from_json(columns) if columns else None,
        named=_texts(tensors, "named", items(text)),
        encoder=encoder and TextEncoder(
            encoder["name"], encoder["numbers"], tuple(map(float, encoder["fingerprint"]))
        ),
        observed=_array(tensors, "observed"),
    )  # fmt: skip
    read: Any = {name: tensors[name] for name in _VOTES}
    votes = Votes(**read, temperature=float(header["temperature"])).check()
    own = strip_prefix(tensors, "density")
    if header["objective"] == "joint":
        own["w"] = votes.w
    density, classes = Parameters.from_tensors(own).check(), _labels_in(header["classes"])
    if header["objective"] == "joint":
        votes = votes.replace(varsigma=density.varsigma)
    tree, learned = strip_prefix(tensors, "lineage"), strip_prefix(tensors, "normalizer")
    model = FittedModel(
        _KINDS[header["estimator"]], votes, density,
        Normalizer.from_tensors(header["normalize"], learned, features.n_numbers),
        features, classes,
        calibration=_calibration(tensors, len(classes)),
        label_mass=tensors.get("label_mass"),
        labels=None if labels is None else labels.numpy().astype(np.int64),
        exemplars=_exemplars(tensors),
        examples=_examples(tensors, base, classes),
        lineage=Lineage.from_tensors(tree) if tree else None,
        stream=_stream(tensors, density, classes.tolist()),
        record=dataclasses.replace(
            record, search=header["search"], novelty_spread=header["novelty_spread"]
        ),
        **trained_with(record.settings | {"objective": header["objective"]}),
    )  # fmt: skip
    return check_model(model)


def _calibration(tensors: Tensors, n_classes: int) -> Calibration | None:
    if "held_out_scale" not in tensors:
        return None
    given = {k: np.nan_to_num(tensors[f"held_out_{k}"].numpy(), nan=np.inf) for k in _SCORES}
    scores = Calibration(**given | {"temperature": float(given["temperature"])})
    ordered = scores.novelty, scores.rejection, scores.label, scores.outside
    if not (scores.scale > 0).all() or any((own[1:] < own[:-1]).any() for own in ordered):
        raise ValueError("its held-out scores are not sorted, or have no scale")
    if not scores.temperature > 0:
        raise ValueError(f"temperature of its held-out scores is {scores.temperature}")
    if scores.predicted.max(initial=-1) >= n_classes or scores.right.max() > 1:
        raise ValueError("its held-out rows have classes that it does not know")
    return scores


def _exemplars(tensors: Tensors) -> Exemplars | None:
    if "typical" not in tensors:
        return None
    names, typical = _texts(tensors, "row_names", items(items(text, 3))), tensors["typical"]
    if names is not None and np.shape(names) != typical.shape:
        raise ValueError(f"row_names are of {len(names)} memories")
    named = None if names is None else np.array(names, dtype=object)
    means = _array(tensors, "row_means")
    return Exemplars(typical.numpy(), tensors["support"].numpy(), named, means)


def _base_tensors(tensors: Tensors) -> Tensors:
    """Those of the model before examples were added: it has the first of the memories."""
    found = strip_prefix(tensors, "examples.base")
    for name in ("", "density."):
        if f"{name}w" in tensors:
            found[f"{name}w"] = tensors[f"{name}w"][: len(found[f"{name}p"]) - 1]
    return found


def _examples(
    tensors: Tensors, base: Saved | Steps | None, classes: NDArray[Any]
) -> Examples | None:
    """Undo `_examples_out`; ValueError where these are no examples of this model."""
    if base is None:
        return None
    given = strip_prefix(tensors, "examples")
    texts = _texts(given, "texts", items(text)) or ()
    rows = {name: given[name] for name in ("x", "columns")}
    about = {"x": Array("n N"), "columns": Array("n", "int64", low=0)}
    check_tensors(rows, about, {"n": len(texts), "N": tensors["w"].shape[1]})
    same = isinstance(base, FittedModel) and base.classes.tolist() == classes.tolist()
    if not texts or not same or int(rows["columns"].max()) > len(classes):
        raise ValueError("its examples are none of its classes")
    assert isinstance(base, FittedModel)
    return Examples(base, rows["x"], rows["columns"].numpy(), [own or None for own in texts])


def _stream(tensors: Tensors, params: Parameters, names: list[Any]) -> Stream | None:
    """What a stream goes on from; ValueError if that is no stream of this model."""
    if "w_bar" not in tensors:
        return None
    state = {name: tensors[name] for name in _STATE}
    if state["w_bar"].shape != params.w.shape or state["p_bar"].shape != params.p.shape:
        raise ValueError(f"its stream is of {len(state['w_bar'])} memories")
    if not state["w_bar"].dtype == state["p_bar"].dtype == params.w.dtype:
        raise ValueError(f"its stream is of {state['w_bar'].dtype}, its memories {params.w.dtype}")
    late = tensors["late"].tolist()
    if len(late) != len(names):
        raise ValueError(f"its stream is of {len(late)} classes")
    return Stream(state, frozenset(n for n, is_late in zip(names, late, strict=True) if is_late))


# Plain values.


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


def _labels_out(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels with what is needed to get the same array back."""
    if classes.dtype.kind not in _LABEL_KINDS or not all(
        isinstance(v, (bool, int, float, str)) for v in classes.tolist()
    ):
        raise ValueError(
            f"labels of dtype {classes.dtype} cannot be saved: use numbers, strings or booleans"
        )
    return {"dtype": classes.dtype.str, "values": json.loads(json.dumps(classes.tolist()))}


def _labels_in(record: dict[str, Any]) -> NDArray[Any]:
    """Undo `_labels_out`; ValueError where these are no labels."""
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


def _as_bytes(names: Any) -> Any:
    """Texts as an array: a header is no place for many."""
    if names is None:
        return None
    told = json.dumps(np.asarray(names, dtype=object).tolist()).encode()
    return np.frombuffer(bytearray(told), dtype=np.uint8)


def _texts(tensors: Tensors, name: str, check: Check) -> tuple[Any, ...] | None:
    """Undo `_as_bytes`."""
    if name not in tensors:
        return None
    found = json.loads(tensors[name].numpy().tobytes())
    check(found, name)
    return tuple(found)


def _array(tensors: Tensors, name: str) -> NDArray[Any] | None:
    return tensors[name].numpy() if name in tensors else None
