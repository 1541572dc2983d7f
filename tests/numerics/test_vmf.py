"""Draws of the von Mises-Fisher distribution against its exact marginals and moments."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from draws import generator
from mnemosphere.numerics import vmf
from mnemosphere.numerics.sphere import project


def direction(n, seed=0, dtype=torch.float64):
    return project(torch.randn(n, generator=generator(seed), dtype=dtype))


def marginal_cdf(n, kappa):
    """CDF of the angle between x and mean, density ~ exp(kappa cos a) sin(a)^(n-2), by quadrature.

    In the angle all digits of a concentrated density stay; the peak is found on a grid first.
    """

    def log_density(a):
        # cos a - 1 without cancellation
        return -2 * kappa * np.sin(a / 2) ** 2 + (n - 2) * np.log(np.sin(a))

    grid = np.unique(
        np.concatenate(
            [np.geomspace(1e-12, math.pi, 20001)[:-1], np.linspace(1e-6, 3.14159, 20001)]
        )
    )
    top = log_density(grid).max()
    inside = grid[log_density(grid) > top - 60]
    nodes = np.linspace(inside[0], inside[-1], 20001)
    if n == 2 or inside[0] < 1e-6:
        nodes[0] = 1e-300
    if math.pi - inside[-1] < 1e-3:
        nodes[-1] = math.pi
    with np.errstate(divide="ignore"):
        density = np.exp(log_density(nodes) - top)
    density[~np.isfinite(density)] = 0
    mass = integrate.cumulative_simpson(density, x=nodes, initial=0)
    return lambda a: np.interp(a, nodes, mass / mass[-1])


def angles(x, mean):
    """The angle between x and mean, accurate near 0."""
    return 2 * torch.atan2(
        torch.linalg.vector_norm(x - mean, dim=-1), torch.linalg.vector_norm(x + mean, dim=-1)
    )


@pytest.mark.parametrize(
    ("n", "kappa"),
    [
        *((2, kappa) for kappa in (0.0, 0.7, 30.0, 1e6, 1e12)),
        *((3, kappa) for kappa in (0.0, 2.0, 1e6)),
        *((7, kappa) for kappa in (0.0, 5.0, 1e4)),
        *((101, kappa) for kappa in (0.0, 60.0, 1e6)),
        *((997, kappa) for kappa in (0.0, 3e3)),
    ],
)
def test_angle_to_the_mean_has_the_exact_law(n, kappa):
    draws = 4001
    mean = direction(n)
    x = vmf.sample(mean.expand(draws, n), kappa, generator=generator(1))
    p_value = stats.kstest(angles(x, mean).numpy(), marginal_cdf(n, kappa)).pvalue
    assert p_value > 1e-3


@pytest.mark.parametrize(("n", "kappa"), [(2, 4.0), (5, 0.0), (5, 20.0), (7, 1e8)])
def test_directions_around_the_mean_are_isotropic(n, kappa):
    draws = 20011
    mean = -direction(n, seed=4)
    x = vmf.sample(mean.expand(draws, n), kappa, generator=generator(3))
    # Coordinates of the tangent part in an orthonormal basis that knows nothing of the sampler.
    basis = torch.linalg.qr(torch.cat([mean.unsqueeze(1), torch.eye(n, dtype=mean.dtype)], 1))[0]
    tangent = project(x @ basis[:, 1:n])  # (R, N), (N, N-1) -> (R, N-1)
    assert (tangent.mean(0).abs() < 4 / math.sqrt(draws * (n - 1))).all()
    covariance = tangent.T @ tangent / draws  # (N-1, R), (R, N-1) -> (N-1, N-1)
    expected = torch.eye(n - 1, dtype=mean.dtype) / (n - 1)
    assert ((covariance - expected).abs() < 5 / (n - 1) / math.sqrt(draws) * 2).all()
    # The tangent direction does not know the angle.
    correlation = np.corrcoef(angles(x, mean).numpy(), tangent[:, 0].numpy())[0, 1]
    assert abs(correlation) < 4 / math.sqrt(draws)


def test_poles_of_the_reflection():
    """Means on the first axis, either way, where a careless reflection divides by zero."""
    for sign in (1.0, -1.0):
        mean = torch.zeros(211, 3, dtype=torch.float64)
        mean[:, 0] = sign
        x = vmf.sample(mean, 1e6, generator=generator(8))
        assert ((x - mean).abs() < 1e-2).all()
        # 1 - <x, mean> is exponential with mean 1/kappa at N = 3 and large kappa.
        gap = (1 - (x * mean).sum(-1)) * 1e6
        assert abs(gap.mean().item() - 1) < 4 / math.sqrt(211)


def test_invalid_input():
    mean = direction(5)
    with pytest.raises(ValueError, match="norm"):
        vmf.sample(mean * 1.01, 1.0, generator=generator(0))
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="kappa must be finite and not negative"):
            vmf.sample(mean, bad, generator=generator(0))
