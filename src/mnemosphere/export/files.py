"""Model files: safetensors with versioned JSON metadata. Reading one runs no code.

A file holds the fields of a `FittedModel`. Numbers are tensors, named by where they stand, such as votes.w; all else
is JSON, in which a mapping with a "type" stands for what JSON does not know. Only the classes below are made.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.files import pack_tensors, read_tensors, unpack_tensors, write_atomically
from mnemosphere.fitted.model import (
    Calibration,
    Exemplars,
    FittedModel,
    HeldOut,
    Record,
    Stream,
    Tails,
)
from mnemosphere.geometry import KINDS
from mnemosphere.model.mixture import Mixture
from mnemosphere.rows.columns import Column, Columns
from mnemosphere.rows.texts import TextEncoder
from mnemosphere.training.adam import Adam
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.sgd import SGD

__all__ = ["FORMAT", "VERSION", "from_plain", "read", "to_plain", "write"]

FORMAT = "mnemosphere-model"
VERSION = 10
_CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        FittedModel, Mixture, Columns, Column, TextEncoder, Calibration, Tails,
        HeldOut, Exemplars, Stream, Lineage, Record, FixedPoint, SGD, Adam,
    )
}  # fmt: skip
_LABEL_KINDS = "biufUO"
_NUMBERS: dict[str, Any] = {"tensor": lambda t: t, "array": Tensor.numpy}
_CONTAINERS: dict[str, Any] = {"mapping": dict, "tuple": tuple, "set": frozenset}
_Scalar = bool | int | float | str | None


def _classes() -> dict[str, type[Any]]:
    """What may be made, by name."""
    return _CLASSES | {kind.of.__name__: kind.of for kind in KINDS.values()}


def write(model: FittedModel, path: str | PathLike[str]) -> None:
    """Write a fitted model to one file, atomically."""
    write_atomically(Path(path), pack(model))


def pack(model: FittedModel) -> bytes:
    """What the file of a fitted model holds."""
    tensors: dict[str, Tensor] = {}
    content = to_plain(model, tensors)
    return pack_tensors(tensors, {"format": FORMAT, "version": VERSION, "model": content})


def read(path: str | PathLike[str]) -> FittedModel:
    """The model that a file holds; ValueError names the file and why it holds no model."""
    if not Path(path).exists():
        raise FileNotFoundError(f"no model file at {path}: check the path")
    return _model(*read_tensors(Path(path), FORMAT, VERSION), path)


def unpack(content: bytes, path: object) -> FittedModel:
    """The model that `pack` has packed; path: what errors name. No code of the content is run."""
    return _model(*unpack_tensors(content, FORMAT, VERSION, path), path)


def _model(header: dict[str, Any], tensors: dict[str, Tensor], path: object) -> FittedModel:
    try:
        model: FittedModel = from_plain(header["model"], tensors)
        return model.check_sizes()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"{path} holds no model ({reason}): save the model again") from error


def to_plain(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """A value as JSON holds it; tensors and arrays of numbers are added to `tensors`.

    A setting that only the program of the user knows, such as a function, is None.
    """

    def inside(key: object, item: Any) -> Any:
        return to_plain(item, tensors, f"{name}.{key}" if name else str(key))

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _Scalar):
        return value
    if isinstance(value, Tensor):
        same = next((key for key, other in tensors.items() if other is value), name)
        tensors[same] = value  # once, if votes and density have the same memories
        return {"type": "tensor", "name": same}
    if isinstance(value, np.ndarray):
        if value.dtype not in (np.float64, np.int64):
            return _labels(value)
        tensors[name] = torch.from_numpy(value.copy())
        return {"type": "array", "name": name}
    if is_dataclass(value) and type(value) in _classes().values():
        kept = (f.name for f in fields(value) if f.metadata.get("saved", True))
        return {"type": type(value).__name__, **{k: inside(k, getattr(value, k)) for k in kept}}
    if isinstance(value, dict):
        if all(isinstance(key, str) and key != "type" for key in value):
            return {key: inside(key, item) for key, item in value.items()}
        pairs = [[to_plain(k, tensors), inside(k, item)] for k, item in value.items()]
        return {"type": "mapping", "items": pairs}
    if isinstance(value, list | tuple | frozenset):
        given = sorted(value, key=repr) if isinstance(value, frozenset) else value
        items = [inside(k, item) for k, item in enumerate(given)]
        kind = {tuple: "tuple", frozenset: "set"}.get(type(value))
        return items if kind is None else {"type": kind, "items": items}
    return None


def from_plain(plain: Any, tensors: dict[str, Tensor]) -> Any:
    """Undo `to_plain`."""
    if isinstance(plain, list):
        return [from_plain(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    own = {key: from_plain(item, tensors) for key, item in plain.items() if key != "type"}
    kind = plain.get("type")
    if kind in _NUMBERS:
        return _NUMBERS[kind](tensors[own["name"]])
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](own["items"])
    if kind == "labels":
        return np.array(own["values"], dtype=own["dtype"])
    return own if kind is None else _classes()[kind](**own)


def _labels(labels: NDArray[Any]) -> dict[str, Any]:
    """Labels, or names, with what is needed to get the same array back."""
    known = all(isinstance(label, _Scalar) for label in labels.ravel().tolist())
    if labels.dtype.kind not in _LABEL_KINDS or not known:
        raise ValueError(
            f"labels of dtype {labels.dtype} cannot be saved: use numbers, strings or booleans"
        )
    return {"type": "labels", "dtype": labels.dtype.str, "values": labels.tolist()}
