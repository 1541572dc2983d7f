"""What a file may hold: dataclasses as plain values and tensors, by their annotations.

`take_apart` and `put_together` know numbers, texts, tensors, arrays, dataclasses, and lists, tuples, sets and
mappings of them. What a type cannot say stands beside it, as in `Annotated[int, Range(1)]` or `Annotated[Tensor,
Array("P N")]`, or in a method `check` of the class. Only classes that annotations name are made, of an abstract class
those of its `kinds`, by `name`. What is not as annotated raises ValueError that names the field.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.limits import refuse

Scalar = bool | int | float | str
_UNIONS = (Union, types.UnionType)
_ARRAYS = (np.ndarray, get_origin(NDArray[Any]))  # NumPy 2.5: an alias of its own
_LARGEST = 2**53  # whole number
_LONGEST = 100_000  # characters of a text
_FLOATS = ("float32", "float64")
_LABEL_KINDS = "biufUO"
_MOST_BYTES = 1 << 28  # of an array of labels


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    """The annotations of the fields that a file holds."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        f.name: hints[f.name] for f in dataclasses.fields(kind) if f.metadata.get("saved", True)
    }


def _split(hint: Any) -> tuple[Any, list[Any]]:
    """(the type, what else is said of it) of an annotation."""
    kind, *limits = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return kind, limits


def _item_hints(hint: Any, n: int) -> list[Any]:
    """Annotations of n items of a list, a set or a tuple."""
    inner = get_args(hint)
    return list(inner) if get_origin(hint) is tuple and inner[-1] is not ... else [inner[0]] * n


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def take_apart(hint: Any, value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """Plain values as JSON holds them; arrays go to `tensors`, by names such as votes.w."""
    hint, _ = _split(hint)
    if value is None or isinstance(value, Scalar):
        return value
    if get_origin(hint) in _UNIONS:
        hint = next(kind for kind in get_args(hint) if kind is not types.NoneType)
        return take_apart(hint, value, tensors, name)
    if hint == NDArray[Any]:
        return _labels_out(value)
    if isinstance(value, Tensor | np.ndarray):
        own = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        tensors[name] = own.detach().cpu()
        return None
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        kind: Any = type(value)
        parts = {k: (h, getattr(value, k)) for k, h in _fields(kind).items()}
        if inspect.isabstract(hint):
            parts["name"] = str, value.name
    elif isinstance(value, dict):
        inner = Any if hint is Any else get_args(hint)[1]
        parts = {k: (inner, item) for k, item in value.items()}
    elif isinstance(value, list | tuple | frozenset):
        items = sorted(value, key=repr) if isinstance(value, frozenset) else value
        hints = [Any] * len(value) if hint is Any else _item_hints(hint, len(value))
        pairs = enumerate(zip(hints, items, strict=True))
        return [take_apart(h, item, tensors, _below(name, k)) for k, (h, item) in pairs]
    else:
        return value.item()  # NumPy's number
    return {k: take_apart(h, item, tensors, _below(name, k)) for k, (h, item) in parts.items()}


def put_together(hint: Any, plain: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """Undo `take_apart`; ValueError where something is missing, unknown, or not as annotated."""
    left = dict(tensors)
    found = _read(hint, plain, left, name, {})
    if left:
        raise ValueError(f"the tensor {min(left)!r} is unknown")
    return found


def _read(hint: Any, plain: Any, left: dict[str, Tensor], name: str, sizes: dict[str, int]) -> Any:
    """One value, whose tensors are taken out of `left`; sizes: by the letters of arrays."""
    kind, limits = _split(hint)
    found = _value(kind, plain, left, name, sizes)
    for limit in limits:
        limit.check(found, name, sizes)
    return found


def _value(kind: Any, plain: Any, left: dict[str, Tensor], name: str, sizes: dict[str, int]) -> Any:
    origin = get_origin(kind)
    if origin in _UNIONS:
        absent = plain is None and not any(f"{key}.".startswith(f"{name}.") for key in left)
        if absent and types.NoneType in get_args(kind):
            return None
        kinds = [one for one in get_args(kind) if one is not types.NoneType]
        return _read(
            next((k for k in kinds if k is type(plain)), kinds[0]), plain, left, name, sizes
        )
    if kind is Any:
        return plain
    if kind == NDArray[Any]:
        return _labels_in(plain, name)
    if kind is Tensor or origin in _ARRAYS:
        if plain is not None or name not in left:
            raise ValueError(f"the tensor {name!r} is missing")
        tensor = left.pop(name)
        return tensor if kind is Tensor else tensor.numpy()
    if origin is Literal and plain not in get_args(kind):
        refuse(plain, name, f"one of {get_args(kind)}")
    if origin in (list, tuple, frozenset):
        hints = _item_hints(kind, len(plain)) if isinstance(plain, list) else []
        if not isinstance(plain, list) or len(hints) != len(plain):
            refuse(plain, name, "a list")
        pairs = enumerate(zip(hints, plain, strict=True))
        return origin(_read(h, item, left, _below(name, k), sizes) for k, (h, item) in pairs)
    if origin is dict or dataclasses.is_dataclass(kind):
        return _mapping(kind, plain, left, name, sizes)
    return plain if origin is Literal else _scalar(kind, plain, name)


def _mapping(
    kind: Any, plain: Any, left: dict[str, Tensor], name: str, sizes: dict[str, int]
) -> Any:
    """A dictionary, or a dataclass, in which letters for sizes are its own."""
    if not isinstance(plain, dict):
        refuse(plain, name, "a mapping")
    if get_origin(kind) is dict:
        inner = get_args(kind)[1]
        return {k: _read(inner, v, left, _below(name, k), sizes) for k, v in plain.items()}
    if inspect.isabstract(kind):  # one of its kinds
        which = plain.get("name")
        if not isinstance(which, str) or which not in kind.kinds:
            refuse(which, _below(name, "name"), f"one of {tuple(kind.kinds)}")
        kind, plain = kind.kinds[which], {k: v for k, v in plain.items() if k != "name"}
    hints, own = _fields(kind), {}
    for key in sorted(plain.keys() ^ hints.keys()):
        raise ValueError(f"{_below(name, key)!r} is {'missing' if key in hints else 'unknown'}")
    sizes = {}
    for key, hint in hints.items():
        own[key] = _read(hint, plain[key], left, _below(name, key), sizes)
    found = kind(**own)
    return found.check() if hasattr(found, "check") else found


def _scalar(kind: Any, plain: Any, name: str) -> Any:
    if kind is float and type(plain) is int and abs(plain) <= _LARGEST:
        plain = float(plain)
    if type(plain) is not kind or plain != plain or (kind is int and abs(plain) > _LARGEST):
        refuse(plain, name, f"a value of type {kind.__name__}")
    if kind is str and len(plain) > _LONGEST:
        refuse(plain, name, f"at most {_LONGEST} characters")
    return plain


def _labels_out(labels: NDArray[Any]) -> dict[str, Any]:
    """Labels with what is needed to get the same array back."""
    values = labels.tolist()
    if labels.dtype.kind not in _LABEL_KINDS or not all(
        isinstance(v, Scalar) for v in labels.ravel().tolist()
    ):
        raise ValueError(
            f"labels of dtype {labels.dtype} cannot be saved: use numbers, strings or booleans"
        )
    return {"dtype": labels.dtype.str, "values": json.loads(json.dumps(values))}


def _labels_in(plain: Any, name: str) -> NDArray[Any]:
    """Undo `_labels_out`; ValueError where these are no labels."""
    own = put_together(dict[str, Any], plain, {}, name)
    told, values = str(own.get("dtype"))[:20], own.get("values")
    try:
        dtype, size = np.dtype(own["dtype"]), np.array(values, dtype=object).size
        if dtype.kind not in _LABEL_KINDS or not 0 <= dtype.itemsize * size <= _MOST_BYTES:
            raise ValueError
        labels = np.array(values, dtype=dtype)
    except (KeyError, MemoryError, OverflowError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is no array of dtype {told!r}") from error
    # The same values and not others that NumPy makes of them.
    known = all(isinstance(v, Scalar) for v in labels.ravel().tolist())
    if not (known and labels.ndim and len(own) == 2 and labels.tolist() == values):
        raise ValueError(f"{name} has values that are not of dtype {told!r}")
    return labels


# Arrays.


@dataclass(frozen=True)
class Array:
    """An array of finite numbers: its sizes by letters, its type, its range.

    A letter whose size is not given has that of the array where it occurs first.
    """

    shape: str = ""  # one letter or number per axis, such as "P N" or "P 3"
    dtype: str | None = "float64"  # None: float32 or float64
    low: float = -math.inf
    nan: bool = False  # whether NaN may stand for what is not known
    wild: bool = False  # whether infinities may be there

    def check(self, array: Tensor | NDArray[Any], name: str, sizes: dict[str, int]) -> None:
        """Raise ValueError unless the array is so; sizes of new letters are noted."""
        tensor = torch.as_tensor(array)
        axes, own = self.shape.split(), str(tensor.dtype).removeprefix("torch.")
        kinds = _FLOATS if self.dtype is None else (self.dtype,)
        fits = own in kinds and len(axes) == tensor.ndim
        if not fits or not all(
            size == (int(a) if a.isdecimal() else sizes.get(a, size))
            for a, size in zip(axes, tensor.shape, strict=True)
        ):
            shape = ", ".join(str(sizes.get(a, a)) for a in axes)
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} of {own}, expected ({shape}) of "
                f"{' or '.join(kinds)}"
            )
        sizes |= dict(zip(axes, tensor.shape, strict=True))
        known = tensor[tensor == tensor] if self.nan else tensor
        least, most = (float(known.min()), float(known.max())) if known.numel() else (0.0, 0.0)
        finite = self.wild or (least > -math.inf and most < math.inf)
        if known.numel() and not (self.low <= least and finite):  # NaN is in no range
            raise ValueError(f"{name} has numbers that are not finite or below {self.low}")


def check_fields(value: Any, sizes: Mapping[str, int]) -> None:
    """Raise ValueError unless the arrays of a dataclass are as annotated, and of these sizes."""
    kind: Any = type(value)
    known = dict(sizes)
    for name, hint in _fields(kind).items():
        kinds = get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
        for limit in (limit for kind in kinds for limit in _split(kind)[1]):
            if (held := getattr(value, name)) is not None:
                limit.check(held, name, known)


# Arguments.


def check_arguments(package: dict[str, Any]) -> None:
    """Let the functions of a package's `__all__` refuse arguments of other classes than annotated.

    Of parameters that are annotated by a class of ours, or by a tensor; package: its globals.
    """
    for name in package["__all__"]:
        if inspect.isfunction(package[name]):
            package[name] = found = _with_checks(package[name])
            setattr(sys.modules[found.__module__], found.__name__, found)  # one function, one name


def _with_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    names = list(inspect.signature(function).parameters)

    @functools.cache
    def expected() -> dict[str, tuple[type, ...]]:
        hints = ((name, get_type_hints(function)[name]) for name in names)
        found = {name: get_args(h) if isinstance(h, types.UnionType) else (h,) for name, h in hints}
        return {name: kinds for name, kinds in found.items() if all(map(_is_own, kinds))}

    @functools.wraps(function)
    def run(*args: Any, **more: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | more
        for name, kinds in expected().items():
            if name in given and not isinstance(given[name], kinds):
                told = " or ".join(kind.__name__ for kind in kinds if kind is not types.NoneType)
                got = type(given[name]).__name__
                advice = ": fit it and pass its model_" if hasattr(given[name], "fit") else ""
                raise TypeError(f"{name} is of type {got}, expected {told}{advice}")
        return function(*args, **more)

    return run


def _is_own(kind: Any) -> bool:
    own = isinstance(kind, type) and kind.__module__.partition(".")[0] in ("mnemosphere", "torch")
    return own or kind is types.NoneType
