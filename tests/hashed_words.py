"""Two small encoders of texts that need nothing: words hashed to fixed directions."""

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

N_WORDS, N_NUMBERS = 4096, 47
_DIRECTIONS = np.random.default_rng(0).normal(size=(2, N_WORDS, N_NUMBERS)).astype(np.float32)


def _encode(texts: list[str], directions: np.ndarray) -> np.ndarray:
    counts = HashingVectorizer(n_features=N_WORDS, norm="l2", alternate_sign=False).transform(texts)
    return np.asarray(counts @ directions, dtype=np.float32)


def hashed_words(texts: list[str]) -> np.ndarray:
    """Vectors of 47 numbers."""
    return _encode(texts, _DIRECTIONS[0])


def other_words(texts: list[str]) -> np.ndarray:
    """Others of the same length."""
    return _encode(texts, _DIRECTIONS[1])
