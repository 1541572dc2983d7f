"""Texts as vectors: what counts as an encoder, and how one is told from another."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import mnemosphere as mn
from hashed_words import N_NUMBERS, hashed_words, other_words
from mnemosphere.rows.columns import Columns
from mnemosphere.rows.texts import PACKAGED, TextEncoder, language_note, texts_of

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
def test_every_kind_of_encoder_gives_vectors(given):
    assert np.allclose(TextEncoder.of(given)(TEXTS), hashed_words(TEXTS), rtol=0.01, atol=1e-3)


def test_an_encoder_is_known_by_its_name_and_the_length_of_its_vectors():
    known = TextEncoder.of(hashed_words)
    assert known.with_encoder(hashed_words) == known == TextEncoder("hashed_words", N_NUMBERS)
    for other in (other_words, lambda texts: hashed_words(texts)):
        with pytest.raises(ValueError, match=r"trained with the encoder 'hashed_words'.*pass that"):
            known.with_encoder(other)
    shorter = TextEncoder("hashed_words", N_NUMBERS - 1)
    with pytest.raises(ValueError, match="which gives 46 numbers, got 'hashed_words', which gives"):
        shorter.with_encoder(hashed_words)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ("word2vec", ValueError, "encoder 'word2vec' is unknown: pass 'wordllama'"),
        (3, TypeError, "encoder must be 'wordllama', a function"),
        (lambda texts: [1.0, 2.0], ValueError, r"shape \(2,\) for 1 texts"),
        (lambda texts: hashed_words(texts)[:-1], ValueError, "for 1 texts"),
        (lambda texts: np.full((len(texts), 4), np.nan), ValueError, "not finite for 'a text'"),
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


def test_missing_texts_are_missing_values():
    calls = []

    def counted(texts):
        calls.append(texts)
        return hashed_words(texts)

    encoder = TextEncoder.of(counted)
    texts = texts_of(["lost my card", None, np.nan, pd.NA, " \n", "top up"])[0]
    found = encoder(texts)
    assert np.isnan(found).all(1).tolist() == [False, True, True, True, True, False]
    assert calls[1:] == [["lost my card", "top up"]]


def test_texts_are_encoded_once_for_each_question_and_not_kept():
    """No text and no vector of rows stays with the model after a call."""
    calls, vectors = [], []

    def counted(texts):
        calls.append(len(texts))
        vectors.append(hashed_words(texts))
        gone.append(weakref.ref(vectors[-1]))
        return vectors[-1]

    gone: list[weakref.ref[np.ndarray]] = []
    texts = [f"{word} {k}" for k in range(20) for word in ("card", "rate")]
    clf = mn.DAMClassifier(2, search=None, random_state=0, encoder=counted)
    clf.fit(texts, ["card", "rate"] * 20)
    assert calls == [1, 40]
    clf.predict_proba(texts[:7])
    clf.predict_or_reject(texts[:5])
    str(clf.explain(texts[:3]))
    assert calls[2:5] == [7, 5, 3]
    assert len(calls) == 8  # and the texts without a word, of each row that is printed
    vectors.clear()
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(calls)


OTHERS = {
    "German": "wo ist meine karte und warum wurde das geld zweimal abgebucht",
    "Russian": "где моя карта",
    "Chinese": "我的卡在哪里",
}


def test_texts_of_another_language_are_told():
    """By hand: letters of another script, or sentences without the commonest words of English."""
    english = [*mn.load_data("banking-small").x_train[:60]]
    packaged, own = TextEncoder(PACKAGED, 256), TextEncoder("other", 256)
    for text in OTHERS.values():
        assert "do not look like English" in language_note(packaged, [None, *[text] * 40])
        assert language_note(packaged, [*english, text]) is None
        assert language_note(own, [text] * 40) is None
    for names in (["Samsung Galaxy phone", "IKEA Billy bookcase"] * 40, english, [], ["", None]):
        assert language_note(packaged, names) is None


def test_a_fit_warns_of_another_language():
    pytest.importorskip("wordllama")
    texts = [f"{OTHERS['Russian']} {k}" for k in range(24)]
    for X in (texts, pd.DataFrame({"n": np.arange(24.0), "message": texts})):
        with pytest.warns(UserWarning, match="try TF-IDF of characters"):
            Columns.learn(X, encoder=PACKAGED if X is texts else {"message": PACKAGED})


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
    stored = TextEncoder(PACKAGED, encoder.n_numbers)  # as from a file
    assert np.array_equal(stored(["a"]), encoder(["a"]))
