"""The kernels that take steps of Adam on a GPU, against the plain step in double precision."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model import Batch
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.objectives import conditional
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training import step_gpu
from mnemosphere.training.adam import Adam
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
