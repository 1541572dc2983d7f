"""The kernels that take steps on a GPU, against plain steps in double precision."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model import Batch
from mnemosphere.model.kernel import Statistics, accumulate
from mnemosphere.model.objectives import conditional, joint
from mnemosphere.model.parameters import from_memories
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training import step_gpu
from mnemosphere.training.adam import Adam
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.noise import SphereNoise

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def steps(solver, params, batch, n):
    state = solver.start(params)
    for _ in range(n):
        stats = accumulate(params, batch, conditional)
        params, state = solver.step(params, state, stats, batch, 0.1)
    return params, state


@pytest.mark.parametrize("learn_beta", [True, False])
@pytest.mark.parametrize(("memories", "features", "classes"), [(101, 37, 5), (1009, 131, 10)])
def test_steps_are_those_of_double_precision(problem, memories, features, classes, learn_beta):
    case = problem(7, rows=211, memories=memories, features=features, classes=classes, beta=20.0,
                   varsigma=0.6, labels="full", contrast=0.5, clustered=True)  # fmt: skip
    params = case.params.replace(
        p=polytope.project(case.params.p, case.params.p_h, case.params.p_q)
    )
    solver = Adam(50, tolerance=None, learn_beta=learn_beta, sweeps=7)
    to = {"dtype": torch.float32, "device": torch.device("cuda")}
    there = params.to(**to)
    assert step_gpu.usable(there.w)
    assert step_gpu.takes_weights(there)
    expected, state = steps(solver, params, case.batch, 5)
    found, kept = steps(solver, there, Batch(case.x.to(**to), case.targets.to(**to)), 5)
    for name in ("w", "p", "beta"):
        new, right, old = (getattr(v, name) for v in (found, expected, params))
        moved = float((right - old).abs().amax())
        assert_close(new.cpu().double(), right, rtol=1e-4, atol=max(2e-3 * moved, 1e-7))
        assert moved > 0 or (name == "beta" and not learn_beta)
    for name, tensor in state.items():
        scale = float(tensor.abs().amax())
        assert_close(kept[name].cpu().double(), tensor.double(), rtol=1e-3, atol=2e-3 * scale)


def test_noise_is_that_of_plain_operations():
    generator = torch.Generator().manual_seed(0)
    x = sphere.sample_uniform(53, 331, generator=generator, dtype=torch.float64)
    normal = torch.randn(53, 331, generator=generator, dtype=torch.float64)
    noise = SphereNoise(0.3)
    across = sphere.to_tangent(x, normal)
    across = across / across.norm(dim=1, keepdim=True)
    expected = (x + 0.3 * across) * noise.overlap
    found = step_gpu.lay_noise(x.float().cuda(), normal.float().cuda(), 0.3, noise.overlap)
    assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("learn_beta", [True, False])
@pytest.mark.parametrize(("memories", "features"), [(7, 13), (1009, 131)])
def test_running_means_are_those_of_double_precision(problem, memories, features, learn_beta):
    case = problem(9, rows=211, memories=memories, features=features, beta=20.0, varsigma=0.37,
                   labels="full", clustered=True)  # fmt: skip
    solver = FixedPoint(23, learn_beta, once_per_pass=True)
    params, state = case.params, solver.start(case.params)
    to = {"dtype": torch.float32, "device": torch.device("cuda")}
    there, kept = params.to(**to), solver.start(params.to(**to))
    assert step_gpu.takes_means(there)
    for part in range(4):
        batch = case.batch.take(slice(50 * part, 50 * part + 50))
        stats = accumulate(params, batch, joint)
        sums = Statistics(*(getattr(stats, f).to(**to) for f in ("w_bar", "p_bar", "overlap")),
                          stats.loss.cuda(), stats.count.cuda())  # fmt: skip
        params, state = solver._average(params, state, stats, 50 / 211)
        there, kept = solver.step(there, kept, sums, batch, 50 / 211)
        assert_close(there.w.cpu().double(), params.w, rtol=1e-4, atol=1e-6)
        assert float(there.beta) == pytest.approx(float(params.beta), rel=1e-5)
        for name in ("w_bar", "p_bar", "passes"):
            scale = float(state[name].abs().amax())
            assert_close(kept[name].cpu().double(), state[name], rtol=1e-4, atol=1e-6 * scale)


@pytest.mark.parametrize("sweeps", [1, 7])
@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (613, 11), (2503, 3)])
def test_class_weights_of_any_size(rows, columns, sweeps):
    generator = torch.Generator().manual_seed(3)
    p_q = torch.rand(columns, generator=generator).double() + 0.1
    w = sphere.sample_uniform(rows - 1, 5, generator=generator, dtype=torch.float64)
    params = from_memories(w, p_q / p_q.sum(), beta=9.0)
    start = torch.rand(rows, columns, generator=generator).double() + 0.01
    params = params.replace(p=polytope.sinkhorn(start, params.p_h, params.p_q).p)
    p_bar = torch.rand(rows, columns, generator=generator).double()
    solver = Adam(60, batch_size=11, tolerance=None, sweeps=sweeps)
    one = torch.ones(()).double()
    stats = Statistics(w, p_bar, w[:, 0], one, 41 * one)
    expected, *_ = solver._step_of_p(params, solver.start(params), stats, solver.learning_rate)
    to = {"dtype": torch.float32, "device": torch.device("cuda")}
    there = params.to(**to)
    sums = Statistics(w.to(**to), p_bar.to(**to), w[:, 0].to(**to), one.cuda(), 41 * one.cuda())
    found, *_ = step_gpu.reweigh(solver, there, solver.start(there), sums)
    assert_close(found.cpu().double(), expected.p, rtol=1e-3, atol=1e-7)
