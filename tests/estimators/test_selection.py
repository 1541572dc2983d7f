"""What "auto" chooses, on made-up data of which the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special
from scipy.optimize import brentq
from sklearn.datasets import load_iris

import mnemosphere as mn
from choices import chosen, thin
from mnemosphere.data import Normalizer, StoredRows
from mnemosphere.data.normalize import METRICS
from mnemosphere.data.prepare import on_sphere
from mnemosphere.estimators import pilot, selection
from mnemosphere.estimators.selection import choose_n_memories
from mnemosphere.model.memory_graph import sharing_temperature
from mnemosphere.training import few_labels

CPU = torch.device("cpu")


# the number of memories


@pytest.mark.parametrize(
    ("rows", "classes", "expected"),
    [
        (205, 3, 41), (9, 3, 6), (4, 3, 4), (1, 1, 1), (60_000, 10, 1000), (400, 150, 300),
        (0, 2, 1), (1000, 2, 200), (4000, 2, 400), (10_000, 2, 632), (12_000, 2, 1000),
        (4000, 31, 620), (2000, 31, 400),
    ],
)  # fmt: skip
def test_a_fifth_of_the_rows_then_their_root_two_per_class_at_most_a_thousand(
    rows, classes, expected
):
    assert choose_n_memories(rows, classes) == expected


# the normalization


def shapes(seed, rows=151, features=11):
    """The class is the shape of a row; its level and its contrast are anything."""
    rng = np.random.default_rng(seed)
    patterns = np.random.default_rng(99).normal(size=(3, features))
    y = np.arange(rows) % 3
    x = patterns[y] + 0.3 * rng.normal(size=(rows, features))
    return rng.normal(scale=5, size=(rows, 1)) + rng.lognormal(size=(rows, 1)) * x, y


def directions(seed, rows=151, features=11):
    """The class is whether a row points up or down; its length is anything."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    x = np.where(y, 1.0, -1.0)[:, None] + 0.5 * rng.normal(size=(rows, features))
    return 10 ** rng.uniform(-3, 3, size=(rows, 1)) * x, y


def columns(seed, rows=151, features=5):
    """The class is in two columns of small numbers beside others of large ones."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    x = rng.normal(size=(rows, features)) * [1000.0, 300.0, 0.01, 0.001, 100.0]
    x[:, 2] += np.where(y, 0.04, 0.0)
    x[:, 3] -= np.where(y, 0.004, 0.0)
    return x, y


@pytest.mark.parametrize(
    ("make", "classes", "truth"),
    [(shapes, 3, "center"), (directions, 2, "unit"), (columns, 2, "standard")],
)
def test_the_normalization_is_the_one_that_shows_the_classes(make, classes, truth):
    x, y = make(0)
    choice = chosen(x, y, classes, varsigma=0.9, memories=31)
    metrics = set(METRICS) if truth == "standard" else set()  # made for it, too
    assert choice.normalize in {truth} | metrics
    tried = {"center", "unit", "standard", *METRICS}
    assert {trial["normalize"] for trial in choice.trials} == tried
    # Rows never seen are told apart by it, and by each of the others worse.
    fresh = make(1)
    settings = {
        "n_memories": 31, "varsigma": 0.9, "max_iter": 10, "random_state": 0,
        "objective": "joint",
    }  # fmt: skip
    accuracy = {
        kind: mn.DAMClassifier(normalize=kind, **settings).fit(x, y).score(*fresh)
        for kind in ("center", "unit", "standard")
    }
    assert accuracy.pop(truth) > max(accuracy.values()) + 0.02


def test_where_it_makes_no_difference_center_goes_first():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(157, 9))
    x -= x.mean(axis=1, keepdims=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = (x[:, 0] > 0).astype(int)
    choice = chosen(x, y, 2, varsigma=0.5)
    losses = {t["normalize"]: t["log_loss"] for t in choice.trials}
    assert losses["center"] == pytest.approx(losses["unit"], rel=1e-6)
    assert choice.normalize != "unit"


def test_a_normalization_may_lose_one_row_in_twenty():
    x, y = shapes(0, rows=200)
    x[:10] = np.arange(10.0)[:, None]  # constant rows: 5%
    assert chosen(x, y, 3, varsigma=0.9).normalize == "center"
    x[10] = 1.0
    choice = chosen(x, y, 3, varsigma=0.9)
    assert "center" not in {trial["normalize"] for trial in choice.trials}


@pytest.mark.parametrize(
    ("features", "kinds"), [(1, {"standard", *METRICS}), (2, {"unit", "standard", *METRICS})]
)
def test_too_few_features_for_a_sphere(features, kinds):
    x = np.random.default_rng(0).normal(size=(61, features))
    choice = chosen(x, (x[:, 0] > 0).astype(int), 2, varsigma=0.9)
    assert {trial["normalize"] for trial in choice.trials} == kinds


# ς


@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_varsigma_does_nearly_as_well_on_new_rows_as_the_best(make_clusters, spread):
    """The best of seven by rows that the choice never saw."""
    x, y = make_clusters(rows=307, spread=spread)
    fresh = make_clusters(1, rows=997, spread=spread)

    def loss(varsigma):
        model = mn.DAMClassifier(
            31, objective="joint", normalize="unit", varsigma=varsigma, random_state=0
        )
        log_proba = model.set_params(max_iter=20).fit(x, y).predict_log_proba(fresh.x)
        return -log_proba[np.arange(997), fresh.y].mean()

    choice = chosen(x, y, 3, normalize="unit", memories=31)
    losses = [loss(varsigma) for varsigma in np.geomspace(0.05, 1, 7)]
    assert loss(choice.varsigma) < min(losses) + 0.1 * (max(losses) - min(losses))


def test_the_choice_is_the_trial_of_least_loss(make_clusters):
    x, y = make_clusters(rows=307, spread=2.0)
    choice = chosen(x, y, 3, normalize="unit")
    best = min(choice.trials, key=lambda trial: trial["log_loss"])
    (picked,) = (
        t
        for t in choice.trials
        if (t["varsigma"], t["width"]) == (choice.varsigma, choice.n_memories)
    )
    assert picked["log_loss"] == pytest.approx(best["log_loss"], abs=1e-3)
    # Two memories per class, and a fifth of the rows, with the same ς each.
    assert [t["width"] for t in choice.trials] == [6] * 6 + [61] * 6
    grid = [trial["varsigma"] for trial in choice.trials]
    assert grid[:6] == grid[6:] == sorted(grid[:6])
    assert grid[5] == 1.0
    assert choice.shrinkage is None


def test_whitening_helps_where_classes_are_thin():
    choice = chosen(*thin(0), 2)
    assert choice.normalize in METRICS
    assert choice.shrinkage in (0.5, 0.1)
    model = mn.DAMClassifier(objective="joint", random_state=0).fit(*thin(0))
    plain = mn.DAMClassifier(objective="joint", random_state=0, normalize="standard").fit(*thin(0))
    assert model.normalize_ in METRICS
    assert model.score(*thin(1)) > plain.score(*thin(1)) + 0.03


def test_features_of_noise_count_for_nothing():
    """By the defaults, among features of which some tell only a little."""
    x, y = load_iris(return_X_y=True)
    noise = np.random.default_rng(0).normal(size=(150, 3))
    model = mn.DAMClassifier(random_state=0).fit(np.hstack([x, noise]), y)
    assert mn.interpret.relevances(model.model_)[4:].max() < 0.05
    assert mn.interpret.relevances(model.model_)[:4].min() > 0.3


def test_noise_counts_for_nothing_where_features_are_unknown():
    """Gaps of weighted rows are filled in; rows with others get probabilities all the same."""
    x, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    x = np.hstack([x, rng.normal(size=(150, 4))])
    x[rng.random(x.shape) < 0.1] = np.nan
    model = mn.DAMClassifier(random_state=0).fit(x[::2], y[::2])
    assert {trial["normalize"] for trial in model.selection_} == {
        "center", "unit", "standard", "weighted",
    }  # fmt: skip
    assert model.normalize_ == "weighted"
    assert mn.interpret.relevances(model.model_)[4:].max() < 0.1
    assert model.score(x[1::2], y[1::2]) > 0.85
    assert np.isfinite(model.memories_).all()


def test_what_is_given_stays():
    x, y = columns(0)
    assert chosen(x, y, 2, normalize="unit", varsigma=0.3, memories=30) == selection.Choice(
        "unit", 0.3, 30, None, ()
    )
    choice = chosen(x, y, 2, varsigma=0.87)
    assert choice.normalize in ("standard", *METRICS)
    assert choice.varsigma == 0.87
    assert {trial["varsigma"] for trial in choice.trials} == {0.87}
    choice = chosen(x, y, 2, normalize="center")
    assert choice.normalize == "center"
    assert {trial["normalize"] for trial in choice.trials} == {"center"}


def test_the_same_seed_chooses_the_same_and_weights_count(make_clusters):
    x, y = make_clusters(rows=151, spread=2.0)
    settings = {"varsigma": 0.7, "memories": 7}
    plain = chosen(x, y, 3, **settings)
    assert plain == chosen(x, y, 3, **settings)
    assert plain != chosen(x, y, 3, **settings, seed=1)
    weight = torch.rand(151, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert chosen(x, y, 3, **settings, weight=weight) != plain


# few labels


@pytest.mark.parametrize("n", [3, 17, 785])
@pytest.mark.parametrize("beta_eff", [0.5, 7.0, 60.0, 900.0])
@pytest.mark.parametrize("overlap", [0.05, 0.3, 0.9])
def test_varsigma_of_a_slope_against_a_root_finder(n, beta_eff, overlap):
    """ς·A⁻¹(ς·m) = β_eff with Bessel functions of SciPy, kept within [0.05, 1]."""

    def resultant(beta):
        """A_N(β) by the continued fraction of I_{N/2}/I_{N/2−1}, from the far end."""
        ratio = 0.0
        for k in range(4000, -1, -1):
            ratio = beta / (n + 2 * k + beta * ratio)
        return ratio

    if n == 3:  # the continued fraction itself, against Langevin's function
        assert resultant(7.0) == pytest.approx(1 / np.tanh(7.0) - 1 / 7.0, rel=1e-12)
        assert resultant(7.0) == pytest.approx(special.iv(1.5, 7) / special.iv(0.5, 7), rel=1e-12)
    target = overlap * beta_eff
    beta = brentq(lambda b: b * resultant(b) - target, 1e-9, 1e6, xtol=1e-13, rtol=1e-13)
    varsigma = resultant(beta) / overlap
    assert varsigma * beta == pytest.approx(beta_eff, rel=1e-9)  # that is what it means
    expected = min(1.0, max(0.05, varsigma))
    assert pilot._varsigma_for(beta_eff, overlap, n) == pytest.approx(expected, rel=1e-9)


def test_with_hardly_any_labels_the_rows_themselves_set_varsigma(make_clusters):
    """Too few to judge by: the first normalization, and one trial."""
    x, y = make_clusters(rows=307, features=11)
    partly = np.where(np.arange(307) < 12, y, -1)
    choice = chosen(x, partly, 3, memories=31)
    (trial,) = choice.trials
    assert trial["normalize"] == choice.normalize == "center"
    assert trial["varsigma"] == choice.varsigma
    # Other labels, same rows: the same ς.
    assert chosen(x, np.where(partly >= 0, (y + 1) % 3, -1), 3, memories=31).varsigma == (
        choice.varsigma
    )


def test_varsigma_is_the_scale_on_which_a_few_memories_share_a_row():
    """The choice, followed to the end: trained at it, β_eff comes out near that scale."""
    data = mn.data.load("digits")
    y = np.full(len(data.y_train), -1)
    y[:12] = data.y_train[:12]
    model = mn.DAMClassifier(60, unlabeled=-1, random_state=0).fit(data.x_train, y)
    assert model.normalize_ == "center"
    rows = StoredRows.of(data.x_train, CPU)
    x, _ = on_sphere(rows, Normalizer("center"), torch.float64)
    overlap = x[60:] @ x[:60].T
    scale = sharing_temperature(overlap, few_labels.SHARED_BY)
    share = (scale * overlap).softmax(1)
    perplexity = float(torch.special.entr(share).sum(1).mean().exp())
    assert perplexity == pytest.approx(few_labels.SHARED_BY, rel=1e-6)
    assert 0.5 < float(model.params_.beta_eff) / scale < 3


def test_more_labels_judge_the_normalization_and_move_varsigma():
    x, y = columns(0, rows=1201)
    twenty = chosen(x, np.where(np.arange(1201) < 40, y, -1), 2, memories=20)
    assert [t["stage"] for t in twenty.trials] == ["pilot"] * 3
    assert twenty.normalize == "standard"
    many = chosen(x, np.where(np.arange(1201) < 600, y, -1), 2, memories=20)
    stages = [trial["stage"] for trial in many.trials]
    assert stages.count("pilot") == 3
    assert stages.count("fine") >= 2
    assert np.isfinite([trial["log_loss"] for trial in many.trials]).all()
