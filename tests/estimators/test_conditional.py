from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import mnemosphere as mn
from mnemosphere.cli.settings import Settings
from mnemosphere.estimators import classifier, refinement
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.objectives import conditional
from mnemosphere.training.batches import Data
from mnemosphere.training.callbacks import Callback

SETTINGS = {"n_memories": 7, "normalize": "standard", "varsigma": 0.7, "random_state": 0}


def rows_of(data):
    return {tuple(row) for row in data.x.tolist()}


def spied(monkeypatch):
    """What every descent was given: (rows, held-out rows)."""
    seen = []
    plain = refinement.descend

    def descend(params, data, held, *args, **kwargs):
        seen.append((params, data, held))
        return plain(params, data, held, *args, **kwargs)

    monkeypatch.setattr(refinement, "descend", descend)
    return seen


def random_rows(classes, seed=0, features=5):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(classes), features, generator=generator, dtype=torch.float64)
    q = torch.nn.functional.one_hot(torch.tensor(classes).clamp_min(0), 4).double()
    q[torch.tensor(classes) < 0] = 0
    return Data(x / x.norm(dim=1, keepdim=True), q)


def test_held_out_rows_are_apart_and_in_proportion():
    data = random_rows([0] * 100 + [1] * 57 + [2] * 6 + [-1] * 83)
    rows, held = refinement.hold_out(data, 0.13, torch.Generator().manual_seed(1))
    assert rows_of(rows) | rows_of(held) == rows_of(data)
    assert not rows_of(rows) & rows_of(held)
    # ⌊0.13·100⌋, ⌊0.13·57⌋, and none of a class with fewer than 1/0.13 rows or without label.
    assert held.targets.sum(0).tolist() == [13, 7, 0, 0]
    assert (held.targets.sum(1) == 1).all()


def test_few_rows_give_more_of_themselves():
    data = random_rows([0, 1, 2] * 20)
    _, held = refinement.hold_out(data, 0.1, torch.Generator())
    assert held.n_rows == 18  # a third of each class, rounded down
    assert refinement.hold_out(random_rows([0, 1, 2, 0]), 0.1, torch.Generator())[1] is None


def test_rows_that_judge_take_no_part_in_the_joint_start(make_clusters, monkeypatch):
    x, y = make_clusters(rows=307, spread=2.0)
    joint = []
    plain = classifier.train

    def train(params, data, *args, **kwargs):
        joint.append((data, plain(params, data, *args, **kwargs)))
        return joint[-1][1]

    monkeypatch.setattr(classifier, "train", train)
    seen = spied(monkeypatch)
    mn.DAMClassifier(**SETTINGS, objective="conditional", max_epochs=4).fit(x, y)
    (fitted, result), (start, rows, held) = joint[0], seen[0]
    assert held.n_rows == 30
    assert start is result.params
    assert not rows_of(fitted) & rows_of(held)
    assert not rows_of(rows) & rows_of(held)


def test_few_rows_are_all_used_in_the_end(make_clusters, monkeypatch):
    x, y = make_clusters(rows=211, spread=2.0)
    seen = spied(monkeypatch)
    model = mn.DAMClassifier(**SETTINGS, objective="conditional", max_epochs=12).fit(x, y)
    assert len(seen) == 2
    _, rows, held = seen[1]
    assert held is None
    assert rows.n_rows == 211
    judged = [r["validation_loss"] for r in model.history_ if r["phase"] == 1]
    repeated = [r for r in model.history_ if r["phase"] == 3]
    assert len(repeated) == 1 + int(np.argmin(judged))


def test_where_nothing_is_gained_the_model_is_the_joint_one(make_clusters):
    x, _ = make_clusters(rows=151)
    y = np.random.default_rng(0).integers(3, size=151)  # labels that mean nothing
    one = mn.DAMClassifier(**SETTINGS).fit(x, y)
    other = mn.DAMClassifier(**SETTINGS, objective="conditional").fit(x, y)
    assert other.history_[-1]["phase"] == 2
    assert np.array_equal(one.memories_, other.memories_)
    assert np.array_equal(one.class_weights_, other.class_weights_)


def test_gains_are_told_from_chance(problem):
    case = problem(51, rows=400, labels="full", clustered=True, beta=8.0)
    blurred = case.params.replace(p=case.params.p_h[:, None] * case.params.p_q)
    # Labels drawn from the model itself: no other can beat it, and by chance hardly any does.
    drawn = torch.multinomial(
        log_joint(case.params, case.x).softmax(1), 1, generator=torch.Generator().manual_seed(0)
    )[:, 0]
    held = Data(case.x, torch.nn.functional.one_hot(drawn, 4).double())
    assert refinement.gains(blurred, case.params, held, conditional)
    assert not refinement.gains(case.params, blurred, held, conditional)
    assert not refinement.gains(case.params, case.params, held, conditional)


def test_scale_moves_the_exponent_of_a_memory_by_one(problem):
    params = problem(52, features=211, memories=7, beta=300.0, varsigma=0.25).params
    turn = refinement.scale(params)
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(5000, 211, generator=generator, dtype=torch.float64)
    u = turn * u / u.norm(dim=1, keepdim=True)
    moved = (float(params.beta_eff) * u @ params.w.T).std()
    assert float(moved) == pytest.approx(1, abs=0.03)
    assert refinement.scale(params.replace(beta=torch.tensor(0.1, dtype=torch.float64))) == 1


def test_noise_is_an_option(make_clusters, monkeypatch):
    x, y = make_clusters(rows=307, spread=2.0)
    lengths = []
    plain = refinement.train

    def train(*args, **kwargs):
        lengths.append(None if kwargs["noise"] is None else kwargs["noise"].length)
        return plain(*args, **kwargs)

    monkeypatch.setattr(refinement, "train", train)
    fits = [
        mn.DAMClassifier(**SETTINGS, objective="conditional", max_epochs=2, input_noise=noise)
        for noise in (0, 0.25, "auto")
    ]
    starts = spied(monkeypatch)
    for model in fits:
        model.fit(x, y)
    used = list(zip(lengths, [start for start, _, _ in starts], strict=True))
    assert {None, 0.25} <= set(lengths)
    assert used[-1][0] == pytest.approx(min(1, np.sqrt(6) / float(used[-1][1].beta_eff)))


def test_names_of_classes_do_not_matter(make_clusters):
    """Sorted another way, the same classes give the same model to rounding."""
    x, y = make_clusters(rows=97, spread=2.0)
    names = np.array(["b", "c", "a"])
    settings = SETTINGS | {"objective": "conditional", "max_epochs": 5, "dtype": "float64"}
    one = mn.DAMClassifier(**settings).fit(x, y)
    other = mn.DAMClassifier(**settings).fit(x, names[y])
    assert_close(
        torch.from_numpy(other.predict_proba(x)),
        torch.from_numpy(one.predict_proba(x)[:, np.argsort(names)]),
        rtol=0,
        atol=1e-6,
    )


@pytest.mark.parametrize("growth", [None, "split"])
def test_interrupted_anywhere_it_goes_on_with_the_same_bits(make_clusters, tmp_path, growth):
    x, y = make_clusters(rows=157, spread=2.0)

    class Stop(Callback):
        def __init__(self, after):
            self.after = after

        def on_epoch(self, record, params):
            self.after -= 1
            if self.after == 0:
                raise KeyboardInterrupt

    settings = SETTINGS | {"objective": "conditional", "max_epochs": 2, "tol": 0.0}
    settings |= {"growth": growth, "n_initial": 4}
    whole = mn.DAMClassifier(**settings).fit(x, y)
    n = len(whole.history_)
    for after in range(n // 4, n, n // 4):  # in the joint start, the refinement and what follows
        path = tmp_path / f"{after}.safetensors"
        first = mn.DAMClassifier(**settings, checkpoint=path, callbacks=[Stop(after)]).fit(x, y)
        assert first.status_ == "interrupted"
        assert first.predict(x).shape == y.shape
        second = mn.DAMClassifier(**settings, checkpoint=path).fit(x, y)
        assert np.array_equal(whole.memories_, second.memories_)
        assert np.array_equal(whole.class_weights_, second.class_weights_)


@pytest.mark.parametrize("noise", [-0.1, "some", None])
def test_bad_noise(data, noise):
    with pytest.raises(ValueError, match=r"'input_noise' parameter .* or a str among {'auto'}"):
        mn.DAMClassifier(5, objective="conditional", input_noise=noise).fit(data.x, data.y)


@pytest.mark.parametrize(("text", "value"), [("0.3", 0.3), ("auto", "auto")])
def test_noise_on_the_command_line(text, value):
    settings = Settings.gather(None, {"data": "digits", "input_noise": text})
    assert settings.classifier([], None).input_noise == value
