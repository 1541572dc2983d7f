"""How often memories are right on held-out rows, and how new rows differ from those."""

import numpy as np
import pytest

import mnemosphere as mn
from edits import EDITS, OF_CLASSES
from mnemosphere import interpret
from quick_models import reloaded

CENTERS = 3.0 * np.random.default_rng(3).normal(size=(6, 5))


def rows(n, rng, classes=(0, 1, 2, 3)):
    y = rng.choice(classes, size=n)
    return CENTERS[y] + rng.normal(size=(n, 5)), y


@pytest.fixture(scope="module")
def fitted():
    """Four classes, one of them with a third of its labels wrong."""
    rng = np.random.default_rng(0)
    x, y = rows(900, rng)
    wrong = (y == 2) & (rng.random(900) < 0.33)
    return mn.DAMClassifier(8, search=None, random_state=0).fit(x, np.where(wrong, 1, y))


# Records


def test_records_count_every_held_out_row_once_and_agree_with_fresh_ones(fitted):
    record = fitted.model_.calibration.record
    held = fitted.model_.held
    assert record[:, 0].sum() == held.n_rows
    rng = np.random.default_rng(1)
    x, y = rows(4000, rng)
    y = np.where((y == 2) & (rng.random(4000) < 0.33), 1, y)
    owner = fitted.model_.shares(x).argmax(1).numpy()
    right = fitted.predict(x) == y
    for memory, (count, good, _) in enumerate(record):
        own = owner == memory
        if count > 60:
            expected = right[own].mean()
            error = 4 * np.sqrt(expected * (1 - expected) / count) + 0.02
            assert abs(good / count - expected) < error
    assert abs(record[:, 1].sum() / record[:, 0].sum() - right.mean()) < 0.05


def test_weak_memories_come_first_with_rows_to_label(fitted):
    x, _ = rows(500, np.random.default_rng(2))
    spots = interpret.weak_spots(fitted.model_, x, n_rows=4)
    weakest, strongest = spots.iloc[0], spots.iloc[-1]
    assert {weakest["label"], weakest["confused_with"]} == {1, 2}
    assert weakest["right"] < 0.8 * weakest["held_out"]
    assert strongest["right"] > 0.9 * strongest["held_out"]
    owner = fitted.model_.shares(x).argmax(1).numpy()
    score = interpret.rejection_score(fitted.model_, x)
    for memory, line in spots.iterrows():
        own = np.flatnonzero(owner == memory)
        highest = own[np.argsort(-score[own], kind="stable")][:4]
        assert line["to_label"] == highest.tolist()


def test_records_are_read_the_same_everywhere(fitted, tmp_path):
    table = reloaded(fitted, tmp_path).memory_table()
    record = fitted.model_.calibration.record[table.index]
    assert table[["held_out", "right"]].to_numpy().tolist() == record[:, :2].tolist()


def test_a_memory_that_is_relabeled_is_wrong(fitted):
    memory = int(interpret.weak_spots(fitted.model_).index[-1])
    _, before, _ = fitted.model_.calibration.record[memory]
    other = 0 if fitted.model_.votes.p[1 + memory].argmax() else 3
    edited = interpret.relabel_memory(fitted.model_, memory, other)
    count, after, _ = edited.calibration.record[memory]
    assert before > 0.9 * count
    assert after < 0.5 * count
    named = interpret.map_classes(fitted.model_, {1: 9})
    weakest = interpret.weak_spots(named).iloc[0]
    assert {weakest["label"], weakest["confused_with"]} == {9, 2}


# Drift


def test_alarms_without_drift_are_rare_and_a_new_class_is_found_in_fifty_rows(fitted):
    rng, alarms = np.random.default_rng(4), 0
    for _ in range(60):
        x, _ = rows(200, rng)
        alarms += fitted.compare(x).drifted
    assert alarms <= 3
    for new in (4, 5):
        x, _ = rows(50, rng, [new])
        found = fitted.compare(x)
        assert found.drifted
        assert fitted.compare(np.concatenate([x, rows(200, rng)[0]])).unlike["p"] < 0.01


def test_a_class_that_comes_more_often_is_named(fitted):
    x, _ = rows(300, np.random.default_rng(5), [0, 0, 0, 0, 1, 2, 3])
    found = fitted.compare(x)
    assert found.drifted
    more = [own["label"] for own in found.changed if own["new"] > own["known"]]
    assert set(more) == {0}
    assert [own["p"] for own in found.memories] == sorted(own["p"] for own in found.memories)


@pytest.fixture(scope="module")
def default():
    return mn.DAMClassifier(random_state=0).fit(*rows(900, np.random.default_rng(7))).model_


@pytest.mark.parametrize("edit", OF_CLASSES)
def test_after_an_edit_records_drift_and_three_answers_are_those_of_the_new_classes(default, edit):
    rng = np.random.default_rng(8)
    edited = mn.as_estimator(EDITS[edit](default, lambda label, n: rows(n, rng, [label])[0], 4))
    known = int(edited.model_.held.scored.sum())
    record = edited.model_.calibration.record
    assert record[:, 0].sum() == known
    assert record[:, 1].sum() > 0.85 * known
    assert record[:, 2].max() < len(edited.classes_)
    classes = [0, 1, 2] if edit == "remove" else [0, 1, 2, 3]
    alarms = sum(edited.compare(rows(200, rng, classes)[0]).drifted for _ in range(20))
    assert alarms <= 2
    assert edited.compare(rows(60, rng, [5])[0]).unlike["p"] < 0.01
    x = np.concatenate([rows(200, rng, classes)[0], rows(100, rng, [5])[0]])
    found = interpret.rejections(edited.model_, x, 0.1)
    answers = found.said(ask=True)
    assert {*answers} <= {*edited.classes_.tolist(), None, "ask"}
    assert np.equal(answers[200:], None).mean() > 0.5
    assert found.rejected[200:].mean() > 0.9
    assert found.rejected[:200].mean() < 0.25


def test_without_rows_of_the_fit_nothing_is_compared(fitted):
    x, y = rows(90, np.random.default_rng(6))
    edited = mn.as_estimator(interpret.with_class_prior(fitted.model_, [1, 2, 3, 4]))
    with pytest.raises(ValueError, match="not calibrated since fit or the last edit"):
        edited.compare(x)
    with pytest.raises(ValueError, match="holds no rows of its fit to compare with: fit again"):
        edited.calibrate(x, y).compare(x)
