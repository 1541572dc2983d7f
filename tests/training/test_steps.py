"""Steps replayed from a CUDA graph: the same numbers as plain ones. Needs a GPU but for one."""

from __future__ import annotations

import pytest
import torch

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate, evaluate
from mnemosphere.model.objectives import Unsupervised, joint
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import bessel, polytope
from mnemosphere.training.adam import Adam
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.sgd import SGD
from mnemosphere.training.steps import CapturedSteps, Steps, _kept, steps_for

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def on(device: str, case) -> tuple[Parameters, ArrayDataset]:
    weight = None if case.sample_weight is None else case.sample_weight.to(device)
    rows = ArrayDataset.of(case.x.to(device), case.targets.to(device), weight)
    return case.params.to(device=device), rows


def test_on_a_cpu_steps_are_plain(problem):
    case = problem(3, rows=23)
    solver = SGD.paper()
    steps = steps_for(case.params, solver.start(case.params), case.dataset, solver, joint)
    assert type(steps) is Steps


def test_a_step_is_that_of_the_solver_at_the_statistics_of_its_batch(problem):
    case = problem(4, rows=23, weighted=True)
    solver, generator = SGD(0.1, 0.9, 7), torch.Generator()
    steps = Steps(case.params, solver.start(case.params), solver, joint)
    params, state, loss, weight = case.params, solver.start(case.params), 0.0, 0.0
    for part in (slice(0, 7), slice(7, 12)):
        batch = case.batch.take(part)
        loss += evaluate(params, batch, joint) * batch.total_weight
        weight += batch.total_weight
        steps(batch, batch.n_rows / 23, generator)
        stats = accumulate(params, batch, joint)
        params, state = solver.step(params, state, stats, batch, batch.n_rows / 23)
    found, found_state = steps.read()
    assert torch.equal(found.w, params.w)
    assert torch.equal(found_state["p"], state["p"])
    assert steps.mean_loss() == pytest.approx(loss / weight, rel=1e-12)
    assert steps.residual is None
    steps(case.batch, 1.0, generator)  # the mean begins anew
    assert steps.mean_loss() == pytest.approx(evaluate(params, case.batch, joint), rel=1e-12)


def test_noise_is_drawn_for_every_batch(problem):
    case = problem(6, rows=23)
    solver, noise = SGD(1e-30), SphereNoise(0.5)
    steps = Steps(case.params, solver.start(case.params), solver, joint, noise)
    generator, same = (torch.Generator().manual_seed(3) for _ in range(2))
    for _ in range(2):
        steps(case.batch, 1.0, generator)
        noisy = Batch(noise(case.x, same), case.targets)
        assert steps.mean_loss() == pytest.approx(evaluate(case.params, noisy, joint), rel=1e-9)
    steps.add(case.batch, generator)
    steps.step_on_all(case.batch)
    noisy = Batch(noise(case.x, same), case.targets)
    assert steps.mean_loss() == pytest.approx(evaluate(case.params, noisy, joint), rel=1e-9)


@on_gpu
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rule", [joint, Unsupervised(0.1)])
def test_replayed_steps_are_the_plain_ones(problem, weighted, rule):
    case = problem(5, rows=101, memories=13, weighted=weighted)
    params, data = on("cuda", case)
    solver = SGD(0.01, 0.9, 23, tolerance=None)
    state = solver.start(params)
    plain = Steps(params, state, solver, rule)
    replayed = steps_for(params, state, data, solver, rule)
    assert isinstance(replayed, CapturedSteps)
    generator = torch.Generator().manual_seed(7)
    for _ in range(3):
        for batch in data.batches(23, generator=generator):
            for steps in (plain, replayed):
                steps(batch, batch.n_rows / data.n_rows, generator)
        assert plain.mean_loss() == pytest.approx(replayed.mean_loss(), rel=1e-12)
    (a, state_a), (b, state_b) = plain.read(), replayed.read()
    for name in ("w", "p", "beta"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(state_a[name], state_b[name], rtol=1e-9, atol=1e-12)
    assert float(case.params.beta) == float(params.beta)  # what came in is left alone


@on_gpu
@pytest.mark.parametrize(
    "solver", [SGD(0.01, 0.9, 23, tolerance=None), Adam(steps=20, batch_size=23)]
)
def test_replayed_steps_take_the_noise_of_plain_ones(problem, solver):
    case = problem(17, rows=101, memories=13)
    params, data = on("cuda", case)
    found = []
    for kind in (Steps, CapturedSteps):
        steps = kind(params, solver.start(params), solver, joint, SphereNoise(0.5))
        generator = torch.Generator().manual_seed(5)
        for batch in data.batches(23):
            steps(batch, batch.n_rows / 101, generator)
        found.append(steps.read()[0])
    torch.testing.assert_close(found[0].w, found[1].w, rtol=1e-11, atol=1e-13)


@on_gpu
def test_what_was_read_is_not_written_again(problem):
    case = problem(7, rows=101, memories=13)
    params, data = on("cuda", case)
    solver = SGD(0.01, 0.9, 23, tolerance=None)
    steps = steps_for(params, solver.start(params), data, solver, joint)
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

    def picked(self, size, *, generator, cursor, fill=False):
        return super().picked(size, generator=None, cursor=cursor)


@on_gpu
def test_training_on_a_gpu_is_that_on_a_cpu(problem):
    case = problem(11, rows=101, memories=13)
    solver = SGD(0.01, 0.9, 23, tolerance=None)
    params, data = on("cuda", case)
    here = fit(case.params, InOrder(case.dataset.rows), solver, max_iter=4)
    there = fit(params, InOrder(data.rows), solver, max_iter=4)
    torch.testing.assert_close(there.params.w.cpu(), here.params.w, rtol=1e-8, atol=1e-10)


@on_gpu
@pytest.mark.parametrize(
    "solver", [SGD(0.01, 0.9, 23, tolerance=None), FixedPoint(23, once_per_pass=True)]
)
def test_training_on_a_gpu_resumes_with_the_same_bits(problem, tmp_path, solver):
    case = problem(11, rows=101, memories=13)
    params, data = on("cuda", case)
    whole = fit(params, data, solver, max_iter=4)
    file = Checkpoint(tmp_path / "run.safetensors")
    fit(params, data, solver, max_iter=2, callbacks=[file])
    resumed = fit(params, data, solver, max_iter=4, callbacks=[file])
    assert torch.equal(resumed.params.w, whole.params.w)
    assert torch.equal(resumed.params.p, whole.params.p)


@on_gpu
@pytest.mark.parametrize("n", [2, 3, 36, 784])
def test_bessel_functions_stay_on_the_gpu(n):
    beta = torch.tensor([0.0, 1e-6, 0.3, 7.0, 170.0, 1e5], dtype=torch.float64)
    for function in (bessel.log_omega_ratio, bessel.mean_resultant):
        got = function(beta.cuda(), n)
        assert got.is_cuda
        torch.testing.assert_close(got.cpu(), function(beta, n), rtol=1e-12, atol=0.0)


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 3), (101, 11), (1001, 11), (2003, 11), (7001, 11)])
def test_sweeps_on_a_gpu_are_those_on_a_cpu(shape, dtype):
    generator = torch.Generator().manual_seed(3)
    log_k = 3 * torch.randn(shape, generator=generator, dtype=dtype)
    rows, cols = (torch.rand(n, generator=generator, dtype=dtype) + 0.1 for n in shape)
    rows, cols = rows / rows.sum(), cols / cols.sum()
    for sweeps in (1, 2, 10):
        here = polytope.sweep(log_k, rows, cols, sweeps)
        there = polytope.sweep(log_k.cuda(), rows.cuda(), cols.cuda(), sweeps)
        rtol = 1e-12 if dtype == torch.float64 else 2e-5
        torch.testing.assert_close(there.cpu(), here, rtol=rtol, atol=0.0)


@on_gpu
def test_a_graph_that_was_kept_gives_the_same_fit(problem):
    case = problem(46, rows=1009, memories=11, features=13, labels="full", clustered=True)
    params, rows = on("cuda", case)
    params, rows = params.to(dtype=torch.float32), ArrayDataset(rows.rows.to(dtype=torch.float32))
    solver = FixedPoint(101, once_per_pass=True)
    _kept.clear()
    found = [fit(params, rows, solver, max_iter=3) for _ in range(2)]
    assert len(_kept) == 1
    for name in ("w", "p", "beta"):
        assert torch.equal(getattr(found[0].params, name), getattr(found[1].params, name))
    assert found[0].history[-1].loss == found[1].history[-1].loss
    here = fit(case.params, case.dataset, solver, max_iter=3)
    assert found[1].history[-1].loss == pytest.approx(here.history[-1].loss, rel=2e-2)
    fit(params.replace(varsigma=0.5), rows, solver, max_iter=1)  # another graph
    assert len(_kept) == 2


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
