"""How a table of text, dates, categories and blanks becomes numbers, and numbers a table again.

    number    as it is; whole numbers that name rows (an id, a counter) are left out
    numeral   a number written as text; "?" and the like are blanks
    boolean   0 or 1
    date      days since 1970-01-01; text counts as dates where all of it is ISO 8601
    category  one column for each category that is frequent enough, `color=red`; two categories
              share one. Others become zeros ("none of these"), also categories never seen before
    list      numbers of one length: an embedding, `vector[0]`, `vector[1]`, …

A blank stays NaN in all columns that come from it: the model fills it in. An `Encoding` is learned
from one frame and takes any other in chunks; it is plain data, so that model files can hold it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mnemosphere.schema import items, mapping, one_of, text, whole

_KINDS = ("number", "numeral", "boolean", "date", "category", "list", "left out")
# What a model file holds of an encoding.
COLUMNS = items(
    mapping({
        "name": text, "kind": one_of(*_KINDS), "categories": items(text), "rare": items(text),
        "length": whole(1),
    })
)  # fmt: skip
_BLANKS = ("", "?", "-", ".", "*", "na", "n/a", "nan", "none", "null", "unknown", "missing")
_FEW_ROWS = 20  # below, a value that occurs once says nothing about its column
_RARE = 200  # a category is kept that has at least one row in so many
_MOST = 50  # categories of a column
_COVERED = 0.5  # share of the rows that the kept categories must have, else it is no category
_ID = re.compile(r"(?i:(^|[_ .-])(id|index|key|uuid|guid|row|nr|no)$)|[a-z]I[dD]$")
_OTHER_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}( .*)?")
_STORED = 1000  # rare categories that are told from new ones
_SHOWN = 5
_DAY = 86_400_000_000  # microseconds
_DAYS = 3_000_000  # from 1970 that still are a date


def is_frame(X: Any) -> bool:
    """Whether X has named columns of their own types, as pandas, polars and Arrow have them."""
    return hasattr(X, "to_pandas") or (hasattr(X, "columns") and hasattr(X, "dtypes"))


def listed(names: Sequence[Any], most: int = _SHOWN) -> str:
    """Names for a message, the first few of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


@dataclass(frozen=True)
class Column:
    """One column of the user's, and what it becomes."""

    name: str
    kind: str
    categories: tuple[str, ...] = ()  # of a category, in order
    rare: tuple[str, ...] = ()  # those that count as none of these, the most frequent first
    length: int = 1  # of a list

    @property
    def is_pair(self) -> bool:
        """Whether two categories share one column of numbers."""
        return self.kind == "category" and len(self.categories) == 2

    @property
    def width(self) -> int:
        """How many columns of numbers it becomes."""
        if self.kind == "category":
            return 1 if self.is_pair else len(self.categories)
        return {"list": self.length, "left out": 0}.get(self.kind, 1)

    @property
    def names(self) -> list[str]:
        """What these are called."""
        if self.kind == "category":
            return [f"{self.name}={value}" for value in self.categories[-self.width :]]
        if self.kind == "list":
            return [f"{self.name}[{k}]" for k in range(self.length)]
        return [self.name] * self.width


@dataclass(frozen=True)
class Encoding:
    """The columns of a table, as they came when it was learned."""

    columns: tuple[Column, ...]

    @classmethod
    def fit(cls, frame: Any) -> tuple[Self, list[str]]:
        """(the encoding of a frame with at least one row, remarks on what it does to columns)."""
        notes: list[str] = []
        frame = _pandas(frame)
        found = [_learn(str(name), frame.iloc[:, k], notes) for k, name in enumerate(frame.columns)]
        return cls(tuple(found)), notes

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
        """The frame, or an array of the same columns, as numbers (n, N), NaN where blank."""
        frame = _pandas(frame, [column.name for column in self.columns])
        x, strange = np.empty((len(frame), len(self.names))), []
        for k, (column, place) in enumerate(self.places()):
            if column.width:
                x[:, place], odd = _encode(column, frame.iloc[:, k])
                strange += [f"{value!r} in {column.name!r}" for value in odd]
        if strange:
            warnings.warn(
                f"categories that training did not have count as none of those it had: "
                f"{', '.join(strange[:_SHOWN])}"
                f"{f' and {len(strange) - _SHOWN} more' if len(strange) > _SHOWN else ''}",
                UserWarning,
                stacklevel=6,
            )
        return x

    def decode(self, x: NDArray[Any]) -> Any:
        """Numbers (n, N) as a pandas frame of the user's columns, without those left out."""
        import pandas as pd

        found: dict[str, Any] = {}
        for column, place in self.places():
            part = np.asarray(x[:, place], dtype=np.float64)
            if column.kind == "category":
                at = (part[:, 0] > 0.5).astype(int) if column.is_pair else part.argmax(1)
                found[column.name] = np.array(column.categories, dtype=object)[at]
            elif column.kind == "date":
                found[column.name] = pd.to_datetime(part[:, 0] * _DAY, unit="us").round("s")
            elif column.kind == "boolean":
                found[column.name] = part[:, 0] > 0.5
            elif column.kind == "list":
                found[column.name] = list(part)
            elif column.width:
                found[column.name] = part[:, 0]
        return pd.DataFrame(found)

    def rewrite(self, frame: Any, x: NDArray[np.float64]) -> Any:
        """The frame, as pandas has it, with these numbers (n, N) where they are not its own."""
        frame = _pandas(frame, [column.name for column in self.columns]).copy()
        new, other = self.decode(x), self(frame) != x  # NaN is no number's own
        for k, (column, place) in enumerate(self.places()):
            where = other[:, place].any(1)
            if where.any():
                values = new[column.name].to_numpy()
                if column.kind == "category":  # others may be rare ones, which have no number
                    values = np.where(where, values, frame.iloc[:, k].astype(object))
                frame[frame.columns[k]] = list(values) if column.kind == "list" else values
        return frame

    def to_json(self) -> list[dict[str, Any]]:
        """As plain values."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, stored: Sequence[dict[str, Any]]) -> Self:
        """Undo `to_json`."""
        columns = tuple(
            Column(c["name"], c["kind"], tuple(c["categories"]), tuple(c["rare"]), int(c["length"]))
            for c in stored
        )
        return cls(columns)


def written(value: float, kind: str = "number") -> str:
    """A number of a column of that kind, for people."""
    if np.isnan(value):
        return "blank"
    day = kind == "date" and abs(value) < _DAYS
    return str(np.datetime64(round(value), "D")) if day else f"{value:.4g}"


def _pandas(X: Any, names: Sequence[str] = ()) -> Any:
    """A pandas frame; of an array with these names."""
    import pandas as pd

    if isinstance(X, pd.DataFrame):
        return X
    return X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X, columns=list(names))


def _learn(name: str, values: Any, notes: list[str]) -> Column:
    """What a column becomes."""
    import pandas as pd

    kind, n = _kind(values), len(values)
    if values.isna().all():
        notes.append(f"column {name!r} is blank, so it is left out")
        return Column(name, "left out")
    if kind == "number" and _names_rows(name, values):
        notes.append(
            f"column {name!r} has another whole number in every row and looks like an id, so it is "
            "left out; as float it would be used"
        )
        return Column(name, "left out")
    if kind == "list":
        length = len(next(v for v in values if np.ndim(v) == 1))
        return Column(name, kind, length=length)
    if kind != "category":
        return Column(name, kind)
    counts = pd.Series(_texts(values)).value_counts()
    if len(counts) == 1:
        notes.append(f"column {name!r} says {counts.index[0]!r} in every row, so it is left out")
        return Column(name, "left out")
    least = 1 if n < _FEW_ROWS else max(2, -(-n // _RARE))
    kept = counts[counts >= least].index[:_MOST]
    if counts[kept].sum() < _COVERED * counts.sum():
        like = "an id or free text"
        if all(_OTHER_DATE.fullmatch(str(value)) for value in counts.index):
            like = "dates that are not written as 2026-12-31"
        notes.append(
            f"column {name!r} has {len(counts)} different texts in {n} rows and looks like {like}, "
            "so it is left out"
        )
        return Column(name, "left out")
    rare = tuple(value for value in counts.index if value not in set(kept))
    if rare:
        notes.append(
            f"column {name!r}: {len(rare)} rare categories count as none of the {len(kept)} others:"
            f" {listed(rare)}"
        )
    return Column(name, "category", tuple(sorted(kept)), rare[:_STORED])


def _kind(values: Any) -> str:
    """What kind of column it is, by its type and, where that is text, by its texts."""
    import pandas as pd

    types, kind = pd.api.types, values.dtype
    if types.is_complex_dtype(kind):
        raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")
    if types.is_bool_dtype(kind):
        return "boolean"
    if types.is_datetime64_any_dtype(kind) or types.is_timedelta64_dtype(kind):
        return "date"
    if types.is_numeric_dtype(kind):
        return "number"
    if not isinstance(kind, pd.CategoricalDtype):
        known = values[values.notna()]
        if len(known) and np.ndim(known.iloc[0]) == 1:
            return "list"
        texts = pd.Series(_texts(values)).dropna().unique()
        words = [word for word in texts if word.lower() not in _BLANKS]
        if words and pd.to_numeric(pd.Series(words), errors="coerce").notna().all():
            return "numeral"
        if words and set(words) <= {"True", "False"}:
            return "boolean"
        like_dates = words and all(re.match(r"\d{4}-\d\d-\d\d", word) for word in words)
        if like_dates and pd.to_datetime(words, format="ISO8601", errors="coerce").notna().all():
            return "date"
    return "category"


def _texts(values: Any) -> NDArray[Any]:
    """Text without spaces around it, None where there is none."""
    missing = values.isna().to_numpy()
    texts = [None if no else str(v).strip() or None for v, no in zip(values, missing, strict=True)]
    return np.array(texts, dtype=object)


def _names_rows(name: str, values: Any) -> bool:
    """Whether whole numbers, all different, are called an id or count the rows."""
    import pandas as pd

    if not pd.api.types.is_integer_dtype(values.dtype) or len(values) < _FEW_ROWS:
        return False
    if values.isna().any() or not values.is_unique:
        return False
    numbers = values.to_numpy(dtype=np.int64)
    return bool(_ID.search(name) or (np.diff(numbers) == 1).all())


def _encode(column: Column, values: Any) -> tuple[NDArray[np.float64], list[str]]:
    """(numbers (n, width) of a column, categories that are not known)."""
    import pandas as pd

    if column.kind == "category":
        texts = _texts(values)
        blank = np.array([text is None for text in texts], dtype=bool)
        place = pd.Index(column.categories).get_indexer(texts)
        x = (place[:, None] == np.arange(len(column.categories))).astype(np.float64)
        if column.is_pair:  # neither of two is halfway
            x = (x[:, 1:] - x[:, :1] + 1) / 2
        x[blank] = np.nan
        return x, sorted(set(texts[(place < 0) & ~blank]) - set(column.rare))
    if column.kind == "list":
        rows = [v if np.ndim(v) == 1 else np.full(column.length, np.nan) for v in values]
        bad = next((k for k, v in enumerate(rows) if len(v) != column.length), None)
        if bad is not None:
            raise ValueError(
                f"column {column.name!r} holds lists of {column.length} numbers, but row {bad} has "
                f"{len(rows[bad])}: make them of one length"
            )
        return np.array(rows, dtype=np.float64).reshape(len(rows), column.length), []
    found = _dates(values) if column.kind == "date" else _numbers(column, values)
    return found[:, None], []


def _dates(values: Any) -> NDArray[np.float64]:
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values.dtype):  # days already
        return np.asarray(values, dtype=np.float64)
    if pd.api.types.is_timedelta64_dtype(values.dtype):
        return np.asarray(values.dt.total_seconds() / 86_400, dtype=np.float64)
    if not pd.api.types.is_datetime64_any_dtype(values.dtype):
        values = pd.Series(_texts(values))
    when = pd.to_datetime(values, utc=True, errors="coerce")
    days = when.dt.tz_localize(None).astype("datetime64[us]").to_numpy()
    return np.where(np.isnat(days), np.nan, days.astype(np.int64) / _DAY)


def _numbers(column: Column, values: Any) -> NDArray[np.float64]:
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values.dtype):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    texts = pd.Series(_texts(values), dtype=object)
    texts = texts.where([t is not None and t.lower() not in _BLANKS for t in texts], None)
    if column.kind == "boolean":
        texts = texts.replace({"True": "1", "False": "0"})
    x = pd.to_numeric(texts, errors="coerce")
    odd = texts[x.isna() & texts.notna()]
    if len(odd):
        raise ValueError(
            f"column {column.name!r} holds numbers, but row {odd.index[0]} has {odd.iloc[0]!r}: "
            "correct it or leave it blank"
        )
    return np.asarray(x, dtype=np.float64)
