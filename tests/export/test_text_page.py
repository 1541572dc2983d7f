"""The page of a model of texts: typed texts, a search box, rejected rows, memories by their texts."""

from pathlib import Path

import numpy as np
import pytest

import mnemosphere as mn
from hashed_words import hashed_words
from mnemosphere.export.payload import TABLE_BYTES, payload
from mnemosphere.rows.rows import Rows
from quick_models import small

ODD = ["Is the moon made of cheese?", "quokka wombat numbat <b>bilby</b>"]
TYPED = [
    "How do I change my PIN?", "What's the exchange rate, please", "  two  spaces\tand\na line",
    "ÄRGER! 🦆 café – naïve", "ZZZZ ---- ==== aaaaaaa <0x41>", "x", "東京で両替",
]  # fmt: skip
WAIT = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))"
SHOWN = "[...document.querySelectorAll('#rows q')].map((q) => q.title)"


@pytest.fixture(scope="module")
def bank():
    return mn.load_data("banking-small")


@pytest.fixture(scope="module")
def hashed(bank):
    model = small(n_memories=20, varsigma=0.5, encoder=hashed_words)
    return model.fit(bank.x_train, bank.y_train).calibrate(bank.x_test)


@pytest.fixture(scope="module")
def page(hashed, bank, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "texts.html"
    hashed.explore(path, [*bank.x_test, *ODD], [*bank.y_test, "?", "?"])
    return path


def test_the_payload_has_texts_and_only_known_names(hashed, bank):
    found = payload(hashed.model_, [*bank.x_test, *ODD])
    assert found["encoder"] == {"name": "hashed_words"}
    assert found["image"] is None
    assert found["rows"]["text"] == [*bank.x_test, *ODD]
    known = {" ".join(text.split())[:200] for text in bank.x_train}
    assert all(found["typical"])
    assert {text for line in found["typical"] for text in line} <= known


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_are_searched_and_picked(browser, page, hashed, bank, width):
    browser.open(page, width=width)
    assert browser.evaluate("$('tabs').textContent") == "TextsMapReport"
    x, y = [*bank.x_test, *ODD], [*bank.y_test, "?", "?"]
    said = hashed.predict(x)
    for word in ("PIN", "exchange rate", "cheese"):
        browser.evaluate(f"$('search').value = {word!r}; rows.fill()")
        parts = word.lower().split()
        wanted = [
            text for k, (text, truth, label) in enumerate(zip(x, y, said, strict=True))
            if all(p in f"{k} {text} {'' if truth == '?' else truth} {label}".lower() for p in parts)
        ]  # fmt: skip
        assert browser.evaluate(SHOWN) == wanted
    browser.evaluate("$('search').value = ''; $('rows-kind').value = 'rejected'; rows.fill()")
    far = mn.interpret.rejections(hashed.model_, x, 0.05).rejected
    assert set(browser.evaluate(SHOWN)) == {text for text, odd in zip(x, far, strict=True) if odd}
    last = f"document.querySelector('#rows [data-row=\"{len(x) - 1}\"]')"
    browser.evaluate(f"{last}.click()")
    browser.evaluate(WAIT)
    answer = browser.evaluate("$('answer').textContent")
    assert ODD[-1] in answer  # as text: nothing is parsed
    assert "No answer" in answer
    assert "hashed_words" in browser.evaluate("$('controls').textContent")  # why nothing is typed
    for tab in ("map", "report"):
        browser.evaluate(f"mnemosphere.openTab('{tab}')")
        browser.evaluate(WAIT)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.requests() == browser.complaints() == []


def test_memories_show_their_texts_and_answers_are_those_of_python(browser, page, hashed, bank):
    browser.open(page)
    found = browser.evaluate("rows.number.map((_, r) => mnemosphere.predictRow(r).proba)")
    wanted = hashed.predict_proba([*bank.x_test, *ODD])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    browser.evaluate("openMemory(3)")
    browser.evaluate(WAIT)
    shown = browser.evaluate("$('memory').innerText")
    assert all(text in shown for text in hashed.model_.exemplars.as_lists()[3])


# Typed texts, by the packaged encoder.


@pytest.fixture(scope="module")
def packaged(bank):
    pytest.importorskip("wordllama")
    model = small(n_memories=20, varsigma=0.5, encoder="wordllama", objective="conditional")
    return model.fit(bank.x_train, bank.y_train)


@pytest.fixture(scope="module")
def typing(packaged, bank, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "typed.html"
    packaged.explore(path, bank.x_test, bank.y_test)
    return path


def typed(browser, text):
    """Type into the box; (what the page says, the numbers of the input)."""
    browser.evaluate(
        f"(() => {{ const e = $('column-0'); e.value = {text!r};"
        " e.dispatchEvent(new Event('input')); })()"
    )
    browser.evaluate(WAIT)
    return browser.evaluate("[mnemosphere.predict(state.values), [...state.values]]")


def test_typed_texts_are_cut_into_the_tokens_of_the_encoder(browser, typing):
    tokenizers, wordllama = map(pytest.importorskip, ("tokenizers", "wordllama"))
    folder = Path(wordllama.__file__).parent / "tokenizers"
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "l2_supercat_tokenizer_config.json"))
    browser.open(typing)
    odd = ["".join(t) for t in np.random.default_rng(0).choice([*"ab -=.'é_\n東"], (40, 12))]
    for text in [*TYPED, *odd]:
        wanted = tokenizer.encode(text, add_special_tokens=False).ids
        assert browser.evaluate(f"encoder.cut({text!r})") == wanted, text


def test_typed_texts_get_the_answers_of_python(browser, typing, packaged, bank):
    """The same numbers for the vector that the page makes, and nearly those for the exact vector."""
    browser.open(typing)
    size = browser.evaluate("encoder.table.length")
    assert TABLE_BYTES - 256 < size <= TABLE_BYTES
    off = []
    for text in [*TYPED, *bank.x_test[:20]]:
        found, values = typed(browser, text)
        rows = Rows.of(np.array([values]), packaged.model_.device)
        wanted = mn.interpret.rejections(packaged.model_, rows, 0.05)
        np.testing.assert_allclose(
            found["proba"], packaged.model_.log_proba(rows).exp()[0], rtol=0, atol=1e-6
        )
        np.testing.assert_allclose(found["tails"], wanted.tails[0], rtol=1e-6, atol=1e-6)
        assert found["reason"] == wanted.reasons[0]
        off.append(np.abs(found["proba"] - packaged.predict_proba([text])[0]).max())
    assert np.mean(off[len(TYPED) :]) < 0.05
    whole = [k for k, text in enumerate(bank.x_test[:20])
             if browser.evaluate(f"encoder.encode({text!r}).parts.length") == 0]  # fmt: skip
    assert len(whole) > 5
    assert max(off[len(TYPED) + k] for k in whole) < 0.01  # of all tokens: what 8 bits lose


def test_a_word_pulls_what_the_odds_lose_without_it(browser, typing, packaged):
    browser.open(typing)
    text = "Please tell me how to change my PIN"
    typed(browser, text)
    shown = browser.evaluate("mnemosphere.pulls(state.values)")
    words = text.split()
    less = [" ".join([*words[:k], *words[k + 1 :]]) for k in range(len(words))]
    rows = np.array([browser.evaluate(f"mnemosphere.type({t!r})") for t in [*less, text]])
    said = packaged.model_.log_proba(Rows.of(rows, packaged.model_.device)).numpy()
    first, second = np.argsort(-said[-1])[:2]
    odds = said[:, first] - said[:, second]
    assert [word for word, _ in shown] == words
    np.testing.assert_allclose([pull for _, pull in shown], odds[-1] - odds[:-1], atol=1e-6)


def test_what_reading_in_parts_loses_is_measured(browser, typing, packaged, bank):
    browser.open(typing)
    some = bank.x_test[:200]
    proba = np.array([typed(browser, text)[0]["proba"] for text in some[:30]])
    exact = packaged.predict_proba(some[:30])
    browser.evaluate("rows.text = rows.text.slice(0, 30); measureTyping()")
    read = browser.evaluate("rows.read")
    assert read["same"] == (proba.argmax(1) == exact.argmax(1)).sum()
    assert read["off"] == pytest.approx(np.abs(proba - exact).max(1).mean(), abs=1e-6)
    assert f"{100 * read['off']:.1f} points" in browser.evaluate("typedNote()")


def test_an_unknown_text_gets_no_answer_and_an_empty_one_the_frequencies(browser, typing, packaged):
    browser.open(typing)
    typed(browser, "quokka wombat numbat sonata in b minor, allegro con fuoco")
    assert browser.evaluate("document.querySelector('#answer strong').textContent") == "No answer"
    found, values = typed(browser, "   ")
    assert np.isnan(np.array(values, dtype=float)).all()
    np.testing.assert_allclose(found["proba"], packaged.predict_proba([None])[0], atol=1e-6)
    assert browser.requests() == browser.complaints() == []


def test_a_text_beside_columns_is_typed_too(browser, bank, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("wordllama")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"age": rng.normal(size=90), "question": bank.x_train[:90]})
    y = np.where(table["age"] > 0, "old", "young")
    model = small(geometry="text20+standard", encoder="wordllama").fit(table, y)
    model.explore(tmp_path / "p.html", table[:9], y[:9])
    browser.open(tmp_path / "p.html")
    at = browser.evaluate("data.columns.findIndex((c) => c.kind === 'text')")
    browser.evaluate("mnemosphere.pickRow(2)")
    browser.evaluate(WAIT)
    browser.evaluate(
        f"(() => {{ const e = $('column-{at}'); e.value = 'my card is lost';"
        " e.dispatchEvent(new Event('input')); })()"
    )
    browser.evaluate(WAIT)
    found = browser.evaluate("mnemosphere.predict(state.values)")
    moved = table.iloc[[2]].copy()
    moved["question"] = "my card is lost"
    np.testing.assert_allclose(found["proba"], model.predict_proba(moved)[0], atol=0.01)
    assert (
        len(browser.evaluate("[...document.querySelectorAll('#answer .verdict')].map(String)")) == 2
    )
    assert browser.complaints() == []
