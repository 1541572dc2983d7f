"""The page in a real browser: it answers as Python does, asks for nothing, runs no one's names."""

import functools
import json
import re

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

import mnemosphere as mn
from mnemosphere.base.colors import category_colors
from mnemosphere.base.text import percent
from mnemosphere.export import payload
from mnemosphere.export.page import write_page
from mnemosphere.interpret.explanation import familiar
from quick_models import built, small

assert_close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-6)
TABS = ("play", "map", "recall", "report")
ALL_ROWS = "Array.from({length: mnemosphere.rows().n}, (_, r) => mnemosphere.predictRow(r))"
FRAME = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))"


def open_tab(browser, tab):
    browser.evaluate(f"mnemosphere.openTab('{tab}')")
    browser.evaluate(FRAME)


def texts(browser, selector):
    return browser.evaluate(
        f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent.trim())"
    )


def move(browser, name, value, event="input"):
    """Move a slider, or choose: as a hand would, by the element and its event."""
    browser.evaluate(
        f"(() => {{ const e = $({name!r}); e.value = {value!r};"
        f" e.dispatchEvent(new Event({event!r})); }})()"
    )
    browser.evaluate(FRAME)


def silent(browser):
    return browser.requests() == [] and browser.complaints() == []


def assert_same_answers(found, model, x):
    """Probabilities, novelty, tails, familiarity and reasons, as Python has them."""
    assert_close([own["proba"] for own in found], model.predict_proba(x))
    assert_close([own["score"] for own in found], model.novelty_score(x), rtol=1e-6)
    wanted = mn.interpret.rejections(model.model_, x, 0.05)
    assert_close([own["tails"] for own in found], wanted.tails, rtol=1e-6)
    assert [own["reason"] for own in found] == wanted.reasons
    why = model.explain(x)
    assert_close([own["surer"] for own in found], 1 - why.less_sure)
    assert_close([own["further"] for own in found], why.further_out)
    assert why.rejected == wanted.reasons


def assert_same_reasons(browser, model, x, values):
    """The known rows most like a row x, and the pulls of its columns; values: as JavaScript."""
    why = model.explain(x)
    similar = browser.evaluate(f"mnemosphere.similar({values})")
    wanted = [own.similarity for own in why.similar_rows(0)]
    assert_close([own["cosine"] for own in similar], wanted, atol=2e-5)  # of 16 bits
    assert len(similar) == 3
    if min(-np.diff(wanted)) > 1e-4:  # else two rows are as similar
        assert [own["name"] for own in similar[:2]] == [own.name for own in why.similar_rows(0)[:2]]
    if browser.evaluate("!isImage"):
        found = browser.evaluate(f"mnemosphere.pulls({values}).map(([, pull]) => pull)")
        names = browser.evaluate("data.columns.map(({ name }) => name)")
        pulls = {own.column: own.pull for own in why.pulls(0)}
        assert_close(found, [pulls[name] for name in names])


@pytest.fixture(scope="module")
def page(image_model, digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "digits.html"
    image_model.explore(path, digits.x_test, digits.y_test, max_rows=300)
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


USE_EVERYTHING = """
(async () => {
  const wait = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 5)));
  const used = [];
  for (const panel of [$("knobs"), ...document.querySelectorAll("[role=tabpanel]:not([hidden])")]) {
    panel.open = true;
    for (const e of [...panel.querySelectorAll("input, select, textarea, button")].slice(0, 60)) {
      if (!e.isConnected || e.closest("[hidden]")) continue;
      used.push(e.tagName);
      if (e.tagName === "BUTTON") e.click();
      else if (e.tagName === "SELECT") {
        for (const option of [...e.options]) {
          option.selected = true;
          e.dispatchEvent(new Event("change"));
          await wait();
        }
      } else {
        for (const value of e.type === "range" ? [e.min, e.max] : ["a 1 ?", ""]) {
          e.value = value;
          e.dispatchEvent(new Event("input"));
          await wait();
        }
      }
      await wait();
    }
  }
  return used.length;
})()
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_every_control_works_without_a_request_and_prints_values_only(browser, page, width):
    """Neither null nor NaN, no rounding errors, one accuracy; nothing is wider than the screen."""
    browser.open(page, width=width, dark=width == 390)
    assert browser.evaluate("document.documentElement.dataset.theme") == (
        "dark" if width == 390 else "light"
    )
    for tab in TABS:
        open_tab(browser, tab)
        assert browser.evaluate(f"document.getElementById('panel-{tab}').innerText.length") > 40
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        text = browser.evaluate("document.body.innerText")
        for word in ("null", "NaN", "undefined", "[object", "Infinity"):
            assert word not in text, (tab, word)
        assert not re.search(r"e[-−](1\d|[2-9]\d)\b", text), tab
        found = re.findall(r"accuracy on \d+ rows\s+([\d.]+%)|([\d.]+%)\s+accuracy", text)
        assert len({before or after for before, after in found}) == 1, tab
        assert browser.evaluate(USE_EVERYTHING) > 3
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.evaluate("document.getElementById('theme').click()")
    assert silent(browser)


def test_rows_of_digits_get_the_same_answers_as_in_python(asked, page, image_model, digits):
    rows = [int(name) for name in asked.evaluate("rows.number")]
    assert_same_answers(asked.evaluate(ALL_ROWS), image_model, digits.x_test[rows])
    assert page.stat().st_size < 1_000_000
    shown = asked.evaluate("document.getElementById('tally').innerText")
    assert f"1000 rows {100 * image_model.score(digits.x_test, digits.y_test):.1f}%" in shown


def draw(browser, points):
    """Draw a line on the pad with the mouse; what the model then sees."""
    for _ in range(3):  # the mouse may come before the page is laid out
        browser.evaluate("$('clear').click(); $('pad').scrollIntoView()")
        browser.evaluate(FRAME)
        left, top, width, height = browser.evaluate(
            "(() => { const r = $('pad').getBoundingClientRect();"
            " return [r.left, r.top, r.width, r.height]; })()"
        )
        browser.drag([(left + x * width, top + y * height) for x, y in points])
        browser.evaluate(FRAME)
        seen = np.array(browser.evaluate("[...seen()]"))
        if seen.any():
            break
    return seen


def test_a_drawn_three_gets_a_three_and_a_scribble_gets_no_answer(opened, image_model):
    turn = np.linspace(-2.4, 1.5, 12)
    upper = [(0.5 + 0.17 * np.cos(t), 0.36 + 0.14 * np.sin(t)) for t in turn]
    lower = [(0.5 + 0.19 * np.cos(t), 0.65 + 0.16 * np.sin(t)) for t in turn + 0.9]
    scribble = np.random.default_rng(0).uniform(0.05, 0.95, (40, 2)).tolist()
    big = []
    for points, answer in (([*upper, *lower], "3"), (scribble, "No answer")):
        x = draw(opened, points)[None]
        found = opened.evaluate("mnemosphere.predict(seen())")
        assert_same_answers([found], image_model, x)
        assert_same_reasons(opened, image_model, x, "seen()")
        assert texts(opened, "#answer .predicted strong") == [answer]
        style = "getComputedStyle(document.querySelector('#answer .predicted strong')).fontSize"
        big.append(opened.evaluate(style))
    assert big[0] == big[1]  # in the place of the class, in its size
    assert texts(opened, "#answer .reason") == [f"{found['reason'].capitalize()}."]
    grey = "new Set([...document.querySelectorAll('#answer .fill')].map((e) => e.style.background))"
    assert opened.evaluate(f"{grey}.size") == 1
    silent(opened)


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
    assert_close(path[:steps], wanted.rows[:steps, 0], atol=1e-4)
    assert_close(found["energies"][:steps], wanted.energies[:steps, 0], atol=1e-4)
    assert (np.diff(found["energies"]) <= 1e-9).all()


@pytest.mark.parametrize("geometry", ["whitened", "circles"])
def test_a_geometry_gives_the_same_answers_and_paths(browser, wines, tmp_path, geometry):
    x, y = wines
    model = small(n_memories=11, geometry=geometry, objective="conditional").fit(x, y)
    model.explore(tmp_path / "p.html", x[::5], y[::5])
    browser.open(tmp_path / "p.html")
    assert_same_answers(browser.evaluate(ALL_ROWS), model, x[::5])
    row = x.iloc[17].to_numpy(dtype=float)
    known = np.arange(13) % 3 > 0
    given = x.iloc[[17]].where(known[None])
    found = browser.evaluate(
        f"mnemosphere.predict({json.dumps(row.tolist())}.map((v, j) => j % 3 > 0 ? v : NaN))"
    )
    assert_same_answers([found], model, given)
    wanted = model.recall(given, steps=9, path=True)
    mask = json.dumps(known.astype(int).tolist())
    path = browser.evaluate(
        f'mnemosphere.recall({json.dumps(row.tolist())}, {mask}, {{"steps": 9}})'
    )
    assert_close(path["energies"], wanted.energies[:, 0], atol=1e-3)
    assert silent(browser)


def test_a_class_that_is_more_frequent_is_more_likely_by_bayes_rule(opened, image_model, digits):
    rows = [int(name) for name in opened.evaluate("rows.number")]
    move(opened, "prior-3", "2")
    move(opened, "prior-7", "-1")
    odds = np.where(np.arange(10) == 3, 4.0, np.where(np.arange(10) == 7, 0.5, 1.0))
    wanted = image_model.predict_proba(digits.x_test[rows]) * odds
    wanted /= wanted.sum(1, keepdims=True)
    found = [own["proba"] for own in opened.evaluate(ALL_ROWS)]
    assert_close(found, wanted)
    prior = image_model.class_prior_[:10] / image_model.class_prior_[:10].sum() * odds
    assert texts(opened, "#prior-out-3") == [percent(prior[3] / prior.sum())]
    right = (wanted.argmax(1) == digits.y_test[rows]).mean()
    assert f"accuracy on 300 rows {100 * right:.1f}%" in texts(opened, "#tally")[0]


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_the_rate_shows_how_many_rows_are_answered_and_right(opened, image_model, digits, rate):
    rows = [int(name) for name in opened.evaluate("rows.number")]
    x, y = digits.x_test[rows], digits.y_test[rows]
    move(opened, "knob-rate", f"{np.log(rate)}")
    rate = opened.evaluate("mnemosphere.state().rate")
    said = image_model.predict_or_reject(x, rate=rate)
    answered = np.array([label is not None for label in said])
    shown = texts(opened, "#tally")[0]
    assert f"answered of 300 rows here {100 * answered.mean():.1f}%" in shown
    right = np.mean(said[answered] == y[answered])
    assert f"right among answers {100 * right:.1f}%" in shown


def test_rows_to_start_with_and_mistakes_are_those_of_python(opened, image_model, digits):
    x, y = digits.x_test, digits.y_test
    proba, sure = image_model.predict_proba(x), image_model.predict_proba(x).max(1)
    wrong = image_model.classes_[proba.argmax(1)] != y
    rejected = mn.interpret.rejections(image_model.model_, x, 0.05).rejected
    starters = opened.evaluate("rows.starters().map(([what, r]) => [what, rows.number[r]])")
    names = {what: int(name) for what, name in starters}
    assert list(names) == ["right", "doubtful", "wrong", "rejected"]
    assert not wrong[names["right"]]
    assert wrong[names["wrong"]]
    assert rejected[names["rejected"]]
    assert sure[names["doubtful"]] < 0.6 < sure[names["right"]]
    assert not rejected[[names["right"], names["doubtful"], names["wrong"]]].any()
    move(opened, "rows-kind", "wrong", "change")
    rows = np.array(opened.evaluate("rows.number"), dtype=int)
    shown = opened.evaluate(
        "[...document.querySelectorAll('#rows [data-row]')].map((e) => +rows.number[e.dataset.row])"
    )
    wanted = rows[wrong[rows]]
    assert shown == wanted[np.argsort(-sure[wanted])].tolist()


def test_similar_memories_are_those_of_the_largest_cosine(opened, image_model):
    opened.evaluate("openMemory(17)")
    opened.evaluate(FRAME)
    cosine = cosine_similarity(image_model.memories_)[17]
    cosine[17] = -2
    shown = opened.evaluate(
        "[...document.querySelectorAll('[data-similar]')].map((e) => +e.dataset.similar)"
    )
    assert shown == np.argsort(-cosine)[:4].tolist()
    assert f"cosine {cosine.max():.2f}" in texts(opened, "[data-similar]")[0]


def test_the_map_names_a_row_and_opens_it(opened, image_model, digits):
    open_tab(opened, "map")
    points = opened.evaluate(
        "view.points.filter((p) => p.kind === 'row').map((p) => { const b = mapCanvas.getBoundingClientRect();"
        " return [p.k, b.left + p.x, b.top + p.y, ...p.at]; })"
    )
    rows = np.array(opened.evaluate("rows.number"), dtype=int)
    ends = opened.evaluate(
        "[view.w, view.h, ...[0, 1].map((k) => view.points.map((p) => [p.x, p.y][k]))]"
    )
    for size, own in zip(ends[:2], ends[2:], strict=True):  # all there is fills both axes
        np.testing.assert_allclose([min(own) / size, max(own) / size], [0.05, 0.95])
    # Near on the map is near: the axes are those of the largest variance.
    unit = image_model.model_.on_sphere(digits.x_test[rows])[0].double().numpy()
    values = np.linalg.svd(unit - unit.mean(0), compute_uv=False) ** 2
    shown = np.array(points)[:, 3:]
    shown = np.linalg.lstsq(np.c_[shown, np.ones(len(shown))], unit, rcond=None)[1].sum()
    assert shown == pytest.approx(values[2:].sum(), rel=1e-6)
    x, y = points[5][1:3]
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        opened.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        if kind == "mouseMoved":
            told = texts(opened, "#hover")[0]
    at = opened.evaluate("mnemosphere.state().row")
    assert opened.evaluate("mnemosphere.state().tab") == "play"
    near = np.hypot(*(np.array(points)[:, 1:3] - [x, y]).T) < 4
    assert near[[int(p[0]) for p in points].index(at)]
    assert re.match(rf"row {rows[at]}: ", told)
    assert silent(opened)


def test_a_table_is_changed_and_shown_before_and_after(browser, wine_model, wines, tmp_path):
    x, y = wines
    x, y = x[::3], y[::3]
    wine_model.explore(tmp_path / "p.html", x, y)
    browser.open(tmp_path / "p.html")
    assert_same_answers(browser.evaluate(ALL_ROWS), wine_model, x)
    labels = browser.evaluate(
        "[...document.querySelectorAll('#features label')].map((l) => l.title)"
    )
    assert sorted(labels) == sorted(x.columns)
    browser.evaluate("mnemosphere.pickRow(4)")
    browser.evaluate(FRAME)
    before = texts(browser, "#answer .predicted strong")
    alcohol = list(x.columns).index("alcohol")
    move(browser, f"column-{alcohol}", "13.9")
    moved = x.iloc[[4]].copy()
    moved.iloc[0, alcohol] = 13.9
    found = browser.evaluate("mnemosphere.predict(mnemosphere.state().values)")
    assert_same_answers([found], wine_model, moved)
    assert_same_reasons(browser, wine_model, moved, "state.values")
    shown = texts(browser, "#pulls .bar")
    strongest = wine_model.explain(moved).pulls(0)[0]
    assert shown[0].startswith(f"{strongest.column} {strongest.value}")
    said = wine_model.predict_or_reject(moved)[0]
    assert texts(browser, "#answer .predicted strong") == [*before, said or "No answer"]
    assert f"alcohol: {x.iloc[4, alcohol]:.4g} → 13.9" in texts(browser, "#answer")[0]
    move(browser, f"column-{alcohol}", "99")  # a slider ends where the rows do
    assert browser.evaluate(f"state.values[{alcohol}]") == x.iloc[:, alcohol].max()
    browser.evaluate("$('back').click()")
    browser.evaluate(FRAME)
    assert texts(browser, "#answer .predicted strong") == before
    for row in range(0, len(x), 7):
        browser.evaluate(f"mnemosphere.pickRow({row})")
        browser.evaluate(FRAME)
        why = wine_model.explain(x.iloc[[row]])
        told = texts(browser, "#familiar")[0]
        assert told.lower() == f"{familiar(float(why.further_out[0]))}."
    assert silent(browser)


def test_curves_have_the_density_of_the_column_and_mark_the_row(
    browser, wine_model, wines, tmp_path
):
    x, y = wines
    wine_model.explore(tmp_path / "p.html", x, y, max_rows=100)
    browser.open(tmp_path / "p.html")
    browser.evaluate("mnemosphere.pickRow(7)")
    open_tab(browser, "columns")
    names = browser.evaluate(
        "[...document.querySelectorAll('.curve figcaption')].map((c) => c.title)"
    )
    at = names.index("flavanoids")
    bars, line, ends = browser.evaluate(
        f"(() => {{ const s = document.querySelectorAll('.curve svg')[{at}]; return ["
        "[...s.querySelectorAll('rect')].map((r) => +r.getAttribute('height')),"
        " +s.querySelector('line.here').getAttribute('x1'),"
        " [...s.querySelectorAll('polyline')].map((p) => p.getAttribute('points').split(' ').map((t) => +t.split(',')[0]))[0]]; })()"
    )
    own = x["flavanoids"].iloc[[int(k) for k in browser.evaluate("rows.number")]].to_numpy()
    counts = np.histogram(own, len(bars))[0]
    assert_close(np.array(bars) / max(bars), counts / counts.max())
    place = (own[7] - own.min()) / (own.max() - own.min())
    assert line == pytest.approx(ends[0] + place * (ends[-1] - ends[0]))


def test_a_category_is_one_choice_and_a_gap_stays_one(browser, tmp_path):
    pandas = pytest.importorskip("pandas")
    rng, n = np.random.default_rng(0), 120
    kind = rng.choice(["red", "green", "blue"], n)
    table = pandas.DataFrame(
        {"kind": kind, "high": rng.normal(size=n), "flag": rng.random(n) < 0.5}
    )
    y = np.where(table["high"] + 2 * (kind == "red") > 0.6, "yes", "no")
    table.loc[::7, "high"] = np.nan
    model = small(geometry="circles", objective="conditional").fit(table, y)
    model.explore(tmp_path / "p.html", table[:30], y[:30])
    browser.open(tmp_path / "p.html")
    assert_same_answers(browser.evaluate(ALL_ROWS), model, table[:30])
    browser.evaluate("mnemosphere.pickRow(7)")
    at = browser.evaluate("data.columns.findIndex((c) => c.name === 'kind')")
    assert sorted(browser.evaluate(f"[...$('column-{at}').options].map((o) => o.value)"))[2:] == [
        "green", "missing", "red"
    ]  # fmt: skip
    for level in ("red", "blue", "missing"):
        move(browser, f"column-{at}", level, "change")
        moved = table.iloc[[7]].copy()
        moved["kind"] = None if level == "missing" else level
        found = browser.evaluate("mnemosphere.predict(mnemosphere.state().values)")
        assert_same_answers([found], model, moved)
        assert_same_reasons(browser, model, moved, "state.values")
    open_tab(browser, "recall")
    assert "hidden" in texts(browser, "#recall-now")[0]
    assert silent(browser)


def test_colors_of_images_and_classes(browser, tmp_path):
    """A red picture on a white ground is red; a class has the color that plots give it."""
    x = np.full((24, 6, 6, 3), 250.0)
    x[:, 1:4, 1:4] = [200.0, 10.0, 30.0]
    x[12:, 1:4, 1:4] = [10.0, 30.0, 200.0]
    x += np.random.default_rng(0).uniform(0, 5, x.shape)
    y = np.repeat(["red", "blue"], 12)
    model = small(n_memories=2).fit(x.reshape(24, -1), y)
    model.explore(tmp_path / "p.html", x.reshape(24, -1), y, image_shape=(6, 6, 3))
    browser.open(tmp_path / "p.html")
    browser.evaluate("mnemosphere.pickRow(0)")
    browser.evaluate(FRAME)
    pixel = "[...pad.getContext('2d').getImageData({0}, {0}, 1, 1).data]"
    (red, green, blue, _), ground = (browser.evaluate(pixel.format(k)) for k in (2, 0))
    assert red > 180 > 60 > max(green, blue)
    assert min(ground) > 230
    found = browser.evaluate("[0, 1].map(classColor)")
    rgb = [[int(color[k : k + 2], 16) for k in (1, 3, 5)] for color in category_colors(2)]
    assert [[int(v) for v in re.findall(r"\d+", color)] for color in found] == rgb


def test_a_clusterer_gets_a_page_too(browser, digits, tmp_path):
    model = mn.DAMClusterer(5, n_memories=13, max_iter=3, random_state=0).fit(digits.x_train[:150])
    model.explore(tmp_path / "p.html", digits.x_train[:11], digits.y_train[:11])
    browser.open(tmp_path / "p.html")
    found = [own["proba"] for own in browser.evaluate(ALL_ROWS)]
    assert_close(found, model.predict_proba(digits.x_train[:11]))
    assert "cluster" in texts(browser, "#answer")[0]
    for tab in TABS:
        open_tab(browser, tab)
    assert silent(browser)


def test_figures_are_those_of_the_payload(browser, wine_model, wines, tmp_path):
    """An asymmetric confusion by hand, percentages, and when class frequencies decide."""
    content = payload.payload(wine_model.model_, *wines, max_rows=7)
    content["measured"]["confusion"] = [[0, 0, 9], [0, 2, 5], [1, 1, 8], [2, 1, 3]]
    write_page(tmp_path / "p.html", content)
    browser.open(tmp_path / "p.html")
    open_tab(browser, "report")
    lines = browser.evaluate(
        "[...document.querySelectorAll('.matrix tr')].map((l) => [...l.children].map((c) => c.innerText))"
    )
    assert lines == [["", *wine_model.classes_], [wine_model.classes_[0], "9", "", "5"],
                     [wine_model.classes_[1], "", "8", ""], [wine_model.classes_[2], "", "3", ""]]  # fmt: skip
    shares = [0.0, 0.0004, 0.004, 0.0951, 0.5, 0.98, 0.9951, 0.99951, 1.0]
    assert browser.evaluate(f"{shares}.map(percent)") == [percent(v) for v in shares]
    prior = np.array(browser.evaluate("[...model.saved.prior.slice(0, 3)]"))
    best, prior = int(prior.argmax()), prior / prior.sum()
    for factor, decides in ((1.4, True), (1.6, False)):  # the odds of the first by so much
        odds = prior[best] / (1 - prior[best]) * factor
        proba = prior * (1 - odds / (1 + odds)) / (1 - prior[best])
        proba[best] = odds / (1 + odds)
        asked = f"model.frequenciesDecide({{proba: {proba.tolist()}, predicted: {best}}})"
        assert browser.evaluate(asked) is decides


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
    for tab in (*TABS, "columns"):
        open_tab(browser, tab)
        browser.evaluate(USE_EVERYTHING)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert browser.evaluate("document.scripts.length") == 4
    assert browser.evaluate("document.images.length") == 0
    assert silent(browser)
    assert browser.evaluate("data.classes").count("NaN") == 1
    told = browser.evaluate("document.body.innerText")
    assert "\u202e" not in told
    titles = browser.evaluate("[...document.querySelectorAll('[title]')].map((e) => e.title)")
    assert any(t.startswith("<img src=x onerror") for t in titles)


def test_a_page_that_answers_otherwise_than_python_says_so(browser, wine_model, wines, tmp_path):
    content = payload.payload(wine_model.model_, *wines, max_rows=7)
    for name, shown in (("right", False), ("wrong", True)):
        if name == "wrong":
            content["votes"]["slope"] *= 1.001
        write_page(tmp_path / f"{name}.html", content)
        browser.open(tmp_path / f"{name}.html")
        line = "document.getElementById('check')"
        assert browser.evaluate(f"!{line}.hidden") is shown
        assert ("does not answer as Python did" in browser.evaluate(f"{line}.innerText")) is shown


def test_a_model_of_few_numbers_has_a_page(browser, tmp_path):
    """Without rows, calibration, names, or a third column."""
    model = built([[1.0, 0.0], [0.0, 1.0]], [[0.1, 0.1, 0], [1, 0, 0], [0, 1, 0]], beta=3.0)
    model.explore(tmp_path / "p.html")
    browser.open(tmp_path / "p.html")
    for tab in TABS:
        open_tab(browser, tab)
        browser.evaluate(USE_EVERYTHING)
    found = browser.evaluate("mnemosphere.predict([3, 1])")
    assert_close(found["proba"], model.predict_proba([[3.0, 1.0]])[0])
    assert found["reason"] is None
    assert silent(browser)


def test_a_page_shows_itself_in_a_notebook(browser, page, image_model, digits, tmp_path):
    shown = image_model.explore(tmp_path / "p.html", digits.x_test[:20], digits.y_test[:20])
    assert shown.path == tmp_path / "p.html"
    outer = tmp_path / "notebook.html"
    outer.write_text(f"<!doctype html><body>{shown._repr_html_()}</body>", encoding="utf-8")
    browser.call("Page.navigate", url=outer.as_uri())
    browser.evaluate("new Promise((done) => setTimeout(done, 1000))")
    frames = "document.querySelector('iframe')"
    assert browser.evaluate(f"{frames}.sandbox.value") == "allow-scripts"
    assert browser.evaluate(f"{frames}.contentDocument") is None  # another origin
    found = browser.call("Target.getTargets")["targetInfos"]
    (frame,) = [own["targetId"] for own in found if own["type"] == "iframe"]
    outside = browser._session
    browser._session = browser.call("Target.attachToTarget", targetId=frame, flatten=True)[
        "sessionId"
    ]
    try:
        assert browser.evaluate("mnemosphere.ready") is True
        assert_same_answers(browser.evaluate(ALL_ROWS), image_model, digits.x_test[:20])
    finally:
        browser._session = outside
        browser.open(page)


def test_signs_that_do_not_show_are_written_out(tmp_path):
    """In pages, notebooks and cards as in a terminal: none can turn the line of a name."""
    turned = "\u202ecod.exe\u2066\u200f"
    write_page(tmp_path / "p.html", {"classes": [turned], "rows": {"texts": ["one\ntwo\u202e"]}})
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    content = json.loads(re.search(r'id="payload"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    shown = r"\u202ecod.exe\u2066\u200f"
    assert content == {"classes": [shown], "rows": {"texts": ["one\ntwo\\u202e"]}}
