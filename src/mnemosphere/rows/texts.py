"""Texts as vectors, by an encoder that a user brings or by the one that is installed with us.

An encoder is a function from a list of texts to vectors, or an object with `encode` or `embed`. A
model keeps its name and its fingerprint: a few numbers made of its vectors of fixed sentences. They
are compared with a tolerance, since a hash of rounded vectors would differ between machines.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from mnemosphere.base.machine import how_to_install

PACKAGED = "wordllama"
_PROBES = (
    "What is my balance?",
    "Der nächste Zug nach Köln fällt aus.",
    "The committee postponed its decision on the harbor until the spring.",
)
_ANGLES = 8  # numbers of the fingerprint for each probe
_SAME = 0.02  # relative distance up to which fingerprints are of one encoder, in any precision

Encode = Callable[[list[str]], Any]


@dataclass(frozen=True)
class TextEncoder:
    """An encoder as a model knows it."""

    name: str
    n_numbers: int  # of a vector
    fingerprint: tuple[float, ...]
    # as the user passed it
    given: Any = field(default=None, compare=False, repr=False, metadata={"saved": False})

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is cached

    @classmethod
    def of(cls, given: Any) -> Self:
        """The encoder that the user passed, or the packaged one by its name."""
        vectors = _vectors(_function(given), list(_PROBES)).astype(np.float64)
        n = vectors.shape[1]
        # Fixed directions that are nearly orthogonal, whatever n is.
        directions = np.cos(np.outer(np.arange(n), 1.0 + np.arange(_ANGLES)))
        told = (vectors @ directions / np.sqrt(n)).ravel()
        if not told.any():
            raise ValueError("the encoder gives zeros for every text: pass one that is trained")
        own = str(getattr(given, "__qualname__", type(given).__name__)).rpartition("<locals>.")[2]
        name = given if isinstance(given, str) else own
        return cls(name, n, tuple(float(f"{v:.6g}") for v in told), given)

    def with_encoder(self, given: Any) -> Self:
        """The same with the user's encoder; ValueError if its vectors are not those of training."""
        found = type(self).of(given)
        a, b = np.array(self.fingerprint), np.array(found.fingerprint)
        same = self.n_numbers == found.n_numbers
        if not same or np.linalg.norm(a - b) > _SAME * np.linalg.norm(a):
            raise ValueError(
                f"encoder {found.name!r} gives other vectors than {self.name!r}, which the model "
                f"was trained with ({found.n_numbers} and {self.n_numbers} numbers): pass that one"
            )
        return type(self)(self.name, self.n_numbers, self.fingerprint, given)

    @functools.cached_property
    def _encode(self) -> Encode:
        if self.given is not None:
            return _function(self.given)
        if self.name != PACKAGED:
            raise ValueError(
                f"this model takes texts through the encoder {self.name!r}, which its file does "
                "not hold: load it with mnemosphere.load(path, encoder=...)"
            )
        return _function(self.with_encoder(PACKAGED).given)

    @functools.cached_property
    def _last(self) -> dict[str, tuple[list[str | None], NDArray[Any]]]:
        """The last texts and their vectors: several questions about the same rows are common."""
        return {}

    def __call__(self, texts: list[str | None]) -> NDArray[Any]:
        """Vectors (n, n_numbers); NaN for a text that is missing or empty."""
        before, found = self._last.get("rows", (None, np.empty(0)))
        if before == texts:
            return found
        known = {k: text for k, text in enumerate(texts) if text is not None and text.strip()}
        found = np.full((len(texts), self.n_numbers), np.nan, dtype=np.float32)
        if known:
            vectors = _vectors(self._encode, list(known.values()))
            if vectors.shape[1] != self.n_numbers:
                raise ValueError(
                    f"encoder {self.name!r} gave {vectors.shape[1]} numbers for a text, "
                    f"{self.n_numbers} before: pass one of a fixed size"
                )
            found = found.astype(np.promote_types(vectors.dtype, np.float32))
            found[list(known)] = vectors
        self._last["rows"] = list(texts), found
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


@functools.cache
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
