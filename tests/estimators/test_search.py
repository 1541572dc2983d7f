"""The search: what it chooses on real data, its laws, and its table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from mnemosphere.estimators.crossfit import Candidate, Evaluation, Sample, splits
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mnemosphere as mn
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators import class_training, search
from mnemosphere.model.objectives import soft_labels

TABLES = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer}


def halves(name, seed=0):
    x, y = TABLES[name](return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    half = len(y) // 2
    return x[order[:half]], y[order[:half]], x[order[half:]], y[order[half:]]


@pytest.mark.parametrize("name", TABLES)
def test_regret_on_real_tables_is_small(name):
    x, y, fresh, truth = halves(name)
    model = mn.DAMClassifier(random_state=0).fit(x, y)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, y)
    near = make_pipeline(StandardScaler(), KNeighborsClassifier()).fit(x, y)
    best = max(linear.score(fresh, truth), near.score(fresh, truth))
    assert model.score(fresh, truth) >= best - 0.04
    found = log_loss(truth, model.predict_proba(fresh))
    assert found <= log_loss(truth, linear.predict_proba(fresh)) + 0.1


def test_classes_without_a_straight_border_get_more_memories():
    x, y = make_circles(200, noise=0.05, factor=0.4, random_state=0)
    model = mn.DAMClassifier(random_state=0).fit(x[:120], y[:120])
    assert model.score(x[120:], y[120:]) >= 0.95
    assert model.n_memories_ > 2


def test_labels_of_pure_noise_leave_the_class_frequencies():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(80, 60)), rng.integers(2, size=80)
    model = mn.DAMClassifier(random_state=0).fit(x, y)
    fresh, truth = rng.normal(size=(400, 60)), rng.integers(2, size=400)
    assert log_loss(truth, model.predict_proba(fresh)) < 1.1 * np.log(2)


def test_the_table_says_what_was_chosen(tmp_path):
    x, y, *_ = halves("wine")
    model = mn.DAMClassifier(random_state=0).fit(x, y)
    chosen = [trial for trial in model.search_ if trial["chosen"]]
    assert len(chosen) == 1
    (chosen,) = chosen
    assert chosen["normalize"] == model.normalize_
    assert chosen["objective"] == model.objective_
    last = [trial for trial in model.search_ if trial["rung"] == chosen["rung"]]
    best = min(trial["log_loss"] for trial in last)
    assert chosen["log_loss"] <= best + max(trial["error"] for trial in last)
    rungs = [trial["rung"] for trial in model.search_]
    assert rungs == sorted(rungs)
    counts = np.bincount(rungs)
    assert all(after <= -(-before // search.FACTOR) for before, after in itertools.pairwise(counts))
    assert "chosen" in str(model.search_)
    mn.save(model, tmp_path / "m.safetensors")
    assert mn.load(tmp_path / "m.safetensors").search_ == model.search_


def test_names_of_classes_scales_of_columns_and_the_order_of_rows_do_not_matter():
    x, y, fresh, _ = halves("wine")
    first = mn.DAMClassifier(random_state=0).fit(x, y)
    named = mn.DAMClassifier(random_state=0).fit(x, np.array(["z", "x", "y"])[y])
    np.testing.assert_allclose(
        named.predict_proba(fresh)[:, [2, 0, 1]], first.predict_proba(fresh), atol=1e-6
    )
    order = np.random.default_rng(1).permutation(len(y))
    turned = mn.DAMClassifier(random_state=0).fit(x[order], y[order])
    np.testing.assert_allclose(turned.predict_proba(fresh), first.predict_proba(fresh), atol=1e-6)
    scaled = mn.DAMClassifier(normalize="standard", random_state=0)
    one = scaled.fit(x, y).predict_proba(fresh)
    units = 2.0 ** np.arange(-6, 7)
    np.testing.assert_allclose(
        scaled.fit(x * units, y).predict_proba(fresh * units), one, atol=1e-6
    )


def test_a_number_limits_the_candidates_and_none_searches_nothing():
    x, y, *_ = halves("iris")
    few = mn.DAMClassifier(random_state=0, search=4).fit(x, y)
    assert sum(trial["rung"] == 0 for trial in few.search_) == 4
    plain = mn.DAMClassifier(random_state=0, search=None).fit(x, y)
    assert plain.normalize_ == "standard"
    assert plain.objective_ == "joint"
    assert plain.n_memories_ <= 15
    given = mn.DAMClassifier(
        7, normalize="unit", objective="joint", varsigma=0.8, random_state=0
    ).fit(x, y)
    assert (given.n_memories_, given.normalize_, given.varsigma_) == (7, "unit", 0.8)
    assert len(given.search_) == 1


def sample(y, features=3, missing=False):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(y), features))
    if missing:
        x[3, 1] = np.nan
    targets = soft_labels(torch.as_tensor(y), int(y.max()) + 1, 0.1, dtype=torch.float64)
    return Sample(StoredRows.of(x, torch.device("cpu")), targets, None, torch.float64)


def test_held_out_rows_are_disjoint_and_classes_are_in_proportion():
    y = np.repeat([0, 1, 2], [60, 30, 10])
    parts = splits(sample(y).targets, 80, 20, 5, seed=0)
    held = torch.cat([part.held for part in parts])
    assert sorted(held.tolist()) == list(range(100))
    for part in parts:
        assert not {*part.fitted.tolist()} & {*part.held.tolist()}
        assert len(part.fitted) == 80
        counts = np.bincount(y[part.held], minlength=3)
        assert (np.abs(counts - [12, 6, 2]) <= 2).all()


def test_rows_without_label_are_fitted_and_never_held_out():
    y = np.repeat([0, 1, -1], [20, 20, 30])
    for part in splits(sample(y).targets, 30, 10, 3, seed=0):
        assert (y[part.held] >= 0).all()
        assert (y[part.fitted] == -1).sum() == 30


@pytest.mark.parametrize(
    ("rows", "classes"), [(20, 2), (150, 3), (900, 10), (5000, 2), (10_000, 77), (60_000, 10)]
)
def test_rungs_grow_and_leave_rows_to_hold_out(rows, classes):
    found = search.rungs(rows, classes)
    fitted = [rung[0] for rung in found]
    assert fitted == sorted(fitted)
    assert fitted[-1] == min(rows * 4 // 5, search.MOST_ROWS)
    memories = [rung[3] for rung in found]
    assert memories == sorted(memories)
    assert memories[0] >= classes
    assert memories[-1] >= rows
    for n_fitted, n_held, n_splits, _ in found:
        assert n_fitted + n_held <= rows
        assert n_splits * n_held <= rows
        assert n_held >= 1


def test_no_trial_runs_twice(monkeypatch):
    x, y, *_ = halves("iris")
    ran, plain = [], search.evaluate

    def counted(sample, options, parts, settings):
        ran.extend((own, len(parts), len(parts[0].fitted)) for own in options)
        return plain(sample, options, parts, settings)

    monkeypatch.setattr(search, "evaluate", counted)
    model = mn.DAMClassifier(random_state=0).fit(x, y)
    assert len(ran) == len({*ran}) < len(model.search_)


def evaluation(losses):
    losses = np.asarray(losses, dtype=float)
    both = np.stack([losses, losses], 1)[:, :, None]
    return Evaluation(both, np.ones(len(losses)), 2)


def test_the_simplest_within_one_standard_error_is_chosen():
    noise = np.random.default_rng(0).normal(size=200)
    best = evaluation(0.3 + 0.1 * noise)
    near = evaluation(0.3 + 0.1 * noise + 0.2 * np.random.default_rng(1).normal(size=200) + 0.005)
    far = evaluation(0.4 + 0.1 * noise)
    large = Candidate("weighted", 0.5, 50, "conditional")
    small = Candidate("unit", None, 5, "joint", 1.0)

    def taken(*readings):
        def read(left, _):
            return [readings[options.index(own)] for own in left]

        options = [large, small]
        found = search.halving(options, [(9,)], read, search.facts_of, search.complexity)
        assert [trial["chosen"] for trial in found.trials].index(True) == found.place
        return found.last[found.place][0]

    assert taken(best, near) == small
    assert taken(best, far) == large
    assert taken(near, best) == small


def test_each_rung_keeps_the_best_third():
    def read(left, stage):
        return [evaluation([own / stage[0], own]) for own in left]

    found = search.halving(
        range(20), [(10,), (30,)], read, lambda own, _: {"own": own}, lambda own: own
    )
    assert [trial["own"] for trial in found.trials] == [*range(20), *range(7)]
    assert {(trial["rung"], trial["rows"]) for trial in found.trials} == {(0, 10), (1, 30)}


def test_geometries_that_do_not_suit_the_rows_are_left_out():
    y = np.arange(40) % 2
    assert search.usable(sample(y, 1)) == ["standard", "whitened", "weighted"]
    assert search.usable(sample(y, 3, missing=True)) == ["unit", "center", "standard", "weighted"]
    constant = sample(y, 5)
    constant.rows.values[::3] = 1.0  # no direction once their mean is taken off
    assert "center" not in search.usable(constant)


def test_copies_of_rows_with_other_labels_do_not_look_certain():
    """Twelve points, each with both labels: held-out loss is that of the mixture."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(12, 4))
    x, y = np.repeat(points, 10, axis=0), np.tile([0] * 7 + [1] * 3, 12)
    model = mn.DAMClassifier(random_state=0).fit(x, y)
    entropy = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
    found = log_loss(y, model.predict_proba(x))
    assert found == pytest.approx(entropy, abs=0.05)


def test_the_runner_up_is_used_if_the_trained_model_fails(monkeypatch):
    """A training that goes wrong is noticed on rows, and the table says so."""
    x, y, fresh, truth = halves("wine")
    plain, spoiled = class_training._conditional, []

    def fails_once(*given):
        result, net = plain(*given)
        if not spoiled:
            spoiled.append(given[0])
            net = net.replace(p=net.p.roll(1, 1).roll(1, 0))  # labels of other memories
        return result, net

    monkeypatch.setattr(class_training, "_conditional", fails_once)
    model = mn.DAMClassifier(normalize="standard", objective="conditional", random_state=0)
    model.fit(x, y)
    assert len(spoiled) == 1
    (failed,) = [trial for trial in model.search_ if trial.get("failed")]
    (chosen,) = [trial for trial in model.search_ if trial["chosen"]]
    assert failed != chosen
    assert chosen["normalize"] == "standard"
    assert model.score(fresh, truth) > 0.9
