"""A row given twice is a row of weight two: in the model, in the choice and in every promise."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import mnemosphere as mn
from mnemosphere.estimators.choice import Split, evaluate
from mnemosphere.estimators.settings import Sample, Settings
from mnemosphere.rows.rows import Rows
from mnemosphere.training.train import Spec

CENTERS = 1.3 * np.random.default_rng(7).normal(size=(4, 5))


def drawn(n, rng):
    """Rows of four classes that overlap."""
    y = rng.integers(4, size=n)
    return CENTERS[y] + rng.normal(size=(n, 5)), y


def split_of(load, seed):
    x, y = load(return_X_y=True)
    x, fresh, y, truth = train_test_split(x, y, random_state=seed, test_size=0.5, stratify=y)
    return (x, y), (fresh, truth)


def promises(clf, x, y):
    """(share rejected at a rate of 5%, coverage of sets of 90%)."""
    inside = [label in own for label, own in zip(y, clf.predict_set(x, 0.9), strict=True)]
    return np.equal(clf.predict_or_reject(x, 0.05), None).mean(), np.mean(inside)


def normal(seed):
    rng = np.random.default_rng(seed)
    return drawn(300, rng), drawn(4000, rng)


TABLES = {
    "normal": lambda: normal(0),
    "breast cancer": lambda: split_of(load_breast_cancer, 0),
}


@pytest.mark.parametrize("times", [2, 7])
@pytest.mark.parametrize("table", TABLES)
def test_rows_given_several_times_are_weights(table, times):
    (x, y), (fresh, truth) = TABLES[table]()
    copied = mn.DAMClassifier(random_state=0).fit(np.tile(x, (times, 1)), np.tile(y, times))
    heavy = mn.DAMClassifier(random_state=0).fit(x, y, sample_weight=np.full(len(y), times))
    once = mn.DAMClassifier(random_state=0).fit(x, y)
    assert copied.n_memories_ == heavy.n_memories_ == once.n_memories_
    assert np.array_equal(copied.predict_proba(fresh), heavy.predict_proba(fresh))
    np.testing.assert_allclose(copied.predict_proba(fresh), once.predict_proba(fresh), atol=1e-4)
    rejected, covered = promises(copied, fresh, truth)
    assert (rejected, covered) == promises(heavy, fresh, truth)
    assert 0.01 < rejected < 0.1
    assert 0.86 < covered < 0.98
    # 300 distinct rows hold out at most 300: a rate that needs 599 is refused.
    with pytest.raises(ValueError, match="held-out rows, got"):
        copied.predict_or_reject(fresh, 1 / 600)


def test_a_bootstrap_sample_covers_as_promised():
    found = []
    for seed in range(3):
        (x, y), fresh = normal(seed)
        some = np.random.default_rng(seed).integers(300, size=300)
        clf = mn.DAMClassifier(random_state=0).fit(x[some], y[some])
        weight = np.bincount(some, minlength=300)
        same = mn.DAMClassifier(random_state=0).fit(x, y, sample_weight=weight)
        assert np.array_equal(clf.predict_proba(fresh[0]), same.predict_proba(fresh[0]))
        found.append(promises(clf, *fresh))
    rejected, covered = np.mean(found, axis=0)
    assert 0.02 < rejected < 0.08
    assert 0.87 < covered < 0.94


def test_copies_with_unlike_labels_cover_as_promised():
    """Each row ten times, its class drawn anew each time: a held-out row has one of its labels."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(200, 3)), 10, 0)
    fresh = rng.normal(size=(4000, 3))
    y, truth = (
        (rng.random(len(rows)) < 1 / (1 + np.exp(-2 * rows[:, 0]))).astype(int)
        for rows in (x, fresh)
    )
    clf = mn.DAMClassifier(random_state=0).fit(x, y)
    rejected, covered = promises(clf, fresh, truth)
    assert rejected < 0.1
    assert 0.85 < covered < 0.96


def test_few_kinds_of_rows_are_known_when_they_come_again():
    """Four cells with a pattern that no three of them tell."""
    cells = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]])
    x = np.tile(cells, (30, 1))
    clf = mn.DAMClassifier(random_state=0).fit(x, np.tile([0, 1, 1, 0], 30))
    assert clf.predict(cells).tolist() == [0, 1, 1, 0]
    assert not np.equal(clf.predict_or_reject(x, 0.05), None).any()


def test_categories_of_copies_are_cross_fitted_by_distinct_rows():
    """Many levels of few rows, and coin flips: copies must not tell a row its own label."""
    rng = np.random.default_rng(3)
    level = [f"v{k}" for k in rng.integers(0, 90, 400)]
    frame = pd.DataFrame({"level": level, "x": rng.normal(size=400)})
    y = rng.integers(0, 2, 400)
    settings = {"min_frequency": 0.05, "random_state": 0}
    twice = mn.DAMClassifier(**settings).fit(pd.concat([frame, frame]), np.r_[y, y])
    (chosen,) = [trial for trial in twice.search_ if trial["chosen"]]
    assert chosen["log_loss"] > 0.65  # log 2 = .69 is all there is to know


# Rows without values


@pytest.mark.parametrize("objective", ["auto", "joint", "conditional"])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_without_values_count_in_the_class_frequencies(objective, weighted):
    """All rows of class 2 are blank, and blank rows are answered by the class frequencies."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = 3 * np.eye(3, 4)[y] + rng.normal(size=(120, 4))
    x[y == 2] = np.nan
    weight = np.where(y == 2, 2.0, 1.0) if weighted else None
    clf = mn.DAMClassifier(objective=objective, random_state=0)
    with pytest.warns(UserWarning, match="40 of 120 rows of X are empty.*set aside"):
        clf.fit(x, y, sample_weight=weight)
    share = np.array([0.25, 0.25, 0.5]) if weighted else np.full(3, 1 / 3)
    np.testing.assert_allclose(clf.predict_proba(x[y == 2])[0], share, rtol=1e-6)
    np.testing.assert_allclose(clf.class_prior_[:-1], share, rtol=1e-6)
    assert clf.score(x[y < 2], y[y < 2]) > 0.9  # the others are told apart as before


def test_held_out_rows_without_values_are_predicted_by_weighted_frequencies():
    y, weight = torch.arange(60) % 2, torch.where(torch.arange(60) % 2 == 0, 3.0, 1.0).double()
    targets = torch.nn.functional.one_hot(y, 3).double()
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)).double()
    x[40:] = torch.nan
    sample = Sample(Rows(x, torch.device("cpu")), targets, weight, torch.float64)
    settings = Settings.of(mn.DAMClassifier(2, geometry="standard").get_params())
    first, last = torch.arange(40), torch.arange(30, 60)
    part = Split(sample.take(first), sample.take(last), last, 0)
    candidate = Spec("standard", 2, "conditional")
    ((_, found),) = evaluate([candidate], [part], settings, lambda done, of: None)
    # Among the fitted rows class 0 has three quarters of the weight.
    expected = np.where(y[40:] == 0, -np.log(0.75), -np.log(0.25))
    np.testing.assert_allclose(found.own[10:], expected, rtol=1e-12)
