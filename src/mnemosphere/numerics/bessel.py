"""The normalizer of the von Mises-Fisher distribution and its logarithmic derivative.

The integral over the unit sphere, with nu = N/2 - 1,

    Omega_N(beta) = int_{S^{N-1}} exp(beta x_1) dx = (2 pi)^{N/2} I_nu(beta) / beta^nu,

and A_N = d log Omega_N / d beta = I_{N/2} / I_{N/2-1}, for any N >= 2 and beta >= 0.

One method serves every beta, so nothing jumps. Two downward recurrences hold,

    A_N = beta / (N + beta A_{N+2}),
    log Omega_N(beta)/Omega_N(0) = log Omega_{N+2}(beta)/Omega_{N+2}(0) + log1p(beta A_{N+2} / N),

with positive terms only and errors that shrink at each step. They start at the first N + 2K
whose order nu is at least `_MIN_ORDER`; there the uniform (Debye) expansion of I_nu is exact to
rounding for all beta at once. With z = beta/nu, s = sqrt(1 + z^2) and q = 1/s the expansion is
rearranged so that every piece vanishes with beta as fast as the whole does: relative accuracy
holds down to beta = 0.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial.polynomial import polyadd, polyder, polydiv, polyint, polymul, polysub
from torch import Tensor

from mnemosphere.gpu import on_gpu

_MIN_ORDER = 24  # here the terms left out are below 1e-15 of the result for every beta
_N_TERMS = 11
_NEWTON_STEPS, _LAST_ERROR = 5, 1e-9  # from a few percent, each squares the relative error
_FEW = 48  # numbers that are quicker one by one

_Polynomial = Any  # an array of fractions, lowest power first


def _polynomial(*coefficients: Fraction | int) -> _Polynomial:
    return np.array([Fraction(c) for c in coefficients], dtype=object)


@cache
def _debye_log_polynomials() -> tuple[_Polynomial, ...]:
    """D_k with sum_k D_k(q)/nu^k = log(1 + sum_k u_k(q)/nu^k), u_k Debye's polynomials of I_nu."""
    u, d = [_polynomial(1)], list[_Polynomial]()
    for _ in range(_N_TERMS):
        # u_{k+1} = q^2 (1 - q^2) u_k' / 2 + int_0^q (1 - 5 s^2) u_k(s) ds / 8
        slope = polymul(_polynomial(0, 0, 1, 0, -1), polyder(u[-1])) / 2
        area = polyint(polymul(_polynomial(1, 0, -5), u[-1])) / 8
        u.append(polyadd(slope, area))
    for k in range(1, _N_TERMS + 1):
        # k u_k = sum_{j=1}^{k} j D_j u_{k-j}, from (log U)' U = U'.
        term = u[k]
        for j in range(1, k):
            term = polysub(term, polymul(d[j - 1] * Fraction(j, k), u[k - j]))
        d.append(term)
    return tuple(d)


class _Expansion(NamedTuple):
    """Polynomials in q (floats, lowest power first) of the expansion where recurrences start."""

    m: int  # the dimension there
    nu: float
    ratio: tuple[float, ...]
    resultant: tuple[float, ...]
    slope: tuple[float, ...]


@lru_cache(64)
def _expansion(n: int) -> _Expansion:
    """With S(q) = sum_k D_k(q)/nu^k, nu = m/2 - 1 >= _MIN_ORDER for m = n + 2K, the polynomials

    ratio      (S(q) - S(1)) / (q - 1),
    resultant  P(q)/(nu q),   P = q^2/2 + q^3 S'(q),
    slope      (P - q (1 - q^2) P') / (nu q^2).
    """
    m = n + 2 * max(0, math.ceil(_MIN_ORDER + 1 - n / 2))
    nu = Fraction(m - 2, 2)
    s = _polynomial(0)
    for k, d in enumerate(_debye_log_polynomials(), start=1):
        s = polyadd(s, d / nu**k)
    ratio: _Polynomial = polydiv(s, _polynomial(-1, 1))[0]
    p = polyadd(_polynomial(0, 0, Fraction(1, 2)), polymul(_polynomial(0, 0, 0, 1), polyder(s)))
    r = polysub(p, polymul(_polynomial(0, 1, 0, -1), polyder(p)))
    return _Expansion(
        m,
        nu=float(nu),
        ratio=tuple(float(c) for c in ratio),
        resultant=tuple(float(c / nu) for c in p[1:]),
        slope=tuple(float(c / nu) for c in r[2:]),
    )


@cache  # a graph reads them where they are
def _on_device(coefficients: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The coefficients and their powers as tensors, copied to the device once."""
    with torch.inference_mode(False):  # autograd may read them later
        c = torch.tensor(coefficients, dtype=torch.float64, device=device)
        return c, torch.arange(len(c), dtype=torch.float64, device=device)


class _Plain:
    """For one number: a hundred times as fast as a tensor of one."""

    hypot, log1p = staticmethod(math.hypot), staticmethod(math.log1p)
    minimum, maximum, all = staticmethod(min), staticmethod(max), staticmethod(bool)


def _horner(coefficients: tuple[float, ...], q: Any) -> Any:
    if isinstance(q, Tensor):
        # Three kernels to launch instead of two for each of some thirty coefficients.
        values, powers = _on_device(coefficients, q.device)
        return q[..., None].pow(powers) @ values
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * q + c
    return total


def _recurrence(beta: Any, n: int) -> tuple[Any, Any, Any]:
    """(log Omega_N(beta)/Omega_N(0), A_N, A_N').

    At large beta this keeps the digits that 1 - A^2 - (N-1) A/beta loses.
    """
    xp: Any = torch if isinstance(beta, Tensor) else _Plain
    e = _expansion(n)
    z = beta / e.nu
    s = xp.hypot(z, 0 * z + 1)  # no overflow, unlike sqrt(1 + z^2)
    q = 1 / s
    t = z * (z / (1 + s))  # s - 1
    value = e.nu * (t - xp.log1p(t / 2)) - xp.log1p(t) / 2 - t / s * _horner(e.ratio, q)
    a = z / s * (1 / (1 + q) - _horner(e.resultant, q))
    slope = q * q / e.nu * (1 / (1 + q) - _horner(e.slope, q))
    for k in range(e.m - 2, n - 1, -2):
        value = value + xp.log1p(beta * a / k)
        denominator = k + beta * a
        a = beta / denominator
        slope = k / denominator / denominator - a * a * slope
    # Beyond beta = 1e15 the sum loses k to rounding, and the ratio may pass 1 by a few ulps.
    return value, xp.minimum(a, 0 * a + 1), slope


def _inverse(r: Any, n: int) -> Any:
    xp: Any = torch if isinstance(r, Tensor) else _Plain
    # Amos' bounds on A_N: (n - 1) r/(1 - r^2) <= beta <= n r/(1 - r^2).
    base = r / ((1 - r) * (1 + r))
    low, high = (n - 1) * base, n * base
    beta = (n - r * r) * base  # right to leading order at both ends
    for _ in range(_NEWTON_STEPS):
        _, a, slope = _recurrence(beta, n)
        before, beta = beta, xp.minimum(xp.maximum(beta - (a - r) / slope, low), high)
        if xp.all(abs(beta - before) <= _LAST_ERROR * beta):
            break
    return beta


def _evaluate(
    function: Callable[[Any, int], Any], x: Tensor | float, n: int, end: float = math.inf
) -> Tensor:
    """In float64, by plain numbers if there are few, else by torch; ValueError outside of [0, end).

    By torch also on a GPU, which is not waited for, and in an exported graph or if autograd is to go through; but
    not if `end` is finite.
    """
    x = x if isinstance(x, Tensor) else torch.as_tensor(x, dtype=torch.float64)
    smooth = end == math.inf
    few = x.numel() <= _FEW
    unseen = smooth and (on_gpu(x) or torch.compiler.is_exporting())  # its values
    if not unseen:
        some = (x if few else torch.stack(x.aminmax())).reshape(-1).tolist()
        if (bad := next((v for v in some if not 0 <= v < end), None)) is not None:  # NaN too
            raise ValueError(
                f"beta must be finite and not negative, got {bad}: clamp it at 0" if smooth else
                f"r must lie in [0, {end:g}), got {bad}: no finite beta has this resultant"
            )  # fmt: skip
    if unseen or not few or (smooth and x.requires_grad):
        return torch.as_tensor(function(x.double(), n)).to(x.dtype)
    found = [function(v, n) for v in x.reshape(-1).tolist()]
    return torch.tensor(found, dtype=torch.float64, device=x.device).view(x.shape).to(x.dtype)


def log_omega_ratio(beta: Tensor | float, n: int) -> Tensor:
    """Return log[Omega_N(beta) / Omega_N(0)], elementwise; exactly 0 at beta = 0.

    beta: tensor of any shape (or a float, taken as float64), finite and not negative, which is
    not checked on a GPU; n: the dimension N >= 2. Computed in float64, returned in the dtype of
    beta. Its derivative is `mean_resultant`; autograd has it to fewer digits where beta is large.
    """
    return _evaluate(lambda x, n: _recurrence(x, n)[0], beta, n)


def log_area(n: int) -> float:
    """Log of the area of the sphere in dimension n, log Omega_N(0)."""
    return math.log(2) + n / 2 * math.log(math.pi) - math.lgamma(n / 2)


def mean_resultant(beta: Tensor | float, n: int) -> Tensor:
    """A_N(beta) = d log Omega_N / d beta = I_{N/2}(beta) / I_{N/2-1}(beta), elementwise, in [0, 1].

    It is the mean of <x, w> for x drawn from the von Mises-Fisher distribution of mean direction
    w and concentration beta. Arguments and precision as for `log_omega_ratio`.
    """
    return _evaluate(lambda x, n: _recurrence(x, n)[1], beta, n)


def inverse_mean_resultant(r: Tensor | float, n: int) -> Tensor:
    """Solve A_N(beta) = r for beta >= 0, elementwise: the fixed-point step for beta.

    r: tensor of any shape (or a float, taken as float64) with values in [0, 1); n: the dimension
    N >= 2. Safeguarded Newton steps in float64, returned in the dtype of r. Near r = 1 the problem
    itself is ill-conditioned: beta ~ (N-1) / (2 (1-r)).
    """
    return _evaluate(_inverse, r, n, end=1.0)
