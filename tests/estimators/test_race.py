"""The race of settings: who takes part, who stays, and when many more memories join."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mnemosphere as mn
from choices import clumps
from mnemosphere.data import StoredRows
from mnemosphere.estimators import pilot, race
from mnemosphere.estimators.race import FEW_LOOKS, Look, Race
from mnemosphere.estimators.sample import Sample
from mnemosphere.estimators.selection import choose_n_memories
from mnemosphere.estimators.start import Start


def run(
    x, y, looks=FEW_LOOKS, *, kinds=("standard",), widths=None, varsigma=None, wider=None,
    n_rows=None,
):  # fmt: skip
    """(all trials, those that stayed) of a race of those rows, of n_rows that there are."""
    classes = int(y.max()) + 1
    targets = torch.nn.functional.one_hot(torch.from_numpy(y), classes + 1).double()
    rows = StoredRows.of(x, torch.device("cpu"))
    memories = choose_n_memories(len(x), classes)
    there = Race(
        Sample(rows, targets, None, torch.float64), kinds, widths or [memories],
        n_rows or len(x), Start(memories), varsigma, 0,
    )  # fmt: skip
    return there.run(looks, wider)


def test_of_settings_that_do_alike_a_third_stays(monkeypatch):
    """Labels that mean nothing: all settings are within a few percent of each other."""
    judged = []

    def spied(trials, start, train):
        assert train.keywords["max_iter"] == 5
        judged.append(len(trials))
        return pilot.judge(trials, start, train)

    monkeypatch.setattr(race, "judge", spied)
    rng = np.random.default_rng(3)
    kinds = ["center", "unit", "standard", "whitened", "weighted"]
    x, y = rng.normal(size=(151, 7)), rng.integers(2, size=151)
    trials, left = run(x, y, kinds=kinds, widths=[4, 30])
    first, second, last = judged
    assert first == len(trials) == 96  # eight geometries, two widths, six ς
    assert second == first // 3
    assert len(left) <= last // 2 <= 1 + second // 3  # two hold-outs


@pytest.mark.parametrize(("classes", "widths"), [(11, {22, 40}), (12, {40})])
def test_two_widths_where_the_first_look_tells_them_apart(monkeypatch, classes, widths):
    """Of 600 rows it has a third of 120 memories, and takes three steps."""
    looks = []

    def spied(trials, start, train):
        looks.append(
            (train.keywords["max_iter"], {problem.params.n_memories for problem in trials})
        )
        return [torch.ones(7) for _ in trials]

    monkeypatch.setattr(race, "judge", spied)
    rng = np.random.default_rng(4)
    model = mn.DAMClassifier(objective="joint", max_iter=1, random_state=0)
    model.fit(rng.normal(size=(600, 3)), np.arange(600) % classes)
    assert looks[0] == (3, widths)
    assert {steps for steps, _ in looks[1:]} == {5}


def test_every_loss_is_the_mean_of_its_turns(monkeypatch):
    """At the temperature that suits all of them, those of part of the rows left out."""
    rng = np.random.default_rng(0)
    said = []

    def losses(trials, start, train):
        said.append([torch.from_numpy(rng.uniform(1, 1.01, size=7)) for _ in trials])
        return said[-1]

    monkeypatch.setattr(race, "judge", losses)
    x, y = clumps(3, 1, 101)
    looks = (Look(3, (0,), 2.0, 1.0), Look(1, (0,), 2.0, 1.0), Look(1, (1, 2), 2.0, 1.0))
    trials, left = run(x, y, looks, varsigma=0.7)
    assert trials == left
    (_, (first,), (second, third)) = said
    expected = float(((first + second + third) / 3).min())
    assert trials[0]["log_loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("per_class", "widths", "joins"),
    [(20, None, True), (20, [10, 61], True), (1, [10, 61], False), (1, None, False)],
)
def test_many_more_memories_join_where_classes_are_of_many_clumps(per_class, widths, joins):
    """Unless few do nearly as well, or they are no better."""
    x, y = clumps(5, per_class, 305)
    trials, left = run(x, y, widths=widths, wider=152)
    tried = [t["log_loss"] for t in trials if t["width"] == 152]
    others = [t["log_loss"] for t in trials if t["width"] != 152]
    assert bool(tried) == joins
    if joins:
        assert min(tried) < 0.9 * min(others)
        assert min(left, key=lambda t: t["log_loss"])["width"] == 152


@pytest.mark.parametrize(("few", "tried"), [(0.80, False), (0.76, False), (1.0, True)])
def test_many_more_are_not_even_tried_where_few_do_nearly_as_well(monkeypatch, few, tried):
    seen = set()

    def losses(trials, start, train):
        widths = [problem.params.n_memories for problem in trials]
        seen.update(widths)
        return [torch.tensor([{6: few, 41: 0.78}.get(width, 0.1)]) for width in widths]

    monkeypatch.setattr(race, "judge", losses)
    x, y = clumps(3, 11, 205)
    _, left = run(x, y, widths=[6, 41], wider=102)
    assert seen == ({6, 41, 102} if tried else {6, 41})
    assert ({t["width"] for t in left} == {102}) == tried


def test_those_that_join_have_the_neighbors_of_the_best_varsigma(monkeypatch):
    def losses(trials, start, train):
        return [
            torch.tensor([abs(float(p.params.varsigma) - 0.7) + (p.params.n_memories < 102)])
            for p in trials
        ]

    monkeypatch.setattr(race, "judge", losses)
    x, y = clumps(3, 11, 205)
    trials, _ = run(x, y, wider=102)
    assert [t["varsigma"] for t in trials if t["width"] == 102] == [0.45, 0.7, 0.9]
    trials, _ = run(x, y, wider=102, varsigma=0.5)
    assert [t["varsigma"] for t in trials if t["width"] == 102] == [0.5]


def test_where_all_rows_judge_later_those_that_join_wait_for_them(monkeypatch):
    """They stay in it without being judged again, which would take longest."""
    judged = []

    def losses(trials, start, train):
        widths = [problem.params.n_memories for problem in trials]
        judged.append({*widths})
        return [torch.tensor([0.1 if max(widths) > 41 else 0.8]) for _ in widths]

    monkeypatch.setattr(race, "judge", losses)
    x, y = clumps(3, 11, 205)
    _, left = run(x, y, wider=510, n_rows=1021)
    assert [max(widths) > 41 for widths in judged] == [False, True, False, False]
    assert {t["width"] for t in left} == {41, 510}
    assert all(t["log_loss"] == pytest.approx(0.1) for t in left if t["width"] == 510)


@pytest.mark.parametrize(("loss", "tried"), [(0.019, False), (0.021, True)])
def test_where_there_is_nothing_to_gain_none_join(monkeypatch, loss, tried):
    seen = set()

    def losses(trials, start, train):
        widths = [problem.params.n_memories for problem in trials]
        seen.update(widths)
        return [torch.tensor([loss if width == 41 else 0.0]) for width in widths]

    monkeypatch.setattr(race, "judge", losses)
    x, y = clumps(3, 11, 205)
    run(x, y, wider=102)
    assert seen == ({41, 102} if tried else {41})


def test_classes_of_many_clumps_by_the_defaults():
    x, y = clumps(20, 10, 1_000, features=10, spread=0.4)
    model = mn.DAMClassifier(random_state=0, objective="joint").fit(x[:800], y[:800])
    few = mn.DAMClassifier(160, random_state=0, objective="joint").fit(x[:800], y[:800])
    assert model.n_memories_ == 400
    assert model.score(x[800:], y[800:]) > few.score(x[800:], y[800:]) + 0.1
