"""What "auto" means for wide models: ς by how many memories share a row, and who is tried."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import brentq

import choices
import mnemosphere as mn
from choices import chosen, targets_of, thin
from mnemosphere.data.normalize import METRICS
from mnemosphere.estimators import pilot, selection, wide
from mnemosphere.estimators.start import Start
from mnemosphere.model.batch import Batch


@pytest.fixture(autouse=True)
def _too_many_rows_to_refine(monkeypatch):
    """However few they are."""
    monkeypatch.setattr(selection, "_QUICK_WORK", 0)


def clumps(rows, classes=5, per_class=4):
    return choices.clumps(classes, per_class, rows, features=23, spread=0.5)


def many_clumps(rows):
    return clumps(rows, per_class=8)


def halves(rows, *, features=17, noise=0.7, seed=0):
    """Two classes on either side of a plane through one cloud: there are no clumps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    return x, (x[:, 0] + noise * rng.normal(size=rows) > 0).astype(int)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# The rule


@pytest.mark.parametrize("weighted", [False, True])
def test_varsigma_of_sharing_against_a_root_finder(weighted):
    """Shares with NumPy, their mean entropy log k by bisection, then the ς with β·ς = κ."""
    rng = np.random.default_rng(0)
    x = unit(clumps(307)[0])
    weight = rng.uniform(0.1, 3, size=196) if weighted else None
    memories = Batch(torch.from_numpy(x[:111]), torch.zeros(111, 1).double())
    rows = Batch(
        torch.from_numpy(x[111:]), torch.zeros(196, 1).double(),
        None if weight is None else torch.from_numpy(weight),
    )  # fmt: skip
    overlap = x[111:] @ x[:97].T  # so many memories

    def shares(kappa):
        h = kappa * (overlap - overlap.max(1, keepdims=True))
        return np.exp(h) / np.exp(h).sum(1, keepdims=True)

    def surplus(kappa):
        share = shares(kappa)
        entropy = -(share * np.log(np.maximum(share, 1e-300))).sum(1)
        return np.average(entropy, weights=weight) - np.log(3.1)

    kappa = brentq(surplus, 0.01, 1e4, xtol=1e-12)
    mean = np.average((shares(kappa) * overlap).sum(1), weights=weight)
    found = pilot.shared_varsigma(memories, rows, Start(97), 3.1)
    assert found == pytest.approx(pilot._varsigma_for(kappa, mean, 23), rel=1e-7)
    assert 0.05 < found < 1
    given = pilot.shared_varsigma(memories, rows, Start(97, beta=3 * kappa), 3.1)
    assert given == pytest.approx(1 / 3, rel=1e-7)


def test_the_choice_is_the_varsigma_by_which_a_few_memories_share_a_row():
    """Whatever the rows of the choice are, those of the training data have the same."""
    x, y = clumps(1511, per_class=30)
    choice = chosen(x, y, 5, normalize="unit", memories=151)
    on_sphere = torch.from_numpy(unit(x))
    first, others = (
        Batch(part, torch.zeros(len(part), 1)) for part in on_sphere.split([151, 1360])
    )
    expected = pilot.shared_varsigma(first, others, Start(151), 151**0.18)
    assert choice.varsigma == pytest.approx(expected, rel=0.05)
    assert choice.n_memories == 151


@pytest.mark.parametrize(
    ("make", "smooth"), [(many_clumps, False), (halves, True)], ids=["clumps", "no clumps"]
)
def test_it_does_nearly_as_well_on_new_rows_as_the_best(make, smooth):
    x, y = make(4001)
    classes, train = int(y.max()) + 1, slice(0, 2003)
    choice = chosen(x[train], y[train], classes, normalize="standard", memories=101)
    tried = {t["ratio"] for t in choice.trials if t["stage"] == "fine"}
    assert smooth == bool(tried - {1.0})

    def loss(varsigma):
        model = mn.DAMClassifier(
            101, varsigma=varsigma, normalize="standard", objective="joint", random_state=0
        ).fit(x[train], y[train])
        return -np.log(model.predict_proba(x[2003:])[np.arange(1998), y[2003:]]).mean()

    grid = {vs: loss(vs) for vs in (0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)}
    assert loss(choice.varsigma) < 1.05 * min(grid.values()) + 0.01
    assert max(grid.values()) > 1.3 * min(grid.values())  # there was something to choose


@pytest.mark.parametrize(("losses", "ratio"), [
    ([1.0, 0.95, 1.3, 2.0], 1.0), ([1.08, 1.02, 1.0, 2.0], 0.71), ([2.0, 1.5, 1.2, 1.0], 0.35),
])  # fmt: skip
def test_the_largest_ratio_that_does_nearly_as_well(losses, ratio):
    trials = [{"ratio": r, "log_loss": loss} for r, loss in zip(wide._RATIOS, losses, strict=True)]
    assert wide._steady(trials) == ratio


# Who is tried


@pytest.mark.parametrize(("rows", "small_part"), [(1201, False), (2003, True)])
def test_a_metric_that_is_far_ahead_has_to_win_where_the_pilot_sees_a_small_part(
    monkeypatch, rows, small_part
):
    """Of few rows the pilot is right: what is far behind there has no place in the last trials."""
    monkeypatch.setattr(selection, "QUICK_ROWS", 2000)
    choice = chosen(*thin(2, rows=rows), 2, memories=40)
    fine = {trial["normalize"] in METRICS for trial in choice.trials if trial["stage"] == "fine"}
    assert (False in fine) == small_part
    assert choice.normalize in METRICS
    pilot_losses = {}
    for trial in choice.trials:
        if trial["stage"] == "pilot":
            kind = trial["normalize"] in METRICS
            pilot_losses[kind] = min(trial["log_loss"], pilot_losses.get(kind, np.inf))
    assert 1.15 * pilot_losses[True] + 0.02 < pilot_losses[False]


def test_where_there_is_nothing_to_decide_there_are_no_last_trials():
    x, y = clumps(1511, per_class=30)
    choice = chosen(x, y, 5, normalize="unit", memories=151)
    assert {trial["stage"] for trial in choice.trials} == {"pilot"}
    assert {trial["ratio"] for trial in choice.trials} == {1.0, 0.71, 0.5, 0.35}


def test_geometries_are_told_apart_by_their_best_ratio_and_the_simpler_goes_first():
    def trials(*losses):
        return [{"ratio": 1.0, "log_loss": loss} for loss in losses]

    center, unit_rows, white = (
        wide._Geometry(kind, None) for kind in ("center", "unit", "whitened")
    )
    found = {center: trials(3.0, 1.009), unit_rows: trials(1.0), white: trials(0.999)}
    assert wide._leaders(found) == [center, white]
    assert wide._leaders(found, of_all=True) == [unit_rows]
    assert wide._hopeful({center: trials(1.18), white: trials(1.0)}, doubtful=False) == {white: 1.0}
    hopeful = wide._hopeful({center: trials(1.18), white: trials(1.0)}, doubtful=True)
    assert [*hopeful] == [center, white]
    assert [*wide._hopeful({center: trials(1.0), white: trials(1.18)}, doubtful=True)] == [center]


def test_last_trials_have_half_of_the_memories_and_some_of_many_classes(monkeypatch):
    seen = []
    plain = wide.judge

    def spied(tried, start, steps):
        seen.extend((p.params.n_memories, p.params.n_columns, p.shape[0]) for p in tried)
        return plain(tried, start, steps)

    monkeypatch.setattr(wide, "judge", spied)
    monkeypatch.setattr(wide, "FINE_CLASSES", 3)
    x, y = clumps(1501, classes=6)
    chosen(x, y, 6, normalize="unit", memories=301)
    assert seen[0][0] == 66  # a third of the pilot's 200
    memories, columns, fitted = seen[-1]
    assert columns == 4
    assert memories == pytest.approx(75, abs=10)
    assert fitted < 450  # two fifths of half of the rows


# Whatever comes


def test_what_is_given_stays():
    x, y = clumps(1201)
    choice = chosen(x, y, 5, varsigma=0.37, memories=61)
    assert choice.varsigma == 0.37
    assert {trial["varsigma"] for trial in choice.trials} == {0.37}
    choice = chosen(x, y, 5, normalize="unit", varsigma=0.37, memories=61)
    assert (choice.normalize, choice.varsigma, choice.trials) == ("unit", 0.37, ())
    choice = chosen(x, y, 5, normalize="whitened", varsigma=0.37, memories=61)
    assert choice.normalize == "whitened"
    assert choice.shrinkage in (0.5, 0.1)


def test_the_same_seed_chooses_the_same_and_weights_count():
    x, y = halves(1201)
    plain = chosen(x, y, 2, memories=61)
    assert plain == chosen(x, y, 2, memories=61)
    assert plain != chosen(x, y, 2, memories=61, seed=1)
    weight = torch.rand(1201, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert chosen(x, y, 2, memories=61, weight=weight) != plain


@pytest.mark.parametrize("memories", [1, 2, 1201])
def test_from_one_memory_to_one_per_row(memories):
    x, y = clumps(1201)
    choice = chosen(x, y, 5, memories=memories)
    assert choice.n_memories == memories
    assert 0.05 <= choice.varsigma <= 1


def test_features_that_are_not_known_and_sparse_rows():
    x, y = clumps(1301)
    gaps = np.where(np.random.default_rng(1).uniform(size=x.shape) < 0.1, np.nan, x)
    choice = chosen(gaps, y, 5, memories=61)
    assert choice.normalize != "whitened"
    assert 0.05 <= choice.varsigma <= 1
    model = mn.DAMClassifier(61, objective="joint", random_state=0)
    model.fit(sparse.csr_matrix(np.where(np.abs(x) > 0.5, x, 0.0)), y)
    assert model.normalize_ in ("center", "unit", "standard")
    assert model.score(np.where(np.abs(x) > 0.5, x, 0.0), y) > 0.9


def test_beta_as_given_has_a_varsigma_of_its_own():
    x, y = clumps(1201)
    model = mn.DAMClassifier(61, beta=60.0, objective="joint", random_state=0).fit(x, y)
    assert float(model.params_.beta) == 60.0
    assert model.score(x, y) > 0.95


def test_before_a_refinement_of_few_rows_and_of_few_labels_it_is_not_asked(monkeypatch):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(selection, "choose_wide", never)
    x, y = thin(2, rows=1201)
    with pytest.raises(AssertionError):
        chosen(x, y, 2, memories=40)
    chosen(x, y, 2, memories=40, refined=True)
    chosen(x[:999], y[:999], 2, memories=40)
    monkeypatch.setattr(selection, "_QUICK_WORK", 10**6)
    chosen(x, y, 2, memories=40)
    partly = np.where(np.arange(1201) < 700, y, -1)
    chosen(x, partly, 2, memories=40)
    assert targets_of(partly, 2).sum() == 700
