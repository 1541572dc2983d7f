"""Plain steps, and steps replayed on a GPU, which give the same numbers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from draws import generator
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import Unsupervised, joint
from mnemosphere.model.one_pass import operands
from mnemosphere.training.adam import Adam
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD
from mnemosphere.training.steps import CapturedSteps, Steps, steps_for

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CAPTURED = [
    SGD(0.01, 0.9, 23, tol=0),
    Adam(steps=20, batch_size=23),
    FixedPoint(23, tol=0, by_pass=True),
]


class Again:
    """`Captured` without a GPU: called anew where that one replays."""

    def __init__(self, act, changed, generators=()):
        before = [t.clone() for t in changed]
        act()
        act()
        torch._foreach_copy_(changed, before)
        self._act = act

    def __call__(self):
        self._act()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=on_gpu)])
def device(request, monkeypatch):
    if request.param == "cpu":
        monkeypatch.setattr("mnemosphere.training.steps.Captured", Again)
    return request.param


def on(device: str, case) -> tuple[Mixture, ArrayDataset]:
    weight = None if case.sample_weight is None else case.sample_weight.to(device)
    rows = ArrayDataset.of(case.x.to(device), case.targets.to(device), weight)
    return case.params.to(device=device), rows


def test_on_a_cpu_steps_are_plain(problem):
    case = problem(3, rows=23)
    assert steps_for(case.params, case.dataset, SGD.paper()) is Steps


@pytest.mark.parametrize(
    ("solver", "captured"),
    [
        *((solver, True) for solver in CAPTURED),
        (FixedPoint(7), False),  # class weights after every batch
        (FixedPoint(None, by_pass=True), False),
    ],
)
def test_steps_that_need_no_synchronization_can_be_captured(solver, captured):
    for cuda in (False, True):
        params = SimpleNamespace(w=SimpleNamespace(is_cuda=cuda))
        assert solver.can_capture(params) == (captured and cuda)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("solver", "rule"),
    [
        *((solver, joint) for solver in CAPTURED),
        (CAPTURED[0], Unsupervised(0.1)),
        (replace(CAPTURED[1], noise=0.5), joint),
    ],
)
def test_replayed_steps_are_the_plain_ones(problem, device, weighted, solver, rule):
    case = problem(5, rows=101, memories=13, weighted=weighted)
    params, data = on(device, case)
    plain, replayed = (
        kind(params, solver.start(params), solver, rule) for kind in (Steps, CapturedSteps)
    )
    for _ in range(3):
        for batch in data.batches(23, generator=generator(7)):  # the last one is smaller
            for steps in (plain, replayed):
                steps(batch, batch.n_rows / data.n_rows, generator(batch.n_rows))
        for steps in (plain, replayed):
            steps.end_pass(batch, data.n_rows)
        assert plain.mean_loss() == pytest.approx(replayed.mean_loss(), rel=1e-12)
    (a, state_a), (b, state_b) = plain.read(), replayed.read()
    for name in ("w", "p", "beta"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-11)
    for name, tensor in state_a.items():
        torch.testing.assert_close(tensor, state_b[name], rtol=1e-8, atol=1e-11)
    assert float(case.params.beta) == float(params.beta)  # what came in is left alone


@pytest.mark.parametrize("solver", CAPTURED)
def test_replayed_steps_take_bfloat16_operands(problem, device, solver):
    if device == "cpu":
        pytest.skip("needs a GPU")
    case = problem(13, rows=101, memories=13)
    to = {"dtype": torch.float32, "device": torch.device(device)}
    params, batch = case.params.to(**to), Batch(case.x[:23].to(**to), case.targets[:23].to(**to))
    found = {}
    for precision in ("auto", "float32"):
        for kind in (Steps, CapturedSteps):
            steps = kind(params, solver.start(params), solver, joint)
            with operands(precision):
                for _ in range(2):
                    steps(batch, 23 / 101, generator(1))
            found[precision, kind] = steps.read()[0].w
    plain, replayed = found["auto", Steps], found["auto", CapturedSteps]
    torch.testing.assert_close(replayed, plain, rtol=1e-4, atol=1e-5)
    assert not torch.equal(replayed, found["float32", CapturedSteps])


def test_what_was_read_is_not_written_again(problem, device):
    case = problem(7, rows=101, memories=13)
    params, data = on(device, case)
    solver = CAPTURED[0]
    steps = CapturedSteps(params, solver.start(params), solver, joint)
    batch = next(data.batches(23))
    steps(batch, 23 / 101, torch.Generator())
    first, state = steps.read()
    kept, velocity = first.w.clone(), state["w"].clone()
    steps(batch, 23 / 101, torch.Generator())
    assert torch.equal(first.w, kept)
    assert torch.equal(state["w"], velocity)
    assert not torch.equal(steps.read()[0].w, kept)


class InOrder(ArrayDataset):
    """Rows as stored: the orders that two devices draw are not the same."""

    def batches(self, size, *, generator=None, **how):
        return super().batches(size, **how)


@on_gpu
@pytest.mark.parametrize("solver", [*CAPTURED, FixedPoint(23), FixedPoint(None)])
def test_training_on_a_gpu_is_that_on_a_cpu(problem, solver):
    case = problem(11, rows=101, memories=13)
    params, data = on("cuda", case)
    here = fit(case.params, InOrder(case.dataset.rows), solver, max_iter=4)
    there = fit(params, InOrder(data.rows), solver, max_iter=4)
    torch.testing.assert_close(there.params.w.cpu(), here.params.w, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", CAPTURED)
def test_replayed_training_resumes_with_the_same_bits(
    problem, device, tmp_path, solver, monkeypatch
):
    monkeypatch.setattr(type(solver), "can_capture", lambda *_: True)
    case = problem(11, rows=101, memories=13)
    params, data = on(device, case)
    whole = fit(params, data, solver, max_iter=4)
    path = tmp_path / "run.safetensors"
    fit(params, data, solver, max_iter=2, callbacks=[Checkpoint(path)])
    resumed = fit(params, data, solver, max_iter=4, callbacks=[Checkpoint(path)])
    assert torch.equal(resumed.params.w, whole.params.w)
    assert torch.equal(resumed.params.p, whole.params.p)


@on_gpu
def test_bad_numbers_on_a_gpu_are_refused_all_the_same(problem):
    case = problem(48, rows=211, memories=7)
    params, solver = case.params.to(device="cuda"), FixedPoint(23)
    x, q = case.x.cuda(), case.targets.cuda()
    for rows, message in (
        (Batch(2 * x, q), "norm"),
        (Batch(x, -q), "label weights"),
        (Batch(x, q, torch.full_like(x[:, 0], -1.0)), "sample_weight"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(params, ArrayDataset(rows), solver, max_iter=1)
    with pytest.raises(ValueError, match="memories"):
        fit(params.replace(w=3 * params.w), ArrayDataset(Batch(x, q)), solver, max_iter=1)
