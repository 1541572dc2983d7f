import math

import pytest
import torch
from torch.testing import assert_close

from draws import generator
from mnemosphere.numerics import sphere
from mnemosphere.training.noise import noisy


def rows(n, features, seed=1, dtype=torch.float64):
    return sphere.sample_uniform(n, features, generator=generator(seed), dtype=dtype)


@pytest.mark.parametrize("features", [2, 3, 101])
@pytest.mark.parametrize("length", [0.01, 0.5, 3.0])
def test_every_row_stays_on_the_sphere_and_turns_by_the_same_angle(features, length):
    x = rows(53, features)
    turned = noisy(x, length, generator())
    assert_close(turned.norm(dim=1), torch.ones(53, dtype=x.dtype), rtol=0, atol=1e-11)
    angle = torch.atan2(
        (turned - (turned * x).sum(1, keepdim=True) * x).norm(dim=1), (turned * x).sum(1)
    )
    assert_close(angle, torch.full_like(angle, math.atan(length)), rtol=0, atol=1e-11)


def test_directions_are_uniform_across_the_row():
    """Second moments of the direction: (I − xxᵀ)/(N−1), within five standard errors."""
    n, features, length = 40_000, 5, 0.8
    x = rows(1, features).expand(n, -1)
    u = (noisy(x, length, generator()) * math.hypot(1.0, length) - x) / length
    expected = (torch.eye(features, dtype=x.dtype) - x[0, :, None] * x[0]) / (features - 1)
    assert_close(u.T @ u / n, expected, rtol=0, atol=5 * 0.5 / math.sqrt(n))
    assert u.mean(0).norm() < 5 / math.sqrt(n)
