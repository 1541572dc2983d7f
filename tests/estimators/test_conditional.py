"""The conditional objective through `fit`: which rows judge, what remains, names and noise."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import mnemosphere as mn
from mnemosphere.estimators import class_training, selection
from mnemosphere.model.class_reading import at_temperature
from mnemosphere.model.kernel import accumulate
from mnemosphere.training import side_by_side

refine = import_module("mnemosphere.training.refine")  # its function has the same name
SETTINGS = {"n_memories": 7, "normalize": "standard", "varsigma": 0.7, "random_state": 0}


def rows_of(dataset):
    return {tuple(row) for row in dataset.rows.x.tolist()}


@pytest.fixture
def descents(monkeypatch):
    """What every descent was given: (start, rows, held-out rows, noise)."""
    seen = []
    plain = refine.fit

    def fit(params, dataset, *args, **kwargs):
        noise = kwargs["noise"]
        length = None if noise is None else noise.length
        seen.append((params, dataset, kwargs["validation"], length))
        return plain(params, dataset, *args, **kwargs)

    monkeypatch.setattr(refine, "fit", fit)
    return seen


@pytest.fixture
def turns(monkeypatch):
    """What every descent of several hold-outs was given: (starts, splits, exact steps)."""
    seen = []
    plain = refine._Descent.by_turns

    def by_turns(self, *given):
        seen.append(given)
        return plain(self, *given)

    monkeypatch.setattr(refine._Descent, "by_turns", by_turns)
    return seen


def test_rows_that_judge_take_no_part_in_the_joint_start(make_clusters, turns):
    x, y = make_clusters(rows=307, spread=2.0)
    objective = mn.Refinement(max_iter=4, metric="none")
    mn.DAMClassifier(**SETTINGS, objective=objective, max_iter=4).fit(x, y)
    ((starts, splits, exact),) = turns
    assert len(splits) == 3
    assert (exact.max_iter, exact.tol) == (4, 1e-4)
    for start, (rows, held) in zip(starts, splits, strict=True):
        assert held.n_rows == 102  # a third of each class
        assert {tuple(w) for w in start.w.tolist()} <= rows_of(rows)
        assert not rows_of(rows) & rows_of(held)


@pytest.mark.parametrize(
    ("rows", "classes", "expected"), [(997, 23, 3), (1009, 19, 2), (1009, 23, 1)]
)
def test_hold_outs_are_fewer_where_each_takes_longer(turns, rows, classes, expected):
    rng = np.random.default_rng(1)
    y = np.arange(rows) % classes
    x = rng.normal(size=(classes, 3))[y] + 0.1 * rng.normal(size=(rows, 3))
    objective = mn.Refinement(max_iter=1)
    mn.DAMClassifier(**SETTINGS | {"n_memories": classes}, objective=objective, max_iter=1).fit(
        x, y
    )
    ((_, splits, _),) = turns
    assert len(splits) == expected


@pytest.mark.parametrize(
    ("classes", "memories", "work", "refined"),
    [
        (39, 97, 0, True), (40, 97, 0, False),
        (5, 122, 0, True), (5, 123, 307 * 123 * 8 - 1, False), (5, 123, 307 * 123 * 8, True),
    ],
)  # fmt: skip
def test_what_takes_long_and_gains_little_is_not_refined(
    turns, monkeypatch, classes, memories, work, refined
):
    """Many classes, or less than two rows and a half per memory and much to do; unless asked."""
    monkeypatch.setattr(selection, "_WIDE_WORK", work)
    rng = np.random.default_rng(2)
    y = np.arange(307) % classes
    x = rng.normal(size=(classes, 3))[y] + 0.1 * rng.normal(size=(307, 3))
    settings = SETTINGS | {"n_memories": memories, "max_iter": 1}
    mn.DAMClassifier(**settings).fit(x, y)
    assert bool(turns) == refined
    mn.DAMClassifier(**settings, objective=mn.Refinement(max_iter=1)).fit(x, y)
    assert len(turns) == 1 + refined


@pytest.mark.parametrize(("classes", "passes"), [(39, 50), (40, 10)])
def test_passes_that_take_long_are_few(monkeypatch, classes, passes):
    """Also where there are too many numbers for a refinement: exact steps all the same."""
    rng = np.random.default_rng(3)
    y = np.arange(307) % classes
    x = rng.normal(size=(307, 3))
    settings = SETTINGS | {"n_memories": 97, "tol": 0.0, "objective": "joint"}
    monkeypatch.setattr(selection, "_QUICK_WORK", 0)
    assert mn.DAMClassifier(**settings).fit(x, y).n_iter_ == passes


def test_turns_side_by_side_are_those_alone(make_clusters, turns, monkeypatch):
    """Without noise, and as many rows as a batch has: the path of each hold-out by itself."""
    x, y = make_clusters(rows=211, spread=2.0)
    monkeypatch.setattr(side_by_side, "_SINGLE_ROWS", len(x))
    objective = mn.Refinement(max_iter=5, noise=0.0)
    mn.DAMClassifier(**SETTINGS, objective=objective, max_iter=4).fit(x, y)
    ((starts, splits, exact),) = turns
    descent = refine._Descent(objective, True, True, torch.Generator(), (), 150)
    found = descent.by_turns(starts, splits, exact)
    assert found.stop == 5
    starts = [at_temperature(solved, found.heat) for solved in found.joint]
    solver = descent._plan(starts[0], splits[0][0]).solver
    for params, start, (rows, _) in zip(found.after, starts, splits, strict=True):
        alone = descent._plan(start, rows).params
        state = solver.start(alone)
        for _ in range(found.stop):
            stats = accumulate(alone, rows.rows, objective.rule)
            alone, state = solver.step(alone, state, stats, rows.rows, 1.0)
        for name, tensor in alone.to_tensors().items():
            assert_close(params.to_tensors()[name], tensor, rtol=1e-9, atol=1e-9)


def test_few_rows_are_all_used_in_the_end(make_clusters, descents, monkeypatch):
    x, y = make_clusters(rows=211, spread=2.0)
    plain = refine._Descent.by_turns
    monkeypatch.setattr(refine._Descent, "by_turns", lambda *given: plain(*given)._replace(stop=7))
    model = mn.DAMClassifier(**SETTINGS, objective="conditional", max_iter=12).fit(x, y)
    ((_, rows, held, _),) = descents
    assert held is None
    assert rows.n_rows == 211
    assert len([r for r in model.history_ if r["phase"] == 1]) == 7


def test_a_metric_finds_the_feature_that_matters():
    """Of seven features one tells the classes apart; its relevance comes out largest by far."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(211, 7))
    y = (x[:, 2] > 0).astype(int)
    settings = SETTINGS | {"n_memories": 9}
    model = mn.DAMClassifier(**settings, objective="conditional").fit(x, y)
    relevance = model.relevances_
    assert relevance.argmax() == 2  # by rank: the other six are noise, and keep some size
    assert relevance[2] > 2 * np.delete(relevance, 2).max()
    assert relevance.mean() == pytest.approx(1)
    fresh = rng.normal(size=(401, 7))
    plain = mn.DAMClassifier(**settings, objective=mn.Refinement(metric="none")).fit(x, y)
    truth = (fresh[:, 2] > 0).astype(int)
    assert model.score(fresh, truth) > plain.score(fresh, truth) - 0.02
    assert plain.relevances_ == pytest.approx(np.ones(7))
    assert model.memories_.shape == (9, 7)


def test_where_nothing_is_gained_the_model_is_the_joint_one(make_clusters, monkeypatch):
    monkeypatch.setattr(refine, "_gained", lambda *_, **__: False)
    x, y = make_clusters(rows=151)
    settings = SETTINGS | {"max_iter": 11}
    one = mn.DAMClassifier(**settings, objective="joint").fit(x, y)
    other = mn.DAMClassifier(**settings, objective=mn.Refinement(max_iter=5)).fit(x, y)
    assert other.history_[-1]["phase"] == 0
    assert np.array_equal(one.memories_, other.memories_)
    assert np.array_equal(one.class_weights_, other.class_weights_)


def test_too_few_rows_to_judge_by_are_left_to_the_joint_solution(make_clusters):
    x, y = make_clusters(rows=5)
    one = mn.DAMClassifier(**SETTINGS, objective="joint").fit(x, y)
    other = mn.DAMClassifier(**SETTINGS, objective="conditional").fit(x, y)
    assert np.array_equal(one.class_weights_, other.class_weights_)


@pytest.mark.parametrize(
    ("objective", "meant"),
    [
        ("conditional", mn.Refinement(1.0)),
        (1, mn.Refinement(1.0)),
        (0.5, mn.Refinement(0.5)),
        (mn.Refinement(0.25, noise=0.1), mn.Refinement(0.25, noise=0.1)),
        ("joint", None),
        (0, None),
    ],
)
def test_names_and_numbers_mean_refinements(data, monkeypatch, objective, meant):
    seen = []

    def spy(joint, dataset, refinement, **options):
        seen.append(refinement)
        return joint(dataset, "", False, None)

    monkeypatch.setattr(class_training, "refine", spy)
    mn.DAMClassifier(**SETTINGS, objective=objective, max_iter=1).fit(*data)
    assert seen == ([] if meant is None else [meant])


def test_what_remains_goes_on_where_the_judged_solution_ended():
    """Many rows whose classes mean nothing: the passes that judge are not taken again."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3_101, 3)), rng.integers(0, 2, 3_101)
    settings = SETTINGS | {"objective": mn.Refinement(max_iter=1), "tol": 0}
    history = mn.DAMClassifier(**settings).fit(x, y).history_
    alone = mn.DAMClassifier(**settings | {"objective": "joint"}).fit(x, y).history_
    judged, _, rest = ([r for r in history if r["phase"] == k] for k in range(3))
    assert len(judged) + len(rest) == len(alone)
    assert rest[0]["loss"] < judged[0]["loss"]
    assert rest[-1]["loss"] == pytest.approx(alone[-1]["loss"], rel=1e-2)


def test_where_few_rows_gain_nothing_the_joint_solution_takes_few_passes():
    """Fifteen, where the joint objective alone goes on."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(211, 3)), rng.integers(0, 2, 211)
    settings = SETTINGS | {"n_memories": 41, "tol": 0}
    brief = mn.DAMClassifier(**settings | {"objective": mn.Refinement(max_iter=1)}).fit(x, y)
    alone = mn.DAMClassifier(**settings | {"objective": "joint"}).fit(x, y)
    assert (brief.status_, brief.n_iter_, alone.n_iter_) == ("max_iter", 15, 50)
    for one, other in zip(brief.history_, alone.history_, strict=False):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)


def test_noise_is_an_option(make_clusters, descents):
    x, y = make_clusters(rows=307, spread=2.0)
    for noise in (0, 0.25, "auto"):
        objective = mn.Refinement(noise=noise, max_iter=20)
        mn.DAMClassifier(**SETTINGS, objective=objective, max_iter=2).fit(x, y)
    assert {None, 0.25} <= {length for *_, length in descents}
    start, _, _, length = descents[-1]
    assert length == pytest.approx(min(0.3, np.sqrt(6) / float(start.beta_eff)))


def test_names_of_classes_do_not_matter(make_clusters):
    """Sorted another way, the same classes give the same model to rounding."""
    x, y = make_clusters(rows=97, spread=2.0)
    names = np.array(["b", "c", "a"])
    settings = SETTINGS | {"objective": mn.Refinement(max_iter=5), "precision": "float64"}
    one = mn.DAMClassifier(**settings, max_iter=5).fit(x, y)
    other = mn.DAMClassifier(**settings, max_iter=5).fit(x, names[y])
    assert_close(
        torch.from_numpy(other.predict_proba(x)),
        torch.from_numpy(one.predict_proba(x)[:, np.argsort(names)]),
        rtol=0,
        atol=1e-6,
    )
