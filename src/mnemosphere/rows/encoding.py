"""How a table of text, dates, categories and missing values becomes numbers, and numbers a table again.

    number    as it is; whole numbers that name rows (an id, a counter) are left out
    numeral   a number written as text: 2.5, $3,000, 12 %, or 1.234,5; "?" and the like are missing
    boolean   0 or 1
    date      days since 1970-01-01, of a column of dates or of text in ISO 8601
    category  one column for each level that is frequent enough, `color=red`; two levels share one.
              Others become zeros ("none of these"), also levels never seen before. If some are too
              rare, the log-odds of the classes that go with a level stand beside (`rows.odds`)
    list      numbers of one length: an embedding, `vector[0]`, `vector[1]`, …
    text      the vector that an encoder makes of it

A missing value stays NaN in all columns that come from it: the model fills it in. Only where a column has one
value is "missing" a second one, so that the two are a category. An `Encoding` is learned from one frame and takes
any other in chunks; it is plain data, so that model files can hold it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mnemosphere.base.machine import import_extra
from mnemosphere.base.warnings import warn_user
from mnemosphere.rows.texts import TextEncoder, texts_of

VECTORS = ("list", "text")  # kinds whose numbers are those of one vector
_BLANKS = ("", "?", "-", ".", "*", "na", "n/a", "nan", "none", "null", "unknown", "missing")
MISSING = ""  # the level of a category that stands for a missing value: no text is empty
_WORDS = 5  # of a text, on average; others are categories
_FEW_ROWS = 20  # below, a value that occurs once says nothing about its column
MIN_FREQUENCY = 0.005  # share of the rows that a level must have, to have numbers of its own
_MOST = 50  # levels of a column that have
_COVERED = 0.5  # share of the rows whose level comes again, else it is no category
_ID = re.compile(r"(?i:(^|[_ .-])(id|index|key|uuid|guid|row|nr|no)$)|[a-z]I[dD]$")
# A number as people write it, in groups of three digits or not, with a currency or percent sign.
_NUMBER = re.compile(
    r"(?:[+-]?[$€£¥₹]?\s?|[$€£¥₹]\s?[+-])(?:\d{1,3}(?:[,\s]\d{3})+|\d+|(?=\.\d))(?:\.\d*)?"
    r"(?:[eE][+-]?\d+)?\s?[$€£¥₹%]?"
)
_SWAP = str.maketrans(".,", ",.")  # from a decimal comma to a decimal point
_STORED = 5000  # rare levels that are told from new ones
_LONGEST = 1000  # letters of a level
_LEVEL_SEPARATION = 1e-9  # between the numbers of levels that the same classes go with
_SHOWN = 5
_LINE = 80  # letters of a cell in a message
_DAY = 86_400_000_000  # microseconds
_DAYS = 3_000_000  # from 1970 that still are a date
_FOUR_DIGITS, _WHOLE = 1e4, 1e15  # numbers between are written without a power of ten


def is_frame(X: Any) -> bool:
    """Whether X has named columns of their own types, as pandas, polars and Arrow have them."""
    known = hasattr(X, "columns") and hasattr(X, "shape")
    return known and (hasattr(X, "dtypes") or hasattr(X, "column_names"))


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


def check_names(names: Iterable[Any], where: str = "X") -> None:
    """ValueError if two columns have one name, or one is no valid text."""
    names = [str(name) for name in names]
    for name in names:
        check_text(name, f"{where}: column")
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise ValueError(f"{where} has more than one column called {listed(twice)}: rename them")


def listed(names: Sequence[Any], most: int = _SHOWN) -> str:
    """Names for a message, the first few of them."""
    return _some([_cell(name) for name in names], most)


def _some(words: Sequence[str], most: int) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _cell(value: Any) -> str:
    """A name or a cell in quotes; a line of it at most."""
    shown = repr(value)
    return shown if len(shown) <= _LINE else f"{shown[: _LINE - 1]}…"


@dataclass(frozen=True)
class Column:
    """One column of the user's, and what it becomes."""

    name: str
    kind: str
    categories: tuple[str, ...] = ()  # levels with a number of their own, in order
    other_levels: tuple[str, ...] = ()  # the most frequent first: without odds, none of these
    length: int = 1  # of a list, or of the vector of a text
    decimal_comma: bool = False  # how a numeral is written
    by_odds: bool = False  # whether a level also stands as log-odds of the classes
    odds: tuple[tuple[float, ...], ...] = ()  # of each level; until labels are known, its number
    counts: tuple[tuple[float, ...], ...] = ()  # training rows of each level and class
    classes: tuple[str, ...] = ()  # those of the counts

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of a category that count, those with a number of their own first."""
        return self.categories + (self.other_levels if self.by_odds else ())

    @property
    def is_pair(self) -> bool:
        """Whether two categories share one column of numbers."""
        return self.kind == "category" and len(self.categories) == 2

    @property
    def n_indicators(self) -> int:
        """How many of its numbers tell frequent levels."""
        return 1 if self.is_pair else len(self.categories)

    @property
    def n_odds(self) -> int:
        """How many of its numbers are log-odds, or the number of a level."""
        return len(self.odds[0]) if self.odds else int(self.by_odds)

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """The numbers (levels + 1, width) of each level, at last of one that is not known."""
        n = len(self.levels)
        x = np.eye(n + 1, len(self.categories))
        if self.is_pair:  # neither of two is halfway
            x = (x[:, 1:] - x[:, :1] + 1) / 2
        if not self.by_odds:
            return x
        if not self.odds:
            return np.hstack([x, np.arange(n + 1.0)[:, None]])
        odds = np.vstack([self.odds, np.zeros(self.n_odds)])
        return np.hstack([x, odds + _LEVEL_SEPARATION * np.arange(n + 1)[:, None]])

    def level(self, x: NDArray[Any]) -> NDArray[np.intp]:
        """The nearest level (n,) of numbers (n, width)."""
        apart = [((x - own) ** 2).sum(1) for own in self.table[:-1]]
        found: NDArray[np.intp] = np.argmin(apart, 0)
        return found

    def written(self, x: NDArray[Any]) -> str:
        """The category that numbers (width,) stand for, and the classes of its rows, for people."""
        if np.isnan(x).any():
            return "missing"
        place = int(self.level(x[None])[0])
        if self.odds and np.allclose(x, self.table[place]):
            counts = np.array(self.counts[place])
            most = int(counts.argmax())
            told = f"{counts[most]:.4g} of {counts.sum():.4g} {self.classes[most]}"
            return f"{self.levels[place]} ({told})"
        hot = x[: self.n_indicators]
        if self.is_pair:
            return self.shown[int(hot[0] > 0.5)] if hot[0] != 0.5 else "another one"
        several = bool(self.odds) and not (hot > 0.5).any()  # a mean of many
        return self.shown[int(hot.argmax())] if hot.any() and not several else "another one"

    @property
    def shown(self) -> tuple[str, ...]:
        """The categories, for people."""
        return tuple("missing" if level == MISSING else level for level in self.categories)

    @property
    def width(self) -> int:
        """How many columns of numbers it becomes."""
        if self.kind == "category":
            return self.n_indicators + self.n_odds
        return {"list": self.length, "text": self.length, "left out": 0}.get(self.kind, 1)

    @property
    def names(self) -> list[str]:
        """What these are called."""
        if self.kind == "category":
            hot = self.categories[-self.n_indicators :] if self.n_indicators else ()
            told = (self.classes[len(self.classes) == 2 :] or ("level",)) if self.by_odds else ()
            return [
                *(f"{self.name}={value}" for value in hot),
                *(f"{self.name}: {c}" for c in told),
            ]
        if self.kind in VECTORS:
            return [f"{self.name}[{k}]" for k in range(self.length)]
        return [self.name] * self.width


@dataclass(frozen=True)
class Encoding:
    """The columns of a table, as they came when it was learned."""

    columns: tuple[Column, ...]
    encoder: TextEncoder | None = None  # of columns of texts

    @classmethod
    def fit(
        cls, frame: Any, *, categories: Sequence[object] = (),
        min_frequency: float = MIN_FREQUENCY, labeled: bool = False, encoder: Any = None,
    ) -> tuple[Self, list[str]]:  # fmt: skip
        """(the encoding of a frame with at least one row, remarks on what it does to columns).

        categories: names of columns that are some, whatever they hold. labeled: rare levels are to be
        told by their log-odds, and have their place among the levels as a number until `with_odds`.
        encoder: of the columns of many words, or a mapping from the name of a column to it.
        """
        frame = _pandas(frame, ())
        named, known = {str(name) for name in categories}, None
        texts = _text_columns(frame, encoder, named)
        for what, own in (("categories", named), ("encoder", texts)):
            if unknown := sorted(own - {str(name) for name in frame.columns}):
                raise ValueError(f"{what} names {listed(unknown)}, which X does not have")
        if encoder is not None:
            given = next(iter(encoder.values())) if isinstance(encoder, Mapping) else encoder
            known = TextEncoder.of(given)
        learner = _Learner(len(frame), min_frequency, labeled, [])
        found = []
        for name, values in ((str(name), frame.iloc[:, k]) for k, name in enumerate(frame)):
            if known is not None and name in texts:
                found.append(Column(name, "text", length=known.n_numbers))
            else:
                found.append(learner.column(name, values, is_category=name in named))
        return cls(tuple(found), known), learner.notes

    @property
    def vectors(self) -> tuple[int, ...]:
        """Which numbers are those of vectors."""
        own = (range(at.start, at.stop) for column, at in self.places() if column.kind in VECTORS)
        return tuple(j for numbers in own for j in numbers)

    @property
    def shares(self) -> tuple[float, ...]:
        """How much of a column each number is: the indicators of a category are one together."""
        sizes = ((column.n_indicators, column.width) for column in self.columns)
        return tuple(1 / n if k < n else 1.0 for n, width in sizes for k in range(width))

    @property
    def pending_odds(self) -> dict[int, int]:
        """Where a level stands as a number that awaits its log-odds, and how many levels there are."""
        return {
            place.stop - 1: len(column.levels)
            for column, place in self.places()
            if column.by_odds and not column.odds
        }

    def with_odds(
        self, odds: Iterable[NDArray[Any]], counts: Iterable[NDArray[Any]], classes: Sequence[Any]
    ) -> Self:
        """The same with log-odds of these classes in place of levels as numbers."""
        each = iter(list(zip(odds, counts, strict=True)))

        def told(column: Column) -> Column:
            if not column.by_odds:
                return column
            own, n = (tuple(map(tuple, part.tolist())) for part in next(each))
            return replace(column, odds=own, counts=n, classes=tuple(map(str, classes)))

        return replace(self, columns=tuple(map(told, self.columns)))

    @property
    def is_plain(self) -> bool:
        """Whether nothing is to be done: the columns are numbers."""
        return all(column.kind == "number" for column in self.columns)

    @property
    def names(self) -> list[str]:
        """Names of the columns of numbers."""
        return [name for column in self.columns for name in column.names]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the columns that they come from."""
        return [column.kind for column in self.columns for _ in range(column.width)]

    def places(self) -> Iterator[tuple[Column, slice]]:
        """(column, where its numbers stand), in order."""
        first = 0
        for column in self.columns:
            yield column, slice(first, first + column.width)
            first += column.width

    def __call__(self, frame: Any) -> NDArray[np.float64]:
        """The frame, or an array of the same columns, as numbers (n, N), NaN where missing."""
        x, strange = self.numbers(frame)
        if strange:
            warn_user(
                "categories that training did not have count as none of those it had: "
                f"{_some(strange, _SHOWN)}"
            )
        return x

    def numbers(self, frame: Any) -> tuple[NDArray[np.float64], list[str]]:
        """(the frame as numbers, categories that are not known, for a message)."""
        frame = _pandas(frame, [column.name for column in self.columns])
        if self.is_plain and all(getattr(kind, "kind", "O") in "buif" for kind in frame.dtypes):
            return np.asarray(frame, dtype=np.float64), []  # one column at a time takes longer
        x, strange = np.empty((len(frame), len(self.names))), list[str]()
        for k, (column, place) in enumerate(self.places()):
            if column.width:
                x[:, place], odd = _encode(column, frame.iloc[:, k], self.encoder)
                strange += [f"{_cell(value)} in {column.name!r}" for value in odd]
        return x, strange

    def decode(self, x: NDArray[Any]) -> Any:
        """Numbers (n, N) as a pandas frame of the user's columns, without those left out."""
        pd = import_extra("pandas")
        found: dict[str, Any] = {}
        for column, place in self.places():
            part = np.asarray(x[:, place], dtype=np.float64)
            if column.kind == "category":
                levels = [None if level == MISSING else level for level in column.levels]
                found[column.name] = np.array(levels, dtype=object)[column.level(part)]
            elif column.kind == "date":
                found[column.name] = pd.to_datetime(part[:, 0] * _DAY, unit="us").round("s")
            elif column.kind == "boolean":
                found[column.name] = part[:, 0] > 0.5
            elif column.kind in VECTORS:
                found[column.name] = list(part)
            elif column.width:
                found[column.name] = part[:, 0]
        return pd.DataFrame(found)

    def rewrite(self, frame: Any, x: NDArray[Any]) -> Any:
        """The frame, as pandas has it, with these numbers (n, N) where they are not its own."""
        frame = _pandas(frame, [column.name for column in self.columns]).copy()
        new, other = self.decode(x), (self(frame) != x) & ~np.isnan(x)
        for k, (column, place) in enumerate(self.places()):
            where = other[:, place].any(1)
            if where.any() and column.kind != "text":
                values = new[column.name].to_numpy()
                if column.kind == "category":  # others may be rare ones, which have no number
                    values = np.where(where, values, frame.iloc[:, k].astype(object))
                frame[frame.columns[k]] = list(values) if column.kind == "list" else values
        return frame


def written(value: float, kind: str = "number") -> str:
    """A number of a column of that kind, for people."""
    if np.isnan(value):
        return "missing"
    if kind == "date" and abs(value) < _DAYS:
        return str(np.datetime64(round(value), "D"))
    if kind == "boolean":
        return str(bool(value > 0.5))
    return f"{value:.0f}" if _FOUR_DIGITS <= abs(value) < _WHOLE else f"{value:.4g}"


def _pandas(X: Any, names: Sequence[str]) -> Any:
    """A pandas frame; of an array with these names."""
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    return X if is_frame(X) else import_extra("pandas").DataFrame(X, columns=list(names))


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
            return self.left_out(
                name,
                "has another whole number in every row and looks like an id",
                "; as float it would be used",
            )
        return Column(name, "number")

    def read(self, name: str, texts: Any) -> Column | None:
        """A column of texts that are numbers, truth values or dates; None if they are not."""
        words = [word for word in texts.dropna().unique() if word.lower() not in _BLANKS]
        if not words:
            return None
        if set(words) <= {"True", "False"}:
            return Column(name, "boolean")
        for comma in (False, True):
            numbers = [_number(word, comma) for word in words]
            if None not in numbers and len({re.sub(r"[\d\s.,eE+-]", "", w) for w in words}) == 1:
                self.notes.append(
                    f"column {name!r} holds texts that are read as numbers, such as "
                    f"{_cell(words[0])} as {numbers[0]:g}; name it in categories= if they are none"
                )
                return Column(name, "numeral", decimal_comma=comma)
        iso = all(re.match(r"\d{4}-\d\d-\d\d", word) for word in words)
        return Column(name, "date") if iso and _dates(words).notna().all() else None

    def category(self, name: str, texts: Any) -> Column:
        """A category, unless its levels hardly come again."""
        counts, n = texts.value_counts(), int(texts.notna().sum())
        if len(counts) == 1:
            if self.is_flag(texts):
                return Column(name, "category", (MISSING, counts.index[0]))
            where = "every row" if n == self.n_rows else f"{n} of {self.n_rows} rows, else nothing"
            return self.left_out(name, f"says {_cell(counts.index[0])} in {where}")
        kept = counts[counts >= self.least].index[:_MOST]
        again = counts[counts >= self.twice].index if self.labeled else kept
        if counts[again].sum() < _COVERED * n or any(len(level) > _LONGEST for level in again):
            return self.left_out(
                name,
                f"has {len(counts)} different texts in {self.n_rows} rows, such as "
                f"{_cell(counts.index[-1])}",
                "; encoder= learns from texts",
            )
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


def _number(word: str, decimal_comma: bool) -> float | None:
    """The number that a text is; None if it is none."""
    word = word.translate(_SWAP) if decimal_comma else word
    return float(re.sub(r"[^\d.eE+-]", "", word)) if _NUMBER.fullmatch(word) else None


def _encode(
    column: Column, values: Any, encoder: TextEncoder | None
) -> tuple[NDArray[np.float64], list[str]]:
    """(numbers (n, width) of a column, categories that are not known)."""
    if column.kind == "category":
        texts = _texts(values)
        missing = texts.isna().to_numpy()
        if MISSING in column.categories:
            texts, missing = texts.fillna(MISSING), np.zeros_like(missing)
        place = import_extra("pandas").Index(column.levels).get_indexer(texts)
        x = column.table[place]
        x[missing] = np.nan
        odd = set(texts[(place < 0) & ~missing]) - set(column.other_levels)
        return x, [] if column.by_odds else sorted(odd)  # of many levels, new ones are no news
    if column.kind == "text" and encoder is not None and not any(np.ndim(v) for v in values):
        return encoder(texts_of(values)[0]).astype(np.float64), []
    if column.kind in VECTORS:
        rows = [v if np.ndim(v) == 1 else np.full(column.length, np.nan) for v in values]
        bad = next((k for k, v in enumerate(rows) if len(v) != column.length), None)
        if bad is not None:
            raise ValueError(
                f"column {column.name!r} holds lists of {column.length} numbers, but row {bad} has "
                f"{len(rows[bad])}: make them of one length"
            )
        return np.array(rows, dtype=np.float64).reshape(len(rows), column.length), []
    if import_extra("pandas").api.types.is_numeric_dtype(values.dtype):  # of a date, days already
        found = np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    else:
        found = _days(values) if column.kind == "date" else _numbers(column, values)
    return found[:, None], []


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


def _numbers(column: Column, values: Any) -> NDArray[np.float64]:
    """Numbers or truth values that are written as texts."""
    found = np.full(len(values), np.nan)
    for row, word in enumerate(_texts(values)):
        if word is None or word.lower() in _BLANKS:
            continue
        truth = word in ("True", "False") and column.kind == "boolean"
        number = float(word == "True") if truth else _number(word, column.decimal_comma)
        if number is None:
            raise ValueError(
                f"column {column.name!r} holds numbers, but row {row} has {_cell(word)}: correct "
                "it or leave it empty"
            )
        found[row] = number
    return found
