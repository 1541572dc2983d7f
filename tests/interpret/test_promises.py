"""A promise holds for the votes that it was made with, and for no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mnemosphere as mn
from mnemosphere import interpret
from mnemosphere.export.payload import payload
from mnemosphere.rows.stored import StoredRows, row_sketch, share_known
from quick_models import built

N, FRESH, HELD = 5, 20_000, 1999
CENTERS = np.random.default_rng(5).normal(size=(7, N))
OF_CENTER = np.array([0, 0, 1, 1, 2, 2, 3])
EDITED = "not calibrated since fit or the last edit of its votes: call calibrate"


def rows(n, rng, classes=(0, 1, 2)):
    """Rows of classes that overlap."""
    which = rng.choice(np.flatnonzero(np.isin(OF_CENTER, classes)), size=n)
    return CENTERS[which] + 0.6 * rng.normal(size=(n, N)), OF_CENTER[which]


@pytest.fixture(scope="module")
def calibrated():
    p = np.full((7, 4), 0.01)
    p[np.arange(1, 7), OF_CENTER[:6]] = 1.0
    p[:, -1] = 0.0
    clf = built(CENTERS[:6], p, beta=12.0)
    return clf.calibrate(*rows(HELD, np.random.default_rng(0))).model_


def with_examples(model):
    return interpret.add_examples(model, *rows(12, np.random.default_rng(1)))


def streamed(model):
    return mn.as_estimator(model).partial_fit(*rows(50, np.random.default_rng(2))).model_


# (the edit, classes of rows that it knows, what their labels are called afterwards)
EDITS = {
    "add_class": (lambda m: interpret.add_class(m, CENTERS[6:] * [[1.1]], 3), (0, 1, 2, 3), None),
    "add_examples": (with_examples, (0, 1, 2), None),
    "remove_examples": (
        lambda m: interpret.remove_examples(
            with_examples(m), rows(12, np.random.default_rng(1))[0][:5]
        ),
        (0, 1, 2),
        None,
    ),
    "remove_class": (lambda m: interpret.remove_class(m, 1), (0, 2), None),
    "merge_classes": (lambda m: interpret.merge_classes(m, [0, 2], 5), (0, 1, 2), {0: 5, 2: 5}),
    "relabel_memory": (lambda m: interpret.relabel_memory(m, 0, {0: 1, 1: 2}), (0, 1, 2), None),
    "without_memories": (lambda m: interpret.without_memories(m, [1]), (0, 1, 2), None),
    "with_class_prior": (lambda m: interpret.with_class_prior(m, [1, 5, 2]), (0, 1, 2), None),
    "shrink": (
        lambda m: interpret.shrink(m, *rows(60, np.random.default_rng(3)), n_memories=4),
        (0, 1, 2),
        None,
    ),
    "partial_fit": (streamed, (0, 1, 2), None),
}
PROMISES = {
    "rate": lambda m, x: m.predict_or_reject(x, 0.1),
    "accuracy": lambda m, x: m.predict_or_reject(x, accuracy=0.8),
    "per_class": lambda m, x: m.predict_or_reject(x, 0.1, per_class=True),
    "predict_set": lambda m, x: m.predict_set(x, 0.9),
    "is_novel": lambda m, x: interpret.is_novel(m.model_, x, 0.1),
    "score": lambda m, x: interpret.rejection_score(m.model_, x),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_the_votes_ends_every_promise(calibrated, edit):
    make, *_ = EDITS[edit]
    edited = make(calibrated)
    x, _ = rows(7, np.random.default_rng(4))
    for ask in PROMISES.values():
        ask(mn.as_estimator(calibrated), x)
        with pytest.raises(ValueError, match=EDITED):
            ask(mn.as_estimator(edited), x)
    shown = payload(edited, x)
    assert shown["threshold"] is None
    assert not any(shown["rows"]["rejected"])


def beyond(share, wanted, n_held, n_new):
    """By how many standard deviations a share exceeds the one that was promised."""
    deviation = np.sqrt(wanted * (1 - wanted) * (1 / n_held + 1 / n_new))
    return (share - wanted) / deviation


@pytest.mark.parametrize("edit", EDITS)
def test_calibrated_again_it_keeps_its_promises(calibrated, edit):
    make, classes, names = EDITS[edit]
    rng = np.random.default_rng(10)

    def draw(n):
        x, y = rows(n, rng, classes)
        return x, np.array([(names or {}).get(label, label) for label in y.tolist()])

    model = mn.as_estimator(make(calibrated)).calibrate(*draw(HELD))
    x, y = draw(FRESH)
    answers = model.predict_or_reject(x, 0.1)
    assert abs(beyond(np.equal(answers, None).mean(), 0.1, HELD, FRESH)) < 4
    alike = np.equal(model.predict_or_reject(x, 0.1, per_class=True), None)
    best = model.predict(x)
    for label in model.classes_:
        own = best == label
        held = np.sum(model.model_.calibration.predicted == model.classes_.tolist().index(label))
        assert abs(beyond(alike[own].mean(), 0.1, held, own.sum())) < 4
    target = 0.95 * model.score(x, y) + 0.05
    sure = model.predict_or_reject(x, accuracy=target, confidence_level=0.999)
    given = ~np.equal(sure, None)
    assert given.mean() > 0.1
    assert np.mean(sure[given] == y[given]) >= target
    inside = [label in found for label, found in zip(y, model.predict_set(x, 0.9), strict=True)]
    assert abs(beyond(1 - np.mean(inside), 0.1, HELD, FRESH)) < 4
    novel = interpret.is_novel(model.model_, x, 0.1)
    assert abs(beyond(novel.mean(), 0.1, HELD, FRESH)) < 4


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_a_new_name_keeps_every_promise(objective):
    rng = np.random.default_rng(0)
    before = mn.DAMClassifier(objective=objective, random_state=0).fit(*rows(300, rng))
    before.calibrate(*rows(HELD, rng))
    renamed = mn.as_estimator(interpret.rename_class(before.model_, 0, 9))
    x, _ = rows(500, rng)
    scores = [interpret.rejection_score(model.model_, x) for model in (before, renamed)]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-6)
    for name in ("rate", "accuracy", "per_class"):
        one, two = (PROMISES[name](model, x) for model in (before, renamed))
        assert [9 if label == 0 else label for label in one] == two.tolist()


# Held-out rows


@pytest.mark.parametrize("kind", ["classes", "clusters"])
def test_rows_that_were_trained_on_are_no_held_out_rows(kind, tmp_path):
    rng = np.random.default_rng(0)
    (x, y), (other, _) = rows(1500, rng), rows(1500, rng)
    make = mn.DAMClusterer if kind == "clusters" else mn.DAMClassifier
    settings = {} if kind == "clusters" else {"search": None, "objective": "joint"}
    model = make(3, geometry="unit", random_state=0, max_iter=2, **settings).fit(x, y)
    model.save(tmp_path / "m.safetensors")
    mixed = np.r_[x[:700], other[:800]]
    for found in (model, mn.load(tmp_path / "m.safetensors")):
        for trained in (x, x[::-1][:200]):
            with pytest.warns(UserWarning, match="most of these rows were trained on"):
                found.calibrate(trained)
        found.calibrate(other).calibrate(mixed)


def test_rows_of_few_kinds_may_be_trained_on_and_held_out():
    """Rows of a grid repeat: held-out ones are among the training rows, whatever one does."""
    for n_cells in (7, 100, 1000, 10_000):
        one, two = (np.random.default_rng(k).integers(n_cells, size=(1000, 1)) for k in range(2))
        known, held = (StoredRows.of(x * [1.0, 2.0], torch.device("cpu")) for x in (one, two))
        assert share_known(held, row_sketch(known)) < 0.5


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_a_rate_is_about_right_straight_after_a_fit_of_few_rows(objective):
    """Each row held out is scored by votes and by a density that have not seen it."""
    found = []
    for seed in range(11):
        rng = np.random.default_rng(seed)
        y = rng.integers(3, size=1087)
        x = rng.normal(size=(len(y), 7)) + 1.5 * np.eye(3, 7)[y]
        clf = mn.DAMClassifier(6, objective=objective, geometry="standard", random_state=seed)
        clf.fit(x[:89], y[:89])
        found.append(interpret.is_novel(clf.model_, x[89:], 0.1).mean())
    assert 0.05 < np.mean(found) < 0.12


# Edits


def test_memories_without_class_and_without_floor():
    """An edit that leaves nothing to share out, and a model whose soft labels fell below the floor."""
    alone = built(CENTERS[:1], [[0, 0, 0], [1, 1, 0]], beta=12.0).model_
    once = interpret.relabel_memory(alone, 0, 1)
    again = interpret.relabel_memory(once, 0, 1)
    assert mn.as_estimator(again).predict_proba(CENTERS[:1])[0, 1] > 0.99
    x, y = rows(90, np.random.default_rng(0))
    labels = np.where(y == 0, mn.OUT_OF_SCOPE, y.astype(str))
    clf = mn.DAMClassifier(6, objective="conditional", search=None, random_state=0).fit(x, labels)
    fewer = interpret.without_memories(clf.model_, [0])
    small = interpret.shrink(fewer, x[y > 0], labels[y > 0], n_memories=3)
    assert float(small.votes.p.sum()) == pytest.approx(1.0, abs=1e-9)
    assert mn.as_estimator(small).score(x[y > 0], labels[y > 0]) > 0.5
    none = interpret.relabel_memory(alone, 0, None)
    with pytest.raises(ValueError, match="every memory is of none of the classes: relabel one"):
        interpret.shrink(none, x[y < 2], y[y < 2], n_memories=1)


# Thresholds


@pytest.mark.parametrize(
    ("scores", "right", "told"),
    [
        ([0.1, np.nan, 0.3], [1, 1, 1], "scores must be one number per row, got 1 NaN"),
        ([[0.1], [0.2]], [1, 1], r"scores must be one number per row, got shape \(2, 1\)"),
        ([0.1, 0.2, 0.3], [1, 1], r"right must be 3 truth values, one per score, got shape \(2,\)"),
        ([0.1, 0.2], [1, 7], "right must be 2 truth values"),
        ([], [], "0 labeled held-out rows support 0 at most"),
    ],
)
def test_bad_scores_are_refused(scores, right, told):
    with pytest.raises(ValueError, match=told):
        interpret.accuracy_threshold(scores, right, 0.9)
    if told.startswith("scores"):
        with pytest.raises(ValueError, match=told):
            interpret.rejection_threshold(scores, 0.5)


def test_the_risk_grows_with_every_fall_below_the_target():
    """Accuracy of scores up to t: it falls below 0.9 at 0.2, rises above at 0.4, falls at 0.8."""
    alpha, n, rng, broken = 0.4, 400, np.random.default_rng(0), 0
    ends = np.array([0.0, 0.2, 0.3, 0.5, 1.0])
    chance = np.array([0.92, 0.83, 0.97, 0.8])
    grid = np.linspace(0, 1, 1001)[1:]
    true = np.interp(grid, ends, np.append(0, np.cumsum(chance * np.diff(ends)))) / grid
    assert np.sum((true[1:] < 0.9) & (true[:-1] >= 0.9)) == 2
    for _ in range(200):
        scores = rng.random(n)
        right = rng.random(n) < chance[np.searchsorted(ends, scores) - 1]
        try:
            limit = interpret.accuracy_threshold(scores, right, 0.9, confidence_level=1 - alpha)
        except ValueError:
            continue
        broken += np.interp(min(limit, 1.0), grid, true) < 0.9
    assert broken / 200 < 1.5 * alpha
