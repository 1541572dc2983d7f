"""The variational free entropy, Eq. (var_free_entropy).

f is the limit of log Z/N. Densities are taken relative to the uniform one on the sphere, which
adds the constant ϱ P* log Ω_N(0) to the paper's f: it moves no solution, and without it the value
would drown in a number of order N log N.
"""

import math

import torch
from torch import Tensor

from mnemosphere.theory.problem import SaddlePointProblem


def eta(x_squared: Tensor) -> Tensor:
    """η(x) = √(1+x²) − 1 − log[1 + √(1+x²)] + log 2 of App. vmf_integration, η' = ς.

    Takes x², so that it has a derivative at x = 0 too.
    """
    t = x_squared / (torch.sqrt(1.0 + x_squared) + 1.0)  # √(1+x²) − 1 without cancellation
    return t - torch.log1p(t / 2.0)


def log_likelihood(problem: SaddlePointProblem, m: Tensor, p: Tensor) -> Tensor:
    """Σ_b Σ_y q[b,y] log Σ_γ p[γ,y] exp(h[b,γ]) (...,), the energetic part of f/ϱ.

    m (..., P*, P), p (..., P+1, C+1); differentiable in both, also where p = 0.
    """
    h = problem.beta_eff * m - problem.log_ratio  # (..., P*, P)
    h = torch.cat([torch.zeros_like(h[..., :1]), h], dim=-1)  # (..., P*, P+1)
    shift = h.detach().amax(-1, keepdim=True)
    joint = torch.exp(h - shift) @ p  # (..., P*, P+1) @ (..., P+1, C+1)
    return (problem.targets * (torch.log(joint) + shift)).sum((-1, -2))


def free_entropy(problem: SaddlePointProblem, m: Tensor, m_hat: Tensor, p: Tensor) -> Tensor:
    """Compute the trial function f(m, m_hat, p) of Eq. (var_free_entropy), differentiable.

    It is stationary in m and m_hat, and in p under its marginals, exactly where Eq. (saddle-point)
    holds. After minimizing it over m_hat, stable solutions are local maxima over (m, p). It is infinite
    at ϱ = ∞.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    m : tensor of shape (..., P*, P)
        Overlaps.
    m_hat : tensor of shape (..., P*, P)
        Conjugate overlaps.
    p : tensor of shape (..., P+1, C+1)
        Class weights of the student.

    Returns
    -------
    tensor of shape (...)
        Free entropy.

    Examples
    --------
    >>> mn.theory.free_entropy(problem, solution.m, solution.m_hat, solution.p).shape
    torch.Size([20])
    """
    if math.isinf(problem.rho):
        raise ValueError("f grows with rho, got rho = inf: a Solution has f/(rho P*)")
    coupling = (m_hat * m).sum((-1, -2))
    x_bar = m_hat.transpose(-1, -2) @ problem.patterns  # (..., P, D)
    entropy = 0.5 * eta(problem.gain**2 * (x_bar * x_bar).sum(-1)).sum(-1)
    energy = log_likelihood(problem, m, p)
    return -problem.beta_eff * problem.rho * coupling + entropy + problem.rho * energy
