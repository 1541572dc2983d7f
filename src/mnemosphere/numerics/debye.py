"""The polynomials of Debye's uniform expansion of I_nu, and where they may start: see `bessel`."""

import math
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial.polynomial import polyadd, polyder, polydiv, polyint, polymul, polysub
from torch import Tensor

__all__ = ["expansion", "on_device"]

_MIN_ORDER = 24  # here the terms left out are below 1e-15 of the result for every beta
_N_TERMS = 11

_Polynomial = Any  # an array of fractions, lowest power first


def _polynomial(*coefficients: Fraction | int) -> _Polynomial:
    return np.array([Fraction(c) for c in coefficients], dtype=object)


@lru_cache(maxsize=1)
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


class Expansion(NamedTuple):
    """Polynomials in q (floats, lowest power first) of the expansion where recurrences start."""

    m: int  # the dimension there
    nu: float
    ratio: tuple[float, ...]
    resultant: tuple[float, ...]
    slope: tuple[float, ...]


@lru_cache(maxsize=64)
def expansion(n: int) -> Expansion:
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
    return Expansion(
        m,
        nu=float(nu),
        ratio=tuple(float(c) for c in ratio),
        resultant=tuple(float(c / nu) for c in p[1:]),
        slope=tuple(float(c / nu) for c in r[2:]),
    )


@cache  # a graph reads them where they are
def on_device(coefficients: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The coefficients and their powers as tensors, copied to the device once."""
    c = torch.tensor(coefficients, dtype=torch.float64, device=device)
    return c, torch.arange(len(c), dtype=torch.float64, device=device)
