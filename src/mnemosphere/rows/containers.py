"""What a user passes as X, in whatever container: checked, and as a pandas frame or an array."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor, strided

from mnemosphere.base.machine import import_extra

_SHOWN = 5
_LINE = 80  # letters of a cell in a message


def is_frame(X: Any) -> bool:
    """Whether X has named columns of their own types, as pandas, polars and Arrow have them."""
    known = hasattr(X, "columns") and hasattr(X, "shape")
    return known and (hasattr(X, "dtypes") or hasattr(X, "column_names"))


def unwrap_container(X: Any) -> Any:
    """A pandas frame for any frame, and for any stream of Arrow; ValueError for columns of one name.

    TypeError for what NumPy would read in silence as something else.
    """
    check_not_masked(X)
    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    elif hasattr(X, "__arrow_c_stream__") and not hasattr(X, "iloc"):
        X = import_extra("pyarrow").table(X).to_pandas()
    if is_frame(X):
        check_names(X.columns)
    return X


def check_not_masked(given: Any, name: str = "X") -> None:
    """TypeError for a masked array: NumPy and scikit-learn would drop its mask in silence."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill it, as in {name}.filled(np.nan)")


def check_text(given: str, what: str) -> None:
    """ValueError if a name cannot be written to a file."""
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {given!r:.60} is no valid text: rename it") from error


def check_names(names: Iterable[Any]) -> None:
    """ValueError if two columns have one name, or one is no valid text."""
    counts = Counter(map(str, names))
    for name in counts:
        check_text(name, "X: column")
    twice = [name for name, n in counts.items() if n > 1]
    if twice:
        raise ValueError(f"X has more than one column called {listed(twice)}: rename them")


def listed(names: Sequence[Any], most: int = _SHOWN) -> str:
    """Names for a message, the first few of them in quotes."""
    return shortened([cell(name) for name in names], most)


def shortened(words: Sequence[str], most: int = _SHOWN) -> str:
    """The first few words of a message, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def cell(value: Any) -> str:
    """A name or a cell in quotes; a line of it at most."""
    shown = repr(value)
    return shown if len(shown) <= _LINE else f"{shown[: _LINE - 1]}…"


class TrainingColumns(BaseEstimator):  # type: ignore[misc]
    """The columns of training as scikit-learn's checks want them: its messages have this name."""


def check_tensor(X: Tensor) -> None:
    """An error unless X is a dense tensor of real numbers (n, N)."""
    if X.layout != strided or X.is_meta:
        raise TypeError(f"X must be a dense tensor of numbers, got {X.layout} on {X.device}")
    check_shape(X)
    if X.is_complex():
        raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")


def check_table(X: Any, seen: TrainingColumns, *, reset: bool) -> Any:
    """X as an array or a sparse matrix of numbers, by scikit-learn's rules and messages."""
    if not hasattr(X, "shape"):
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise ValueError(
                "X must be (rows, features), got rows of unlike lengths: fill them up"
            ) from error
    check_shape(X)
    types = X.dtypes if is_frame(X) else [getattr(X, "dtype", None)]
    if "c" in {getattr(kind, "kind", "") for kind in types}:
        raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")
    if isinstance(X, np.ndarray) and X.dtype.kind in "US":
        X = X.astype(object)
    try:
        rows = validate_data(
            seen, X, reset=reset, dtype="numeric", ensure_all_finite=False, accept_sparse="csr"
        )
        rows = rows.astype(np.float64) if rows.dtype.kind == "O" else rows
    except OverflowError as error:
        raise ValueError("X holds a whole number that no float can hold: scale it") from error
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        text = str(error).partition(": ")[2].removeprefix("np.str_(").removesuffix(")")
        raise ValueError(
            f"X holds text ({text:.80}): pass a data frame, or drop the column"
        ) from error
    if rows.dtype.kind not in "buif":
        raise ValueError(f"X must hold numbers, got dtype {rows.dtype}: convert its columns")
    return rows


def check_shape(X: Any) -> None:
    """ValueError unless X has rows and columns."""
    shape = tuple(getattr(X, "shape", (1, 1)))
    if len(shape) == 1 and shape[0] and isinstance(next(iter(X)), str):
        raise ValueError(
            "X holds texts: pass encoder='wordllama' or another encoder, or a table of numbers"
        )
    if len(shape) != 2:
        hint = "Reshape your data: X.reshape(-1, 1) is one feature, X.reshape(1, -1) one row"
        if hasattr(X, "iloc"):
            hint = "Pass a frame, such as frame.iloc[[0]] for one row"
        raise ValueError(f"X must be (rows, features), got shape {shape}. {hint}")
    if 0 in shape:
        raise ValueError(
            f"X has {shape[0]} sample(s), {shape[1]} feature(s) (shape={shape}) while a minimum of 1 "
            "is required."
        )
