"""The polynomials of Debye's uniform expansion of I_nu, and where they may start: see `bessel`."""

import math
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["expansion", "on_device"]

_MIN_ORDER = 24  # here the terms left out are below 1e-15 of the result for every beta
_N_TERMS = 11

_Polynomial = list[Fraction]  # coefficients, lowest power first


def _multiply(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    product = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b) if x else ():  # every other one is zero
            product[i + j] += x * y
    return product


def _add(a: _Polynomial, b: _Polynomial, scale: Fraction) -> _Polynomial:
    """Return a + scale * b."""
    size = max(len(a), len(b))
    a, b = a + [Fraction(0)] * (size - len(a)), b + [Fraction(0)] * (size - len(b))
    return [x + scale * y if y else x for x, y in zip(a, b, strict=True)]


def _differentiate(a: _Polynomial) -> _Polynomial:
    return [k * x for k, x in enumerate(a)][1:] or [Fraction(0)]


def _integrate(a: _Polynomial) -> _Polynomial:
    return [Fraction(0)] + [x / (k + 1) for k, x in enumerate(a)]


@lru_cache(maxsize=1)
def _debye_log_polynomials() -> tuple[_Polynomial, ...]:
    """D_k with sum_k D_k(q)/nu^k = log(1 + sum_k u_k(q)/nu^k), u_k Debye's polynomials of I_nu."""
    u, d = [[Fraction(1)]], list[_Polynomial]()
    for _ in range(_N_TERMS):
        # u_{k+1} = q^2 (1 - q^2) u_k' / 2 + int_0^q (1 - 5 s^2) u_k(s) ds / 8
        slope = _multiply([Fraction(c, 2) for c in (0, 0, 1, 0, -1)], _differentiate(u[-1]))
        area = _integrate(_multiply([Fraction(c, 8) for c in (1, 0, -5)], u[-1]))
        u.append(_add(slope, area, Fraction(1)))
    for k in range(1, _N_TERMS + 1):
        # k u_k = sum_{j=1}^{k} j D_j u_{k-j}, from (log U)' U = U'.
        term = u[k]
        for j in range(1, k):
            term = _add(term, _multiply(d[j - 1], u[k - j]), Fraction(-j, k))
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
    s, carry = [Fraction(0)], Fraction(0)
    for k, d in enumerate(_debye_log_polynomials(), start=1):
        s = _add(s, d, 1 / nu**k)
    ratio: _Polynomial = []  # synthetic division of S by (q - 1)
    for c in reversed(s[1:]):
        carry += c
        ratio.append(carry)
    p = _add(
        [Fraction(0), Fraction(0), Fraction(1, 2)],
        [Fraction(0)] * 3 + _differentiate(s),
        Fraction(1),
    )
    r = _add(p, _multiply([Fraction(c) for c in (0, 1, 0, -1)], _differentiate(p)), Fraction(-1))
    return Expansion(
        m,
        nu=float(nu),
        ratio=tuple(float(c) for c in reversed(ratio)),
        resultant=tuple(float(c / nu) for c in p[1:]),
        slope=tuple(float(c / nu) for c in r[2:]),
    )


@cache  # a graph reads them where they are
def on_device(coefficients: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The coefficients and their powers as tensors, copied to the device once."""
    c = torch.tensor(coefficients, dtype=torch.float64, device=device)
    return c, torch.arange(len(c), dtype=torch.float64, device=device)
