"""The second stage of "auto": what takes part, at which width, and how far ς moves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import mnemosphere as mn
from choices import chosen, thin
from mnemosphere.data.normalize import METRICS
from mnemosphere.estimators import pilot, race, selection


@pytest.mark.parametrize(("limit", "kinds"), [(1.5, {True, False}), (1.15, {True})])
def test_what_is_far_behind_in_the_pilot_has_no_place_in_the_fine_stage(monkeypatch, limit, kinds):
    """A metric is 20% ahead there; few memories favor it, so what is nearer is tried again."""
    monkeypatch.setattr(selection, "HOPELESS", limit)
    choice = chosen(*thin(2, rows=1201), 2)
    fine = [trial for trial in choice.trials if trial["stage"] == "fine"]
    assert {trial["normalize"] in METRICS for trial in fine} == kinds


@pytest.mark.parametrize(("loss", "width"), [(0.89, 600), (0.91, 240)])
def test_many_more_memories_have_to_be_far_ahead_with_all_rows_too(monkeypatch, loss, width):
    """The pilot has 200 clumps and as many memories; with all of them there may be enough."""
    rng = np.random.default_rng(0)
    y = np.arange(1201) % 20
    places = rng.normal(size=(20, 10, 20))
    x = places[y, rng.integers(10, size=1201)] + 0.7 * rng.normal(size=(1201, 20))
    seen = []

    def told(data, start, vs):
        seen.append(start.n_memories)
        return loss if start.n_memories == 600 else 1.0

    monkeypatch.setattr(selection, "held_out_loss", told)
    choice = chosen(x, y, 20)
    pilot = {}
    for trial in choice.trials:
        if trial["stage"] == "pilot":
            known = pilot.get(trial["width"], np.inf)
            pilot[trial["width"]] = min(known, trial["log_loss"])
    assert pilot[600] < 0.85 * pilot[240]  # by which others would be out
    assert {240, 600} <= set(seen)
    assert choice.n_memories == width


def test_of_many_rows_nothing_is_left_out_by_the_pilot(monkeypatch):
    """A metric is far ahead there; many memories may do without it."""
    monkeypatch.setattr(selection, "HOPELESS", 1.0)
    monkeypatch.setattr(selection, "PILOT_ROWS", 300)
    monkeypatch.setattr(race, "PILOT_ROWS", 300)
    for most, kinds in ((500, {True}), (300, {True, False})):
        monkeypatch.setattr(selection, "QUICK_ROWS", most)
        choice = chosen(*thin(2, rows=401), 2)
        fine = [trial for trial in choice.trials if trial["stage"] == "fine"]
        assert {trial["normalize"] in METRICS for trial in fine} == kinds


@pytest.mark.parametrize("quick_rows", [100, 10_000])
def test_one_class_of_more_rows_than_the_pilot_has(monkeypatch, quick_rows):
    """Nothing is to be told apart, and the loss is 0; of many rows too, which are not refined."""
    monkeypatch.setattr(selection, "QUICK_ROWS", quick_rows)
    x = np.random.default_rng(0).normal(size=(1201, 4))
    choice = chosen(x, np.zeros(1201, dtype=int), 1)
    assert {trial["log_loss"] for trial in choice.trials} == {0.0}
    assert choice.normalize == "center"


def test_more_rows_than_the_pilot_are_tried_at_the_full_width(make_clusters):
    """From the pilot's ς upwards or downwards, as long as the loss falls."""
    x, y = make_clusters(rows=1201, spread=2.0)
    choice = chosen(x, y, 3, normalize="unit", memories=40)
    pilot = [t for t in choice.trials if t["stage"] == "pilot"]
    fine = [t for t in choice.trials if t["stage"] == "fine"]
    assert fine[0]["varsigma"] in [t["varsigma"] for t in pilot]
    assert len(fine) >= 2
    best = min(fine, key=lambda trial: trial["log_loss"])
    assert choice.varsigma == best["varsigma"]
    # Its neighbors were tried, unless it lies at an end.
    tried = sorted(t["varsigma"] for t in fine)
    place = tried.index(choice.varsigma)
    assert choice.varsigma in (0.05, 1.0) or 0 < place < len(tried) - 1 or len(tried) == 2


def test_some_of_many_classes_take_part_in_the_fine_stage(monkeypatch):
    """With their share of the memories; the others are none of its business."""
    seen = []

    def spied(data, start, varsigma):
        targets = torch.cat([data.fitted.rows.targets, data.judged.rows.targets])
        labels = targets[:, :-1].argmax(1)
        seen.append((len(labels), start.n_memories, targets.shape[1], len(set(labels.tolist()))))
        return pilot.held_out_loss(data, start, varsigma)

    monkeypatch.setattr(selection, "held_out_loss", spied)
    monkeypatch.setattr(selection, "FINE_CLASSES", 3)
    rng = np.random.default_rng(7)
    y = np.repeat(np.arange(5), [401, 307, 211, 101, 31])[rng.permutation(1051)]
    x = rng.normal(size=(5, 3))[y] + 0.5 * rng.normal(size=(1051, 3))
    settings = {"normalize": "unit", "objective": "joint", "max_iter": 1, "random_state": 0}
    mn.DAMClassifier(103, **settings).fit(x, y)
    (n_rows, memories, columns, classes), *_ = seen
    assert (columns, classes) == (4, 3)
    assert n_rows in {sum(some) for some in itertools.combinations((401, 307, 211, 101, 31), 3)}
    assert memories == round(103 * n_rows / 1051)


@pytest.mark.parametrize(("rows", "classes", "turns"), [(1009, 11, 2), (1009, 12, 1), (997, 12, 2)])
def test_several_classes_have_one_hold_out_less_where_a_stage_follows(
    monkeypatch, rows, classes, turns
):
    seen = []
    plain = race.Race.run

    def run(self, looks, wider):
        seen.append([len(look.turns) for look in looks])
        return plain(self, looks, wider)

    monkeypatch.setattr(race.Race, "run", run)
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(rows, 3)), np.arange(rows) % classes
    settings = {"normalize": "unit", "objective": "joint", "max_iter": 1, "random_state": 0}
    mn.DAMClassifier(40, **settings).fit(x, y)
    assert seen == [[1, 1, turns]]


def test_rows_without_label_all_take_part_in_the_fine_stage(monkeypatch):
    """They belong to no class, so that none can be left out."""
    seen = []

    def spied(data, start, varsigma):
        seen.append((data.fitted.n_rows + data.judged.n_rows, start.n_memories))
        return 1.0

    monkeypatch.setattr(selection, "held_out_loss", spied)
    monkeypatch.setattr(selection, "FINE_CLASSES", 3)
    rng = np.random.default_rng(7)
    y = np.arange(1051) % 5
    x = rng.normal(size=(5, 3))[y] + 0.5 * rng.normal(size=(1051, 3))
    y[600:] = -1
    settings = {"normalize": "unit", "objective": "joint", "max_iter": 1, "random_state": 0}
    mn.DAMClassifier(103, unlabeled=-1, **settings).fit(x, y)
    assert set(seen) == {(1051, 103)}
