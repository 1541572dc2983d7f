"""What a file may hold, said once: each check raises ValueError that names the field."""

from __future__ import annotations

import dataclasses
import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Check = Callable[[Any, str], None]
_DEEPEST = 32
_NESTED = frozenset([list, dict])
_LONGEST = 100_000  # characters of a text
_SHOWN = 40
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def _refuse(value: Any, name: str, expected: str) -> None:
    got = repr(value)
    got = got if len(got) <= _SHOWN else got[:_SHOWN] + "…"
    raise ValueError(f"{name} is {got}, expected {expected}")


# Plain values.


def number(low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> Check:
    """A number in [low, high]; above: low is left out. Never NaN."""

    def check(value: Any, name: str) -> None:
        real = type(value) is float or type(value) is int  # no truth value
        if not real or not low <= value <= high or (above and value == low):
            _refuse(value, name, f"a number from {low} to {high}")

    return check


def whole(low: int = 0, high: int = 2**53) -> Check:
    """A whole number in [low, high]."""

    def check(value: Any, name: str) -> None:
        if type(value) is not int or not low <= value <= high:
            _refuse(value, name, f"a whole number from {low}")

    return check


def text(value: Any, name: str) -> None:
    """A text that is not longer than texts are."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        _refuse(value, name, "a text")


def flag(value: Any, name: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        _refuse(value, name, "true or false")


def one_of(*allowed: object) -> Check:
    """One of these values."""

    def check(value: Any, name: str) -> None:
        if not any(type(value) is type(one) and value == one for one in allowed):
            _refuse(value, name, f"one of {allowed}")

    return check


def maybe(inner: Check) -> Check:
    """None, or what `inner` takes."""

    def check(value: Any, name: str) -> None:
        if value is not None:
            inner(value, name)

    return check


def items(inner: Check, least: int = 0) -> Check:
    """A list of at least so many of what `inner` takes."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, list) or len(value) < least:
            _refuse(value, name, "a list")
        try:
            for item in value:
                inner(item, name)
        except ValueError:  # say which
            for i, item in enumerate(value):
                inner(item, f"{name}[{i}]")

    return check


def mapping(fields: Mapping[str, Check]) -> Check:
    """A mapping with these fields and no others."""
    return lambda value, name: check_fields(value, fields, name)


def check_fields(value: Any, fields: Mapping[str, Check], name: str = "header") -> None:
    """Raise unless `value` is a mapping with these fields and no others."""
    if not isinstance(value, dict):
        _refuse(value, name, "a mapping")
    for key, check in fields.items():
        if key not in value:
            raise ValueError(f"{key!r} is missing in {name}")
        check(value[key], key)
    unknown = value.keys() - fields.keys()
    if unknown:
        raise ValueError(f"{name} has {min(unknown)!r}, which is unknown")


def scalars(value: Any, name: str) -> None:
    """A mapping of any names to numbers and texts."""
    if not isinstance(value, dict):
        _refuse(value, name, "a mapping")
    for key, item in value.items():
        (text if isinstance(item, str) else number())(item, f"{name}.{key}")


def records_of(kind: type) -> Check:
    """A list of mappings with the fields of a dataclass of numbers and texts, as annotated."""
    hints = get_type_hints(kind)
    fields = {field.name: _annotated(hints[field.name]) for field in dataclasses.fields(kind)}
    keys, one_by_one = fields.keys(), items(mapping(fields))

    def check(value: Any, name: str) -> None:
        """Field by field of all records at once."""
        if not isinstance(value, list) or any(
            type(record) is not dict or record.keys() != keys for record in value
        ):
            one_by_one(value, name)  # which says what is missing or unknown
        for key, inner in fields.items():
            for end in _ends([record[key] for record in value]):
                inner(end, key)

    return check


def _ends(values: list[Any]) -> Sequence[Any]:
    """Of numbers of one type the least and the largest, which tell whether all are in a range."""
    kinds = {*map(type, values)}
    if kinds == {int} or (kinds == {float} and not any(map(operator.ne, values, values))):  # NaN
        return min(values), max(values)
    return values


def _annotated(hint: Any) -> Check:
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    (kind,) = (member for member in members if member is not types.NoneType)
    check = {int: whole(-(2**53)), float: number(), str: text, bool: flag}[kind]
    return maybe(check) if types.NoneType in members else check


def check_depth(value: Any) -> None:
    """Raise ValueError where lists and mappings are nested deeper than any of ours."""
    level = [value] if type(value) in _NESTED else []
    for _ in range(_DEEPEST):
        if not level:
            return
        inner = (item if type(item) is list else item.values() for item in level)
        level = [x for values in inner for x in values if type(x) in _NESTED]
    raise ValueError(f"it is nested deeper than {_DEEPEST} levels")


# Arrays.


@dataclass(frozen=True)
class Array:
    """An array of finite numbers: its sizes by letters, its type, its range.

    A letter whose size is not given may have any.
    """

    shape: str = ""  # one letter or number per axis, such as "P N" or "P 3"
    dtype: str | None = "float64"  # None: float32 or float64
    low: float = -math.inf
    optional: bool = False
    nan: bool = False  # whether NaN may stand for what is not known

    def check(self, numbers: NDArray[Any] | Tensor, name: str, sizes: Mapping[str, int]) -> None:
        """Raise ValueError unless the array is so."""
        array = numbers if isinstance(numbers, np.ndarray) else numbers.numpy(force=True)
        axes = self.shape.split()
        kinds = _FLOATS if self.dtype is None else (np.dtype(self.dtype),)
        fits = array.dtype in kinds and len(axes) == array.ndim
        if not fits or not all(
            size == (int(a) if a.isdecimal() else sizes.get(a, size))
            for a, size in zip(axes, array.shape, strict=True)
        ):
            shape = ", ".join(str(sizes.get(a, a)) for a in axes)
            raise ValueError(
                f"{name} is {array.shape} of {array.dtype}, expected ({shape}) of "
                f"{' or '.join(map(str, kinds))}"
            )
        known = array[array == array] if self.nan else array
        if known.size and not (  # NaN is in no range
            self.low <= known.min() > -math.inf and known.max() < math.inf
        ):
            raise ValueError(f"{name} has numbers that are not finite or below {self.low}")


def check_tensors(
    tensors: Mapping[str, NDArray[Any] | Tensor],
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
) -> None:
    """Raise ValueError unless these tensors are there, as described, and no others."""
    for name, array in arrays.items():
        if name in tensors:
            array.check(tensors[name], name, sizes)
        elif not array.optional:
            raise ValueError(f"the tensor {name!r} is missing")
    unknown = tensors.keys() - arrays.keys()
    if unknown:
        raise ValueError(f"the tensor {min(unknown)!r} is unknown")
