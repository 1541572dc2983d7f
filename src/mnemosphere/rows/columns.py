"""The columns of a table: what is learned of them, how they become numbers, and numbers a table again.

    number    as it is; whole numbers that name rows (an id, a counter) are left out
    numeral   a number written as text; "?" and the like are missing
    boolean   0 or 1
    date      days since 1970-01-01, of a column of dates or of text in ISO 8601
    category  one column for each level that is frequent enough, `color=red`; two levels share one.
              Others become zeros ("none of these"), also levels never seen before. If some are too
              rare, the log-odds of the classes that go with a level stand beside (`rows.odds`)
    list      numbers of one length: an embedding, `vector[0]`, `vector[1]`, …
    text      the vector that an encoder makes of it

A missing value stays NaN in all columns that come from it: the model fills it in. Only where a column has one
value is "missing" a second one, so that the two are a category. `Columns` are plain data, so that model files
can hold them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data
from torch import Tensor

from mnemosphere.base.machine import import_extra
from mnemosphere.base.warnings import warn_user
from mnemosphere.rows.batches import Dataset
from mnemosphere.rows.containers import (
    TrainingColumns,
    cell,
    check_shape,
    check_table,
    check_tensor,
    is_frame,
    listed,
    shortened,
    unwrap_container,
)
from mnemosphere.rows.texts import TextEncoder, language_note, texts_of

Floats = NDArray[np.float64]
VECTORS = ("list", "text")  # kinds whose numbers are those of one vector
_BLANKS = ("", "?", "-", ".", "*", "na", "n/a", "nan", "none", "null", "unknown", "missing")
MISSING = ""  # the level of a category that stands for a missing value: no text is empty
_WORDS = 5  # of a text, on average; others are categories
_FEW_ROWS = 20  # below, a value that occurs once says nothing about its column
MIN_FREQUENCY = 0.005  # share of the rows that a level must have, to have numbers of its own
_MOST = 50  # levels of a column that have
_COVERED = 0.5  # share of the rows whose level comes again, else it is no category
_ID = re.compile(r"(?i:(^|[_ .-])(id|index|key|uuid|guid|row|nr|no)$)|[a-z]I[dD]$")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_STORED = 5000  # rare levels that are told from new ones
_LONGEST = 1000  # letters of a level
_LEVEL_SEPARATION = 1e-9  # between the numbers of levels that the same classes go with
_DAY = 86_400_000_000  # microseconds
_DAYS = 3_000_000  # from 1970 that still are a date
_FOUR_DIGITS, _WHOLE = 1e4, 1e15  # numbers between are written without a power of ten
_ALL_SHOWN = 50  # features that are shown even if their names say nothing
_PLAIN = (np.dtype(np.float64), np.dtype(np.float32))


def readable(names: list[str]) -> bool:
    """Whether features can be shown to people: few, or with names that somebody gave them.

    Numbers of a vector tell nobody anything.
    """
    few = len(names) <= _ALL_SHOWN
    return not all(re.search(r"\[\d+\]$" if few else r"\[\d+\]$|^x?\d+$", name) for name in names)


def written(value: float, kind: str = "number") -> str:
    """A number of a column of that kind, for people."""
    if np.isnan(value):
        return "missing"
    if kind == "date" and abs(value) < _DAYS:
        return str(np.datetime64(round(value), "D"))
    if kind == "boolean":
        return str(bool(value > 0.5))
    return f"{value:.0f}" if _FOUR_DIGITS <= abs(value) < _WHOLE else f"{value:.4g}"


@dataclass(frozen=True)
class Column:
    """One column of the user's, and what it becomes."""

    name: str
    kind: str
    categories: tuple[str, ...] = ()  # levels with a number of their own, in order
    other_levels: tuple[str, ...] = ()  # the most frequent first: without odds, none of these
    length: int = 1  # of a list, or of the vector of a text
    by_odds: bool = False  # whether a level also stands as log-odds of the classes
    # log-odds of each level; () until labels are known: its number stands there
    odds: tuple[tuple[float, ...], ...] = ()
    counts: tuple[tuple[float, ...], ...] = ()  # training rows of each level and class
    classes: tuple[str, ...] = ()  # those of the counts

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of a category that count, those with a number of their own first."""
        return self.categories + (self.other_levels if self.by_odds else ())

    @property
    def shown(self) -> tuple[str, ...]:
        """The levels with a number of their own, for people."""
        return tuple("missing" if level == MISSING else level for level in self.categories)

    @property
    def is_pair(self) -> bool:
        """Whether two categories share one column of numbers."""
        return len(self.categories) == 2

    @property
    def n_indicators(self) -> int:
        """How many of its numbers tell frequent levels."""
        return 1 if self.is_pair else len(self.categories)

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        if self.kind == "category":
            return self.n_indicators + (len(self.odds[0]) if self.odds else self.by_odds)
        return 0 if self.kind == "left out" else self.length

    @property
    def number_names(self) -> list[str]:
        """What these are called."""
        if self.kind in VECTORS:
            return [f"{self.name}[{k}]" for k in range(self.length)]
        if self.kind != "category":
            return [self.name] * self.width
        hot = self.categories[-self.n_indicators :] if self.n_indicators else ()
        told = (self.classes[len(self.classes) == 2 :] or ("level",)) if self.by_odds else ()
        return [*(f"{self.name}={v}" for v in hot), *(f"{self.name}: {c}" for c in told)]

    @cached_property
    def table(self) -> Floats:
        """The numbers (levels + 1, width) of each level, at last of one that is not known."""
        n = len(self.levels)
        x = np.eye(n + 1, len(self.categories))
        if self.is_pair:  # neither of two is halfway
            x = (x[:, 1:] - x[:, :1] + 1) / 2
        if not self.by_odds:
            return x
        place = np.arange(n + 1.0)[:, None]
        if not self.odds:
            return np.hstack([x, place])
        odds = np.vstack([self.odds, np.zeros(len(self.odds[0]))])
        return np.hstack([x, odds + _LEVEL_SEPARATION * place])

    def level(self, x: NDArray[Any]) -> NDArray[np.intp]:
        """The nearest level (n,) of numbers (n, width)."""
        apart = [((x - own) ** 2).sum(1) for own in self.table[:-1]]
        found: NDArray[np.intp] = np.argmin(apart, 0)
        return found

    def written(self, x: NDArray[Any]) -> str:
        """What numbers (width,) stand for, for people; of a rare level, with the classes of its rows."""
        if np.isnan(x).any():
            return "missing"
        if self.kind != "category":
            vector = "a text" if self.kind == "text" else f"{len(x)} numbers"
            return vector if len(x) > 1 else written(float(x[0]), self.kind)
        place = int(self.level(x[None])[0])
        if self.odds and np.allclose(x, self.table[place]):
            counts = np.array(self.counts[place])
            most = int(counts.argmax())
            told = f"{counts[most]:.0f} of {counts.sum():.0f} {self.classes[most]}"
            return f"{self.levels[place]} ({told})"
        hot = x[: self.n_indicators]
        if self.is_pair:
            return self.shown[int(hot[0] > 0.5)] if hot[0] != 0.5 else "another one"
        several = bool(self.odds) and not (hot > 0.5).any()  # a mean of many
        return self.shown[int(hot.argmax())] if hot.any() and not several else "another one"

    def encode(self, values: Any) -> tuple[Floats, list[str]]:
        """(numbers (n, width) of a series that is no text, levels that are not known)."""
        pd = import_extra("pandas")
        if self.kind == "category":
            texts = _texts(values)
            missing = texts.isna().to_numpy()
            if MISSING in self.categories:
                texts, missing = texts.fillna(MISSING), np.zeros_like(missing)
            place = pd.Index(self.levels).get_indexer(texts)
            x = self.table[place]
            x[missing] = np.nan
            odd = set(texts[(place < 0) & ~missing]) - set(self.other_levels)
            return x, [] if self.by_odds else sorted(odd)  # of many levels, new ones are no news
        if self.kind in VECTORS:
            rows = [v if np.ndim(v) == 1 else np.full(self.length, np.nan) for v in values]
            bad = next((k for k, v in enumerate(rows) if len(v) != self.length), None)
            if bad is not None:
                raise ValueError(
                    f"column {self.name!r} holds lists of {self.length} numbers, but row {bad} has "
                    f"{len(rows[bad])}: make them of one length"
                )
            return np.array(rows, dtype=np.float64).reshape(len(rows), self.length), []
        if pd.api.types.is_numeric_dtype(values.dtype):  # of a date, days already
            found = np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            found = _days(values) if self.kind == "date" else self._numbers(_texts(values))
        return found[:, None], []

    def _numbers(self, texts: Any) -> Floats:
        """Numbers or truth values (n,) that are written as texts."""
        found = np.full(len(texts), np.nan)
        for row, word in enumerate(texts):
            if word is None or word.lower() in _BLANKS:
                continue
            if self.kind == "boolean" and word in ("True", "False"):
                found[row] = word == "True"
            elif _NUMBER.fullmatch(word):
                found[row] = float(word)
            else:
                raise ValueError(
                    f"column {self.name!r} holds numbers, but row {row} has {cell(word)}: correct "
                    "it or leave it empty"
                )
        return found

    def decode(self, x: NDArray[Any]) -> Any:
        """The values (n,) that numbers (n, width) stand for."""
        if self.kind == "category":
            levels = [None if level == MISSING else level for level in self.levels]
            return np.array(levels, dtype=object)[self.level(x)]
        if self.kind == "date":
            return import_extra("pandas").to_datetime(x[:, 0] * _DAY, unit="us").round("s")
        if self.kind in VECTORS:
            return list(x)
        return x[:, 0] > 0.5 if self.kind == "boolean" else x[:, 0]


class UserColumn(NamedTuple):
    """A column as a user has it, and where its numbers stand."""

    name: str
    kind: str  # a number, a date, a category, …
    column: Column
    place: slice

    @classmethod
    def of(cls, column: Column, end: int) -> Self:
        """A column whose numbers stand before that place."""
        return cls(column.name, column.kind, column, slice(end - column.width, end))

    @property
    def is_category(self) -> bool:
        """Whether it has levels."""
        return self.kind == "category"

    def written(self, row: NDArray[Any]) -> str:
        """What a row (N,) has there, for people."""
        return self.column.written(row[self.place])

    @property
    def indicators(self) -> slice:
        """Where the numbers of frequent levels stand."""
        return slice(self.place.start, self.place.start + self.column.n_indicators)


@dataclass(frozen=True)
class Columns:
    """What is learned of X: names and kinds of its columns, and what rows have there."""

    n_columns: int
    names: tuple[str, ...] | None = None  # of the columns; None: of an array
    # of a frame whose columns are not all numbers, or of texts alone; else ()
    each: tuple[Column, ...] = ()
    encoder: TextEncoder | None = None  # of columns of texts
    # least and largest number in training, and 1 if all were whole; None if unknown
    observed: Floats | None = field(default=None, compare=False)

    # What they are.

    @cached_property
    def user_columns(self) -> list[UserColumn]:
        """The columns that count, as a user has them: a category is one."""
        if self.each and not self.is_texts:
            return self._encoded
        return [
            UserColumn.of(Column(name, "number"), k + 1) for k, name in enumerate(self.shown_names)
        ]

    @cached_property
    def _encoded(self) -> list[UserColumn]:
        """The same of a frame whose columns are not all numbers, whatever they are called."""
        ends = np.cumsum([column.width for column in self.each]).tolist()
        pairs = zip(self.each, ends, strict=True)
        return [UserColumn.of(column, end) for column, end in pairs if column.width]

    @property
    def number_names(self) -> list[str] | None:
        """Names of the numbers that a row consists of, (N,); None if nobody gave them any."""
        if self.each and not self.is_texts:
            return [name for column in self.each for name in column.number_names]
        return None if self.names is None or self.is_texts else list(self.names)

    @property
    def n_numbers(self) -> int:
        """How many numbers a row consists of, N."""
        return sum(column.width for column in self.each) if self.each else self.n_columns

    @property
    def shown_names(self) -> list[str]:
        """Names of the numbers, x0, x1, … if they have none."""
        return self.number_names or [f"x{k}" for k in range(self.n_numbers)]

    @property
    def is_texts(self) -> bool:
        """Whether rows are texts, and nothing else."""
        return [column.kind for column in self.each] == ["text"]

    @property
    def text_column(self) -> str | None:
        """The column of texts, of several the first; None if it has no name, too."""
        if self.is_texts:
            return None if self.names is None else self.names[0]
        return next((column.name for column in self.each if column.kind == "text"), None)

    @property
    def categories(self) -> list[slice]:
        """Where numbers stand of which one is 1 and the others 0."""
        several = (own for own in self.user_columns if own.column.n_indicators > 2)
        return [own.indicators for own in several]

    @property
    def multi_number_categories(self) -> list[slice]:
        """Where categories of several numbers stand."""
        return [c.place for c in self.user_columns if c.is_category and c.column.width > 1]

    @property
    def vectors(self) -> tuple[int, ...]:
        """Which numbers are those of vectors."""
        kinds = (column.kind in VECTORS for column in self.each for _ in range(column.width))
        return tuple(j for j, is_vector in enumerate(kinds) if is_vector)

    @property
    def shares(self) -> list[float]:
        """How much of a column each number is: the indicators of a category are one together."""
        sizes = ((column.n_indicators, column.width) for column in self.each)
        found = [1 / n if k < n else 1.0 for n, width in sizes for k in range(width)]
        return found or [1.0] * self.n_columns

    @property
    def pending_odds(self) -> dict[int, int]:
        """Where a level stands as a number that awaits its log-odds, and how many levels there are."""
        return {
            own.place.stop - 1: len(own.column.levels)
            for own in self._encoded if own.column.by_odds and not own.column.odds
        }  # fmt: skip

    def in_range(self, values: NDArray[Any]) -> NDArray[Any]:
        """The nearest numbers (n, N) that rows could have: in the range of training, whole, one category."""
        found = values.copy()
        for place in self.categories:
            found[:, place] = np.eye(place.stop - place.start)[found[:, place].argmax(1)]
        if self.observed is None:
            return found
        low, high, whole = self.observed
        return np.clip(np.where(whole > 0, found.round(), found), low, high)

    # The same with something else.

    def part(self, *, vectors: bool) -> Self:
        """The columns of vectors, or the others."""
        own = tuple(column for column in self.each if (column.kind in VECTORS) == vectors)
        return replace(self, n_columns=len(own), each=own, observed=None)

    def with_odds(
        self, odds: Iterable[NDArray[Any]], counts: Iterable[NDArray[Any]], classes: Sequence[Any]
    ) -> Self:
        """The same with log-odds of these classes (levels, K) in place of levels as numbers."""
        each, found = zip(odds, counts, strict=True), []
        for column in self.each:
            if column.by_odds and not column.odds:
                own, n = (tuple(map(tuple, part.tolist())) for part in next(each))
                column = replace(column, odds=own, counts=n, classes=tuple(map(str, classes)))
            found.append(column)
        return replace(self, each=tuple(found))

    def with_encoder(self, given: Any) -> Self:
        """The same with the user's encoder of texts; ValueError if its vectors are others."""
        if self.encoder is None:
            raise ValueError("the model takes no texts: leave encoder out")
        return replace(self, encoder=self.encoder.with_encoder(given))

    # Learning.

    @classmethod
    def learn(
        cls, X: Any, *, encoded: bool = True, encoder: Any = None, **how: Any
    ) -> tuple[Self, Any]:
        """(the columns of training rows, the rows as numbers).

        encoded: columns of a frame that are no numbers are turned into some. encoder: of texts alone, of the
        columns of many words, or a mapping from the name of a column to it. categories: names of columns
        that are some, whatever they hold. labeled: rare levels are to be told by their log-odds, and
        have their place among the levels as a number until `with_odds`.
        """
        if encoder is not None and not (
            is_frame(X) and (isinstance(encoder, Mapping) or X.shape[1] > 1)
        ):
            known = TextEncoder.of(encoder)
            texts, name = ([], None) if _are_vectors(X) else texts_of(X)
            if note := language_note(known, texts):
                warn_user(note)
            text = Column(name or "text", "text", length=known.n_numbers)
            found = cls(1, None if name is None else (name,), (text,), encoder=known)
            return found, found.numbers(X)
        if isinstance(X, Tensor):
            check_tensor(X)
            return cls(int(X.shape[1])), X
        X, seen = unwrap_container(X), TrainingColumns()
        if encoded and is_frame(X):
            check_shape(X)
            found, notes = cls.of_frame(X, encoder=encoder, **how)
            for note in notes:
                warn_user(note)
            if any(column.kind != "number" for column in found.each):
                if not found.n_numbers:
                    raise ValueError(f"no column of X is left to learn from: {'; '.join(notes)}")
                validate_data(seen, X, reset=True, skip_check_array=True)
                return found, found.encode_frame(X)
        rows = check_table(X, seen, reset=True)
        names = getattr(seen, "feature_names_in_", None)
        return cls(int(seen.n_features_in_), None if names is None else tuple(names.tolist())), rows

    @classmethod
    def of_frame(
        cls, frame: Any, *, encoder: Any = None, categories: Sequence[object] = (),
        min_frequency: float = MIN_FREQUENCY, labeled: bool = False,
    ) -> tuple[Self, list[str]]:  # fmt: skip
        """(the columns of a pandas frame with at least one row, remarks on them): see `learn`."""
        names, known = [str(name) for name in frame.columns], None
        named = {str(name) for name in categories}
        texts = _text_columns(frame, encoder, named)
        for what, own in (("categories", named), ("encoder", texts)):
            if unknown := sorted(own - set(names)):
                raise ValueError(f"{what} names {listed(unknown)}, which X does not have")
        if encoder is not None:
            given = next(iter(encoder.values())) if isinstance(encoder, Mapping) else encoder
            known = TextEncoder.of(given)
        learner, each = _Learner(len(frame), min_frequency, labeled, []), []
        for k, name in enumerate(names):
            if known is not None and name in texts:
                each.append(Column(name, "text", length=known.n_numbers))
                note = language_note(known, texts_of(frame.iloc[:, [k]])[0])
                learner.notes.extend([note] if note else [])
            else:
                each.append(learner.column(name, frame.iloc[:, k], is_category=name in named))
        return cls(len(names), tuple(names), tuple(each), encoder=known), learner.notes

    # Encoding.

    def numbers(self, X: Any) -> Any:
        """The numbers of rows with these columns, as an array, a tensor or a sparse matrix."""
        if isinstance(X, Dataset):
            raise TypeError(
                "this takes rows in memory, got a Dataset: pass rows of it, batch by batch, as in "
                "`for x, y, weight in dataset`"
            )
        if isinstance(X, Tensor):
            check_tensor(X)
            if X.shape[1] != self.n_numbers:
                raise ValueError(
                    f"X has {X.shape[1]} features, but TrainingColumns is expecting "
                    f"{self.n_numbers} features as input"
                )
            return X
        if self.is_texts and self.encoder is not None:
            if (texts := self.texts(X)) is not None:
                check_shape(np.empty((len(texts), 1)))
                return self.encoder(texts)
        elif self.each:
            X = unwrap_container(X)
            X = X if is_frame(X) else np.asarray(X)
            check_shape(X)
            plain = not is_frame(X) and X.shape[1] == self.n_numbers and X.dtype.kind in "buif"
            if plain or self.is_encoded(X):
                return np.asarray(X, dtype=np.float64)
            validate_data(self._as_estimator(), X, reset=False, skip_check_array=True)
            return self.encode_frame(X)
        # Plain numbers are the common case, and most of the time of a single row.
        plain = type(X) is np.ndarray and self.names is None and X.dtype in _PLAIN
        if plain and X.ndim == 2 and X.shape[0] > 0 and X.shape[1] == self.n_numbers:
            return X
        return check_table(unwrap_container(X), self._as_estimator(), reset=False)

    def encode_frame(self, frame: Any, *, warn: bool = True) -> Floats:
        """A frame, or an array, of the same columns as numbers (n, N), NaN where missing."""
        if not is_frame(frame):
            frame = import_extra("pandas").DataFrame(frame, columns=list(self.names or ()))
        x, strange = np.empty((len(frame), self.n_numbers)), list[str]()
        for own, k in zip(self._encoded, self._kept, strict=True):
            values = frame.iloc[:, k]
            if own.kind == "text" and self.encoder and not any(np.ndim(v) for v in values):
                x[:, own.place] = self.encoder(texts_of(values)[0])
            else:
                x[:, own.place], odd = own.column.encode(values)
                strange += [f"{cell(value)} in {own.name!r}" for value in odd]
        if strange and warn:
            warn_user(
                "categories that training did not have count as none of those it had: "
                f"{shortened(strange)}"
            )
        return x

    @property
    def _kept(self) -> list[int]:
        """Places of the columns that count, among those of X."""
        return [k for k, column in enumerate(self.each) if column.width]

    def texts(self, X: Any) -> list[str | None] | None:
        """The texts of X, None for one that is missing; None if X holds none."""
        if self.is_texts:
            if isinstance(X, Dataset | None) or _are_vectors(X):
                return None
        elif self.text_column is None or not is_frame(X) or self.is_encoded(X):
            return None
        return texts_of(X, self.text_column)[0]

    def is_encoded(self, X: Any) -> bool:
        """Whether X is a frame of the numbers that columns of any kind become."""
        if not self.each or self.is_texts or not is_frame(X):
            return False
        names = list(map(str, getattr(X, "column_names", X.columns)))
        return [*(self.names or ())] != self.number_names == names

    def _as_estimator(self) -> TrainingColumns:
        """What scikit-learn's checks need: an estimator that was fitted to these columns."""
        seen = TrainingColumns()
        seen.n_features_in_ = self.n_numbers if self.is_texts else self.n_columns
        if self.names is not None and not self.is_texts:
            seen.feature_names_in_ = np.array(self.names, dtype=object)
        return seen

    # Decoding.

    def decode(self, x: Floats) -> Any:
        """Numbers (n, N) as a frame of the user's columns without those left out; an array stays one."""
        pd, names = import_extra("pandas"), self.number_names
        if self.each and not self.is_texts:
            return pd.DataFrame({c.name: c.column.decode(x[:, c.place]) for c in self._encoded})
        return x if names is None else pd.DataFrame(x, columns=names)

    def rewrite(self, X: Any, x: NDArray[Any], changed: NDArray[np.bool_]) -> Any:
        """X with other numbers (n, N) in those cells of a frame that are changed (n, N)."""
        if not is_frame(X) or self.is_texts:
            return x
        frame = unwrap_container(X).copy()
        places = [slice(k, k + 1) for k in range(x.shape[1])]
        kept, new = list(range(x.shape[1])), [*x.T]
        if self.each and not self.is_encoded(X):
            places, kept, decoded = [c.place for c in self._encoded], self._kept, self.decode(x)
            new = [decoded[name].to_numpy() for name in decoded]
        for place, k, own in zip(places, kept, new, strict=True):
            cells, values = changed[:, place].any(1), frame.iloc[:, k]
            if cells.any():
                plain = isinstance(values.dtype, np.dtype) and getattr(own, "dtype", "O") != "O"
                values = values if plain else values.astype(object)
                frame[frame.columns[k]] = values.where(~cells, own)
        return frame


def _are_vectors(X: Any) -> bool:
    """Whether X holds numbers in two axes: texts that are encoded already."""
    kind = getattr(getattr(X, "dtype", None), "kind", "f")
    return isinstance(getattr(X, "values", X), Tensor) or (  # of `Rows`, too
        getattr(X, "ndim", 1) == 2 and kind in "biuf" and not is_frame(X)
    )


# Learning what a column is.


def _text_columns(frame: Any, encoder: Any, categories: set[str]) -> set[str]:
    """Names of the columns that an encoder is for."""
    if encoder is None:
        return set()
    if isinstance(encoder, Mapping):
        return {str(name) for name in encoder}
    wordy = {str(name) for k, name in enumerate(frame) if _is_text(frame.iloc[:, k])} - categories
    if not wordy:
        raise ValueError(
            f"no column of X holds texts of {_WORDS} words or more: name it, as in "
            "encoder={'column': 'wordllama'}, or leave encoder out"
        )
    return wordy


def _is_text(values: Any) -> bool:
    """Whether a column holds texts of many words."""
    known = values[values.notna()]
    words = [len(v.split()) for v in known if isinstance(v, str)]
    return len(words) == len(known) > 0 and sum(words) >= _WORDS * len(words)


class _Learner(NamedTuple):
    """What the columns of a frame become."""

    n_rows: int
    min_frequency: float
    labeled: bool
    notes: list[str]  # remarks, as they come

    @property
    def twice(self) -> int:
        """Rows in which a level must be, to come again."""
        return 1 if self.n_rows < _FEW_ROWS else 2

    @property
    def least(self) -> int:
        """Rows that a level needs to have numbers of its own."""
        return max(self.twice, math.ceil(self.min_frequency * self.n_rows))

    def left_out(self, name: str, why: str, hint: str = "") -> Column:
        """No column, with a remark."""
        self.notes.append(f"column {name!r} {why}, so it is left out{hint}")
        return Column(name, "left out")

    def column(self, name: str, values: Any, *, is_category: bool) -> Column:
        """What a column becomes."""
        gaps = bool(values.isna().any())
        if gaps and values.isna().all():
            return self.left_out(name, "has no value")
        if is_category:
            return self.category(name, _texts(values))
        kind = _kind_of_type(values)
        if kind == "list":
            length = len(next(v for v in values if np.ndim(v) == 1))
            return Column(name, kind, length=length)
        constant = kind == "number" and gaps and values.min() == values.max()
        if kind in ("text", "category") or constant or (gaps and kind != "number"):
            texts = _texts(values)
            if kind == "category" or self.is_flag(texts):
                return self.category(name, texts)
            if kind == "text":
                return self.read(name, texts) or self.category(name, texts)
        return self.number(name, values) if kind == "number" else Column(name, kind)

    def is_flag(self, texts: Any) -> bool:
        """Whether a column has one value, and that and blanks often enough."""
        n = int(texts.notna().sum())
        return min(n, self.n_rows - n) >= self.least and texts.nunique() == 1

    def number(self, name: str, values: Any) -> Column:
        """A column of numbers, unless they name the rows."""
        if self.n_rows >= _FEW_ROWS and _names_rows(name, values):
            why = "has another whole number in every row and looks like an id"
            return self.left_out(name, why, "; as float it would be used")
        return Column(name, "number")

    def read(self, name: str, texts: Any) -> Column | None:
        """A column of texts that are numbers, truth values or dates; None if they are not."""
        words = [word for word in texts.dropna().unique() if word.lower() not in _BLANKS]
        if not words:
            return None
        if set(words) <= {"True", "False"}:
            return Column(name, "boolean")
        if all(map(_NUMBER.fullmatch, words)):
            self.notes.append(
                f"column {name!r} holds texts that are read as numbers, such as {cell(words[0])}; "
                "name it in categories= if they are none"
            )
            return Column(name, "numeral")
        iso = all(re.match(r"\d{4}-\d\d-\d\d", word) for word in words)
        return Column(name, "date") if iso and _dates(words).notna().all() else None

    def category(self, name: str, texts: Any) -> Column:
        """A category, unless its levels hardly come again."""
        counts, n = texts.value_counts(), int(texts.notna().sum())
        if len(counts) == 1 and self.is_flag(texts):
            return Column(name, "category", (MISSING, counts.index[0]))
        if len(counts) == 1:
            where = "every row" if n == self.n_rows else f"{n} of {self.n_rows} rows, else nothing"
            return self.left_out(name, f"says {cell(counts.index[0])} in {where}")
        kept = counts[counts >= self.least].index[:_MOST]
        again = counts[counts >= self.twice].index if self.labeled else kept
        if counts[again].sum() < _COVERED * n or any(len(level) > _LONGEST for level in again):
            last = cell(counts.index[-1])
            why = f"has {len(counts)} different texts in {self.n_rows} rows, such as {last}"
            hint = "; read numbers with pandas.to_numeric, texts with encoder="
            return self.left_out(name, why, hint)
        rare = counts.index.difference(kept, sort=False)
        if len(rare) and not self.labeled:
            self.notes.append(
                f"column {name!r}: {len(rare)} rare categories count as none of the {len(kept)} "
                f"others: {listed(rare)}"
            )
        stored = tuple(level for level in rare if len(level) <= _LONGEST)[:_STORED]
        by_odds = self.labeled and bool(stored)
        return Column(name, "category", tuple(sorted(kept)), stored, by_odds=by_odds)


def _kind_of_type(values: Any) -> str:
    """The kind of a column by its type; "text": what its texts say is to be read."""
    pd = import_extra("pandas")
    types, dtype = pd.api.types, values.dtype
    if types.is_complex_dtype(dtype):
        raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_numeric_dtype(dtype):
        return "number"
    known = values[values.notna()]
    return "list" if len(known) and np.ndim(known.iloc[0]) == 1 else "text"


def _names_rows(name: str, values: Any) -> bool:
    """Whether whole numbers, all different, are called an id or count the rows."""
    whole = import_extra("pandas").api.types.is_integer_dtype(values.dtype)
    if not whole or values.isna().any() or not values.is_unique:
        return False
    numbers = values.to_numpy(dtype=np.int64)
    return bool(_ID.search(name) or (np.diff(numbers) == 1).all())


# Reading a column.


def _texts(values: Any) -> Any:
    """A series of texts without spaces around them, None where there is none."""
    missing = values.isna().to_numpy()
    texts = [None if no else _text(v) for v, no in zip(values, missing, strict=True)]
    return import_extra("pandas").Series(texts, dtype=object)


def _text(value: Any) -> str | None:
    """A value as text; whole numbers have no point, since a gap in their column gives them one."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip() or None


def _dates(values: Any) -> Any:
    """A series of dates in UTC, of dates or of texts in ISO 8601; NaT for others."""
    pd = import_extra("pandas")
    return pd.to_datetime(pd.Series(values), format="ISO8601", utc=True, errors="coerce")


def _days(values: Any) -> NDArray[np.float64]:
    """Days since 1970-01-01."""
    plain = import_extra("pandas").api.types.is_datetime64_any_dtype(values.dtype)
    days = _dates(values if plain else _texts(values))
    days = days.dt.tz_localize(None).astype("datetime64[us]").to_numpy()
    return np.where(np.isnat(days), np.nan, days.astype(np.int64) / _DAY)
