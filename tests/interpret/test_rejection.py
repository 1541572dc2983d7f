"""Reasons for rejection by their tails, and what a fit promises by the rows that it held out."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

import mnemosphere as mn
from edits import EDITS, known_to
from mnemosphere import interpret
from mnemosphere.interpret.rejection import rejection_reasons, upper_tails
from quick_models import reloaded

CENTERS = 2.2 * np.random.default_rng(7).normal(size=(13, 5))
SETTINGS = {"search": None, "objective": "conditional", "random_state": 0}


def rows(n, rng, classes=(0, 1, 2)):
    """Rows of classes that overlap a little."""
    y = rng.choice(classes, size=n)
    return CENTERS[y] + rng.normal(size=(n, 5)), y


@pytest.fixture(scope="module")
def fitted():
    x, y = rows(600, np.random.default_rng(0))
    return mn.DAMClassifier(**SETTINGS).fit(x, y)


# Tails


def test_tails_are_shares_of_known_rows_and_exponential_beyond(fitted):
    model = fitted.model_
    tails = model.calibration.tails
    reasons = rejection_reasons(model, model.held)[0]
    told = upper_tails(tails, reasons).numpy()
    for values, own in zip(reasons.numpy().T, told.T, strict=True):
        share = (values[None, :] >= values[:, None]).mean(1)
        common = share > 0.1
        assert np.abs(own + np.log(share))[common].max() < 0.15
        assert np.all(np.diff(own[np.argsort(values, kind="stable")]) >= 0)
        far = values >= np.quantile(values, 0.9)
        assert own[far].mean() == pytest.approx(1 - np.log(0.1), abs=0.1)  # of an exponential law
    steps = torch.tensor([[10.0] * 3, [11.0] * 3, [12.0] * 3]) * reasons.abs().max()
    first, second, third = upper_tails(tails, steps)
    torch.testing.assert_close(second - first, third - second, rtol=1e-4, atol=0.0)


def test_a_row_beyond_all_known_ones_in_one_way_is_rejected_however_sure_the_votes(fitted):
    far = 60 * np.random.default_rng(1).normal(size=(300, 5))
    far = far[fitted.predict_proba(far).max(1) > 0.99]
    assert len(far) > 10
    found = interpret.rejections(fitted.model_, far, 0.01)
    assert found.reasons == ["unlike all known rows"] * len(far)
    assert not found.undecided.any()


def test_rows_unlike_all_known_ones_are_not_asked_about_even_if_no_class_is_sure():
    x, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    part = rng.permutation(len(y)) < 283
    model = mn.DAMClassifier(random_state=0).fit(x[part], y[part]).model_
    strange = rng.uniform(x.min(0), x.max(0), size=(300, x.shape[1]))
    for rate in (0.1, 0.2):
        found = interpret.rejections(model, strange, rate)
        assert found.rejected.mean() > 0.7
        assert found.undecided.mean() < 0.3
        own = interpret.rejections(model, x[~part], rate)
        assert own.undecided.sum() >= 0.3 * own.rejected.sum() > 0


def test_a_row_between_two_classes_is_undecided_between_them(fitted):
    grid = np.linspace(0, 1, 400)[:, None]
    between = grid * CENTERS[0] + (1 - grid) * CENTERS[1]
    middle = between[[np.abs(np.diff(fitted.predict_proba(between)[:, :2], axis=1)).argmin()]]
    found = interpret.rejections(fitted.model_, middle, 0.05)
    assert found.reasons[0] in ("undecided between 0 and 1", "undecided between 1 and 0")


# What a fit promises


def promises(clf, x, y):
    """Share rejected at rates of 5, 10 and 20%, and in sets of coverage 90%."""
    rejected = [np.equal(clf.predict_or_reject(x, rate), None).mean() for rate in (0.05, 0.1, 0.2)]
    inside = [label in own for label, own in zip(y, clf.predict_set(x, 0.9), strict=True)]
    return [*rejected, np.mean(inside)]


def assert_kept(found, within=0.0):
    low, high = [0.02, 0.05, 0.13, 0.85], [0.08, 0.14, 0.26, 0.96]
    assert (np.array(low) - within < found).all(), found
    assert (np.array(high) + 2 * within > found).all(), found


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_a_fit_keeps_about_what_it_promises(objective):
    rng, found = np.random.default_rng(1), []
    for _ in range(7):
        clf = mn.DAMClassifier(**SETTINGS | {"objective": objective}).fit(*rows(150, rng))
        assert not clf.model_.calibration.fresh
        found.append(promises(clf, *rows(1000, rng)))
    assert_kept(np.mean(found, axis=0))


def test_few_rows_promise_little_and_none_nothing():
    x, _ = rows(12, np.random.default_rng(0))
    clf = mn.DAMClassifier(**SETTINGS).fit(x, np.arange(12) % 3)
    with pytest.raises(ValueError, match=r"a rate of 0\.01 needs at least 99 held-out rows, got"):
        clf.predict_or_reject(x, 0.01)
    alone = mn.DAMClassifier(**SETTINGS).fit(x[:3], [0, 1, 2])
    with pytest.raises(ValueError, match="not calibrated since fit"):
        alone.predict_or_reject(x)


def test_fresh_rows_take_the_place_of_those_of_the_fit(fitted):
    x, y = rows(400, np.random.default_rng(5))
    model = mn.as_estimator(interpret.calibrate(fitted.model_, x, y))
    assert model.model_.calibration.fresh
    assert np.equal(model.predict_or_reject(x, 0.1), None).sum() == 39  # ⌊0.1·401⌋ − 1


# Classes that come and go


def test_classes_are_added_one_by_one_within_the_promise():
    rng, found, answered, target = np.random.default_rng(2), [], [], 0.8
    for _ in range(4):
        clf = mn.DAMClassifier(**SETTINGS).fit(*rows(300, rng))
        for k in range(3, 9):
            clf.add_class(rows(20, rng, [k])[0], k)
        # Old and new classes as often as in what the model was given.
        old, new = rows(1500, rng), rows(600, rng, range(3, 9))
        x, y = np.concatenate([old[0], new[0]]), np.concatenate([old[1], new[1]])
        found.append(promises(clf, x, y))
        answers = clf.predict_or_reject(x, accuracy=target)
        given = ~np.equal(answers, None)
        answered.append(np.mean(answers[given] == y[given]))
    assert_kept(np.mean(found, axis=0))
    assert np.min(answered) > target - 0.03


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit != "with_class_prior"])
def test_an_edit_makes_the_promise_anew_for_its_own_votes(fitted, edit, tmp_path):
    rng = np.random.default_rng(9)
    model = mn.as_estimator(
        EDITS[edit](fitted.model_, lambda label, n: rows(n, rng, [label])[0], 3)
    )
    x, y = known_to(edit, [0, 1, 2], *rows(2000, rng))
    assert_kept(promises(model, x, y), within=0.02)
    loaded = reloaded(model, tmp_path)
    assert np.array_equal(loaded.predict_or_reject(x, 0.1), model.predict_or_reject(x, 0.1))
    again = loaded.add_class(CENTERS[5:6] + np.eye(5), 7)
    assert np.equal(again.predict_or_reject(x, 0.1), None).mean() < 0.2


@pytest.mark.parametrize("load", [load_wine, load_iris])
def test_explanations_answer_where_predict_or_reject_does(load):
    x, y = load(return_X_y=True)
    clf = mn.DAMClassifier(random_state=0).fit(x[::2], y[::2])
    rows = np.concatenate([x[1::2], -3 * x[1::14], x[1::14] * 0.5])
    why, answers = clf.explain(rows), clf.predict_or_reject(rows, ask=True)
    for k, answer in enumerate(answers):
        assert ("no answer;" in why.title(k)) == (answer is None)
        assert ("no answer, too close" in why.title(k)) == (answer == "ask")
    assert sum(answer is None for answer in answers[-len(x[1::14]) * 2 : -len(x[1::14])]) > 5
