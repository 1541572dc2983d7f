"""Examples added without training, and answers at a promised accuracy."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

import mnemosphere as mn
from mnemosphere import interpret
from quick_models import reloaded

X, Y = load_digits(return_X_y=True)
FEW = np.flatnonzero(Y == 4)
FIT = np.setdiff1d(np.arange(0, 1200), FEW[3:])  # three rows of class 4
NEW = np.arange(1200, 1797)
MORE = FEW[3:8]
LABELS = np.array([f"digit {k}" for k in range(10)])[Y]
pytestmark = pytest.mark.filterwarnings("ignore:class 'digit 4' has 1% of the rows")


@pytest.fixture(scope="module", params=["joint", "conditional"])
def clf(request):
    made = mn.DAMClassifier(40, objective=request.param, geometry="center", random_state=0)
    return made.fit(X[FIT], LABELS[FIT]).calibrate(X[NEW[:300]], LABELS[NEW[:300]])


def fresh(clf):
    return mn.as_estimator(clf.model_)


def test_rows_like_examples_are_classified_so(clf, tmp_path):
    own, others = NEW[Y[NEW] == 4], NEW[Y[NEW] != 4]
    wider = fresh(clf).add_examples(X[MORE], LABELS[MORE])
    assert (wider.predict(X[MORE]) == "digit 4").mean() > 0.7
    gain = wider.score(X[own], LABELS[own]) - clf.score(X[own], LABELS[own])
    loss = clf.score(X[others], LABELS[others]) - wider.score(X[others], LABELS[others])
    assert gain > 0.04
    assert loss < 0.03
    assert np.array_equal(wider.memories_[: clf.n_memories_], clf.memories_)
    assert wider.n_memories_ == clf.n_memories_ + 5
    assert wider.classes_.tolist() == clf.classes_.tolist()
    again = reloaded(wider, tmp_path)
    assert_array_equal(again.predict_proba(X[others]), wider.predict_proba(X[others]))


# Accuracy


def test_the_promised_accuracy_holds_over_draws():
    """P(right | score) = 1 − 0.3·score²: the accuracy of scores below t is 1 − 0.1·t²."""
    rng, broken, answered = np.random.default_rng(0), [], []
    for _ in range(400):
        scores = rng.random(1000)
        right = rng.random(1000) > 0.3 * scores**2
        try:
            limit = interpret.accuracy_threshold(scores, right, 0.95, confidence_level=0.8)
        except ValueError:
            limit = 0.0
        broken.append(1 - 0.1 * min(limit, 1) ** 2 < 0.95)
        answered.append(min(limit, 1))
    assert np.mean(broken) < 0.2
    assert np.mean(answered) > 0.5  # 0.707 at most


def test_all_rows_are_answered_if_all_are_right():
    assert interpret.accuracy_threshold(np.arange(500.0), np.ones(500), 0.95) == np.inf
    with pytest.raises(ValueError, match=r"20 labeled held-out rows support 0\.\d+ at most"):
        interpret.accuracy_threshold(np.arange(20.0), np.ones(20), 0.95)


def test_answers_at_an_accuracy(clf):
    held, new = NEW[::2], NEW[1::2]
    model = fresh(clf).calibrate(X[held], LABELS[held])
    answers = model.predict_or_reject(X[new], accuracy=0.9)
    kept = ~np.equal(answers, None)
    assert kept.mean() > 0.8
    assert np.mean(answers[kept] == LABELS[new][kept]) > 0.88
    fewer = model.predict_or_reject(X[new], accuracy=0.95, confidence_level=0.9)
    assert np.equal(fewer, None).sum() >= np.equal(answers, None).sum()
    with pytest.raises(ValueError, match="a rate and an accuracy are two promises"):
        model.predict_or_reject(X[new], accuracy=0.9, rate=0.1)
    with pytest.raises(ValueError, match="cannot be promised"):
        model.predict_or_reject(X[new], accuracy=0.9999)
    with pytest.raises(ValueError, match="had no labels"):
        fresh(clf).calibrate(X[held]).predict_or_reject(X[new], accuracy=0.9)


def test_rows_out_of_scope_count_as_wrong_answers(clf):
    strange = np.random.default_rng(0).permuted(X[NEW[:150]], axis=1)
    rows = np.vstack([X[NEW], strange])
    labels = [*LABELS[NEW], *[mn.OUT_OF_SCOPE] * len(strange)]
    plain = fresh(clf).calibrate(X[NEW], LABELS[NEW])
    told = fresh(clf).calibrate(rows, labels)
    assert_array_equal(told.model_.calibration.rejection, plain.model_.calibration.rejection)
    count = [np.equal(m.predict_or_reject(rows, accuracy=0.9), None).sum() for m in (plain, told)]
    assert count[0] <= count[1]
    strange = told.model_.calibration
    assert strange.doubt.size - strange.label.size == 150
    assert not strange.right[-150:].any()
