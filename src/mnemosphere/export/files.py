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
VERSION = 6
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
    "named": maybe(items(text)),
    "row_names": maybe(items(items(text, 3))),
    "examples": maybe(mapping({"base": _mapping, "texts": items(text, 1)})),
}
FIELDS: dict[str, dict[str, Check]] = {
    **dict.fromkeys(_KINDS, _MODEL),
    _ENCODER: _COMMON | {"image_shape": items(whole(1), 1)},
}
_PARTS = {
    "density", "examples", "exemplars", "held_out", "lineage", "normalizer", "stream",
}  # fmt: skip
# Of a model: P memories, Q = P+1 components, C columns of K classes and none of them.
ARRAYS: dict[str, Array] = {
    "w": Array("P N", None),
    "p": Array("Q C", None, low=0),
    "slope": Array("", None, low=0),
    "offset": Array("", None),
    "prior": Array("C", None, low=0),
    "label_mass": _optional("C", None, low=0),
    "labels": _optional("rows", "int32", low=0),  # of a clusterer
    "observed": _optional("3 numbers"),
    "trained_rows": _optional("sketched", "int64"),
}
# Tensors of its parts, with names such as density.w; density, normalizer and lineage check their own.
_HELD_OUT = {
    "scale": Array("3"),
    "novelty": Array("held", nan=True),
    "rejection": Array("held", nan=True),
    "label": Array("labeled"),
    "predicted": Array("held", "int64", low=-1),
    "right": Array("held", "int64", low=-1),
    "outside": Array("outside", nan=True),
    "temperature": Array(low=0),
}
_EXEMPLARS = {
    "typical": Array("P 3", "int64", low=-1),
    "support": Array("P", low=0, nan=True),
    "means": _optional("P numbers", nan=True),
}
_EXAMPLES = {"x": Array("rows N"), "columns": Array("rows", "int64", low=0)}
_STREAM = {
    "w_bar": Array("P N", None),
    "p_bar": Array("Q C", None, low=0),
    "col_multipliers": Array("C"),
    "row_multipliers": Array("Q"),
    "passes": Array(low=0),
    "late": Array("K", "bool"),
}


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
        steps = [[name, header] for name, header, _ in parts]
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
        "named": features.named,
        "row_names": None if behind is None or behind.names is None else behind.names.tolist(),
        "examples": None,
    }
    if encoder is not None:
        values = encoder.name, encoder.n_numbers, list(encoder.fingerprint)
        header["encoder"] = dict(zip(_TEXT_ENCODER, values, strict=True))
    tensors: Tensors = {name: getattr(votes, name) for name in _VOTES}
    if model.label_mass is not None:
        tensors["label_mass"] = model.label_mass
    if model.labels is not None:
        tensors["labels"] = torch.from_numpy(model.labels.astype(np.int32))
    if features.observed is not None:
        tensors["observed"] = torch.tensor(features.observed)
    if model.record.trained_rows is not None:
        tensors["trained_rows"] = torch.from_numpy(model.record.trained_rows)
    parts = {"density": model.density.to_tensors(), "normalizer": model.normalizer.to_tensors()}
    if model.is_joint:  # one set of memories
        del parts["density"]["w"]
    if behind is not None:
        parts["exemplars"] = _tensors(behind, _EXEMPLARS)
    if model.calibration is not None:
        # The score of a row without direction is infinite; files hold finite numbers and NaN.
        held = _tensors(model.calibration, _HELD_OUT).items()
        parts["held_out"] = {k: t.nan_to_num(torch.nan, torch.nan) for k, t in held}
    if model.lineage is not None:
        parts["lineage"] = model.lineage.to_tensors()
    if model.stream is not None:
        late = [label in model.stream.late for label in model.classes.tolist()]
        parts["stream"] = {**model.stream.state, "late": torch.tensor(late)}
    if model.examples is not None:
        added = model.examples
        base, own = _take_apart(added.base)
        header["examples"] = {"base": base, "texts": [text or "" for text in added.texts]}
        rows = {"x": added.x, "columns": torch.tensor(added.columns)}
        parts["examples"] = join_prefixes({"base": own}) | rows
    return header, tensors | join_prefixes(parts)


def _tensors(part: object, arrays: Mapping[str, Array]) -> Tensors:
    """Those of the arrays that a part of a model has."""
    found = {name: getattr(part, name) for name in arrays}
    return {name: torch.tensor(np.array(v)) for name, v in found.items() if v is not None}


# Reading.


def read(path: str | Path, check_settings: SettingsCheck) -> Saved | Steps:
    """What a model file holds, every field of it checked; ValueError names the file and why."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no model file at {path}: check the path")
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
    if header["examples"] is not None:
        own = strip_prefix(tensors, "examples.base")
        base = _put_together(header["examples"]["base"], own, check_settings)
    return _model(header, tensors, record, base)


def _pipeline(header: dict[str, Any], tensors: Tensors, check_settings: SettingsCheck) -> Steps:
    check_fields(header, {"estimator": text, "steps": items(_step, 1)})
    names = [name for name, _ in header["steps"]]
    if len({*names}) < len(names) or any("__" in step for step in names):
        raise ValueError(f"the steps of the pipeline are called {names}")
    steps: Steps = []
    for i, (name, own) in enumerate(header["steps"]):
        made = _put_together(own, strip_prefix(tensors, f"steps.{i}"), check_settings)
        if isinstance(made, list):
            raise ValueError("a step of the pipeline is a pipeline")
        steps.append((name, made))
    if sum(len(strip_prefix(tensors, f"steps.{i}")) for i in range(len(steps))) < len(tensors):
        raise ValueError("it has a tensor of a step that is unknown")
    for (_, before), (_, after) in itertools.pairwise(steps):
        given = before.n_out if isinstance(before, FittedEncoder) else before.n_memories
        if given != after.features.n_columns:
            raise ValueError("a step of the pipeline does not take what the one before gives")
    return steps


def _step(value: Any, name: str) -> None:
    match value:
        case [str(), dict()]:
            return
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
        named=None if header["named"] is None else tuple(header["named"]),
        encoder=encoder and TextEncoder(
            encoder["name"], encoder["numbers"], tuple(map(float, encoder["fingerprint"]))
        ),
        observed=_arrays(tensors).get("observed"),
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
        exemplars=_exemplars(tensors, header["row_names"], votes.n_memories),
        examples=_examples(header, tensors, base, votes.n_features),
        lineage=Lineage.from_tensors(tree) if tree else None,
        stream=_stream(tensors, density, classes.tolist()),
        record=dataclasses.replace(
            record, search=header["search"], novelty_spread=header["novelty_spread"],
            trained_rows=_arrays(tensors).get("trained_rows"),
        ),
        **trained_with(record.settings | {"objective": header["objective"]}),
    )  # fmt: skip
    return check_model(model)


def _calibration(tensors: Tensors, n_classes: int) -> Calibration | None:
    own = strip_prefix(tensors, "held_out")
    if not own:
        return None
    check_tensors(own, _HELD_OUT)
    given = {k: np.nan_to_num(v, nan=np.inf) for k, v in _arrays(own).items()}
    scores = Calibration(**given | {"temperature": float(given["temperature"])})
    ordered = scores.novelty, scores.rejection, scores.label, scores.outside
    if not (scores.scale > 0).all() or any((own[1:] < own[:-1]).any() for own in ordered):
        raise ValueError("its held-out scores are not sorted, or have no scale")
    if not scores.temperature > 0:
        raise ValueError(f"temperature of its held-out scores is {scores.temperature}")
    if scores.predicted.max(initial=-1) >= n_classes or scores.right.max() > 1:
        raise ValueError("its held-out rows have classes that it does not know")
    return scores


def _exemplars(tensors: Tensors, names: Any, n_memories: int) -> Exemplars | None:
    own = strip_prefix(tensors, "exemplars")
    if not own:
        return None
    check_tensors(own, _EXEMPLARS, {"P": n_memories})
    if names is not None and np.shape(names) != own["typical"].shape:
        raise ValueError(f"row_names are of {len(names)} memories")
    return Exemplars(names=names and np.array(names, dtype=object), **_arrays(own))


def _examples(
    header: dict[str, Any], tensors: Tensors, base: Saved | Steps | None, n_features: int
) -> Examples | None:
    """Rows that were added; ValueError where these are no examples of this model."""
    if base is None:
        return None
    texts = header["examples"]["texts"]
    rows = {k: t for k, t in strip_prefix(tensors, "examples").items() if "." not in k}
    check_tensors(rows, _EXAMPLES, {"rows": len(texts), "N": n_features})
    same = isinstance(base, FittedModel) and _labels_out(base.classes) == header["classes"]
    if not same or int(rows["columns"].max()) > len(header["classes"]["values"]):
        raise ValueError("its examples are none of its classes")
    assert isinstance(base, FittedModel)
    return Examples(base, rows["x"], rows["columns"].numpy(), [own or None for own in texts])


def _stream(tensors: Tensors, params: Parameters, names: list[Any]) -> Stream | None:
    """What a stream goes on from; ValueError if that is no stream of this model."""
    state = strip_prefix(tensors, "stream")
    if not state:
        return None
    (P, N), (Q, C) = params.w.shape, params.p.shape
    check_tensors(state, _STREAM, {"P": P, "N": N, "Q": Q, "C": C, "K": len(names)})
    if not state["w_bar"].dtype == state["p_bar"].dtype == params.w.dtype:
        raise ValueError(f"its stream is of {state['w_bar'].dtype}, its memories {params.w.dtype}")
    late = state.pop("late").tolist()
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


def _arrays(tensors: Tensors) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
