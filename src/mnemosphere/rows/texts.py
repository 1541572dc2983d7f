"""Texts as vectors, by an encoder that a user brings or by the one that is installed with us.

An encoder is a function from a list of texts to vectors, or an object with `encode` or `embed`. A
model keeps its name and how many numbers a vector has, by which another one is refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from mnemosphere.base.machine import how_to_install

PACKAGED = "wordllama"
Encode = Callable[[list[str]], Any]
# Of English sentences these are a third of the words or more, of others one in twenty.
_COMMON = re.compile(
    "the|an?|to|of|and|i[ns]|it|i|you|that|for|my|on|with|do|can|not|what|how|this|be|are|was|have"
)
_ENGLISH = 0.1
_LOOKED_AT, _WORDS, _SENTENCE = 1000, 50, 4  # texts; words of all and of each, to tell by words


@dataclass(frozen=True)
class TextEncoder:
    """An encoder as a model knows it."""

    name: str
    n_numbers: int  # of a vector
    # as the user passed it
    given: Any = field(default=None, compare=False, repr=False, metadata={"saved": False})

    @classmethod
    def of(cls, given: Any) -> Self:
        """The encoder that the user passed, or the packaged one by its name."""
        n_numbers = _vectors(_function(given), ["a text"]).shape[1]
        own = str(getattr(given, "__qualname__", type(given).__name__)).rpartition("<locals>.")[2]
        return cls(given if isinstance(given, str) else own, n_numbers, given)

    def with_encoder(self, given: Any) -> Self:
        """The same with the user's encoder; ValueError if it is another one, by its name or its vectors."""
        found = type(self).of(given)
        if found != self:
            raise ValueError(
                f"the model was trained with the encoder {self.name!r}, which gives {self.n_numbers} "
                f"numbers, got {found.name!r}, which gives {found.n_numbers}: pass that one"
            )
        return found

    def __call__(self, texts: list[str | None]) -> NDArray[Any]:
        """Vectors (n, n_numbers); NaN for a text that is missing or empty."""
        if self.given is None and self.name != PACKAGED:
            raise ValueError(
                f"this model takes texts through the encoder {self.name!r}, which its file does "
                "not hold: load it with mnemosphere.load(path, encoder=...)"
            )
        known = {k: text for k, text in enumerate(texts) if text is not None and text.strip()}
        if not known:
            return np.full((len(texts), self.n_numbers), np.nan, dtype=np.float32)
        encode = _function(self.name if self.given is None else self.given)
        vectors = _vectors(encode, list(known.values()))
        if vectors.shape[1] != self.n_numbers:
            raise ValueError(
                f"encoder {self.name!r} gave {vectors.shape[1]} numbers for a text, "
                f"{self.n_numbers} before: pass one of a fixed size"
            )
        dtype = np.promote_types(vectors.dtype, np.float32)
        found = np.full((len(texts), self.n_numbers), np.nan, dtype=dtype)
        found[list(known)] = vectors
        return found


def is_equal(value: Any, other: object) -> bool:
    """Whether two are equal; marks of no value are unequal to themselves, or do not compare."""
    try:
        return bool(value == other)
    except (TypeError, ValueError):
        return False


def is_missing(value: Any) -> bool:
    """Whether it is None, NaN, NaT or a data frame's missing value."""
    return value is None or not is_equal(value, value)


def texts_of(X: Any, column: str | None = None) -> tuple[list[str | None], str | None]:
    """(texts, the name of their column) of a list, an array, a series or a frame.

    column: the one to take from a frame that has several.
    """
    if isinstance(X, str):
        raise ValueError("X is one text: pass a list of texts")
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    if hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
        if len(names) != 1 and column not in names:
            raise ValueError(f"X has columns {names}: pass the one that holds the texts")
        X = X.iloc[:, names.index(column) if column in names else 0]
    values = X.tolist() if hasattr(X, "tolist") else list(X)
    values = [v[0] if isinstance(v, list) and len(v) == 1 else v for v in values]
    for k, value in enumerate(values):
        if not isinstance(value, str) and not is_missing(value):
            raise ValueError(f"row {k} of X is {value!r:.60}, not a text: pass texts alone")
    name = getattr(X, "name", None)
    texts = [value if isinstance(value, str) else None for value in values]
    return texts, None if name is None else str(name)


def language_note(encoder: TextEncoder, texts: Sequence[str | None]) -> str | None:
    """A remark if the packaged encoder, which knows English, is to read texts of another language."""
    some = [text.lower() for text in texts[:_LOOKED_AT] if text]
    words = [word for text in some for word in re.findall(r"[^\W\d_]+", text)]
    letters = "".join(words)
    foreign = 2 * sum(map(str.isascii, letters)) < len(letters)
    if len(words) >= max(_WORDS, _SENTENCE * len(some)):
        foreign |= sum(map(bool, map(_COMMON.fullmatch, words))) < _ENGLISH * len(words)
    if encoder.name != PACKAGED or not foreign:
        return None
    return (
        f"most texts, such as {some[0]!r:.60}, do not look like English, which the encoder {PACKAGED!r} knows: try "
        "TF-IDF of characters, make_pipeline(TfidfVectorizer(analyzer='char_wb', ngram_range=(1, 4)), "
        "TruncatedSVD(100), DAMClassifier()), or an encoder of that language"
    )


def _function(given: Any) -> Encode:
    """What turns texts into vectors."""
    if isinstance(given, str):
        if given != PACKAGED:
            raise ValueError(
                f"encoder {given!r} is unknown: pass {PACKAGED!r}, a function from texts to "
                "vectors, or an object with encode or embed"
            )
        return _packaged()
    for found in (getattr(given, "encode", None), getattr(given, "embed", None), given):
        if callable(found):
            return cast(Encode, found)
    raise TypeError(
        f"encoder must be {PACKAGED!r}, a function from texts to vectors, or an object with "
        f"encode or embed, got {given!r:.60}"
    )


@cache
def _packaged() -> Encode:
    """The encoder of the extra `text`; its weights and tokenizer lie in its own folder."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        import wordllama
    except ImportError as error:
        raise ImportError(
            f"the encoder {PACKAGED!r} is not installed: {how_to_install('text')}, or pass encoder="
        ) from error
    finally:  # it sets up logging for everybody
        root.handlers[:] = before
        root.setLevel(level)
    folder = Path(wordllama.__file__).parent
    found: Encode = wordllama.WordLlama.load(cache_dir=folder, disable_download=True).embed
    return found


def packaged_tokens() -> tuple[list[str], NDArray[Any], Callable[[str], list[int]]]:
    """(tokens of the packaged encoder by number, their vectors, what cuts a text into numbers).

    The vector of a text is the mean of those of its tokens.
    """
    own = getattr(_packaged(), "__self__")  # noqa: B009
    number = own.tokenizer.get_vocab()
    cut = partial(own.tokenizer.encode, add_special_tokens=False)
    return sorted(number, key=number.__getitem__), own.embedding, lambda text: cut(text).ids


def _vectors(encode: Encode, texts: list[str]) -> NDArray[Any]:
    """(n, N) numbers."""
    found = encode(texts)
    if hasattr(found, "detach"):  # a tensor: torch is not imported for --help
        found = found.detach().float().cpu().numpy()
    vectors: NDArray[Any] = np.asarray(list(found) if isinstance(found, Iterator) else found)
    if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype.kind not in "iuf":
        raise ValueError(
            f"the encoder gave {vectors.dtype} of shape {vectors.shape} for {len(texts)} texts: it "
            "must give one vector of numbers for each"
        )
    if not np.isfinite(vectors).all():
        k = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
        raise ValueError(f"the encoder gave numbers that are not finite for {texts[k]!r:.60}")
    return vectors
