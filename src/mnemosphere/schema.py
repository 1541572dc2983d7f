"""What a file may hold, said once: each check raises ValueError that names the field; warnings."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from torch import Tensor

Check = Callable[[Any, str], None]
_DEEPEST = 32
_NESTED = frozenset([list, dict])
_LONGEST = 100_000  # characters of a text
_SHOWN = 40
_FLOATS = ("float32", "float64")
_SHOWN_BY: set[tuple[int, int, str]] = set()  # calls of the user's, and the warning that they gave
_OURS = {"mnemosphere", "sklearn", "joblib", "torch"}


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
    """A mapping of any names to numbers, texts and truth values."""
    if not isinstance(value, dict):
        _refuse(value, name, "a mapping")
    checks = {str: text, bool: flag}
    for key, item in value.items():
        checks.get(type(item), number())(item, f"{name}.{key}")


def records_of(kind: type) -> Check:
    """A list of mappings with the fields of a dataclass of numbers and texts, as annotated."""
    hints = get_type_hints(kind)
    fields = {field.name: _annotated(hints[field.name]) for field in dataclasses.fields(kind)}
    return items(mapping(fields))


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

    def check(self, tensor: Tensor, name: str, sizes: Mapping[str, int]) -> None:
        """Raise ValueError unless the tensor is so."""
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
        known = tensor[tensor == tensor] if self.nan else tensor
        if known.numel() and not (  # NaN is in no range
            self.low <= float(known.min()) > -math.inf and float(known.max()) < math.inf
        ):
            raise ValueError(f"{name} has numbers that are not finite or below {self.low}")


def check_tensors(
    tensors: Mapping[str, Tensor],
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int] = types.MappingProxyType({}),
) -> None:
    """Raise ValueError unless these tensors are there, as described, and no others.

    A letter whose size is not given has that of the array where it occurs first.
    """
    for name, array in arrays.items():
        if name in tensors:
            array.check(tensors[name], name, sizes)
            sizes = dict(zip(array.shape.split(), tensors[name].shape, strict=True)) | {**sizes}
        elif not array.optional:
            raise ValueError(f"the tensor {name!r} is missing")
    unknown = tensors.keys() - arrays.keys()
    if unknown:
        raise ValueError(f"the tensor {min(unknown)!r} is unknown")


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


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning that points to the line of the user's, outside this package and scikit-learn.

    One call of scikit-learn's, such as a cross-validation, shows it once for all of its fits.
    """
    frame, behind = inspect.currentframe(), False
    while frame is not None and frame.f_back is not None and _package(frame) in _OURS:
        behind |= _package(frame) == "sklearn"
        frame = frame.f_back
    assert frame is not None
    # scikit-learn sets the filters anew for every fit, by which Python forgets what it has shown.
    call = id(frame), frame.f_lasti, message
    if behind and call in _SHOWN_BY:
        return
    _SHOWN_BY.add(call)
    warnings.warn_explicit(
        message, category, frame.f_code.co_filename, frame.f_lineno, module="mnemosphere",
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )  # fmt: skip


def _package(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
