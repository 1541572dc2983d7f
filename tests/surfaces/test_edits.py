"""After an edit of classes or examples, every surface gives the answers of the edited model, rejected rows too."""

import warnings

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from commands import caller
from edits import EDITS, OF_CLASSES
from mnemosphere.cli import app
from mnemosphere.rows.rows import Rows
from quick_models import graph_answers, reloaded
from surfaces.kinds import embeddings, images, missing

run = caller(app)
KINDS = {"vectors": images, "embeddings": lambda: embeddings(8, 300), "a frame with gaps": missing}
RATE = 0.05  # at which exports reject


def rows_of(rows, label, n):
    at = np.flatnonzero(np.asarray(rows.y) == label)[:n]
    return rows.x.iloc[at] if isinstance(rows.x, pd.DataFrame) else rows.x[at]


SLOW = pytest.param("embeddings", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["vectors", "a frame with gaps", SLOW])
def fitted(request):
    rows = KINDS[request.param]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = mn.DAMClassifier(random_state=0).fit(rows.x, rows.y)
    return clf.model_, rows


@pytest.mark.parametrize("edit", OF_CLASSES)
def test_every_surface_answers_as_the_edited_model(fitted, request, edit, tmp_path):
    model, rows = fitted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        new = model.classes[-1].item()
        known = mn.interpret.map_classes(model, {new: None}) if edit == "add_class" else model
        edited = EDITS[edit](known, lambda label, n: rows_of(rows, label, n), new)
    clf = mn.as_estimator(edited)
    model, x = clf.model_, rows.x_test
    numbers = model.stored(x).values.double()
    some = Rows.of(numbers, model.device)  # in double precision, as surfaces take them
    proba = clf.predict_proba(x)
    assert np.isfinite(proba).all()
    why = mn.interpret.rejections(model, x, RATE)
    answers = clf.predict_or_reject(x, RATE)
    assert np.equal(answers, None).tolist() == why.rejected.tolist()

    loaded = reloaded(clf, tmp_path)
    assert np.array_equal(loaded.predict_proba(x), proba)
    assert np.array_equal(loaded.predict_or_reject(x, RATE), answers)
    assert loaded.explain(x).rejected == clf.explain(x).rejected == why.reasons

    graph = graph_answers(clf, tmp_path, numbers)
    np.testing.assert_allclose(graph["probabilities"], proba, atol=1e-5)
    np.testing.assert_allclose(graph["shares"], model.shares(some), atol=1e-5)
    np.testing.assert_allclose(graph["reasons"], why.tails, rtol=1e-3, atol=1e-3)
    assert graph["is_rejected"].tolist() == why.rejected.tolist()
    novel = clf.novelty_score(x) > clf.novelty_threshold_
    assert graph["is_novel"].tolist() == novel.tolist()
    assert graph["label"].tolist() == clf.predict(x).tolist()

    pd.DataFrame(x).to_csv(tmp_path / "x.csv", index=False)
    run("predict", tmp_path / "m.safetensors", tmp_path / "x.csv", "--reject", RATE,
        "--out", tmp_path / "p.csv")  # fmt: skip
    told = pd.read_csv(tmp_path / "p.csv", dtype={"prediction": str})
    assert told["prediction"].isna().tolist() == why.rejected.tolist()
    assert [own if isinstance(own, str) else None for own in told["reason"]] == why.reasons
    columns = [f"probability_{name}" for name in clf.classes_]
    np.testing.assert_allclose(told[columns], proba, atol=1e-9)

    browser = request.getfixturevalue("browser")
    clf.explore(tmp_path / "p.html", x)
    browser.open(tmp_path / "p.html")
    every = "Array.from({length: mnemosphere.rows().n}, (_, r) => mnemosphere.predictRow(r))"
    page = browser.evaluate(every)
    np.testing.assert_allclose([row["proba"] for row in page], proba, atol=1e-3)
    rejected = every.replace("mnemosphere.predictRow(r)", "answerFor(rows.values(r)).rejected")
    assert browser.evaluate(rejected) == why.rejected.tolist()
    score = np.array([row["score"] for row in page])
    np.testing.assert_allclose(score, clf.novelty_score(x), rtol=1e-3, atol=1e-2)
    assert not browser.complaints()
