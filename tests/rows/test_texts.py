"""Texts as vectors: what counts as an encoder, and how one is told from another."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from hashed_words import hashed_words, other_words
from mnemosphere.rows.texts import PACKAGED, TextEncoder, texts_of

TEXTS = ["lost my card", "the rate, please", "top up failed"]
KINDS = {
    "a function": hashed_words,
    "an object with encode": SimpleNamespace(encode=hashed_words),
    "an object with embed": SimpleNamespace(embed=hashed_words),
    "tensors": lambda texts: torch.from_numpy(hashed_words(texts)),
    "half precision": lambda texts: torch.from_numpy(hashed_words(texts)).bfloat16(),
    "a list of vectors": lambda texts: list(hashed_words(texts)),
    "one vector after the other": lambda texts: iter(hashed_words(texts)),
}


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
def test_every_kind_of_encoder_is_the_same_one(given):
    known, wanted = TextEncoder.of(hashed_words), hashed_words(TEXTS)
    for encoder in (TextEncoder.of(given), known.with_encoder(given)):
        assert np.allclose(encoder(TEXTS), wanted, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize(
    "other",
    [
        other_words,
        lambda texts: hashed_words(texts)[:, ::-1],
        lambda texts: 2 * hashed_words(texts),
        lambda texts: hashed_words(texts)[:, :-1],
    ],
)
def test_other_vectors_are_refused(other):
    with pytest.raises(ValueError, match="gives other vectors than 'hashed_words'"):
        TextEncoder.of(hashed_words).with_encoder(other)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ("word2vec", ValueError, "encoder 'word2vec' is unknown: pass 'wordllama'"),
        (3, TypeError, "encoder must be 'wordllama', a function"),
        (lambda texts: [1.0, 2.0], ValueError, r"shape \(2,\) for 3 texts"),
        (lambda texts: hashed_words(texts)[:-1], ValueError, "for 3 texts"),
        (lambda texts: np.full((len(texts), 4), np.nan), ValueError, "not finite for 'What is"),
        (lambda texts: np.zeros((len(texts), 4)), ValueError, "zeros for every text"),
        (lambda texts: [[text] for text in texts], ValueError, "one vector of numbers for each"),
    ],
)
def test_what_is_no_encoder_is_refused(given, error, match):
    with pytest.raises(error, match=match):
        TextEncoder.of(given)


@pytest.mark.parametrize(
    ("X", "name"),
    [
        (TEXTS, None),
        (tuple(TEXTS), None),
        (np.array(TEXTS), None),
        (np.array(TEXTS, dtype=object)[:, None], None),
        (pd.Series(TEXTS, name="message"), "message"),
        (pd.DataFrame({"message": TEXTS}), "message"),
        (pd.DataFrame({"n": [1, 2, 3], "message": TEXTS}), "message"),
        (pl.Series("message", TEXTS), "message"),
        (pl.DataFrame({"message": TEXTS}), "message"),
    ],
)
def test_texts_come_in_many_kinds(X, name):
    assert texts_of(X, "message") == (TEXTS, name)


@pytest.mark.parametrize(
    ("X", "match"),
    [
        ("lost my card", "X is one text: pass a list"),
        ([*TEXTS, 3.5], "row 3 of X is 3.5, not a text"),
        ([b"bytes"], "row 0 of X is b'bytes'"),
        (pd.DataFrame({"a": TEXTS, "b": TEXTS}), r"X has columns \['a', 'b'\]"),
    ],
)
def test_what_is_no_text_is_refused(X, match):
    with pytest.raises(ValueError, match=match):
        texts_of(X)


def test_missing_texts_are_missing_values_and_rows_are_encoded_once():
    calls = []

    def counted(texts):
        calls.append(texts)
        return hashed_words(texts)

    encoder = TextEncoder.of(counted)
    texts = texts_of(["lost my card", None, np.nan, pd.NA, " \n", "top up"])[0]
    found = encoder(texts)
    assert np.isnan(found).all(1).tolist() == [False, True, True, True, True, False]
    assert encoder(list(texts)) is found
    assert calls[1:] == [["lost my card", "top up"]]


def test_the_packaged_encoder_needs_no_network(monkeypatch):
    pytest.importorskip("wordllama")
    import socket

    monkeypatch.setattr(socket, "socket", None)
    encoder = TextEncoder.of(PACKAGED)
    near, far = (
        encoder(["I lost my card", "my card is gone", "what a sunny day"])[0]
        @ encoder(["I lost my card", "my card is gone", "what a sunny day"])[1:].T
    )
    assert near > far
    stored = TextEncoder(PACKAGED, encoder.n_numbers, encoder.fingerprint)  # as from a file
    assert np.array_equal(stored(["a"]), encoder(["a"]))
