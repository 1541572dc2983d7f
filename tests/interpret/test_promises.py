"""A promise holds for the votes that it was made with, and for no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

import mnemosphere as mn
from edits import EDITS, known_to
from mnemosphere import interpret
from mnemosphere.export.payload import payload
from mnemosphere.rows.rows import Rows, row_sketch, share_known
from quick_models import built

N, FRESH, HELD = 5, 20_000, 1999
CENTERS = np.random.default_rng(5).normal(size=(7, N))
OF_CENTER = np.array([0, 0, 1, 1, 2, 2, 3])
ROW = load_breast_cancer(return_X_y=True)[0][:1] * 3
EDITED = "not calibrated since fit or the last edit: call calibrate"


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


def of(label, n):
    return rows(n, np.random.default_rng(1), [label])[0]


VOTES = [edit for edit in EDITS if edit != "rename"]
PROMISES = {
    "rate": lambda m, x: m.predict_or_reject(x, 0.1),
    "accuracy": lambda m, x: m.predict_or_reject(x, accuracy=0.8),
    "predict_set": lambda m, x: m.predict_set(x, 0.9),
    "score": lambda m, x: interpret.rejection_score(m.model_, x),
}


def streamed(model):
    return mn.as_estimator(model).partial_fit(*rows(50, np.random.default_rng(2))).model_


@pytest.mark.parametrize("edit", [*VOTES, "partial_fit"])
def test_an_edit_of_the_votes_ends_every_promise(calibrated, edit):
    edited = streamed(calibrated) if edit == "partial_fit" else EDITS[edit](calibrated, of, 3)
    x, _ = rows(7, np.random.default_rng(4))
    for ask in PROMISES.values():
        ask(mn.as_estimator(calibrated), x)
        with pytest.raises(ValueError, match=EDITED):
            ask(mn.as_estimator(edited), x)
    shown = payload(edited, x)
    assert shown["calibration"] is None


def beyond(share, wanted, n_held, n_new):
    """By how many standard deviations a share exceeds the one that was promised."""
    deviation = np.sqrt(wanted * (1 - wanted) * (1 / n_held + 1 / n_new))
    return (share - wanted) / deviation


@pytest.mark.parametrize("edit", VOTES)
def test_calibrated_again_it_keeps_its_promises(calibrated, edit):
    rng = np.random.default_rng(10)

    def draw(n):
        return known_to(edit, [0, 1, 2], *rows(n, rng))

    held = draw(HELD)
    model = mn.as_estimator(EDITS[edit](calibrated, of, 3)).calibrate(*held)
    x, y = draw(FRESH)
    n_held, n = len(held[0]), len(x)
    answers = model.predict_or_reject(x, 0.1)
    assert abs(beyond(np.equal(answers, None).mean(), 0.1, n_held, n)) < 4
    target = 0.95 * model.score(x, y) + 0.05
    sure = model.predict_or_reject(x, accuracy=target, confidence_level=0.999)
    given = ~np.equal(sure, None)
    assert given.mean() > 0.1
    assert np.mean(sure[given] == y[given]) >= target
    for at_least_one in (False, True):
        sets = model.predict_set(x, 0.9, at_least_one=at_least_one)
        inside = [label in found for label, found in zip(y, sets, strict=True)]
        assert beyond(1 - np.mean(inside), 0.1, n_held, n) < 4
        assert all(len(found) for found in sets) or not at_least_one
        if not at_least_one:
            assert beyond(1 - np.mean(inside), 0.1, n_held, n) > -4


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_a_new_name_keeps_every_promise(objective):
    rng = np.random.default_rng(0)
    before = mn.DAMClassifier(objective=objective, random_state=0).fit(*rows(300, rng))
    before.calibrate(*rows(HELD, rng))
    renamed = mn.as_estimator(interpret.map_classes(before.model_, {0: 9}))
    x, _ = rows(500, rng)
    scores = [interpret.rejection_score(model.model_, x) for model in (before, renamed)]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-6)
    for name in ("rate", "accuracy"):
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
        known, held = (Rows.of(x * [1.0, 2.0], torch.device("cpu")) for x in (one, two))
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
        limit = interpret.rejection_threshold(clf.model_.calibration.novelty, 0.1)
        found.append(np.mean(clf.novelty_score(x[89:]) > limit))
    assert 0.05 < np.mean(found) < 0.13  # three standard errors above .1


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
    fewer = interpret.map_classes(clf.model_, {"1": None})
    assert float(fewer.votes.p.sum()) == pytest.approx(1.0, abs=1e-9)
    assert mn.as_estimator(fewer).score(x[y > 1], labels[y > 1]) > 0.5


@pytest.fixture(scope="module", params=["joint", "conditional"])
def cancer(request):
    """A model whose temperature is not 1, and rows that it has not seen."""
    x, y = load_breast_cancer(return_X_y=True)
    settings = {"objective": request.param, "geometry": "standard", "random_state": 0}
    clf = mn.DAMClassifier(4, **settings).fit(x[::2], y[::2])
    assert abs(np.log(clf.temperature_)) > 0.1
    return clf, x, y


def prior_as_it_is(model):
    return interpret.with_class_prior(model, model.votes.p_q[:-1].tolist())


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: interpret.map_classes(m, {}),
        lambda m: interpret.map_classes(m, {0: 0}),
        lambda m: interpret.map_classes(interpret.map_classes(m, {0: 1, 1: 0}), {1: 0, 0: 1}),
        prior_as_it_is,
        lambda m: interpret.map_classes(interpret.add_class(m, ROW, 2), {2: None}),
    ],
    ids=["no class", "the same name", "swapped twice", "the same prior", "in and out"],
)
def test_an_edit_that_changes_nothing_changes_no_probability(cancer, edit):
    clf, x, _ = cancer
    after = mn.as_estimator(edit(clf.model_))
    assert after.temperature_ == clf.temperature_
    np.testing.assert_allclose(after.predict_proba(x), clf.predict_proba(x), rtol=0, atol=1e-9)


def test_a_stream_from_the_conditional_objective_keeps_the_temperature():
    """Labels that nothing predicts: at a temperature of 1 the stream would be far too sure."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(240, 4)), rng.integers(0, 2, 240)
    clf = mn.DAMClassifier(20, objective="conditional", geometry="unit", random_state=0)
    clf.fit(x[:150], y[:150])
    temperature = clf.temperature_
    assert temperature > 2
    with pytest.warns(UserWarning, match="goes on by the joint likelihood"):
        clf.partial_fit(x[150:170], y[150:170])
    assert clf.temperature_ == temperature
    kept, one = (
        model.log_proba(model.stored(x[170:])) for model in (clf.model_, clf.model_.at(1.0))
    )
    wanted = torch.from_numpy(y[170:, None])
    assert -kept.gather(1, wanted).mean() < -one.gather(1, wanted).mean()


def test_the_rows_that_were_trained_on_leave_the_temperature_of_a_stream():
    x, y = load_breast_cancer(return_X_y=True)
    settings = {"objective": "joint", "geometry": "standard", "random_state": 0}
    clf = mn.DAMClassifier(4, **settings).fit(x[::2], y[::2])
    assert clf.temperature_ > 2
    before = log_loss(y[1::2], clf.predict_proba(x[1::2]))
    after = mn.as_estimator(clf.model_).partial_fit(x[::2], y[::2])
    assert after.temperature_ == clf.temperature_
    assert log_loss(y[1::2], after.predict_proba(x[1::2])) < before + 0.005


# Thresholds


@pytest.mark.parametrize(
    ("scores", "right", "told"),
    [
        (
            [0.1, np.nan, 0.3],
            [1, 1, 1],
            r"scores must be one number per row, got shape \(3,\) with 1 NaN",
        ),
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
