"""The Bessel normalizer against the power series in many digits, closed forms and autograd."""

import math
from decimal import Decimal, localcontext

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mnemosphere.numerics.bessel import (
    inverse_mean_resultant,
    log_omega_ratio,
    mean_resultant,
)

DIMENSIONS = [2, 3, 5, 10, 36, 100, 784, 10**4, 10**6]
BETAS = [0.0, 1e-8, 1e-4, *np.geomspace(1e-2, 1e6, 17).tolist()]


def moments(beta, n):
    """log f, A and A' from f(beta) = sum_k (beta^2/4)^k / (k! (n/2)_k), in 35 digits.

    All terms are positive: summed outwards from the largest, whose log mpmath gives. With k drawn
    in proportion to the terms, A = 2 E[k] / beta and A' = (4 Var[k] - 2 E[k]) / beta^2.
    """
    if beta == 0:
        return mpmath.mpf(0), mpmath.mpf(0), mpmath.mpf(1) / n
    with localcontext() as context, mpmath.workdps(35):
        context.prec = 45
        half_square = Decimal(beta) ** 2 / 2
        top = int((math.sqrt((n / 2 - 1) ** 2 + beta**2) - (n / 2 - 1)) / 2)
        zeroth = first = second = Decimal(0)
        for step, start in ((1, top), (-1, top - 1)):
            k, term = start, Decimal(1)
            if step < 0:
                term *= top * (2 * top + n - 2) / half_square
            while k >= 0 and term > Decimal("1e-40"):
                zeroth += term
                first += term * (k - top)
                second += term * (k - top) ** 2
                if step > 0:
                    term *= half_square / ((k + 1) * (2 * k + n))
                else:
                    term *= k * (2 * k + n - 2) / half_square
                k += step
        z, half = mpmath.mpf(beta) ** 2 / 4, mpmath.mpf(n) / 2
        log_top = (
            top * mpmath.log(z)
            - mpmath.loggamma(top + 1)
            - mpmath.loggamma(half + top)
            + mpmath.loggamma(half)
        )
        log_f = log_top + mpmath.log(mpmath.mpf(str(zeroth)))
        mean = first / zeroth
        variance = mpmath.mpf(str(second / zeroth - mean * mean))
        mean = mpmath.mpf(str(mean + top))
        b = mpmath.mpf(beta)
        return log_f, 2 * mean / b, (4 * variance - 2 * mean) / b**2


@pytest.fixture(scope="module")
def oracle():
    return {(n, beta): moments(beta, n) for n in DIMENSIONS for beta in BETAS}


def relative(value, exact):
    return abs(float((mpmath.mpf(value) - exact) / exact)) if exact else abs(value)


def worst(function, n, oracle, which, dtype):
    values = function(torch.tensor(BETAS, dtype=dtype), n)
    assert values.dtype == dtype
    # The oracle is taken at the double: in float32 the rounding of beta is part of the error.
    return max(
        relative(value, oracle[n, beta][which])
        for beta, value in zip(BETAS, values.tolist(), strict=True)
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
@pytest.mark.parametrize("n", DIMENSIONS)
def test_log_omega_ratio_and_mean_resultant_are_accurate(oracle, n, dtype, tolerance):
    assert worst(log_omega_ratio, n, oracle, 0, dtype) < tolerance
    assert worst(mean_resultant, n, oracle, 1, dtype) < tolerance


def test_huge_beta_neither_overflows_nor_leaves_the_unit_interval():
    beta = torch.tensor([1e20, 1e200, 1e300], dtype=torch.float64)
    for n in (2, 784, 10**6):
        value = log_omega_ratio(beta, n)
        assert_close(value / beta, torch.ones_like(beta), rtol=1e-12, atol=0)
        assert_close(mean_resultant(beta, n), torch.ones_like(beta), rtol=1e-12, atol=0)


@pytest.mark.parametrize("n", [2, 53])
def test_autograd_goes_through(n):
    beta = torch.tensor([0.2, 3.0, 41.0], dtype=torch.float64, requires_grad=True)
    for function in (log_omega_ratio, mean_resultant):
        assert torch.autograd.gradcheck(lambda y, f=function: f(y, n), beta)


@pytest.mark.parametrize("n", DIMENSIONS)
def test_inverse_returns_to_r(n):
    ends = 1 - torch.logspace(-15.9, -2, 97, dtype=torch.float64)
    starts = torch.logspace(-300, -2, 31, dtype=torch.float64)
    r = torch.cat([starts, torch.linspace(0.01, 0.99, 197, dtype=torch.float64), ends])
    back = mean_resultant(inverse_mean_resultant(r, n), n)
    assert_close(back, r, rtol=3e-15, atol=0)


@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(2, 2000), beta=st.floats(0, 1e6), more=st.floats(1e-3, 10.0), top=st.floats(0, 1)
)
def test_laws(n, beta, more, top):
    """A grows with beta, falls with N, keeps to Amos' bounds; log f is convex."""
    pair = torch.tensor([beta, beta * (1 + more) + more], dtype=torch.float64)
    a, f = mean_resultant(pair, n), log_omega_ratio(pair, n)
    assert a[1] >= a[0]
    assert (mean_resultant(pair, n + 1) <= a).all()
    m = (n - 1) / 2
    assert (a <= pair / (m + torch.hypot(pair, torch.tensor(m))) * (1 + 1e-15)).all()
    upper = torch.hypot(pair, torch.tensor(m + 1.0, dtype=torch.float64))
    assert (a >= pair / (m + upper) * (1 - 1e-15)).all()
    mid = top * pair[0] + (1 - top) * pair[1]
    assert log_omega_ratio(mid, n) <= (top * f[0] + (1 - top) * f[1]) * (1 + 1e-14)


@pytest.mark.parametrize("function", [log_omega_ratio, mean_resultant])
def test_invalid_beta(function):
    for bad in (-1e-9, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"beta must be finite and not negative, got {bad}"):
            function(torch.tensor([1.0, bad], dtype=torch.float64), 5)


def test_invalid_r():
    for bad in (-1e-9, 1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"r must lie in \[0, 1\)"):
            inverse_mean_resultant(torch.tensor([0.5, bad], dtype=torch.float64), 5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("n", [2, 3, 13, 50, 784, 5003])
def test_a_gpu_finds_the_same(n):
    beta = torch.tensor([0.0, 1e-8, 1e-3, 1.0, 37.0, 400.0, 1e4, 1e8], dtype=torch.float64)
    for function in (log_omega_ratio, mean_resultant):
        found, expected = function(beta.cuda(), n), function(beta, n)
        assert found.is_cuda
        assert_close(found.cpu(), expected, rtol=1e-12, atol=0)
        single = function(beta.float().cuda(), n)
        assert single.dtype == torch.float32
        assert_close(single.cpu().double(), expected, rtol=1e-6, atol=0)
