"""The columns that a model takes: what a user passes as X, checked and turned into numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor, strided

from mnemosphere.base.warnings import warn_user
from mnemosphere.rows.batches import Dataset
from mnemosphere.rows.encoding import (
    Column,
    Encoding,
    is_frame,
    written,
)
from mnemosphere.rows.stored import StoredRows, unwrap_container
from mnemosphere.rows.texts import PACKAGED, TextEncoder, texts_of

_ALL_SHOWN = 50  # features that are shown even if their names say nothing
_PLAIN = (np.dtype(np.float64), np.dtype(np.float32))


def readable(names: list[str]) -> bool:
    """Whether features can be shown to people: few, or with names that somebody gave them.

    Numbers of a vector tell nobody anything.
    """
    if all(re.search(r"\[\d+\]$", name) for name in names):
        return False
    return len(names) <= _ALL_SHOWN or not all(re.fullmatch(r"x?\d+", name) for name in names)


class UserColumn(NamedTuple):
    """A column as a user has it: a number, or all the numbers of a category."""

    name: str
    place: slice  # of its numbers
    kind: str = "number"
    column: Column | None = None  # of a category

    def written(self, row: NDArray[Any]) -> str:
        """What a row (N,) has there, for people."""
        numbers = row[self.place]
        if self.column is not None:
            return self.column.written(numbers)
        if len(numbers) > 1 and not np.isnan(numbers).any():
            return "a text" if self.kind == "text" else f"{len(numbers)} numbers"
        return written(float(numbers[0]), self.kind)

    @property
    def categories(self) -> tuple[str, ...]:
        """Of a category, the levels that have numbers of their own."""
        return () if self.column is None else self.column.shown

    @property
    def indicators(self) -> slice:
        """Where these stand."""
        n = 1 if self.column is None else self.column.n_indicators
        return slice(self.place.start, self.place.start + n)


@dataclass(frozen=True)
class Features:
    """Columns as training had them, and the numbers that they become."""

    n_columns: int
    columns: tuple[str, ...] | None = None  # their names, of a frame
    encoding: Encoding | None = None  # of a frame whose columns are not all numbers
    named: tuple[str, ...] | None = None  # names of the numbers that the user gave afterwards
    encoder: TextEncoder | None = None  # of texts alone; those beside columns are in the encoding
    # least and largest number in training, and 1 if all were whole; None if unknown
    observed: NDArray[np.float64] | None = field(default=None, compare=False)

    @property
    def names(self) -> list[str] | None:
        """Names of the numbers that a row consists of, (N,)."""
        if self.named is not None:
            return list(self.named)
        if self.encoding is not None:
            return self.encoding.names
        plain = self.columns is not None and self.encoder is None
        return list(self.columns or ()) if plain else None

    @property
    def n_numbers(self) -> int:
        """How many numbers a row consists of, N."""
        if self.encoder is not None:
            return self.encoder.n_numbers
        return self.n_columns if self.encoding is None else len(self.encoding.names)

    @property
    def shown_names(self) -> list[str]:
        """Names of the numbers, x0, x1, … if they have none."""
        return [str(n) for n in self.names or (f"x{i}" for i in range(self.n_numbers))]

    @property
    def kinds(self) -> list[str]:
        """What each number is: a number, a date, part of a category, …"""
        return ["number"] * self.n_numbers if self.encoding is None else self.encoding.kinds

    @property
    def user_columns(self) -> list[UserColumn]:
        """The features as a user has them: a category is one."""
        if self.encoding is None or self.named is not None:
            named = enumerate(zip(self.shown_names, self.kinds, strict=True))
            return [UserColumn(name, slice(i, i + 1), kind) for i, (name, kind) in named]
        found = ((own, place) for own, place in self.encoding.places() if own.width)
        return [
            UserColumn(own.name, place, own.kind, own if own.kind == "category" else None)
            for own, place in found
        ]

    @property
    def categories(self) -> list[slice]:
        """Where the numbers of categories stand, of which one is 1."""
        return [own.indicators for own in self.user_columns if len(own.categories) > 2]

    def in_range(self, values: NDArray[Any]) -> NDArray[Any]:
        """The nearest numbers (n, N) that rows could have: in the range of training, whole, one category."""
        found = values.copy()
        for place in self.categories:
            found[:, place] = np.eye(place.stop - place.start)[found[:, place].argmax(1)]
        if self.observed is None:
            return found
        low, high, whole = self.observed
        return np.clip(np.where(whole > 0, found.round(), found), low, high)

    @property
    def multi_number_categories(self) -> list[slice]:
        """Where categories of several numbers stand."""
        columns = (own for own in self.user_columns if own.column is not None)
        return [own.place for own in columns if own.place.stop - own.place.start > 1]

    @property
    def vectors(self) -> tuple[int, ...]:
        """Which numbers are those of vectors beside other columns."""
        return () if self.encoding is None or self.named else self.encoding.vectors

    @property
    def text_encoder(self) -> TextEncoder | None:
        """The encoder of texts, alone or beside other columns."""
        return self.encoder if self.encoding is None else self.encoding.encoder

    def with_encoder(self, given: Any) -> Self:
        """The same with the user's encoder of texts; ValueError if its vectors are others."""
        if self.text_encoder is None:
            raise ValueError("the model takes no texts: leave encoder out")
        known = self.text_encoder.with_encoder(given)
        if self.encoding is None:
            return replace(self, encoder=known)
        return replace(self, encoding=replace(self.encoding, encoder=known))

    @classmethod
    def learn(
        cls, X: Any, *, encoded: bool = True, encoder: Any = None, **how: Any
    ) -> tuple[Self, Any]:
        """(the columns of training rows, the rows as numbers).

        encoded: columns of a frame that are no numbers are turned into some, as `how` says to
        `Encoding.fit`. encoder: of texts, alone or in a frame of several columns.
        """
        if encoder is not None and is_frame(X) and (isinstance(encoder, dict) or X.shape[1] > 1):
            how["encoder"] = encoder
        elif encoder is not None:
            name = None if _are_vectors(X) else texts_of(X)[1]
            columns = None if name is None else (name,)
            found = cls(1, columns, encoder=TextEncoder.of(encoder))
            return found, found.numbers_of(X)
        X = unwrap_container(X)
        if isinstance(X, Tensor):
            _check_tensor(X)
            return cls(int(X.shape[1])), X
        encoding, seen = None, TrainingColumns()
        if encoded and is_frame(X):
            _check_shape(X)
            encoding, notes = Encoding.fit(X, **how)
            for note in notes:
                warn_user(note)
            if encoding.is_plain:
                encoding = None
            elif not encoding.names:
                raise ValueError(f"no column of X is left to learn from: {'; '.join(notes)}")
        if encoding is None:
            rows = _check_table(X, seen, reset=True)
        else:
            validate_data(seen, X, reset=True, skip_check_array=True)
            rows = encoding(X)
        names = getattr(seen, "feature_names_in_", None)
        columns = None if names is None else tuple(names.tolist())
        return cls(int(seen.n_features_in_), columns, encoding), rows

    def numbers_of(self, X: Any) -> Any:
        """The numbers of other rows with these columns, as an array, a tensor or a sparse matrix."""
        if isinstance(X, Dataset):
            raise TypeError(
                "this takes rows in memory, got a Dataset: pass rows of it, batch by batch, as in "
                "`for x, y, weight in dataset`"
            )
        if isinstance(X, Tensor):
            _check_tensor(X)
            if X.shape[1] != self.n_numbers:
                raise ValueError(
                    f"X has {X.shape[1]} features, but TrainingColumns is expecting "
                    f"{self.n_numbers} features as input"
                )
            return X
        texts = self.texts(X)
        if texts is not None and self.encoder is not None:
            _check_shape(np.empty((len(texts), 1)))
            return self.encoder(texts)
        if self.encoding is not None:
            return self._encode(unwrap_container(X), self.encoding)
        # Plain numbers are the common case, and most of the time of a single row.
        plain = type(X) is np.ndarray and self.columns is None and X.dtype in _PLAIN
        if plain and X.ndim == 2 and X.shape[0] > 0 and X.shape[1] == self.n_numbers:
            return X
        return _check_table(unwrap_container(X), self._as_estimator(), reset=False)

    def texts(self, X: Any) -> list[str | None] | None:
        """The texts of X, None for one that is missing; None if X holds none."""
        if self.encoder is None:
            column = None if self.encoding is None else self.text_column
            if column is None or not is_frame(X) or self.is_encoded(X):
                return None
        elif isinstance(X, Dataset | None) or _are_vectors(X):
            return None
        return texts_of(X, self.text_column)[0]

    @property
    def text_column(self) -> str | None:
        """The column of texts, of several the first; None if it has no name, too."""
        if self.encoding is None:
            return None if self.encoder is None or self.columns is None else self.columns[0]
        return next((own.name for own in self.encoding.columns if own.kind == "text"), None)

    def _as_estimator(self) -> Any:
        """What scikit-learn's checks need: an estimator that was fitted to these columns."""
        seen = TrainingColumns()
        seen.n_features_in_ = self.n_columns if self.encoder is None else self.n_numbers
        if self.columns is not None and self.encoder is None:
            seen.feature_names_in_ = np.array(self.columns, dtype=object)
        return seen

    def _encode(self, X: Any, encoding: Encoding) -> NDArray[Any]:
        """Columns of any kind as numbers; rows that are encoded already stay as they are."""
        X = X if is_frame(X) else np.asarray(X)
        _check_shape(X)
        plain = not is_frame(X) and X.shape[1] == len(encoding.names) and X.dtype.kind in "buif"
        if plain or self.is_encoded(X):
            return np.asarray(X, dtype=np.float64)
        validate_data(self._as_estimator(), X, reset=False, skip_check_array=True)
        return encoding(X)

    def is_encoded(self, X: Any) -> bool:
        """Whether X is a frame of the numbers that columns of any kind become."""
        if self.encoding is None or not is_frame(X):
            return False
        own = [column.name for column in self.encoding.columns]
        return own != self.names == list(map(str, getattr(X, "column_names", X.columns)))


def _are_vectors(X: Any) -> bool:
    """Whether X holds numbers in two axes: texts that are encoded already."""
    kind = getattr(getattr(X, "dtype", None), "kind", "f")
    return isinstance(X, Tensor | StoredRows) or (getattr(X, "ndim", 1) == 2 and kind in "biuf"
                                                  and not is_frame(X))  # fmt: skip


class TrainingColumns(BaseEstimator):  # type: ignore[misc]
    """The columns of training as scikit-learn's checks want them: its messages have this name."""


def _check_tensor(X: Tensor) -> None:
    if X.layout != strided or X.is_meta:
        raise TypeError(f"X must be a dense tensor of numbers, got {X.layout} on {X.device}")
    _check_shape(X)
    if X.is_complex():
        raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")


def _check_table(X: Any, seen: Any, *, reset: bool) -> Any:
    """X as an array or a sparse matrix of numbers, by scikit-learn's rules and messages."""
    if not hasattr(X, "shape"):
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise ValueError(
                "X must be (rows, features), got rows of unlike lengths: fill them up"
            ) from error
    _check_shape(X)
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


def _check_shape(X: Any) -> None:
    """ValueError unless X has rows and columns."""
    shape = tuple(getattr(X, "shape", (1, 1)))
    if len(shape) == 1 and shape[0] and isinstance(next(iter(X)), str):
        raise ValueError(
            f"X holds texts: pass encoder={PACKAGED!r} or another encoder, or a table of numbers"
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
