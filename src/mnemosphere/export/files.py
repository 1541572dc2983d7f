"""Model files: safetensors with versioned JSON metadata. Reading one runs no code.

A file holds a `FittedModel`, a `FittedEncoder`, or the named steps of a pipeline of them. Files of
versions 2 and 3 are still read: their fields are the same, and only their checksums differ.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
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
from mnemosphere.files import (
    OldChecksum,
    join_prefixes,
    plain,
    read_tensors,
    strip_prefix,
    write_tensors,
)
from mnemosphere.fitted import (
    Calibration,
    Exemplars,
    FittedModel,
    HeldOut,
    Record,
    Snapshot,
    Stream,
    trained_with,
)
from mnemosphere.model.parameters import Parameters
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

FORMAT = "mnemosphere-model"
VERSION = 4
_COLUMNS, _LINES = 509, 512  # 64-bit words of a line and lines of a block, in version 3
_KINDS = {"DAMClassifier": "classifier", "DAMClusterer": "clusterer"}
_ENCODER, _PIPELINE = "PatchEncoder", "Pipeline"
# Settings that name things of the machine or the program that trained the model.
_NOT_SAVED = {"callbacks", "device"}
_OBJECTS: dict[str, type[Any]] = {kind.__name__: kind for kind in (FixedPoint, SGD, Adam)}
_LABEL_KINDS = "biufUO"
_LONGEST_REASON = 200  # a value quoted from a file can be of any length
_MOST_BYTES = 1 << 28  # of an array of labels

_COMMON: dict[str, Check] = {
    "estimator": text,
    "n_features_in": whole(1),
    "feature_names": items(text),
    "settings": lambda value, name: check_fields(value, dict.fromkeys(value, _any), name),
    "history": records_of(PassRecord),
    "status": text,
    "converged": flag,
}
_TEXTS: dict[str, Check] = {
    "name": text, "numbers": whole(1), "fingerprint": items(number(), 1),
}  # fmt: skip
_MODEL = _COMMON | {
    "normalize": one_of(*NORMALIZATIONS),
    "classes": mapping({"dtype": text, "values": items(lambda value, name: None, 1)}),
    "columns": COLUMNS,
    "encoder": maybe(mapping(_TEXTS)),
}
_HEADERS: dict[str, dict[str, Check]] = {
    "DAMClassifier": _MODEL | {
        "own": mapping({
            "selection": items(scalars),
            "temperature": number(0, 1e300, above=True),
            "objective": one_of("joint", "conditional"),
        })
    },
    "DAMClusterer": _MODEL | {"own": mapping({})},
    _ENCODER: _COMMON | {"image_shape": items(whole(1), 1)},
}  # fmt: skip
# P memories, Q = P+1, C classes and "none of them", K classes.
_OWN = {
    "DAMClassifier": {
        "label_mass": Array("C", None, low=0), "net_class_weights": Array("Q C", None, low=0),
        "log_ratio": Array(optional=True),  # of version 3
    },
    "DAMClusterer": {"labels": Array("n", "int32", low=0)},
}  # fmt: skip
_ROWS = {
    "typical": Array("P 3", "int64", low=-1), "support": Array("P", low=0, nan=True),
    "names": Array("bytes", "uint8", optional=True),
}  # fmt: skip
_HELD_OUT = {
    "scale": Array("S"), "novelty": Array("n", nan=True), "rejection": Array("n", nan=True),
    "label": Array("m"), "temperature": Array(low=0, optional=True),
}  # fmt: skip
_FEATURES = {
    "names": Array("bytes", "uint8", optional=True),
    "observed": Array("3 N", optional=True),
}
_STATE = {
    "w_bar": Array("P N", None), "p_bar": Array("Q C", None, low=0), "col_multipliers": Array("C"),
    "row_multipliers": Array("Q"), "passes": Array(low=0),
    "marginal_error": Array(optional=True),  # of older files, and not used
}  # fmt: skip
_STREAMED = {name: Array("K", "bool", optional=True) for name in ("late", "known", "missing")}
_PARTS = (
    "params", "density", "normalizer", "lineage", "own", "held_out", "rows", "features", "stream",
)  # fmt: skip


def _any(value: Any, name: str) -> None:
    """A setting: the estimator knows what it may be."""


def estimator_of(model: Saved) -> str:
    """The class of estimators that hold such a model."""
    if isinstance(model, FittedEncoder):
        return _ENCODER
    return next(name for name, kind in _KINDS.items() if kind == model.kind)


# Writing.


def write(model: Saved | Steps, path: str | Path, check_settings: SettingsCheck) -> None:
    """Write a fitted model, or the steps of a pipeline, to one file, atomically."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    try:  # what could not be read is not written
        header, tensors = check(model, check_settings)
    except ValueError as error:
        raise ValueError(f"this model cannot be saved: {error}") from error
    write_tensors(path, tensors, {"format": FORMAT, "version": VERSION, **header})


def check(
    model: Saved | Steps, check_settings: SettingsCheck | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(header, tensors) of a model that `read` would give back; ValueError if it would refuse it."""
    try:
        header, tensors = _take_apart(model)
        header = json.loads(json.dumps(header))
        _check_header(header, check_settings or (lambda name, settings: None))
        own = {name: t.detach().cpu() for name, t in tensors.items()}
        _put_together(json.loads(json.dumps(header)), own)
    except (KeyError, UnicodeError) as error:
        raise ValueError(f"{error} is missing" if isinstance(error, KeyError) else error) from error
    return header, tensors


def _take_apart(model: Saved | Steps) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fitted model as plain values and tensors."""
    if isinstance(model, list):
        steps: list[dict[str, Any]] = []
        tensors: dict[str, Tensor] = {}
        for i, (name, step) in enumerate(model):
            own, found = _take_apart(step)
            steps.append({"name": name, **own})
            tensors |= {f"steps.{i}.{key}": t for key, t in found.items()}
        return {"estimator": _PIPELINE, "steps": steps}, tensors
    record = model.record
    header = {
        "n_features_in": model.features.n_columns,
        "feature_names": list(model.features.columns or ()),
        "settings": {k: to_plain(v) for k, v in record.settings.items() if k not in _NOT_SAVED},
        "history": record.history,
        "status": record.status,
        "converged": record.converged,
    }
    if isinstance(model, FittedEncoder):
        layers = {f"layers.{i}": layer.params.to_tensors() for i, layer in enumerate(model.layers)}
        header |= {"estimator": _ENCODER, "image_shape": list(model.image_shape)}
        return header, join_prefixes(layers)
    features, calibration = model.features, model.calibration
    told: dict[str, Any] = {}
    if model.is_classifier:
        told |= {"selection": record.search, "temperature": calibration.temperature}
        told["objective"] = model.objective
        own_tensors = {"label_mass": model.label_mass, "net_class_weights": model.net.p}
    else:
        labels = np.zeros(0, np.int32) if model.labels is None else model.labels
        own_tensors = {"labels": torch.as_tensor(labels).to(torch.int32)}
    parts: dict[str, Mapping[str, Tensor | None]] = {
        "params": model.params.to_tensors(),
        "density": {} if model.density is None else model.density.to_tensors(),
        "normalizer": model.normalizer.to_tensors(),
        "lineage": {} if model.lineage is None else model.lineage.to_tensors(),
        "own": own_tensors,
        "held_out": {} if calibration.held_out is None else _held_out_out(calibration.held_out),
        "rows": {} if model.exemplars is None else _exemplars_out(model.exemplars),
        "features": _features_out(features),
        "stream": {} if model.stream is None else _stream_out(model.stream, model.classes.tolist()),
    }
    header |= {
        "estimator": estimator_of(model),
        "normalize": model.normalizer.kind,
        "columns": [] if features.encoding is None else features.encoding.to_json(),
        "classes": _labels_out(model.classes),
        "own": plain(told),
    }
    if features.encoder is not None:
        name, n, told = (getattr(features.encoder, f) for f in ("name", "n_numbers", "fingerprint"))
        header["encoder"] = {"name": name, "numbers": n, "fingerprint": list(told)}
    given = {p: {k: t for k, t in of.items() if t is not None} for p, of in parts.items()}
    return header, join_prefixes(given)


def _held_out_out(scores: HeldOut) -> dict[str, Tensor]:
    found = {k: torch.tensor(v, dtype=torch.float64) for k, v in vars(scores).items()}
    # The score of a row without direction is infinite; files hold finite numbers and NaN.
    return {name: torch.where(t.isinf(), torch.nan, t) for name, t in found.items()}


def _held_out_in(tensors: Mapping[str, Tensor], default: float) -> HeldOut | None:
    if not tensors:
        return None
    check_tensors(tensors, _HELD_OUT, {"S": 3})
    tensors = dict(tensors)
    temperature = float(tensors.pop("temperature", default))
    if not temperature > 0:
        raise ValueError(f"temperature of its held-out scores is {temperature}")
    scores = {name: np.nan_to_num(t.numpy(), nan=np.inf) for name, t in tensors.items()}
    scale = scores.pop("scale")
    if not (scale > 0).all() or any((np.diff(s) < 0).any() for s in scores.values()):
        raise ValueError("its held-out scores are not sorted, or have no scale")
    return HeldOut(scale, **scores, temperature=temperature)


def _features_out(features: Features) -> dict[str, Tensor | None]:
    names = None if features.named is None else _as_bytes(list(features.named))
    seen = features.observed
    return {"names": names, "observed": None if seen is None else torch.from_numpy(seen.copy())}


def _exemplars_out(behind: Exemplars) -> dict[str, Tensor | None]:
    names = None if behind.names is None else _as_bytes(behind.names.tolist())
    return {"typical": torch.from_numpy(behind.typical),
            "support": torch.from_numpy(behind.support), "names": names}  # fmt: skip


def _stream_out(stream: Stream, names: list[Any]) -> dict[str, Tensor]:
    def among(some: Any) -> Tensor:
        return torch.tensor([name in some for name in names])

    found = join_prefixes({"state": stream.state})
    if stream.late:
        found["late"] = among(stream.late)
    shot = stream.snapshot
    if shot is not None:
        found |= join_prefixes({"snapshot": shot.params.to_tensors()})
        found |= {"known": among(shot.classes), "missing": among(shot.missing)}
    return found


# Reading.


def read(path: str | Path, check_settings: SettingsCheck) -> Saved | Steps:
    """What a model file holds, every field of it checked; ValueError names the file and why."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no model file at {path}: check the path")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the model file in it")
    header, tensors = read_tensors(path, FORMAT, VERSION, older=_OLDER)
    if header["version"] == 2 and any(re.search(r"(^|\.)layers\.0\.", name) for name in tensors):
        raise ValueError(f"{path} has a PatchEncoder of before its cells were soft: fit it again")
    own = {k: v for k, v in header.items() if k not in ("format", "version")}
    with _refusing(path):
        _check_header(own, check_settings)
        return _put_together(own, tensors)


def _checksum_of_3(path: Path, told: Any) -> str:
    """Of files of version 3: SHA-256 of the header and of sums over lines and columns."""
    content = np.fromfile(path, np.uint8)
    begin = 8 + int.from_bytes(content[:8].tobytes(), "little")
    digest = hashlib.sha256(content[8:begin].tobytes().replace(str(told).encode(), b"", 1))
    numbers = content[begin:].copy()  # aligned
    n_lines = numbers.size // (8 * _COLUMNS) if numbers.size > 1 << 16 else 0
    words = numbers[: 8 * _COLUMNS * n_lines].view(np.uint64).reshape(-1, _COLUMNS)
    for at in range(0, n_lines, _LINES):
        block = words[at : at + _LINES]
        digest.update(block.sum(0).tobytes() + block.sum(1).tobytes())
    digest.update(numbers[8 * _COLUMNS * n_lines :].tobytes())
    return digest.hexdigest()


# Files of version 2 had no checksum.
_OLDER: dict[int, OldChecksum] = {2: lambda path, told: None, 3: _checksum_of_3}


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError) as error:
        missing = f"the tensor {error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(missing.split())[:_LONGEST_REASON]
        raise ValueError(f"{path} is damaged: {reason}; save the model again") from error


def _check_header(header: dict[str, Any], check_settings: SettingsCheck) -> None:
    """ValueError unless the header describes a model; settings are decoded in place."""
    name = header.get("estimator")
    if name == _PIPELINE:
        check_fields(header, {"estimator": text, "steps": items(_step, 1)})
        names = [step["name"] for step in header["steps"]]
        if len({*names}) < len(names) or any("__" in step for step in names):
            raise ValueError(f"the steps of the pipeline are called {names}")
        for step in header["steps"]:
            own = {key: value for key, value in step.items() if key != "name"}
            if own.get("estimator") == _PIPELINE:
                raise ValueError("a step of the pipeline is a pipeline")
            _check_header(own, check_settings)
        return
    if not isinstance(name, str) or name not in _HEADERS:
        raise ValueError(f"estimator is {name!r}")
    if not isinstance(header.get("settings"), dict):
        raise ValueError(f"its settings are not those of a {name}")
    for once in ("tol", "verbose"):  # settings once; tol is the solver's now
        header["settings"].pop(once, None)
    if name == "DAMClassifier":
        _bring_up_to_date(header)
    if isinstance(header.get("own"), dict):  # a threshold stood in place of held-out scores
        header["own"].pop("novelty_threshold", None)
    # Files of version 2 know only columns of numbers.
    older: dict[str, Any] = {"columns": [], "encoder": None} if name in _KINDS else {}
    check_fields(older | header, _HEADERS[name])
    names = header["feature_names"]
    if names and len(names) != header["n_features_in"]:
        raise ValueError(f"it has {len(names)} names for {header['n_features_in']} features")
    columns = [column["name"] for column in header.get("columns", ())]
    if columns and columns != names:
        raise ValueError("feature_names and the names of its columns differ")
    try:
        settings = {key: _from_plain(value) for key, value in header["settings"].items()}
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"its settings are not those of a {name} ({error})") from error
    check_settings(name, settings)


def _bring_up_to_date(header: dict[str, Any]) -> None:
    """In versions up to 3 the objective could be a number or an object of settings."""
    settings, own = header.get("settings"), header.get("own")
    if not isinstance(settings, dict) or not isinstance(own, dict) or "search" in settings:
        return
    given = settings.get("objective", "auto")
    if not isinstance(given, str):
        settings["objective"] = "joint" if given == 0 else "conditional"
    own.setdefault(
        "objective", "conditional" if settings["objective"] == "conditional" else "joint"
    )


def _step(value: Any, name: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(f"{name} is not a step of a pipeline")


def _put_together(header: dict[str, Any], tensors: Mapping[str, Tensor]) -> Saved | Steps:
    """Undo `_take_apart`; ValueError where the numbers make no model."""
    name = header["estimator"]
    if name == _PIPELINE:
        steps: Steps = []
        for i, step in enumerate(header["steps"]):
            made = _put_together(step, strip_prefix(tensors, f"steps.{i}"))
            assert not isinstance(made, list)
            steps.append((step["name"], made))
        if sum(len(strip_prefix(tensors, f"steps.{i}")) for i in range(len(steps))) < len(tensors):
            raise ValueError("it has a tensor of a step that is unknown")
        for (_, before), (_, after) in itertools.pairwise(steps):
            given = before.n_out if isinstance(before, FittedEncoder) else before.n_memories
            if given != after.features.n_columns:
                raise ValueError("a step of the pipeline does not take what the one before gives")
        return steps
    settings = {key: _from_plain(value) for key, value in header["settings"].items()}
    columns = header.get("columns")
    features = Features(
        header["n_features_in"],
        tuple(header["feature_names"]) or None,
        Encoding.from_json(columns) if columns else None,
        owner=name,
        encoder=_text_encoder(header.get("encoder")),
    )
    features = _features_in(features, strip_prefix(tensors, "features"))
    record = Record(settings, header["history"], header["status"], header["converged"])
    if name == _ENCODER:
        return _encoder(tuple(header["image_shape"]), features, record, tensors)
    _check_parts(tensors, _PARTS)
    own, kept = header["own"], strip_prefix(tensors, "own")
    classes = _labels_in(header["classes"])
    normalizer = Normalizer.from_tensors(
        header["normalize"], strip_prefix(tensors, "normalizer"), features.n_numbers
    )
    params, tree = Parameters.from_file(tensors, "params"), strip_prefix(tensors, "lineage")
    sizes = {"P": params.n_memories, "N": params.n_features, "Q": params.n_memories + 1,
             "C": params.n_columns, "K": len(classes)}  # fmt: skip
    if params.n_columns != len(classes) + 1:
        raise ValueError(f"it has {params.n_columns} columns of class weights")
    check_tensors(kept, _OWN[name], sizes)
    model = FittedModel(
        _KINDS[name], params, normalizer, features, classes,
        Calibration(
            float(own.get("temperature", 1.0)),
            kept["net_class_weights"].to(params.p) if "net_class_weights" in kept else None,
            _held_out_in(strip_prefix(tensors, "held_out"), float(own.get("temperature", 1.0))),
        ),
        label_mass=kept.get("label_mass"),
        density=Parameters.from_file(tensors, "density") if "density.w" in tensors else None,
        labels=kept["labels"].numpy().astype(np.int64) if "labels" in kept else None,
        exemplars=_exemplars_in(strip_prefix(tensors, "rows"), sizes),
        lineage=Lineage.from_tensors(tree) if tree else None,
        stream=_stream_in(strip_prefix(tensors, "stream"), params, sizes, classes.tolist()),
        record=dataclasses.replace(record, search=own.get("selection", [])),
        **trained_with(settings | {"objective": own.get("objective")}),
    )  # fmt: skip
    return check_model(model)


def _check_parts(tensors: Mapping[str, Tensor], parts: tuple[str, ...]) -> None:
    unknown = [name for name in tensors if name.partition(".")[0] not in parts]
    if unknown:
        raise ValueError(f"the tensor {min(unknown)!r} is unknown")


def _encoder(
    shape: tuple[int, ...], features: Features, record: Record, tensors: Mapping[str, Tensor]
) -> FittedEncoder:
    settings = record.settings
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


def _text_encoder(told: dict[str, Any] | None) -> TextEncoder | None:
    if told is None:
        return None
    return TextEncoder(told["name"], told["numbers"], tuple(map(float, told["fingerprint"])))


def _features_in(features: Features, tensors: dict[str, Tensor]) -> Features:
    """Features with the names and the ranges that the file has."""
    check_tensors(tensors, _FEATURES, {"N": features.n_numbers})
    if "observed" in tensors:
        features = dataclasses.replace(features, observed=tensors["observed"].numpy())
    if "names" not in tensors:
        return features
    told = _from_bytes(tensors["names"])
    items(text)(told, "features.names")
    if len(told) != features.n_numbers:
        raise ValueError(f"features.names are of {len(told)} features")
    return dataclasses.replace(features, named=tuple(told))


def _exemplars_in(tensors: dict[str, Tensor], sizes: dict[str, int]) -> Exemplars | None:
    if not tensors:
        return None
    check_tensors(tensors, _ROWS, sizes)
    names = None
    if "names" in tensors:
        told = _from_bytes(tensors["names"])
        items(items(text, 3))(told, "rows.names")
        names = np.array(told, dtype=object)
        if names.shape != (sizes["P"], 3):
            raise ValueError(f"rows.names are of {len(told)} memories")
    return Exemplars(tensors["typical"].numpy(), tensors["support"].numpy(), names)


def _stream_in(
    tensors: dict[str, Tensor], params: Parameters, sizes: dict[str, int], names: list[Any]
) -> Stream | None:
    """Undo `_stream_out`; ValueError where that is no stream of this model."""
    if not tensors:
        return None
    state, shot = strip_prefix(tensors, "state"), strip_prefix(tensors, "snapshot")
    check_tensors(state, _STATE, sizes)
    state.pop("marginal_error", None)
    if not state["w_bar"].dtype == state["p_bar"].dtype == params.w.dtype:
        raise ValueError(
            f"stream.state is of {state['w_bar'].dtype}, its memories {params.w.dtype}"
        )
    masks = {name: t for name, t in tensors.items() if "." not in name}
    check_tensors(masks, _STREAMED, sizes)
    _check_parts(tensors, ("state", "snapshot", *_STREAMED))

    def named(mask: str) -> list[Any]:
        return [name for name, here in zip(names, masks[mask].tolist(), strict=True) if here]

    late = frozenset(named("late")) if "late" in masks else frozenset()
    if not shot:
        return Stream(state, late)
    then = Snapshot(
        Parameters.from_file(tensors, "snapshot"), named("known"), frozenset(named("missing"))
    )
    same = then.params.n_features == sizes["N"] and then.params.w.dtype == params.w.dtype
    if not same or then.params.n_columns != len(then.classes) + 1 or not (
        then.missing <= {*then.classes}
    ):  # fmt: skip
        raise ValueError("the model that is rehearsed is not one of these classes")
    return Stream(state, late, then)


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


def _as_bytes(names: list[Any]) -> Tensor:
    """Texts as a tensor: a header is no place for many."""
    return torch.frombuffer(bytearray(json.dumps(names).encode()), dtype=torch.uint8)


def _from_bytes(tensor: Tensor) -> Any:
    return json.loads(tensor.numpy().tobytes())
