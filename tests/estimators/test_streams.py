"""Streams: classes that appear, classes that stop coming, a past that fades."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import mnemosphere as mn
from mnemosphere.model import Batch, from_memories, objectives
from mnemosphere.model.kernel import accumulate
from mnemosphere.numerics import sphere
from mnemosphere.training import FixedPoint
from mnemosphere.training.rehearsal import give_memories, rehearse

N, P, C = 7, 20, 4
CENTERS = np.linalg.qr(np.random.default_rng(3).normal(size=(N, N)))[0][:C]


def rows(label, n, seed):
    rng = np.random.default_rng(seed)
    y = rng.choice(label, n)
    x = CENTERS[y] + 0.25 * rng.normal(size=(n, N))
    return x / np.linalg.norm(x, axis=1, keepdims=True), np.array(["a", "b", "c", "d"])[y]


def stream(*, rehearses, half_life=None):
    model = mn.DAMClassifier(
        P, objective="joint", varsigma=0.8, normalize="none", random_state=0, device="cpu",
        solver=mn.FixedPoint(half_life=half_life),
    )  # fmt: skip
    for phase in ([0, 1], [2, 3]):
        for seed in range(8):
            model.partial_fit(*rows(phase, 60, 10 * phase[0] + seed), rehearse=rehearses)
    return model


def test_new_classes_are_learned_and_old_ones_kept():
    test = {k: rows(k, 200, 99) for k in ([0, 1], [2, 3]) for k in [tuple(k)]}
    kept, lost = stream(rehearses=True, half_life=100), stream(rehearses=False, half_life=100)
    assert kept.classes_.tolist() == ["a", "b", "c", "d"]
    assert kept.score(*test[2, 3]) > 0.97
    assert lost.score(*test[2, 3]) > 0.97
    assert kept.score(*test[0, 1]) > 0.97
    assert lost.score(*test[0, 1]) < kept.score(*test[0, 1])
    # Classes count by the rows there have been; without rehearsal the half-life fades them too.
    np.testing.assert_allclose(
        kept.class_prior_[:-1].sum(), lost.class_prior_[:-1].sum(), atol=0.01
    )
    assert kept.class_prior_[:2].sum() == pytest.approx(kept.class_prior_[2:4].sum(), rel=0.05)
    assert lost.class_prior_[:2].sum() < 0.2
    owners = np.bincount(kept.class_weights_[1:].argmax(1), minlength=C)
    assert (owners >= 3).all()


@pytest.mark.parametrize("rehearses", [False, True])
def test_a_stream_goes_on_after_its_model_was_stored(tmp_path, rehearses):
    """Wherever it is cut: before the new classes, while they get their memories, and after."""
    batches = [rows(phase, 40, 7 * phase[0] + seed) for phase in ([0, 1], [2], [2, 3])
               for seed in range(2)]  # fmt: skip
    models = []
    for stored in (False, True):
        model = mn.DAMClassifier(
            P, objective="joint", varsigma=0.8, normalize="none", random_state=0, device="cpu"
        )
        for batch in batches:
            model.partial_fit(*batch, rehearse=rehearses)
            if stored:
                model.save(tmp_path / "m.safetensors")
                model = mn.load(tmp_path / "m.safetensors")
        models.append(model)
    whole, parts = models
    assert parts.classes_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(parts.memories_, whole.memories_)
    np.testing.assert_array_equal(parts.class_weights_, whole.class_weights_)
    assert parts.beta_ == whole.beta_


@pytest.mark.parametrize("objective", ["joint", "conditional"])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_fitted_model_takes_a_new_class(objective, mixed):
    settings = {"objective": objective, "normalize": "none", "search": None, "random_state": 0}
    model = mn.DAMClassifier(6, **settings).fit(*rows([0, 1, 2], 300, 1))
    old, new = rows([0, 1, 2], 300, 2), rows([3], 200, 3)
    before = model.score(*old)
    x, y = (
        np.concatenate(parts) for parts in zip(rows([3], 20, 4), rows([0, 1], 50, 5), strict=True)
    )
    n = 70 if mixed else 20
    if mixed and objective == "conditional":
        with pytest.warns(UserWarning, match="'d' is new: the 50 rows of known classes are left"):
            model.partial_fit(x[:n], y[:n])
    else:
        model.partial_fit(x[:n], y[:n])
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert model.objective_ == objective
    assert model.score(*new) > 0.9
    assert model.score(*old) > before - 0.02


@pytest.fixture
def model():
    generator = torch.Generator().manual_seed(0)
    w = sphere.sample_uniform(P, N, generator=generator, dtype=torch.float64)
    params = from_memories(w, torch.tensor([0.5, 0.4, 0.1]).double(), beta=9.0, varsigma=0.8)
    label = torch.arange(P) % 2
    p = objectives.soft_labels(label, 2, 0.1, dtype=torch.float64) * params.p_h[1:, None]
    p = torch.cat([params.p[:1], p])
    return params.replace(p=p, p_q=p.sum(0))


def test_memories_given_come_from_near_neighbors_who_take_over(model):
    p = torch.cat([model.p[:, :2], 1e-6 * model.p_h[:, None], model.p[:, 2:]], 1)
    wide = model.replace(p=p, p_q=p.sum(0))
    state = FixedPoint().resume(wide)
    x, _ = rows([2], 30, 5)
    q = objectives.soft_labels(torch.full((30,), 2), 3, 0.1, dtype=torch.float64)
    batch = Batch(torch.from_numpy(x), q)
    due = torch.tensor([8.0, 8.0, 4.0, 0.0], dtype=torch.float64)
    new, after = give_memories(wide, state, batch, due, [2])
    moved = (new.w != wide.w).any(1)
    assert int(moved.sum()) == 4
    assert all(bool((batch.x == w).all(1).any()) for w in new.w[moved])
    assert (new.p[1:][moved].argmax(1) == 2).all()
    # What went over to the heirs, and the new mass, is all that changed.
    mass = 0.3 * float(state["p_bar"].sum()) / P
    total = after["p_bar"].sum() - 4 * mass
    torch.testing.assert_close(total, state["p_bar"].sum())
    same, _ = give_memories(wide, state, batch, torch.zeros(4).double(), [2])
    assert torch.equal(same.w, wide.w)


def test_rehearsed_rows_weigh_as_the_rows_there_have_been(model):
    x, _ = rows([2], 40, 6)
    batch = Batch(torch.from_numpy(x), torch.eye(3).double()[[0]].expand(40, -1))
    counts = torch.tensor([300.0, 100.0]).double()
    filled = rehearse(
        model, torch.tensor([1]), batch, counts, torch.eye(3).double()[[1]],
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    filled.check(model)
    mass = filled.sample_weight @ filled.targets
    assert float(mass[1] / mass[0]) == pytest.approx(3.0)
    assert filled.n_rows == 120
    drawn = filled.x[40:]
    own = model.p[1:, 1]
    assert float(((drawn @ model.w.T) @ (own / own.sum())).mean()) > 0  # near memories of the class


def test_the_half_life_is_in_rows(model):
    generator = torch.Generator().manual_seed(2)
    x = sphere.sample_uniform(50, N, generator=generator, dtype=torch.float64)
    batch = Batch(x, torch.eye(3).double()[torch.arange(50) % 2])
    solver = FixedPoint(50, half_life=50.0)
    before = {**solver.resume(model), "passes": torch.tensor(9.0).double()}
    stats = accumulate(model, batch, objectives.joint)
    _, after = solver.step(model, before, stats, batch, 0.05)
    torch.testing.assert_close(after["w_bar"], (before["w_bar"] + stats.w_bar / 50) / 2)
    with pytest.raises(ValueError, match="half_life must be > 0"):
        FixedPoint(half_life=0)


def test_a_stream_begins_with_more_than_one_class():
    model = mn.DAMClassifier(P, random_state=0)
    with pytest.raises(ValueError, match="the first batch has one class, 'a': begin with rows of"):
        model.partial_fit(*rows([0], 30, 0))
    with pytest.raises(ValueError, match="the first batch has one class"):
        model.partial_fit(*rows([0], 30, 0), classes=["a", "b"])


def test_batches_of_one_class_each_are_learned():
    model = mn.DAMClassifier(P, normalize="none", random_state=0).partial_fit(*rows([0, 1], 60, 0))
    for seed, label in enumerate([2, 3, 0, 1, 2, 3]):
        model.partial_fit(*rows([label], 40, seed))
        assert np.isfinite(model.memories_).all()
    x, y = rows([0, 1, 2, 3], 300, 99)
    assert model.score(x, y) > 0.9


@pytest.mark.parametrize("container", [list, pd.Series, lambda y: y.astype(object)])
def test_a_new_class_in_any_container(container):
    model = mn.DAMClassifier(P, normalize="none", search=None, random_state=0)
    x, y = rows([0, 1], 60, 0)
    model.fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a model of the conditional likelihood leaves out
        x, y = rows([2], 20, 1)
        model.partial_fit(x, container(y))
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert np.mean(model.predict(x) == "c") > 0.8
