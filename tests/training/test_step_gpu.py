"""The kernels that take steps on a GPU, against plain steps in double precision."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model.kernel import Statistics, accumulate
from mnemosphere.model.objectives import joint
from mnemosphere.numerics import sphere
from mnemosphere.training import step_gpu
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.noise import SphereNoise

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


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
