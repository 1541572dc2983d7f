"""The law on the sphere against SciPy, many digits and quadrature."""

import mpmath
import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import vonmises_fisher

from mnemosphere.theory import log_density, log_omega


def directions(n_rows, n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n_rows, n))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("n", [2, 3, 7, 41])
@pytest.mark.parametrize("kappa", [0.3, 11.0, 170.0])
def test_as_scipy_where_that_is_finite(n, kappa):
    mean, x = directions(1, n, seed=1)[0], directions(5, n)
    expected = vonmises_fisher(mean, kappa).logpdf(x)
    np.testing.assert_allclose(log_density(x, mean, kappa), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [2, 5, 784])
def test_many_digits(n):
    """At 784 dimensions SciPy has nothing left: its density is infinite at κ = 50."""
    beta = [1e-3, 50.0, 500.0, 1e5]
    with mpmath.workdps(50):
        nu = mpmath.mpf(n) / 2 - 1
        exact = [
            mpmath.log(2 * mpmath.pi) * (nu + 1) + mpmath.log(mpmath.besseli(nu, b))
            - nu * mpmath.log(b) for b in map(mpmath.mpf, beta)
        ]  # fmt: skip
    found = log_omega(beta, n)
    np.testing.assert_allclose(found, [float(own) for own in exact], rtol=1e-13)
    mean = directions(1, n)[0]
    there = log_density(np.stack([mean, -mean]), mean, 50.0)
    np.testing.assert_allclose(there, [50 - float(exact[1]), -50 - float(exact[1])], rtol=1e-12)


@pytest.mark.parametrize("kappa", [0.0, 1.7, 60.0])
def test_densities_integrate_to_one(kappa):
    """On the circle over the angle; on the sphere over the height, which is uniform there."""
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    points = np.stack([np.cos(angle), np.sin(angle)], 1)
    circle = 2 * np.pi * float(log_density(points, [0.6, 0.8], kappa).exp().mean())
    assert circle == pytest.approx(1, rel=1e-12)

    def at(height):
        return float(log_density([np.sqrt(1 - height**2), 0, height], [0, 0, 1.0], kappa).exp())

    assert 2 * np.pi * quad(at, -1, 1, epsabs=1e-12)[0] == pytest.approx(1, rel=1e-9)


def test_shapes_and_what_is_refused():
    x = torch.tensor(directions(6, 3)).reshape(2, 3, 3)
    assert log_density(x.float(), x[0, 0], 2.0).shape == (2, 3)
    assert log_density(x[0], x[1], torch.ones(3)).shape == (3,)
    with pytest.raises(ValueError, match="mean"):
        log_density(x, 2 * x[0, 0], 1.0)
    with pytest.raises(ValueError, match="not negative, got -1"):
        log_omega(-1.0, 3)
    with pytest.raises(ValueError, match="n_features must be >= 2, got 1"):
        log_omega(1.0, 1)
