"""R-hat and effective sample size against processes whose values are known."""

import math

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from mnemosphere.theory.diagnostics import effective_sample_size, estimate, split_r_hat


def ar1(phi, n_chains, n_draws, seed):
    """Stationary AR(1) chains of unit variance: (chains, draws)."""
    noise = np.random.default_rng(seed).standard_normal((n_chains, n_draws))
    noise[:, 1:] *= math.sqrt(1 - phi**2)
    return torch.from_numpy(lfilter([1.0], [1.0, -phi], noise, axis=1))


@pytest.mark.parametrize("phi", [-0.4, 0.0, 0.5, 0.9])
def test_ess_of_ar1(phi):
    trace = ar1(phi, 7, 20_000, seed=3)
    exact = 7 * 20_000 * (1 - phi) / (1 + phi)
    assert float(effective_sample_size(trace)) == pytest.approx(exact, rel=0.08)
    assert float(split_r_hat(trace)) == pytest.approx(1.0, abs=5e-3)


def test_standard_error_is_the_spread_of_repeated_means():
    # 300 repeats of 5 AR(1) chains: the reported error against the observed one.
    repeats = ar1(0.7, 300 * 5, 601, seed=5).reshape(300, 5, 601)
    results = [estimate(repeat) for repeat in repeats]
    observed = torch.stack([r.mean for r in results]).std()
    reported = torch.stack([r.standard_error for r in results]).mean()
    assert float(reported) == pytest.approx(float(observed), rel=0.1)


def test_r_hat_of_separated_chains():
    # Unit-variance chains at ±d: the four half-chain means have variance d²·4/3.
    d = 1.5
    trace = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 40_000)))
    trace = trace + torch.tensor([[d], [-d]])
    assert float(split_r_hat(trace)) == pytest.approx(math.sqrt(1 + d**2 * 4 / 3), rel=0.01)
    result = estimate(trace)
    assert not result.converged
    assert "R-hat" in result.message
    with pytest.raises(RuntimeError, match="start from the teacher"):
        result.raise_if_failed()
