"""Flipped labels are found, with the class that they had and rows that say so."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import mnemosphere as mn

X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]
FLIPPED = np.random.default_rng(0).permutation(600)[:40]
LABELS = Y.copy()
LABELS[FLIPPED] = (Y[FLIPPED] + np.random.default_rng(1).integers(1, 10, 40)) % 10
NAMES = np.array([f"digit {k}" for k in range(10)])
QUICK = {"n_memories": 30, "objective": "joint", "geometry": "center", "random_state": 0}


@pytest.fixture(scope="module")
def issues():
    return mn.DAMClassifier(**QUICK).label_issues(X, NAMES[LABELS])


def test_flipped_labels_come_first(issues):
    first = np.argsort(issues.scores)[:40]
    assert np.isin(first, FLIPPED).mean() > 0.85
    found = np.isin(issues.rows, FLIPPED)
    assert (issues.suggested[found] == NAMES[Y[issues.rows[found]]]).mean() > 0.9
    assert np.array_equal(issues.given, NAMES[LABELS[issues.rows]])
    assert (issues.given != issues.suggested).all()


def test_about_as_many_are_found_as_were_flipped_however_hard_the_rows_are():
    """Of rows that overlap, a quarter is contradicted."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1500)
    x = rng.normal(size=(1500, 3)) + 0.9 * y[:, None] * [1, 1, 0]
    flipped = rng.random(1500) < 0.05
    found = mn.DAMClassifier(2, geometry="standard", search=None, random_state=0).label_issues(
        x, y ^ flipped, n_folds=3
    )
    contradicted = (found.proba.argmax(1) != (y ^ flipped)).sum()
    assert flipped.sum() < len(found) < 0.7 * contradicted


def test_scores_are_those_of_the_probabilities(issues):
    proba = issues.proba
    np.testing.assert_allclose(proba.sum(1), 1.0)
    own = proba[np.arange(600), LABELS]
    np.testing.assert_array_equal(issues.self_confidence, own[issues.rows])
    contradicted = np.flatnonzero(proba.argmax(1) != LABELS)
    assert set(issues.rows) <= set(contradicted)
    wrong = 0  # counted row by row
    for row in range(600):
        sure = [k for k in range(10) if proba[row, k] >= proba[k == LABELS, k].mean()]
        wrong += bool(sure) and max(sure, key=lambda k: proba[row, k]) != LABELS[row]
    assert len(issues) == min(wrong, len(contradicted))
    np.testing.assert_allclose(issues.margin, own[issues.rows] - proba.max(1)[issues.rows])
    assert (np.diff(issues.self_confidence) >= 0).all()
    np.testing.assert_array_equal(issues.scores, own)


def test_the_evidence_was_not_held_out_and_has_the_suggested_label(issues):
    agrees = []
    for row, suggested, rows in zip(
        issues.rows, issues.suggested, issues.typical_rows, strict=True
    ):
        assert row not in rows
        agrees += [NAMES[LABELS[near]] == suggested for near in rows]
    assert np.mean(agrees) > 0.8
    assert str(issues).startswith(f"{len(issues)} of 600 labels are probably wrong")
    assert issues.as_dicts()[0]["row"] == issues.rows[0]


def test_a_fitted_model_gives_its_settings_and_stays():
    clf = mn.DAMClassifier(search=None, random_state=0).fit(X[:300], LABELS[:300])
    before = clf.model_
    found = clf.label_issues(X[:300], LABELS[:300], n_folds=3)
    assert clf.model_ is before
    assert np.isin(found.rows, FLIPPED).sum() > 0.6 * np.sum(FLIPPED < 300)


def test_rows_that_cannot_be_judged():
    labels = np.where(np.arange(200) == 7, 11, LABELS[:200]).astype(float)  # the only one
    labels[3] = np.nan
    clf = mn.DAMClassifier(**QUICK, unlabeled=float("nan"))
    with pytest.warns(UserWarning, match="class 11.0 has 1% of the rows or less"):
        found = clf.label_issues(X[:200], labels, n_folds=2)
    assert np.flatnonzero(np.isnan(found.scores)).tolist() == [3, 7]
    with pytest.raises(ValueError, match="n_folds must be a whole number >= 2"):
        clf.label_issues(X[:200], labels, n_folds=1)
    with pytest.raises(ValueError, match="y must be one label per row"):
        clf.label_issues(X[:200], np.eye(10)[LABELS[:200]])


def test_no_class_has_two_distinct_rows():
    rows, labels = np.arange(5).repeat(2), np.arange(5).repeat(2)
    clf = mn.DAMClassifier(**QUICK)
    for some in (X[:5], labels[::2]), (X[rows], labels):
        with pytest.raises(ValueError, match="no class of y has two distinct rows"):
            clf.label_issues(*some)


def overlapping(n=240):
    rng = np.random.default_rng(3)
    y = (rng.random(n) < 0.4).astype(int)
    return rng.normal(size=(n, 3)) + y[:, None], y


PLAIN = mn.DAMClassifier(2, objective="joint", geometry="standard", random_state=0)


def test_a_row_given_twice_is_a_row_of_weight_two():
    """A copy in another fold would tell the label of the row that is held out."""
    x, y = overlapping()
    once = PLAIN.label_issues(x, y, np.full(len(y), 2.0))
    order = np.random.default_rng(4).permutation(2 * len(y))
    twice = PLAIN.label_issues(np.tile(x, (2, 1))[order], np.tile(y, 2)[order])
    loss = [-np.log(found.scores).mean() for found in (once, twice)]
    assert loss[1] == pytest.approx(loss[0], rel=0.02)
    proba = np.empty((2 * len(y), 2))
    proba[order] = twice.proba
    assert np.array_equal(*np.split(proba, 2))


@pytest.mark.parametrize("fitted", [False, True])
def test_a_class_weight_is_as_many_copies_of_the_rows_of_the_class(fitted):
    x, y = overlapping()
    plain = clone(PLAIN).fit(x, y) if fitted else PLAIN
    often = clone(PLAIN).set_params(class_weight={1: 3.0})
    often = often.fit(x, y) if fitted else often
    rows = np.repeat(np.arange(len(y)), np.where(y == 1, 3, 1))
    first = np.unique(rows, return_index=True)[1]
    before = plain.label_issues(x, y).proba
    weighted = often.label_issues(x, y).proba
    copied = plain.label_issues(x[rows], y[rows]).proba[first]
    given = plain.label_issues(x, y, np.where(y == 1, 3.0, 1.0)).proba
    assert weighted[:, 1].mean() > before[:, 1].mean() + 0.1
    np.testing.assert_allclose(weighted, given, rtol=1e-6)
    assert np.abs(weighted - copied).mean() < 0.02
