"""The page of a model of texts: a search box, rejected rows, memories by their texts."""

import numpy as np
import pytest

import mnemosphere as mn
from hashed_words import hashed_words
from mnemosphere.export.payload import payload
from quick_models import small

ODD = ["Is the moon made of cheese?", "quokka wombat numbat <b>bilby</b>"]
WAIT = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))"
SHOWN = "[...document.querySelectorAll('#texts .text-row q')].map((q) => q.textContent)"


@pytest.fixture(scope="module")
def texts():
    d = mn.load_data("banking-small")
    model = small(n_memories=20, varsigma=0.5, encoder=hashed_words).fit(d.x_train, d.y_train)
    return model.calibrate(d.x_test), [*d.x_test, *ODD], [*d.y_test, "?", "?"]


@pytest.fixture(scope="module")
def page(texts, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "texts.html"
    texts[0].explore(path, *texts[1:])
    return path


def test_the_payload_has_texts_and_rejections(texts):
    model, x, y = texts
    found = payload(model.model_, x, y)
    assert found["encoder"] == "hashed_words"
    assert found["image"] is None
    assert found["rows"]["text"] == x
    wanted = mn.interpret.rejections(model.model_, x, 0.05).reasons
    assert found["rows"]["rejected"] == wanted
    assert wanted[-1]
    known = {" ".join(text.split())[:200] for text in mn.load_data("banking-small").x_train}
    assert all(found["typical"])
    assert {text for line in found["typical"] for text in line} <= known


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_are_searched_and_picked(browser, page, texts, width):
    model, x, y = texts
    browser.open(page, width=width)
    assert browser.evaluate("$('tabs').innerText").split() == [
        "Texts", "Memories", "Mistakes", "Report"
    ]  # fmt: skip
    said = model.predict(x)
    for word in ("PIN", "exchange rate", "cheese"):
        browser.evaluate(f"$('search').value = {word!r}; rows.fillTexts()")
        parts = word.lower().split()
        wanted = [
            text for text, truth, label in zip(x, y, said, strict=True)
            if all(p in f"{text} {'' if truth == '?' else truth} {label}".lower() for p in parts)
        ]  # fmt: skip
        assert browser.evaluate(SHOWN) == wanted
    browser.evaluate("$('search').value = ''; $('texts-kind').value = 'rejected'; rows.fillTexts()")
    far = mn.interpret.rejections(model.model_, x, 0.05).rejected
    assert browser.evaluate(SHOWN) == [text for text, odd in zip(x, far, strict=True) if odd]
    browser.evaluate("[...document.querySelectorAll('#texts .text-row')].at(-1).click()")
    browser.evaluate(WAIT)
    answer = browser.evaluate("$('answer').innerText")
    assert ODD[-1] in answer  # as text: nothing is parsed
    assert "No answer: " in answer
    for tab in ("memories", "mistakes", "report"):
        browser.evaluate(f"mnemosphere.openTab('{tab}')")
        browser.evaluate(WAIT)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.requests() == browser.complaints() == []


def test_memories_show_their_texts_and_answers_are_those_of_python(browser, page, texts):
    model, x, _ = texts
    browser.open(page)
    found = browser.evaluate("rows.number.map((_, r) => mnemosphere.predictRow(r).proba)")
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-3)
    browser.evaluate("openMemory(3)")
    browser.evaluate(WAIT)
    shown = browser.evaluate("$('memory').innerText")
    assert all(text in shown for text in model.model_.exemplars.as_lists()[3])
    browser.evaluate("$('swap').click()")
    assert browser.evaluate("$('gallery').querySelectorAll('q').length") == model.n_memories_
