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
from mnemosphere.data import StoredRows
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
    assert {trial["ratio"] for trial in choice.trials} == {1.0, 0.71, 0.5, 0.35}
    best = min(choice.trials, key=lambda trial: trial["log_loss"])
    assert smooth == (best["ratio"] < 1.0)

    def loss(varsigma):
        model = mn.DAMClassifier(
            101, varsigma=varsigma, normalize="standard", objective="joint", random_state=0
        ).fit(x[train], y[train])
        return -np.log(model.predict_proba(x[2003:])[np.arange(1998), y[2003:]]).mean()

    grid = {vs: loss(vs) for vs in (0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)}
    assert loss(choice.varsigma) < 1.05 * min(grid.values()) + 0.01
    assert max(grid.values()) > 1.3 * min(grid.values())  # there was something to choose


@pytest.mark.parametrize(("unit", "losses", "ratio"), [
    (0.8, [1.0, 0.9, 1.3, 2.0], 1.0),
    (0.8, [1.18, 1.12, 1.0, 2.0], 0.71),
    (0.8, [2.0, 1.5, 1.2, 1.0], 0.35),
    (1.0, [1.01, 1.0, 1.3, 2.0], 0.71),  # nothing bounds β there: as good is not enough
    (1.0, [1.0, 1.01, 1.3, 2.0], 1.0),
])  # fmt: skip
def test_the_largest_ratio_that_does_nearly_as_well(unit, losses, ratio):
    trials = [
        {"ratio": r, "varsigma": r * unit, "log_loss": loss}
        for r, loss in zip(wide._RATIOS, losses, strict=True)
    ]
    assert wide._steady(trials) == ratio


# Who is tried


def test_what_is_far_behind_as_memories_start_is_not_trained():
    """All ratios of the best with a metric; of all others one, on memories as they start."""
    choice = chosen(*thin(2, rows=1201), 2, memories=40)
    assert choice.normalize in METRICS
    tried = {}
    for trial in choice.trials:
        tried.setdefault((trial["normalize"], trial.get("shrinkage")), []).append(trial["ratio"])
    assert [*tried.values()].count([1.0]) == len(tried) - 1
    assert tried[choice.normalize, choice.shrinkage] == [1.0, 0.71, 0.5, 0.35]


def test_the_best_with_a_metric_and_without_go_on_and_the_simpler_goes_first():
    def trials(*losses):
        return [{"ratio": 1.0, "log_loss": loss} for loss in losses]

    center, unit_rows, white, weighted = (
        wide._Geometry(kind, None) for kind in ("center", "unit", "whitened", "weighted")
    )
    found = {center: trials(3.0, 1.009), unit_rows: trials(1.0), white: trials(1.1)}
    assert wide._leaders(found) == [center, white]
    assert wide._leaders(found | {weighted: trials(1.0)}) == [center, weighted]
    assert wide._leaders(found | {white: trials(1.18)}) == [center]
    assert wide._leaders({center: trials(1.18), white: trials(1.0)}) == [white]
    assert wide._leaders({white: trials(0.0)}) == [white]
    assert wide._preferred({center: 1.02, unit_rows: 1.0, white: 0.995}) == unit_rows


@pytest.fixture
def looks(monkeypatch):
    """(memories, columns, rows fitted) of the problems of every look."""
    seen = []
    plain = wide.judge

    def spied(tried, start, train):
        seen.append({(p.params.n_memories, p.params.n_columns, p.shape[0]) for p in tried})
        return plain(tried, start, train)

    monkeypatch.setattr(wide, "judge", spied)
    return seen


@pytest.mark.parametrize(("rows", "memories", "expected"), [
    (1501, 301, 100),  # at least
    (6007, 1201, 189),  # so that each, and four rows for it, are a fiftieth of all
    (1501, 61, 61),  # as many as there are
])  # fmt: skip
def test_as_many_memories_take_part_as_a_part_of_a_pass_allows(looks, rows, memories, expected):
    x, y = clumps(rows)
    chosen(x, y, 5, normalize="unit", memories=memories)
    assert len(looks) == 2
    for look in looks:
        ((taken, columns, fitted),) = look
        assert (taken, columns) == (expected, 6)
        assert fitted == pytest.approx(4 * max(expected, 100), abs=4)  # classes in proportion


def test_of_many_classes_some_are_tried_with_their_part_of_the_memories(looks, monkeypatch):
    monkeypatch.setattr(selection, "MANY_CLASSES", 3)
    x, y = clumps(1501, classes=6)
    choice = chosen(x, y, 6, normalize="unit", memories=151)
    ((memories, columns, _),) = looks[0]
    assert columns == 4
    assert memories == pytest.approx(75, abs=8)
    assert choice.n_memories == 151


@pytest.mark.parametrize(
    ("classes", "memories", "rows"), [(5, 151, 4000), (5, 4001, 5002), (101, 151, 10_000)]
)
def test_no_more_rows_are_taken_than_are_looked_at(monkeypatch, classes, memories, rows):
    taken = []
    plain = StoredRows.take

    def spied(stored, which):
        taken.append(len(which))
        return plain(stored, which)

    monkeypatch.setattr(StoredRows, "take", spied)
    x, y = clumps(11_003, classes=classes)
    chosen(x, y, classes, normalize="unit", memories=memories)
    assert max(taken) == pytest.approx(rows, abs=2)


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
