"""Model files: safetensors with versioned JSON metadata. Reading one runs no code.

A file holds a `FittedModel`, a `FittedEncoder`, or the named steps of a pipeline of them. `ModelFile` and
`EncoderFile` describe the fields: the writer fills one in, the reader checks every field by it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self, get_type_hints

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
    Snapshot,
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


@dataclass(frozen=True, kw_only=True)
class _File:
    """What every file holds."""

    estimator: Annotated[str, text]
    n_features_in: Annotated[int, whole(1)]
    feature_names: Annotated[list[str], items(text)]
    settings: Annotated[dict[str, Any], _mapping]
    history: Annotated[list[dict[str, Any]], records_of(PassRecord)]
    status: Annotated[str, text]
    converged: Annotated[bool, flag]

    def take_apart(self) -> tuple[dict[str, Any], Tensors]:
        """(header, tensors)."""
        header: dict[str, Any] = {}
        tensors: Tensors = {}
        checks, arrays, _ = self._described()
        for name, value in vars(self).items():
            if name in checks:
                header[name] = value
            elif name not in arrays:
                tensors |= {f"{name}.{key}": t for key, t in value.items()}
            elif value is not None:
                tensors[name] = value
        return header, {name: t.detach().cpu() for name, t in tensors.items()}

    @classmethod
    def _described(cls) -> tuple[dict[str, Check], dict[str, Array], set[str]]:
        """(fields of the header, fields of one tensor, fields of several)."""
        hints = get_type_hints(cls, include_extras=True)
        told = {
            n: hint.__metadata__[0] for n, hint in hints.items() if hasattr(hint, "__metadata__")
        }
        arrays = {
            name: dataclasses.replace(array, optional=hasattr(cls, name))
            for name, array in told.items()
            if isinstance(array, Array)
        }
        checks = {name: check for name, check in told.items() if name not in arrays}
        return checks, arrays, hints.keys() - told.keys()

    @classmethod
    def put_together(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Undo `take_apart`; ValueError names the field that is missing, unknown or wrong."""
        checks, arrays, several = cls._described()
        check_fields(header, checks)
        alone: Tensors = {name: t for name, t in tensors.items() if "." not in name}
        parts = {name: strip_prefix(tensors, name) for name in several}
        sizes: dict[str, int] = {}
        for name, array in arrays.items():  # a letter means the size where it occurs first
            if name in alone:
                array.check(alone[name], name, sizes)
                shape = zip(array.shape.split(), alone[name].shape, strict=True)
                sizes = {a: n for a, n in shape if not a.isdecimal()} | sizes
        check_tensors(alone, arrays, sizes)
        unknown = {n for n in tensors if "." in n and n.partition(".")[0] not in several}
        if unknown:
            raise ValueError(f"the tensor {min(unknown)!r} is unknown")
        content: Any = {**header, **alone, **parts}
        return cls(**content)


@dataclass(frozen=True, kw_only=True)
class EncoderFile(_File):
    """A `PatchEncoder`."""

    image_shape: Annotated[list[int], items(whole(1), 1)]
    layers: Tensors = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelFile(_File):
    """A classifier or a clusterer: P memories, Q = P+1 components, C columns of K classes and none of them."""

    objective: Annotated[str, one_of("joint", "conditional")]
    temperature: Annotated[float, number(0, 1e300, above=True)]
    normalize: Annotated[str, one_of(*NORMALIZATIONS)]
    classes: Annotated[dict[str, Any], mapping({"dtype": text, "values": items(_any, 1)})]
    columns: Annotated[list[dict[str, Any]], COLUMNS]
    encoder: Annotated[
        dict[str, Any] | None,
        maybe(mapping({"name": text, "numbers": whole(1), "fingerprint": items(number(), 1)})),
    ]
    search: Annotated[list[dict[str, Any]], items(scalars)]
    novelty_spread: Annotated[float | None, maybe(number(0, 1e300, above=True))]
    base: Annotated[dict[str, Any] | None, maybe(_mapping)]  # the model before examples were added
    w: Annotated[Tensor, Array("P N", None)]
    p: Annotated[Tensor, Array("Q C", None, low=0)]
    slope: Annotated[Tensor, Array("", None, low=0)]
    offset: Annotated[Tensor, Array("", None)]
    prior: Annotated[Tensor, Array("C", None, low=0)]
    density: Tensors = field(default_factory=dict)
    examples: Tensors = field(default_factory=dict)
    normalizer: Tensors = field(default_factory=dict)
    lineage: Tensors = field(default_factory=dict)
    label_mass: Annotated[Tensor | None, Array("C", None, low=0)] = None
    labels: Annotated[Tensor | None, Array("rows", "int32", low=0)] = None  # of a clusterer
    held_out_scale: Annotated[Tensor | None, Array("3")] = None
    held_out_novelty: Annotated[Tensor | None, Array("held", nan=True)] = None
    held_out_rejection: Annotated[Tensor | None, Array("held", nan=True)] = None
    held_out_label: Annotated[Tensor | None, Array("labeled")] = None
    held_out_predicted: Annotated[Tensor | None, Array("held", "int64", low=-1)] = None
    held_out_right: Annotated[Tensor | None, Array("held", "int64", low=-1)] = None
    held_out_outside: Annotated[Tensor | None, Array("outside", nan=True)] = None
    held_out_temperature: Annotated[Tensor | None, Array(low=0)] = None
    typical: Annotated[Tensor | None, Array("P 3", "int64", low=-1)] = None
    support: Annotated[Tensor | None, Array("P", low=0, nan=True)] = None
    row_means: Annotated[Tensor | None, Array("P numbers", nan=True)] = None
    row_names: Annotated[Tensor | None, Array("letters", "uint8")] = None
    named: Annotated[Tensor | None, Array("characters", "uint8")] = None
    observed: Annotated[Tensor | None, Array("3 numbers")] = None
    # Of a stream, with S memories and R = S+1 components.
    w_bar: Annotated[Tensor | None, Array("S N", None)] = None
    p_bar: Annotated[Tensor | None, Array("R C", None, low=0)] = None
    col_multipliers: Annotated[Tensor | None, Array("C")] = None
    row_multipliers: Annotated[Tensor | None, Array("R")] = None
    passes: Annotated[Tensor | None, Array(low=0)] = None
    late: Annotated[Tensor | None, Array("K", "bool")] = None
    known: Annotated[Tensor | None, Array("K", "bool")] = None
    missing: Annotated[Tensor | None, Array("K", "bool")] = None
    snapshot: Tensors = field(default_factory=dict)


_FILES: dict[str, type[_File]] = dict.fromkeys(_KINDS, ModelFile) | {_ENCODER: EncoderFile}
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
) -> tuple[dict[str, Any], Tensors]:
    """(header, tensors) of a model that `read` would give back; ValueError if it would refuse it."""
    header, tensors = _take_apart(model)
    header = json.loads(json.dumps(header))
    _put_together(header, tensors, check_settings or (lambda name, settings: None))
    return header, tensors


def _take_apart(model: Saved | Steps) -> tuple[dict[str, Any], Tensors]:
    """A fitted model as plain values and tensors."""
    if not isinstance(model, list):
        return _described(model).take_apart()
    steps: list[dict[str, Any]] = []
    tensors: Tensors = {}
    for i, (name, step) in enumerate(model):
        own, found = _take_apart(step)
        steps.append({"name": name, **own})
        tensors |= {f"steps.{i}.{key}": t for key, t in found.items()}
    return {"estimator": _PIPELINE, "steps": steps}, tensors


def _described(model: Saved) -> _File:
    record, features = model.record, model.features
    common: dict[str, Any] = {
        "estimator": estimator_of(model),
        "n_features_in": features.n_columns,
        "feature_names": list(features.columns or ()),
        "settings": {k: to_plain(v) for k, v in record.settings.items() if k not in _NOT_SAVED},
        "history": record.history,
        "status": record.status,
        "converged": record.converged,
    }
    if isinstance(model, FittedEncoder):
        layers = {str(i): layer.params.to_tensors() for i, layer in enumerate(model.layers)}
        return EncoderFile(
            **common, image_shape=list(model.image_shape), layers=join_prefixes(layers)
        )
    encoder, behind, stream, votes = features.encoder, model.exemplars, model.stream, model.votes
    base, examples = (None, {}) if model.examples is None else _examples_out(model.examples)
    return ModelFile(
        **common,
        base=base,
        examples=examples,
        objective=model.objective,
        temperature=votes.temperature,
        normalize=model.normalizer.kind,
        classes=_labels_out(model.classes),
        columns=[] if features.encoding is None else features.encoding.to_json(),
        encoder=None if encoder is None else {"name": encoder.name, "numbers": encoder.n_numbers,
                                              "fingerprint": list(encoder.fingerprint)},
        search=plain(record.search),
        novelty_spread=record.novelty_spread,
        w=votes.w, p=votes.p, slope=votes.slope, offset=votes.offset, prior=votes.prior,
        # A joint model has one set of memories.
        density={k: t for k, t in model.density.to_tensors().items() if not (model.is_joint and k == "w")},
        normalizer=model.normalizer.to_tensors(),
        lineage={} if model.lineage is None else model.lineage.to_tensors(),
        label_mass=model.label_mass,
        labels=None if model.labels is None else torch.as_tensor(model.labels).to(torch.int32),
        **({} if model.calibration is None else _scores_out(model.calibration)),
        typical=None if behind is None else torch.from_numpy(behind.typical),
        support=None if behind is None else torch.from_numpy(behind.support),
        row_names=None if behind is None else _as_bytes(behind.names),
        row_means=None if behind is None or behind.means is None else torch.tensor(behind.means),
        named=_as_bytes(features.named),
        observed=None if features.observed is None else torch.from_numpy(features.observed.copy()),
        **({} if stream is None else _stream_out(stream, model.classes.tolist())),
    )  # fmt: skip


def _scores_out(scores: Calibration) -> dict[str, Any]:
    # The score of a row without direction is infinite; files hold finite numbers and NaN.
    found = {f"held_out_{k}": torch.from_numpy(np.array(v)) for k, v in vars(scores).items()}
    return {
        name: t.where(~t.isinf(), torch.nan) if t.is_floating_point() else t
        for name, t in found.items()
    }


def _examples_out(added: Examples) -> tuple[dict[str, Any], Tensors]:
    """(header of the model before, its tensors and the rows); it has the first of the memories."""
    header, tensors = _described(added.base).take_apart()
    own = {f"base.{k}": t for k, t in tensors.items() if k not in ("w", "density.w")}
    texts = _as_bytes([text or "" for text in added.texts])
    assert texts is not None
    return header, own | {"x": added.x, "columns": torch.tensor(added.columns), "texts": texts}


def _stream_out(stream: Stream, names: list[Any]) -> dict[str, Any]:
    def among(some: Any) -> Tensor:
        return torch.tensor([name in some for name in names])

    found: dict[str, Any] = {**stream.state, "late": among(stream.late)}
    if (shot := stream.snapshot) is not None:
        found["snapshot"] = shot.params.to_tensors()
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
    if not isinstance(name, str) or name not in _FILES:
        raise ValueError(f"estimator is {name!r}")
    found = _FILES[name].put_together(header, tensors)
    try:
        settings = {key: _from_plain(value) for key, value in found.settings.items()}
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"its settings are not those of a {name} ({error})") from error
    check_settings(name, settings)
    record = Record(settings, found.history, found.status, found.converged)
    if isinstance(found, EncoderFile):
        return _encoder(found, record)
    assert isinstance(found, ModelFile)
    return _model(found, record, _examples(found, check_settings))


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


def _features(found: _File, **more: Any) -> Features:
    names = found.feature_names
    if names and len(names) != found.n_features_in:
        raise ValueError(f"it has {len(names)} names for {found.n_features_in} features")
    return Features(found.n_features_in, tuple(names) or None, owner=found.estimator, **more)


def _encoder(found: EncoderFile, record: Record) -> FittedEncoder:
    settings, shape, features = record.settings, tuple(found.image_shape), _features(found)
    if math.prod(shape) != features.n_columns:
        raise ValueError(f"its images are of shape {shape}")
    layers = []
    for i, windows in enumerate(windows_of(settings, shape)):
        params = Parameters.from_file(found.layers, str(i))
        if params.n_features != windows.n_features:
            raise ValueError(f"its patches are of {params.n_features} numbers")
        layers.append(patch_layer(settings, windows, params))
    if len({layer.params.w.dtype for layer in layers}) > 1:
        raise ValueError("its patch memories are of several precisions")
    if sum(len(layer.params.to_tensors()) for layer in layers) != len(found.layers):
        raise ValueError("it has a tensor that is unknown")
    return FittedEncoder(features, shape, tuple(layers), float(settings["power"]), record)


def _model(found: ModelFile, record: Record, examples: Examples | None) -> FittedModel:
    encoder, columns, joint = found.encoder, found.columns, found.objective == "joint"
    if columns and [column["name"] for column in columns] != found.feature_names:
        raise ValueError("feature_names and the names of its columns differ")
    features = _features(
        found,
        encoding=Encoding.from_json(columns) if columns else None,
        named=_texts(found.named, "named", items(text)),
        encoder=encoder and TextEncoder(
            encoder["name"], encoder["numbers"], tuple(map(float, encoder["fingerprint"]))
        ),
        observed=None if found.observed is None else found.observed.numpy(),
    )  # fmt: skip
    votes = Votes(
        found.w, found.p, found.slope, found.offset, found.prior, float(found.temperature)
    ).check()
    density = Parameters.from_tensors(found.density | ({"w": found.w} if joint else {})).check()
    classes = _labels_in(found.classes)
    model = FittedModel(
        _KINDS[found.estimator], votes, density,
        Normalizer.from_tensors(found.normalize, found.normalizer, features.n_numbers),
        features, classes,
        calibration=_calibration(found),
        label_mass=found.label_mass,
        labels=None if found.labels is None else found.labels.numpy().astype(np.int64),
        exemplars=_exemplars(found),
        examples=examples,
        lineage=Lineage.from_tensors(found.lineage) if found.lineage else None,
        stream=_stream(found, density, classes.tolist()),
        record=dataclasses.replace(
            record, search=found.search, novelty_spread=found.novelty_spread
        ),
        **trained_with(record.settings | {"objective": found.objective}),
    )  # fmt: skip
    return check_model(model)


def _calibration(found: ModelFile) -> Calibration | None:
    parts = {name: getattr(found, f"held_out_{name}") for name in _SCORES}
    if parts["scale"] is None:
        return None
    given = {k: np.nan_to_num(_there(t, "held_out").numpy(), nan=np.inf) for k, t in parts.items()}
    scores = Calibration(**given | {"temperature": float(given["temperature"])})
    ordered = scores.novelty, scores.rejection, scores.label, scores.outside
    if not (scores.scale > 0).all() or any((np.diff(own) < 0).any() for own in ordered):
        raise ValueError("its held-out scores are not sorted, or have no scale")
    if not scores.temperature > 0:
        raise ValueError(f"temperature of its held-out scores is {scores.temperature}")
    if scores.predicted.max(initial=-1) >= len(found.classes["values"]) or scores.right.max() > 1:
        raise ValueError("its held-out rows have classes that it does not know")
    return scores


def _exemplars(found: ModelFile) -> Exemplars | None:
    if found.typical is None:
        return None
    names = _texts(found.row_names, "row_names", items(items(text, 3)))
    if names is not None and np.shape(names) != found.typical.shape:
        raise ValueError(f"row_names are of {len(names)} memories")
    return Exemplars(
        found.typical.numpy(), _there(found.support, "support").numpy(),
        None if names is None else np.array(names, dtype=object),
        None if found.row_means is None else found.row_means.numpy(),
    )  # fmt: skip


def _examples(found: ModelFile, check_settings: SettingsCheck) -> Examples | None:
    """Undo `_examples_out`; ValueError where these are no examples of this model."""
    if found.base is None:
        return None
    given = strip_prefix(found.examples, "base")
    x, columns = (_there(found.examples.get(name), name) for name in ("x", "columns"))
    for name, of in (("", found.w), ("density.", found.density.get("w"))):
        if of is not None:
            given[f"{name}w"] = of[: len(_there(given.get(f"{name}p"), f"{name}p")) - 1]
    base = _put_together(found.base, given, check_settings)
    texts = _texts(found.examples.get("texts"), "texts", items(text)) or ()
    sizes = {"n": len(texts), "N": found.w.shape[1]}
    check_tensors(
        {"x": x, "columns": columns}, {"x": Array("n N"), "columns": Array("n", "int64", low=0)},
        sizes,
    )  # fmt: skip
    same = isinstance(base, FittedModel) and base.classes.tolist() == found.classes["values"]
    if not texts or not same or int(columns.max()) >= found.p.shape[1]:
        raise ValueError("its examples are none of its classes")
    assert isinstance(base, FittedModel)
    return Examples(base, x, columns.numpy(), [own or None for own in texts])


def _stream(found: ModelFile, params: Parameters, names: list[Any]) -> Stream | None:
    """Undo `_stream_out`; ValueError where that is no stream of this model."""
    if found.w_bar is None:
        return None
    state = {name: _there(getattr(found, name), name) for name in _STATE}
    if state["w_bar"].shape != params.w.shape or state["p_bar"].shape != params.p.shape:
        raise ValueError(f"its stream is of {len(state['w_bar'])} memories")
    if not state["w_bar"].dtype == state["p_bar"].dtype == params.w.dtype:
        raise ValueError(f"its stream is of {state['w_bar'].dtype}, its memories {params.w.dtype}")

    def named(mask: Tensor | None) -> list[Any]:
        here = _there(mask, "late, known or missing").tolist()
        if len(here) != len(names):
            raise ValueError(f"its stream is of {len(here)} classes")
        return [name for name, is_here in zip(names, here, strict=True) if is_here]

    late = frozenset(named(found.late))
    if not found.snapshot:
        return Stream(state, late)
    then = Snapshot(
        Parameters.from_tensors(found.snapshot).check(), named(found.known),
        frozenset(named(found.missing)),
    )  # fmt: skip
    same = then.params.n_features == params.n_features and then.params.w.dtype == params.w.dtype
    if not same or then.params.n_columns != len(then.classes) + 1 or not (
        then.missing <= {*then.classes}
    ):  # fmt: skip
        raise ValueError("the model that is rehearsed is not one of these classes")
    return Stream(state, late, then)


def _there(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        raise ValueError(f"the tensor {name!r} is missing")
    return tensor


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


def _as_bytes(names: Any) -> Tensor | None:
    """Texts as a tensor: a header is no place for many."""
    if names is None:
        return None
    told = json.dumps(np.asarray(names, dtype=object).tolist()).encode()
    return torch.frombuffer(bytearray(told), dtype=torch.uint8)


def _texts(tensor: Tensor | None, name: str, check: Check) -> tuple[Any, ...] | None:
    """Undo `_as_bytes`."""
    if tensor is None:
        return None
    found = json.loads(tensor.numpy().tobytes())
    check(found, name)
    return tuple(found)
