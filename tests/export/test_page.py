"""The page in a real browser: it answers as Python does, asks for nothing, runs no one's names."""

import functools
import json
import re

import numpy as np
import pytest
import torch

import mnemosphere as mn
from mnemosphere.export import payload
from mnemosphere.export.page import write_page
from mnemosphere.fitted.pulls import importance
from mnemosphere.model.one_pass import log_joint
from quick_models import small

assert_close = functools.partial(np.testing.assert_allclose, rtol=0)
PROBA = ".map((a) => a.proba)"
TABS = ("play", "recall", "memories", "mistakes", "report")
ALL_ROWS = "Array.from({length: mnemosphere.rows().n}, (_, r) => mnemosphere.predictRow(r))"


def answers(browser, expression=ALL_ROWS):
    found = browser.evaluate(expression)
    return {key: np.array([a[key] for a in found], dtype=float) for key in found[0]}


def open_tab(browser, tab):
    browser.evaluate(f"mnemosphere.openTab('{tab}')")
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")


def silent(browser):
    return browser.requests() == [] and browser.complaints() == []


@pytest.fixture(scope="module")
def page(image_model, digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "digits.html"
    image_model.explore(path, digits.x_test, digits.y_test, max_rows=1000)
    return path


@pytest.fixture
def opened(browser, page):
    """The page as new, to do something with."""
    browser.open(page)
    browser.evaluate("window.touched = true")
    return browser


@pytest.fixture
def asked(browser, page):
    """The page to ask questions, which leave it as it is: opened anew only where it has to be."""
    there = browser.evaluate("window.touched ? '' : location.href")
    if there != page.as_uri():
        browser.open(page)
    return browser


@pytest.mark.parametrize("width", [1280, 390])
def test_every_part_opens_without_a_request_and_prints_values_only(browser, page, width):
    """Neither null nor NaN, no rounding errors, and one accuracy."""
    browser.open(page, width=width, dark=width == 390)
    for tab in TABS:
        open_tab(browser, tab)
        assert browser.evaluate(f"document.getElementById('panel-{tab}').innerText.length") > 40
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        text = browser.evaluate("document.body.innerText")
        for word in ("null", "NaN", "undefined", "[object", "Infinity"):
            assert word not in text, (tab, word)
        assert not re.search(r"e[-−](1\d|[2-9]\d)\b", text), tab
        found = re.findall(r"accuracy\s+([\d.]+%)|([\d.]+%)\s+accuracy", text)
        assert len({before or after for before, after in found}) <= 1, tab
    theme = "dark" if width == 390 else "light"
    assert browser.evaluate("document.documentElement.dataset.theme") == theme
    browser.evaluate("document.getElementById('theme').click()")
    assert silent(browser)


def test_a_thousand_digits_get_the_same_answers_as_in_python(asked, page, image_model, digits):
    found = answers(asked)
    assert page.stat().st_size < 800_000
    wanted = image_model.predict_proba(digits.x_test)
    assert asked.evaluate("data.votes.w.kind") == "i2"  # whole numbers: their test
    assert (found["predicted"] == wanted.argmax(1)).sum() >= 999
    assert_close(asked.evaluate(ALL_ROWS + PROBA), wanted, atol=1e-3)
    assert_close(found["score"], image_model.novelty_score(digits.x_test), atol=2e-2)
    uniform = float(image_model.model_.density.p[0].sum())
    share = uniform / (uniform + np.exp(-image_model.novelty_score(digits.x_test)))
    np.testing.assert_allclose(found["novelty"], share, atol=1e-3)
    shown = asked.evaluate("document.getElementById('tally').innerText")
    assert f"{100 * image_model.score(digits.x_test, digits.y_test):.1f}%" in shown


@pytest.mark.parametrize(
    ("hidden", "options"), [(True, {}), (True, {"column": 3}), (False, {"steps": 7})]
)
def test_recall_takes_the_same_path_as_in_python(asked, image_model, digits, hidden, options):
    row = digits.x_test[211].astype(float)
    row = row + np.random.default_rng(0).normal(size=row.size) * 40
    known = np.arange(784) % 28 < 13
    given = np.where(known | (not hidden), row, np.nan)
    y, steps = [options["column"]] if "column" in options else None, options.get("steps", 50)
    wanted = image_model.recall(given[None], y, steps=steps, path=True)
    mask = json.dumps(known.astype(int).tolist()) if hidden else "null"
    found = asked.evaluate(
        f"mnemosphere.recall({json.dumps(row.tolist())}, {mask}, {json.dumps(options)})"
    )
    path = np.array(found["rows"])
    steps = min(len(path), len(wanted.rows))
    assert abs(len(path) - len(wanted.rows)) <= 1  # a step of the size of the tolerance
    assert_close(path[:steps], wanted.rows[:steps, 0], atol=1e-3)
    assert_close(found["energies"][:steps], wanted.energies[:steps, 0], atol=2e-2)
    assert (np.diff(found["energies"]) <= 1e-9).all()


@pytest.mark.parametrize("geometry", ["whitened", "circles"])
def test_a_geometry_gives_the_same_answers_and_paths(browser, wines, tmp_path, geometry):
    x, y = wines
    model = small(n_memories=11, geometry=geometry, objective="conditional").fit(x, y)
    model.explore(tmp_path / "p.html", x[::5], y[::5])
    browser.open(tmp_path / "p.html")
    found = np.array(browser.evaluate(ALL_ROWS + PROBA))
    assert_close(found, model.predict_proba(x[::5]), atol=1e-4)
    row = x.iloc[17].to_numpy(dtype=float)
    known = np.arange(13) % 3 > 0
    given = x.iloc[[17]].where(known[None])
    wanted = model.recall(given, steps=9, path=True)
    mask = json.dumps(known.astype(int).tolist())
    path = browser.evaluate(
        f'mnemosphere.recall({json.dumps(row.tolist())}, {mask}, {{"steps": 9}})'
    )
    assert_close(path["energies"], wanted.energies[:, 0], atol=1e-3)
    # What is known stays, in the units of the features.
    end = model.recall(given, steps=9)
    np.testing.assert_allclose(end.to_numpy()[0, known], row[known], rtol=1e-6)
    assert silent(browser)


def test_knobs_change_the_answer_as_new_parameters_would(opened, image_model, digits):
    odds = np.linspace(0.3, 2.9, 10)
    hot = 1.9 * image_model.temperature_
    opened.evaluate(f"mnemosphere.turn({{temperature: {hot!r}, odds: {odds.tolist()}}})")
    found = np.array(opened.evaluate(f"{ALL_ROWS}.slice(0, 53){PROBA}"))
    # Every class weighs so many times as much as before, in all memories alike: Bayes' rule.
    votes = image_model.model_.votes.to(dtype=torch.float64)
    votes = votes.at(hot).replace(p=votes.p * torch.tensor([*odds, 0.0]))
    unit, _ = image_model.model_.geometry.place(torch.from_numpy(digits.x_test[:53]))
    wanted = log_joint(votes, unit)[:, :-1].softmax(1)
    assert_close(found, wanted, atol=3e-3)
    assert abs(found - image_model.predict_proba(digits.x_test[:53])).max() > 0.05


def test_a_pen_draws_a_three_and_gets_a_three(opened):
    opened.evaluate("mnemosphere.openTab('play')")
    opened.evaluate("document.getElementById('clear').click()")
    box = opened.evaluate(
        "(() => { const r = document.getElementById('pad').getBoundingClientRect();"
        " return [r.left, r.top, r.width, r.height]; })()"
    )
    turn = np.linspace(-2.4, 1.5, 12)
    upper = [(0.5 + 0.17 * np.cos(t), 0.36 + 0.14 * np.sin(t)) for t in turn]
    lower = [(0.5 + 0.19 * np.cos(t), 0.65 + 0.16 * np.sin(t)) for t in turn + 0.9]
    points = [*upper, *lower]
    opened.drag([(box[0] + x * box[2], box[1] + y * box[3]) for x, y in points])
    opened.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")
    assert opened.evaluate("document.getElementById('predicted').innerText") == "3"
    assert opened.evaluate("mnemosphere.state().drawn") is True


def test_a_table_has_sliders_and_the_same_answers(browser, wine_model, wines, tmp_path):
    x, y = wines
    x, y = x[::3], y[::3]
    wine_model.explore(tmp_path / "p.html", x, y)
    browser.open(tmp_path / "p.html")
    found = browser.evaluate(ALL_ROWS + PROBA)
    assert_close(found, wine_model.predict_proba(x), atol=1e-3)
    labels = browser.evaluate(
        "[...document.querySelectorAll('#features label')].map((l) => l.title)"
    )
    assert sorted(labels) == sorted(x.columns)
    why = wine_model.explain(x)
    shown = browser.evaluate(
        "[...document.querySelectorAll('.why tbody tr')].map((l) => [...l.children].map((c) => c.textContent.trim()))"
    )
    lines = [[cell.strip() for cell in [*line.values()][:5]] for line in why.column_table(0)]
    assert [line if len(line) == 5 else [*line, "", "", "", ""] for line in shown] == lines
    for row in range(0, len(x), 7):
        browser.evaluate(f"mnemosphere.pickRow({row})")
        browser.evaluate("new Promise((done) => setTimeout(done, 60))")
        told = browser.evaluate("document.getElementById('familiar').textContent")
        if why.rejected[row] is None:
            familiar = why.familiarity(row).replace(" (", ": ").replace(")", "")
            assert told.lower() == f"{familiar}."
        else:
            assert why.rejected[row] in told
    browser.evaluate(
        "(() => { const box = document.getElementById('row-number');"
        f" box.value = '{x.index[5]}'; box.dispatchEvent(new Event('change')); }})()"
    )
    assert browser.evaluate("mnemosphere.state().row") == 5  # found by its name
    browser.evaluate("mnemosphere.pickRow(0); mnemosphere.openTab('columns')")
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.curve figcaption')].map((c) => c.title)"
    )
    sizes = importance(wine_model.model_, wine_model.model_.stored(x))
    assert drawn == [x.columns[j] for j in np.argsort(-sizes, kind="stable")[:12]]
    browser.evaluate("mnemosphere.openTab('play')")
    browser.evaluate(
        "(() => { const s = document.getElementById('feature-0'); s.value = s.max;"
        " s.dispatchEvent(new Event('input')); })()"
    )
    moved = x.iloc[[0]].copy()
    moved.iloc[0, 0] = float(browser.evaluate("mnemosphere.state().values[0]"))
    assert moved.iloc[0, 0] == pytest.approx(x.iloc[:, 0].max(), rel=1e-6)
    now = browser.evaluate("mnemosphere.predict(mnemosphere.state().values).proba")
    assert_close(now, wine_model.predict_proba(moved)[0], atol=1e-3)
    path = browser.evaluate(
        "mnemosphere.recall(rows.values(3), Array.from({length: 13}, (_, j) => j % 2), {})"
    )
    gaps = x.iloc[[3]].to_numpy(copy=True)
    gaps[:, ::2] = np.nan
    wanted = wine_model.recall(type(x)(gaps, columns=x.columns), path=True)
    restored = browser.evaluate(
        f"[...geometry.restore(Float64Array.from({json.dumps(path['rows'][-1])}))]"
    )
    np.testing.assert_allclose(restored, wanted.rows[-1, 0], rtol=1e-3, atol=1e-3)
    assert browser.evaluate("document.querySelectorAll('.gauge .limit').length") == 1
    assert silent(browser)


def test_a_clusterer_gets_a_page_too(browser, digits, tmp_path):
    model = mn.DAMClusterer(5, n_memories=13, max_iter=3, random_state=0).fit(digits.x_train[:150])
    model.explore(tmp_path / "p.html", digits.x_train[:11], digits.y_train[:11])
    browser.open(tmp_path / "p.html")
    found = browser.evaluate(ALL_ROWS + PROBA)
    assert_close(found, model.predict_proba(digits.x_train[:11]), atol=1e-3)
    assert "cluster" in browser.evaluate("document.getElementById('predicted').innerText")
    for tab in ("recall", "memories", "report"):  # no labels, so no mistakes
        browser.evaluate(f"mnemosphere.openTab('{tab}')")
    assert silent(browser)


NASTY = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "\"'`${window.hacked=1}",
    "🦆 دو \u202e gnirts \u2028 line",
    "long " * 2000,
    "NaN",
]


def test_names_are_text_whatever_they_say(browser, tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = pandas.DataFrame(rng.normal(size=(60, 6)), columns=NASTY)
    y = np.array(NASTY, dtype=object)[np.arange(60) % 6]
    x.iloc[:, 0] += np.arange(60) % 6
    model = small(geometry="standard", varsigma=0.5).fit(x, y)
    model.explore(tmp_path / "p.html", x, y, title=NASTY[0])
    browser.open(tmp_path / "p.html", width=390)
    for tab in TABS:
        browser.evaluate(f"mnemosphere.openTab('{tab}')")
        browser.evaluate("new Promise((done) => setTimeout(done, 60))")
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert browser.evaluate("document.scripts.length") == 4
    assert browser.evaluate("document.images.length") == 0
    assert silent(browser)
    assert browser.evaluate("data.classes").count("NaN") == 1
    told = browser.evaluate("document.body.innerText")
    assert "\u202e" not in told
    assert r"\u202e gnirts" in told
    titles = browser.evaluate("[...document.querySelectorAll('[title]')].map((e) => e.title)")
    assert any(t.startswith("<img src=x onerror") for t in titles)


def test_a_page_that_answers_otherwise_than_python_says_so(browser, wine_model, wines, tmp_path):
    content = payload.payload(wine_model.model_, *wines, max_rows=7)
    for name, shown in (("right", False), ("wrong", True)):
        if name == "wrong":
            content["votes"]["slope"] *= 1.05
        write_page(tmp_path / f"{name}.html", content)
        browser.open(tmp_path / f"{name}.html")
        line = "document.getElementById('check')"
        assert browser.evaluate(f"!{line}.hidden") is shown
        assert ("does not answer as Python did" in browser.evaluate(f"{line}.innerText")) is shown


def test_signs_that_do_not_show_are_written_out(tmp_path):
    """In pages, notebooks and cards as in a terminal: none can turn the line of a name."""
    turned = "\u202ecod.exe\u2066\u200f"
    write_page(tmp_path / "p.html", {"classes": [turned], "rows": {"texts": ["one\ntwo\u202e"]}})
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    content = json.loads(re.search(r'id="payload"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    shown = r"\u202ecod.exe\u2066\u200f"
    assert content == {"classes": [shown], "rows": {"texts": ["one\ntwo\\u202e"]}}
