"""Rows of few kinds: ties at a threshold are answered, on every surface, and rates stay at most what was asked."""

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import OneHotEncoder

import mnemosphere as mn
from commands import caller
from mnemosphere import interpret
from mnemosphere.cli import app
from quick_models import graph_answers, reloaded

run = caller(app)
# Levels of each column: 12, 40, 120 and 240 kinds of rows.
DESIGNS = {"one column": (12,), "two": (8, 5), "three": (6, 5, 4), "many": (5, 4, 4, 3)}
RATES = (0.05, 0.1, 0.2)


def table(levels, seed, n):
    """Categories, of which each adds to the log-odds of three classes."""
    law, rng = np.random.default_rng(len(levels)), np.random.default_rng(seed)
    kinds = np.stack([rng.choice(c, n, p=law.dirichlet(3 * np.ones(c))) for c in levels], 1)
    effect = [law.normal(size=(c, 3)) for c in levels]
    odds = np.array([0.5, 0, -1]) + sum(
        own[kind] for own, kind in zip(effect, kinds.T, strict=True)
    )
    y = np.array(["a", "b", "rare"])[(odds + rng.gumbel(size=(n, 3))).argmax(1)]
    return pd.DataFrame({f"c{j}": [f"v{v}" for v in kind] for j, kind in enumerate(kinds.T)}), y


def shares(model, x):
    """Of rows that are rejected at each rate."""
    clf = mn.as_estimator(model)
    return [np.equal(clf.predict_or_reject(x, rate=rate), None).mean() for rate in RATES]


@pytest.mark.parametrize("design", DESIGNS)
def test_a_rate_is_about_what_was_asked_at_most_after_fit_and_edits(design):
    found = []
    for seed in range(2):
        x, y = table(DESIGNS[design], seed, 480)
        x_new, y_new = table(DESIGNS[design], seed + 50, 3000)
        model = mn.DAMClassifier(search=None, random_state=seed).fit(x, y).model_
        wider = interpret.add_class(model, x[y == "rare"][:5], "new")
        others = interpret.map_classes(wider, {"b": None})
        found += [shares(model, x_new), shares(wider, x_new), shares(others, x_new[y_new != "b"])]
    assert (np.mean(found, axis=0) < 1.2 * np.array(RATES)).all()
    assert (np.array(found) < np.array(RATES) + 0.15).all()


@pytest.fixture(scope="module")
def few_kinds():
    x, y = table((12,), 3, 480)
    return mn.DAMClassifier(random_state=0).fit(x, y), x, y


@pytest.mark.parametrize("edit", ["fit", "add_class", "map_classes", "calibrate"])
def test_equal_rows_get_one_answer_on_every_surface(few_kinds, edit, tmp_path):
    clf, x, y = few_kinds
    clf = mn.as_estimator(clf.model_)
    if edit == "add_class":
        clf.add_class(x[y == "rare"][:5], "new")
    if edit == "map_classes":
        clf.map_classes({"b": None})
    if edit == "calibrate":
        clf.calibrate(x, y)
    model, rate = clf.model_, 0.05
    answers = clf.predict_or_reject(x, rate=rate)
    rejected = np.equal(answers, None)
    if edit == "calibrate":
        assert rejected.mean() <= rate
    kinds = pd.Series(rejected).groupby(x.c0.to_numpy())
    assert (kinds.nunique() == 1).all()
    alone = [clf.predict_or_reject(x[k : k + 1], rate=rate)[0] for k in range(0, 480, 20)]
    assert alone == answers[::20].tolist()

    assert reloaded(clf, tmp_path).predict_or_reject(x).tolist() == answers.tolist()
    x.to_csv(tmp_path / "x.csv", index=False)
    run("predict", tmp_path / "m.safetensors", tmp_path / "x.csv", "--reject", rate,
        "--out", tmp_path / "p.csv")  # fmt: skip
    told = pd.read_csv(tmp_path / "p.csv")
    assert (told["prediction"].isna() == rejected).all()
    assert told["prediction"][~rejected].tolist() == answers[~rejected].tolist()
    assert [own is not None for own in clf.explain(x).rejected] == rejected.tolist()
    found = graph_answers(clf, tmp_path, model.stored(x).values)
    assert found["is_rejected"].tolist() == rejected.tolist()
    novel = model.novelty_score(x).numpy() > interpret.rejection.novelty_threshold(model)
    assert found["is_novel"].tolist() == novel.tolist()


def test_the_tails_of_equal_rows_do_not_depend_on_rounding():
    rng = np.random.default_rng(0)
    codes = rng.integers(12, size=600)
    x = OneHotEncoder(sparse_output=False).fit_transform(codes[:, None])
    clf = mn.DAMClassifier(random_state=0).fit(x, (codes + (rng.random(600) < 0.2)) % 3)
    exact = interpret.rejections(clf.model_, x, 0.1)
    rounded = interpret.rejections(clf.model_, x * (1 + 1e-7 * rng.normal(size=x.shape)), 0.1)
    assert exact.rejected.tolist() == rounded.rejected.tolist()
    np.testing.assert_allclose(exact.tails, rounded.tails, atol=1e-2)
