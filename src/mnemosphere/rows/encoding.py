"""How a table of text, dates, categories and missing values becomes numbers, and numbers a table again.

    number    as it is; whole numbers that name rows (an id, a counter) are left out
    numeral   a number written as text: 2.5, $3,000, 14%, or 5,32; "?" and the like are missing
    boolean   0 or 1
    date      days since 1970-01-01; text counts as dates if all of it is ISO 8601, or written as
              13.03.2018 or 03/13/2018 so that day and month cannot be confused
    category  one column for each level that is frequent enough, `color=red`; two levels share one.
              Others become zeros ("none of these"), also levels never seen before. If some are too
              rare, the log-odds of the classes that go with a level stand beside (`rows.odds`)
    list      numbers of one length: an embedding, `vector[0]`, `vector[1]`, …
    text      the vector that an encoder makes of it

A missing value stays NaN in all columns that come from it: the model fills it in. An `Encoding` is learned
from one frame and takes any other in chunks; it is plain data, so that model files can hold it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mnemosphere.base.machine import need
from mnemosphere.base.warnings import warn_user
from mnemosphere.rows.texts import TextEncoder, texts_of

_KINDS = ("number", "numeral", "boolean", "date", "category", "list", "text", "left out")
VECTORS = ("list", "text")  # kinds whose numbers are those of one vector
_FORMATS = ("", "decimal comma", "day first", "month first", "year first")
_BLANKS = ("", "?", "-", ".", "*", "na", "n/a", "nan", "none", "null", "unknown", "missing")
_WORDS = 5  # of a text, on average; others are categories
_FEW_ROWS = 20  # below, a value that occurs once says nothing about its column
MIN_FREQUENCY = 0.005  # share of the rows that a level must have, to have numbers of its own
_MOST = 50  # levels of a column that have
_COVERED = 0.5  # share of the rows whose level comes again, else it is no category
_ID = re.compile(r"(?i:(^|[_ .-])(id|index|key|uuid|guid|row|nr|no)$)|[a-z]I[dD]$")
_CURRENCY = "$€£¥₹"
_MONEY = rf"[{_CURRENCY}]?\s?[+-]?{{digits}}(?:[eE][+-]?\d+)?\s?[{_CURRENCY}%]?"
# Numbers as people write them, in groups of three digits or not.
_NUMBER = {
    "": re.compile(
        "[+-]?" + _MONEY.format(digits=r"(?:\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.\d*)?")
    ),
    "decimal comma": re.compile(
        "[+-]?" + _MONEY.format(digits=r"(?:\d{1,3}(?:[. ]\d{3})+|\d+|(?=,\d))(?:,\d+)?")
    ),
}
_MONTH_AND_DAY = r"(?P<month>\d\d?)", r"(?P<day>\d\d?)"
_ANY_YEAR = r"(?P<year>\d{4}|\d\d)"
_DATES = {  # of two formats that fit, the first one is taken if there are dots
    format: re.compile(r"{}([./-]){}\2{}(?P<rest>[ T].*)?".format(*parts))
    for format, parts in {
        "year first": (r"(?P<year>\d{4})", *_MONTH_AND_DAY),
        "day first": (*_MONTH_AND_DAY[::-1], _ANY_YEAR),
        "month first": (*_MONTH_AND_DAY, _ANY_YEAR),
    }.items()
}
_CENTURY = 69  # two-digit years below it are of this century
_STORED = 5000  # rare levels that are told from new ones
_LONGEST = 1000  # letters of a level
_APART = 1e-9  # between the numbers of levels that the same classes go with
_SHOWN = 5
_LINE = 80  # letters of a cell in a message
_DAY = 86_400_000_000  # microseconds
_DAYS = 3_000_000  # from 1970 that still are a date
_FOUR_DIGITS, _WHOLE = 1e4, 1e15  # numbers between are written without a power of ten


def is_frame(X: Any) -> bool:
    """Whether X has named columns of their own types, as pandas, polars and Arrow have them."""
    return hasattr(X, "columns") and (hasattr(X, "dtypes") or hasattr(X, "column_names"))


def collected(X: Any, name: str = "X", missing: float | None = np.nan) -> Any:
    """X as it is; a lazy frame is read, and masked entries are `missing`.

    ValueError for what can be read only once.
    """
    if isinstance(X, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(X)
        if not masked.any():
            return X.data
        wide = X.data.astype(object if missing is None else np.promote_types(X.dtype, np.float32))
        wide[masked] = missing
        return wide
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):
        return X.collect()
    if isinstance(X, Iterator):
        raise ValueError(
            f"{name} is a {type(X).__name__}, which can be read only once: pass a list or an array"
        )
    return X


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
    rare: tuple[str, ...] = ()  # others, the most frequent first: without odds, none of these
    length: int = 1  # of a list, or of the vector of a text
    format: str = ""  # how a numeral or a date is written, unless as in Python
    # If rare levels count, of each level: log-odds of classes, or before labels are known its number
    odds: tuple[tuple[float, ...], ...] = ()
    counts: tuple[tuple[float, ...], ...] = ()  # training rows of each level and class
    classes: tuple[str, ...] = ()  # those of the counts

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of a category that count, those with a number of their own first."""
        return self.categories + (self.rare if self.odds else ())

    @property
    def is_pair(self) -> bool:
        """Whether two categories share one column of numbers."""
        return self.kind == "category" and len(self.categories) == 2

    @property
    def n_indicators(self) -> int:
        """How many of its numbers tell frequent levels."""
        return 1 if self.is_pair else len(self.categories)

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """The numbers (levels + 1, width) of each level, at last of one that is not known."""
        n = len(self.levels)
        x = np.eye(n + 1, len(self.categories))
        if self.is_pair:  # neither of two is halfway
            x = (x[:, 1:] - x[:, :1] + 1) / 2
        if not self.odds:
            return x
        unknown = [0.0] * len(self.odds[0]) if self.classes else [float(n)]
        odds = np.array([*self.odds, unknown])
        return np.hstack([x, odds + _APART * np.arange(n + 1)[:, None]])

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
            return self.categories[int(hot[0] > 0.5)] if hot[0] != 0.5 else "another one"
        several = bool(self.odds) and not (hot > 0.5).any()  # a mean of many
        return self.categories[int(hot.argmax())] if hot.any() and not several else "another one"

    @property
    def width(self) -> int:
        """How many columns of numbers it becomes."""
        if self.kind == "category":
            return self.n_indicators + len(self.odds[0] if self.odds else ())
        return {"list": self.length, "text": self.length, "left out": 0}.get(self.kind, 1)

    @property
    def names(self) -> list[str]:
        """What these are called."""
        if self.kind == "category":
            hot = self.categories[-self.n_indicators :] if self.n_indicators else ()
            told = (self.classes[len(self.classes) == 2 :] or ("level",)) if self.odds else ()
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
        notes: list[str] = []
        frame = _pandas(frame)
        named, texts = {str(name) for name in categories}, set[str]()
        if isinstance(encoder, Mapping):
            texts = {str(name) for name in encoder}
            encoder = next(iter(encoder.values()), None)
        elif encoder is not None:
            wordy = (str(name) for k, name in enumerate(frame) if _is_text(frame.iloc[:, k]))
            texts = {*wordy} - named
        if encoder is not None and not texts:
            raise ValueError(
                f"no column of X holds texts of {_WORDS} words or more: name it, as in "
                "encoder={'column': 'wordllama'}, or leave encoder out"
            )
        known = None if encoder is None else TextEncoder.of(encoder)
        for what, own in (("categories", named), ("encoder", texts)):
            if unknown := sorted(own - {str(name) for name in frame.columns}):
                raise ValueError(f"{what} names {listed(unknown)}, which X does not have")
        least = math.ceil(min_frequency * len(frame))
        empty = frame.isna().all().to_numpy()
        sure = "iuf" if len(frame) < _FEW_ROWS else "f"  # of many rows, whole numbers may be ids
        plain = [getattr(kind, "kind", "O") in sure for kind in frame.dtypes] & ~empty
        plain &= [str(name) not in named for name in frame.columns]
        found = [
            Column(str(name), "text", length=known.n_numbers) if known and str(name) in texts
            else Column(str(name), "number") if plain[k]
            else _learn_category(str(name), frame.iloc[:, k], least, labeled, notes)
            if str(name) in named and not empty[k]
            else _learn(str(name), frame.iloc[:, k], least, labeled, notes)
            for k, name in enumerate(frame.columns)
        ]  # fmt: skip
        return cls(tuple(found), known), notes

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
    def coded(self) -> dict[int, int]:
        """Where a level stands as a number that awaits its log-odds, and how many levels there are."""
        return {
            place.stop - 1: len(column.levels)
            for column, place in self.places()
            if column.odds and not column.classes
        }

    def with_odds(
        self, odds: Iterable[NDArray[Any]], counts: Iterable[NDArray[Any]], classes: Sequence[Any]
    ) -> Self:
        """The same with log-odds of these classes in place of levels as numbers."""
        each = iter(list(zip(odds, counts, strict=True)))

        def told(column: Column) -> Column:
            if not column.odds:
                return column
            own, n = (tuple(map(tuple, part.tolist())) for part in next(each))
            return replace(column, odds=own, counts=n, classes=tuple(map(str, classes)))

        return replace(self, columns=tuple(map(told, self.columns)))

    def without_odds(self) -> Self:
        """The same with levels as numbers again, to learn their log-odds from other rows."""
        return replace(self, columns=tuple(
            replace(c, odds=_numbered(len(c.levels)), counts=(), classes=()) if c.odds else c
            for c in self.columns
        ))  # fmt: skip

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
        x, strange = np.empty((len(frame), len(self.names))), []
        if self.is_plain and all(getattr(kind, "kind", "O") in "buif" for kind in frame.dtypes):
            # One column at a time takes longer.
            return np.asarray(frame, dtype=np.float64), []
        for k, (column, place) in enumerate(self.places()):
            if column.width:
                x[:, place], odd = _encode(column, frame.iloc[:, k], self.encoder)
                strange += [f"{_cell(value)} in {column.name!r}" for value in odd]
        return x, strange

    def decode(self, x: NDArray[Any]) -> Any:
        """Numbers (n, N) as a pandas frame of the user's columns, without those left out."""
        pd = need("pandas")
        found: dict[str, Any] = {}
        for column, place in self.places():
            part = np.asarray(x[:, place], dtype=np.float64)
            if column.kind == "category":
                found[column.name] = np.array(column.levels, dtype=object)[column.level(part)]
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


def _pandas(X: Any, names: Sequence[str] = ()) -> Any:
    """A pandas frame; of an array with these names."""
    pd = need("pandas")
    if isinstance(X, pd.DataFrame):
        return X
    return X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X, columns=list(names))


def _numbered(n: int) -> tuple[tuple[float, ...], ...]:
    """So many levels as numbers."""
    return tuple((float(k),) for k in range(n))


def _learn(name: str, values: Any, least: int, labeled: bool, notes: list[str]) -> Column:
    """What a column becomes."""
    kind, format, note = _kind(values)
    if values.isna().all():
        kind, note = "left out", "has no value, so it is left out"
    elif kind == "number" and _names_rows(name, values):
        kind, note = "left out", (
            "has another whole number in every row and looks like an id, so it is left out; as "
            "float it would be used"
        )  # fmt: skip
    elif kind == "category":
        return _learn_category(name, values, least, labeled, notes)
    if note:
        notes.append(f"column {name!r} {note}")
    length = len(next(v for v in values if np.ndim(v) == 1)) if kind == "list" else 1
    return Column(name, kind, length=length, format=format)


def _learn_category(name: str, values: Any, least: int, labeled: bool, notes: list[str]) -> Column:
    counts, n = _texts(values).value_counts(), len(values)
    if len(counts) == 1:
        notes.append(
            f"column {name!r} says {_cell(counts.index[0])} in every row, so it is left out"
        )
        return Column(name, "left out")
    twice = 1 if n < _FEW_ROWS else 2
    kept = counts[counts >= max(twice, least)].index[:_MOST]
    again = counts[counts >= twice].index if labeled else kept
    if counts[again].sum() < _COVERED * counts.sum() or any(len(v) > _LONGEST for v in again):
        notes.append(
            f"column {name!r} has {len(counts)} different texts in {n} rows, such as "
            f"{_cell(counts.index[-1])}, so it is left out; encoder= learns from texts"
        )
        return Column(name, "left out")
    rare = counts.index.difference(kept, sort=False)
    if len(rare) and not labeled:
        notes.append(
            f"column {name!r}: {len(rare)} rare categories count as none of the {len(kept)} others:"
            f" {listed(rare)}"
        )
    stored = tuple(value for value in rare if len(value) <= _LONGEST)[:_STORED]
    odds = _numbered(len(kept) + len(stored)) if labeled and stored else ()
    return Column(name, "category", tuple(sorted(kept)), stored, odds=odds)


def _is_text(values: Any) -> bool:
    """Whether a column holds texts of many words."""
    known = values[values.notna()]
    words = [len(v.split()) for v in known if isinstance(v, str)]
    return len(words) == len(known) > 0 and sum(words) >= _WORDS * len(words)


def is_float(word: str | bytes) -> bool:
    """Whether Python takes a text for a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def _number_format(words: Sequence[str]) -> str | None:
    """How all these texts are written as numbers; None if they are not."""
    signs = {sign for word in words for sign in _CURRENCY if sign in word}
    percent = sum("%" in word for word in words)
    if len(signs) > 1 or percent not in (0, len(words)) or (signs and percent):
        return None
    fits = (f for f, pattern in _NUMBER.items() if all(pattern.fullmatch(word) for word in words))
    return next(fits, None)


def _plain_number(word: str, format: str) -> str:
    """A number as Python writes it, if it is written in that format; else the text."""
    if not _NUMBER[format].fullmatch(word):
        return word
    word = word.translate(str.maketrans("", "", _CURRENCY + "% \u00a0\u202f"))
    if format == "decimal comma":
        return word.replace(".", "").replace(",", ".")
    return word.replace(",", "")


def _date_format(words: Sequence[str]) -> str | None:
    """How all these texts are written as dates; None if they are not, or in more than one way."""
    iso = all(re.match(r"\d{4}-\d\d-\d\d", word) for word in words)
    formats = [""] if iso else [f for f in _DATES if _iso_date(words[0], f) is not None]
    fits = [format for format in formats if _when(words, format).notna().all()]
    if len(fits) > 1 and not all("." in word for word in words):
        return None
    return next(iter(fits), None)


def _iso_date(word: str | None, format: str) -> str | None:
    """A date as ISO 8601 has it; None if it is not written in that format."""
    found = None if word is None else _DATES[format].fullmatch(word)
    if found is None:
        return None
    year, month, day, rest = (found[k] or "" for k in ("year", "month", "day", "rest"))
    if len(year) == 2:
        year = ("20" if int(year) < _CENTURY else "19") + year
    return f"{year}-{month:0>2}-{day:0>2}{rest}"


def _kind(values: Any) -> tuple[str, str, str]:
    """(kind, format, a note if it is no plain one) of a column, by its type, or else by its texts."""
    pd = need("pandas")
    types, dtype, known = pd.api.types, values.dtype, values[values.notna()]
    if types.is_complex_dtype(dtype):
        raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")
    if types.is_bool_dtype(dtype):
        return "boolean", "", ""
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return "date", "", ""
    if types.is_numeric_dtype(dtype):
        return "number", "", ""
    if isinstance(dtype, pd.CategoricalDtype):
        return "category", "", ""
    if len(known) and np.ndim(known.iloc[0]) == 1:
        return "list", "", ""
    words = [word for word in _texts(known).dropna().unique() if word.lower() not in _BLANKS]
    if not words:
        return "category", "", ""
    if pd.to_numeric(pd.Series(words), errors="coerce").notna().all():
        return "numeral", "", (
            f"holds texts that are read as numbers, such as {_cell(words[0])}; name it in categories= "
            "if they are none"
        )  # fmt: skip
    if set(words) <= {"True", "False"}:
        return "boolean", "", ""
    if (found := _number_format(words)) is not None:
        odd = next((word for word in words if not is_float(word)), words[0])  # else too many digits
        plain = float(_plain_number(odd, found))
        return "numeral", found, f"is read as numbers: {_cell(odd)} as {plain:g}"
    if (found := _date_format(words)) is not None:
        note = f"is read as dates, {found}, such as {_cell(words[0])}" if found else ""
        return "date", found, note
    return "category", "", ""


def _texts(values: Any) -> Any:
    """A series of texts without spaces around them, None where there is none."""
    missing = values.isna().to_numpy()
    texts = [None if no else _text(v) for v, no in zip(values, missing, strict=True)]
    return need("pandas").Series(texts, dtype=object)


def _text(value: Any) -> str | None:
    """A value as text; whole numbers have no point, since a gap in their column gives them one."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip() or None


def _names_rows(name: str, values: Any) -> bool:
    """Whether whole numbers, all different, are called an id or count the rows."""
    pd = need("pandas")
    if not pd.api.types.is_integer_dtype(values.dtype) or len(values) < _FEW_ROWS:
        return False
    if values.isna().any() or not values.is_unique:
        return False
    numbers = values.to_numpy(dtype=np.int64)
    return bool(_ID.search(name) or (np.diff(numbers) == 1).all())


def _encode(
    column: Column, values: Any, encoder: TextEncoder | None
) -> tuple[NDArray[np.float64], list[str]]:
    """(numbers (n, width) of a column, categories that are not known)."""
    pd = need("pandas")
    if column.kind == "category":
        texts = _texts(values)
        missing = texts.isna().to_numpy()
        place = pd.Index(column.levels).get_indexer(texts)
        x = column.table[place]
        x[missing] = np.nan
        odd = set(texts[(place < 0) & ~missing]) - set(column.rare)
        return x, [] if column.odds else sorted(odd)  # of many levels, new ones are no news
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
    found = _dates(column, values) if column.kind == "date" else _numbers(column, values)
    return found[:, None], []


def _dates(column: Column, values: Any) -> NDArray[np.float64]:
    types = need("pandas").api.types
    if types.is_numeric_dtype(values.dtype):  # days already
        return np.asarray(values, dtype=np.float64)
    if types.is_timedelta64_dtype(values.dtype):
        return np.asarray(values.dt.total_seconds() / 86_400, dtype=np.float64)
    if types.is_datetime64_any_dtype(values.dtype):
        when = _when(values, "")
    else:
        when = _when(_texts(values), column.format)
    days = when.dt.tz_localize(None).astype("datetime64[us]").to_numpy()
    return np.where(np.isnat(days), np.nan, days.astype(np.int64) / _DAY)


def _when(texts: Any, format: str) -> Any:
    """A series of dates, or of texts that are some, in UTC."""
    pd = need("pandas")
    dates = pd.Series([_iso_date(word, format) for word in texts]) if format else pd.Series(texts)
    return pd.to_datetime(dates, format="ISO8601", utc=True, errors="coerce")


def _numbers(column: Column, values: Any) -> NDArray[np.float64]:
    pd = need("pandas")
    if pd.api.types.is_numeric_dtype(values.dtype):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    texts = _texts(values)
    texts = texts.where([t is not None and t.lower() not in _BLANKS for t in texts], None)
    if column.kind == "boolean":
        texts = texts.replace({"True": "1", "False": "0"})
    else:
        texts = texts.map(lambda word: _plain_number(word, column.format), na_action="ignore")
    x = pd.to_numeric(texts, errors="coerce")
    odd = texts[x.isna() & texts.notna()]
    if len(odd):
        raise ValueError(
            f"column {column.name!r} holds numbers, but row {odd.index[0]} has {_cell(odd.iloc[0])}: "
            "correct it or leave it empty"
        )
    return np.asarray(x, dtype=np.float64)
