"""Rates and coverages hold for few held-out rows, on average over draws of them."""

import warnings

import numpy as np
import pytest

import mnemosphere as mn

NEW, DRAWS = 100, 300


def rows(kind, n, rng):
    """Three classes that overlap: heavy tails, or ties on a coarse grid."""
    y = rng.integers(3, size=n)
    noise = rng.standard_t(2, size=(n, 4)) if kind == "heavy tails" else rng.normal(size=(n, 4))
    x = 2.5 * np.eye(4)[y] + noise
    return (np.round(x) if kind == "ties" else x), y


@pytest.fixture(scope="module", params=["heavy tails", "ties"])
def model(request):
    x, y = rows(request.param, 200, np.random.default_rng(0))
    clf = mn.DAMClassifier(random_state=0, search=None).fit(x, y)
    return request.param, clf.model_


def mean_of(kind, n, ask):
    """Mean and standard error over draws of what `ask` finds with n held-out rows."""
    rng = np.random.default_rng(1)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few rows for a temperature
        for _ in range(DRAWS):
            found.append(ask(rows(kind, n, rng), rows(kind, NEW, rng)))
    return np.mean(found), np.std(found) / np.sqrt(DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "rate"), [(9, 0.1), (19, 0.05), (39, 0.05), (99, 0.1)])
def test_rejected_at_most_as_often_as_promised(model, n, rate):
    kind, fitted = model

    def ask(some, new):
        calibrated = mn.interpret.calibrate(fitted, *some)
        return mn.interpret.rejections(calibrated, new[0], rate).rejected.mean()

    mean, error = mean_of(kind, n, ask)
    assert mean <= rate + 3 * error
    if kind != "ties":  # of exactly as many ranks
        assert mean >= rate - 1 / (n + 1) - 3 * error


@pytest.mark.slow
@pytest.mark.parametrize(("n", "coverage"), [(19, 0.95), (39, 0.9), (99, 0.9)])
def test_sets_hold_the_truth_as_often_as_promised(model, n, coverage):
    kind, fitted = model

    def ask(some, new):
        sets = mn.interpret.predict_set(mn.interpret.calibrate(fitted, *some), new[0], coverage)
        return np.mean([label in own for label, own in zip(new[1], sets, strict=True)])

    mean, error = mean_of(kind, n, ask)
    assert mean >= coverage - 3 * error
