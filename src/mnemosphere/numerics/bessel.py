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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu
from mnemosphere.numerics.debye import expansion, on_device

__all__ = ["inverse_mean_resultant", "log_omega", "log_omega_ratio", "mean_resultant"]

_NEWTON_STEPS, _LAST_ERROR = 5, 1e-9  # from a few percent, each squares the relative error
_FEW = 12  # numbers that are quicker one by one
Function = Callable[[Any, int], Any]


class _Plain:
    """For one number: ten times as fast as NumPy's arrays of one, those far faster than tensors."""

    hypot, log1p = staticmethod(math.hypot), staticmethod(math.log1p)
    minimum, maximum, all = staticmethod(min), staticmethod(max), staticmethod(bool)


def _namespace(x: Any) -> Any:
    return torch if isinstance(x, Tensor) else _Plain if isinstance(x, float) else np


def _horner(coefficients: tuple[float, ...], q: Any) -> Any:
    if isinstance(q, Tensor) and on_gpu(q):
        # Three kernels to launch instead of two for each of some thirty coefficients.
        values, powers = on_device(coefficients, q.device)
        return q[..., None].pow(powers) @ values
    if isinstance(q, np.ndarray):
        return (np.vander(q.ravel(), len(coefficients), True) @ coefficients).reshape(q.shape)
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * q + c
    return total


def _scaled(beta: Any, nu: float) -> tuple[Any, Any, Any]:
    xp = _namespace(beta)
    z = beta / nu
    s = xp.hypot(z, 0 * z + 1)  # no overflow, unlike sqrt(1 + z^2)
    return z, s, 1 / s


def _resultant_at(beta: Any, m: int) -> Any:
    """A_m(beta) from the expansion."""
    e = expansion(m)
    z, s, q = _scaled(beta, e.nu)
    return z / s * (1 / (1 + q) - _horner(e.resultant, q))


def _log_ratio(beta: Any, n: int) -> Any:
    xp, e = _namespace(beta), expansion(n)
    z, s, q = _scaled(beta, e.nu)
    t = z * (z / (1 + s))  # s - 1
    value = e.nu * (t - xp.log1p(t / 2)) - xp.log1p(t) / 2 - t / s * _horner(e.ratio, q)
    if e.m > n:
        a = _resultant_at(beta, e.m)
        for k in range(e.m - 2, n - 1, -2):
            value = value + xp.log1p(beta * a / k)
            a = beta / (k + beta * a)
    return value


def _resultant(beta: Any, n: int) -> Any:
    m = expansion(n).m
    a = _resultant_at(beta, m)
    for k in range(m - 2, n - 1, -2):
        a = beta / (k + beta * a)
    # Beyond beta = 1e15 the sum loses k to rounding, and the ratio may pass 1 by a few ulps.
    return _namespace(beta).minimum(a, 0 * a + 1)


def _resultant_and_slope(beta: Any, n: int) -> tuple[Any, Any]:
    """A_N and A_N'. At large beta this keeps the digits that 1 - A^2 - (N-1) A/beta loses."""
    e = expansion(n)
    _, _, q = _scaled(beta, e.nu)
    a = _resultant_at(beta, e.m)
    slope = q * q / e.nu * (1 / (1 + q) - _horner(e.slope, q))
    for k in range(e.m - 2, n - 1, -2):
        denominator = k + beta * a
        a = beta / denominator
        slope = k / denominator / denominator - a * a * slope
    return a, slope


def _inverse(r: Any, n: int) -> Any:
    xp = _namespace(r)
    # Amos' bounds on A_N: (n - 1) r/(1 - r^2) <= beta <= n r/(1 - r^2).
    base = r / ((1 - r) * (1 + r))
    low, high = (n - 1) * base, n * base
    beta = (n - r * r) * base  # right to leading order at both ends
    for _ in range(_NEWTON_STEPS):
        a, slope = _resultant_and_slope(beta, n)
        before, beta = beta, xp.minimum(xp.maximum(beta - (a - r) / slope, low), high)
        if xp.all(abs(beta - before) <= _LAST_ERROR * beta):
            break
    return beta


def _outside(x: Tensor, end: float) -> float | None:
    """A number that does not lie in [0, end), if there is one."""
    some = x if x.numel() <= _FEW else torch.stack(x.aminmax())
    return next((v for v in some.reshape(-1).tolist() if not 0 <= v < end), None)  # NaN too


def _check_beta(beta: Tensor | float) -> Tensor:
    beta = beta if isinstance(beta, Tensor) else torch.as_tensor(beta, dtype=torch.float64)
    # Asking a GPU would wait for it.
    if not on_gpu(beta) and (got := _outside(beta, math.inf)) is not None:
        raise ValueError(
            f"beta must be finite and not negative, got {got}: clamp it at 0 or lower the step size"
        )
    return beta


def _evaluate(function: Function, x: Tensor, n: int, *, smooth: bool = True) -> Tensor:
    """In float64, by plain numbers if there are few, else by NumPy.

    smooth: by torch on a GPU, which is not waited for, and if autograd is to go through.
    """
    if smooth and (on_gpu(x) or x.requires_grad):
        found: Any = function(x.double(), n)
        return torch.as_tensor(found)
    if x.numel() <= _FEW:
        found = [function(v, n) for v in x.reshape(-1).tolist()]
        found = found if x.ndim else found[0]
        return torch.tensor(found, dtype=torch.float64, device=x.device).view(x.shape)
    numbers = x.detach().double().cpu().numpy()
    with np.errstate(over="ignore", under="ignore"):
        return torch.from_numpy(function(numbers, n)).to(x.device)


def log_omega_ratio(beta: Tensor | float, n: int) -> Tensor:
    """Return log[Omega_N(beta) / Omega_N(0)], elementwise; exactly 0 at beta = 0.

    beta: tensor of any shape (or a float, taken as float64), finite and not negative, which is
    not checked on a GPU; n: the dimension N >= 2. Computed in float64, returned in the dtype of
    beta. Its derivative is `mean_resultant`; autograd has it to fewer digits where beta is large.
    """
    beta = _check_beta(beta)
    return _evaluate(_log_ratio, beta, n).to(beta.dtype)


def log_omega(beta: Tensor | float, n: int) -> Tensor:
    """Return log Omega_N(beta), Omega_N(beta) = int_{S^{N-1}} exp(beta x_1) dx, elementwise.

    Arguments and precision as for `log_omega_ratio`. Prefer that one where constants
    cancel: at beta = 0 this is the log area of the sphere, large and negative for large N.
    """
    beta = _check_beta(beta)
    log_area = math.log(2) + n / 2 * math.log(math.pi) - math.lgamma(n / 2)
    return (_evaluate(_log_ratio, beta, n) + log_area).to(beta.dtype)


def mean_resultant(beta: Tensor | float, n: int) -> Tensor:
    """A_N(beta) = d log Omega_N / d beta = I_{N/2}(beta) / I_{N/2-1}(beta), elementwise, in [0, 1].

    It is the mean of <x, w> for x drawn from the von Mises-Fisher distribution of mean direction
    w and concentration beta. Arguments and precision as for `log_omega_ratio`.
    """
    beta = _check_beta(beta)
    return _evaluate(_resultant, beta, n).to(beta.dtype)


def inverse_mean_resultant(r: Tensor | float, n: int) -> Tensor:
    """Solve A_N(beta) = r for beta >= 0, elementwise: the fixed-point step for beta.

    r: tensor of any shape (or a float, taken as float64) with values in [0, 1); n: the dimension
    N >= 2. Safeguarded Newton steps in float64, returned in the dtype of r. Near r = 1 the problem
    itself is ill-conditioned: beta ~ (N-1) / (2 (1-r)).
    """
    r = r if isinstance(r, Tensor) else torch.as_tensor(r, dtype=torch.float64)
    if (got := _outside(r, 1.0)) is not None:
        raise ValueError(
            f"r must lie in [0, 1), got {got}: no finite beta has this resultant, keep r below 1"
        )
    return _evaluate(_inverse, r, n, smooth=False).to(r.dtype)
