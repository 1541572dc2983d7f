"""Saddle-point equations that keep the noise of the examples: teachers of β* = b√N, and students of β = O(√N).

An example of pattern b is ς x_b + √(1 − ς²) z with z in a random direction, so a field β⟨w^μ, x⟩ is
β_eff m[b,μ] plus noise of variance s² = β²(1 − ς²)/N. The paper's limit has s → 0. If β* = b√N, then
ς = b/√N, and s = β_eff/b stays of order 1. Its equations are those of clustering a Gaussian
mixture in high dimension. With u (P, D) the mean memories in the span of the patterns and q (P, P)
the overlaps of the memories of two draws from the posterior, replica symmetry gives

    h[b,μ]  = β_eff ⟨x_b, u^μ⟩ + s (q^½ ξ)_μ + ½ s² (1 − q[μ,μ]) − log R,    ξ ~ N(0, 1),  h[b,0] = 0
    x_bar   = Σ_b x_b E_ξ r[b,μ],     c[μ,ν] = Σ_b E_ξ r[b,μ] r[b,ν],    r the softmax shares of p exp(h)
    D       = (Λ + ϱ s² c)⁻¹,         Λ diagonal, so that q + D has the diagonal 1
    u       = ϱ β_eff D x_bar,        q = u uᵀ + D (ϱ s² c) D

s → 0 leaves q = u uᵀ and Eq. (saddle-point). docs/theory-derivations.md has the proof.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import OrderParameters, class_weights, shares
from mnemosphere.theory.solver import NotConvergedError

# Gauss–Hermite nodes in all and along one axis, and the most memories they are accurate for.
_NODES, _NODES_PER_AXIS, _MAX_MEMORIES = 8192, 41, 6


@dataclass(frozen=True)
class NoisySolution:
    """A solution of the saddle-point equations with the noise of the examples.

    Attributes
    ----------
    m : tensor of shape (P*, P)
        Overlaps of the teacher's with the student's memories.
    q : tensor of shape (P, P)
        Overlaps of the memories of two independent draws from the posterior. The diagonal of a student
        that overfits exceeds the squared length of its overlaps.
    p : tensor of shape (P+1, C+1)
        Class weights of the student.
    free_entropy : float
        Limit of log Z/N relative to the uniform density.
    iterations : int
        Steps taken.

    Examples
    --------
    >>> mn.theory.solve_with_noise(problem, state).q.shape
    torch.Size([2, 2])
    """

    m: Tensor
    q: Tensor
    p: Tensor
    free_entropy: float
    iterations: int


def solve_with_noise(
    problem: SaddlePointProblem,
    start: OrderParameters,
    *,
    tol: float = 1e-9,
    max_iter: int = 5000,
) -> NoisySolution:
    """Solve the saddle-point equations with the noise of the examples, from one start.

    Valid for β = O(√N) at any β* of order √N or more, which includes β* = υN: the paper's equations are
    the limit in which β(1 − ς²)/(2Nς) vanishes. Replica symmetry is assumed. It holds at β = β*; if β is
    far above, the memories of a student may fit noise, and we do not know how accurate the equations are there.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations, with finite ϱ and at most 6 memories.
    start : OrderParameters
        Overlaps m (P*, P) and class weights p (P+1, C+1), such as a solution without noise.
    tol : float, default 1e-9
        Largest change of an overlap in the last step.
    max_iter : int, default 5000
        Steps at most.

    Returns
    -------
    NoisySolution
        Overlaps, class weights and free entropy.

    Raises
    ------
    NotConvergedError
        If the steps run out.

    Examples
    --------
    >>> weak = problem.replace(upsilon=0.05, beta=100.0)  # β* = 50 in 1,000 dimensions
    >>> found = mn.theory.solve_with_noise(weak, state)
    >>> bool(found.m[0].max() < state.m[0].max())
    True
    """
    if math.isinf(problem.rho) or problem.n_student > _MAX_MEMORIES:
        raise ValueError(
            f"need finite rho and at most {_MAX_MEMORIES} memories, got rho = {problem.rho:g} and "
            f"{problem.n_student} memories: pass a smaller problem"
        )
    x, rho, s2 = problem.compressed().patterns, problem.rho, problem.noise
    u = torch.linalg.lstsq(x, start.m).solution.T  # (P, D), m = x uᵀ
    q, p = u @ u.T, start.p
    nodes, weight = _grid(problem.n_student - int(float(problem.p_h[0]) == 0.0))
    for i in range(1, max_iter + 1):
        r, log_norm = shares(_fields(problem, x @ u.T, q, nodes), p)  # (K, P*, C+1, P+1)
        weighted = problem.targets[..., None] * weight[:, None, None, None] * r
        x_bar = weighted[..., 1:].sum((0, 2)).T @ x  # (P, D)
        noise = rho * s2 * torch.einsum("kbyi,kbyj->ij", weighted[..., 1:], r[..., 1:])
        pull = rho * problem.beta_eff * x_bar
        d = _fluctuation(pull @ pull.T + noise, noise)
        before, u = (u, q, p), d @ pull
        q, p = u @ u.T + d @ noise @ d, class_weights(problem, weighted.sum((0, 1)).T)
        change = max(float((a - b).abs().max()) for a, b in zip((u, q, p), before, strict=True))
        if change < tol:
            energy = rho * float((problem.targets * torch.einsum("k,kby", weight, log_norm)).sum())
            rest = torch.linalg.solve(d, q - u @ u.T).trace()
            f = 0.5 * float(torch.logdet(d) + rest) + energy
            return NoisySolution(x @ u.T, q, p, f, i)
    raise NotConvergedError(
        f"overlaps still change by {change:.1e} after {max_iter} steps: raise max_iter or tol"
    )


def parting_eigenvalues(problem: SaddlePointProblem) -> tuple[float, float]:
    """Compute how fast the memories of the symmetric state part, with the noise of the examples.

    At the symmetric state the contrasts of a memory fluctuate with the variance d, and

        signal = d ϱ β_eff²/P,     noise = d² ϱ s⁴ P*/P²,     s² = β²(1 − ς²)/N.

    If the first exceeds 1, memories part towards the teacher's; if only the second does, they part
    along the noise of the examples, and overlap equally with every memory of the teacher. With s = 0 the first is
    1 at β_eff² = P* + P/ϱ, the paper's transition. A student with β = β* and P = P* has d = 1 and
    both are ϱb⁴/P*, b² = β*²/N.

    Parameters
    ----------
    problem : SaddlePointProblem
        A uniform teacher and a student with equal memories, without a uniform component.

    Returns
    -------
    signal : float
        Eigenvalue towards the teacher's memories.
    noise : float
        Eigenvalue along the noise.

    Examples
    --------
    >>> mn.theory.parting_eigenvalues(problem)[0] > 1  # two memories part
    True
    """
    n_teacher, n_student, rho = problem.n_teacher, problem.n_student, problem.rho
    equal = torch.allclose(problem.p_h[1:], problem.p_h[1:].mean())
    if not problem.uniform_teacher or not equal or float(problem.p_h[0]) or math.isinf(rho):
        raise ValueError(
            "need a uniform teacher, equal memories without a uniform component and finite rho"
        )
    s2 = problem.noise
    noise = rho * s2 * n_teacher / n_student  # what the sum of the memories sees
    pull = n_teacher * (rho * problem.beta_eff / n_student) ** 2 + noise / n_student

    def excess(log_d: float) -> float:
        """Mean squared length of a memory at contrast variance d, less 1."""
        d = math.exp(log_d)
        common = d / (1.0 + d * noise)
        return pull * common**2 + d * (1.0 - 1.0 / n_student) + common / n_student - 1.0

    bound = math.log(n_student / max(n_student - 1, 0.5)) + 40.0
    d = math.exp(brentq(excess, -bound, bound, xtol=1e-14))
    signal = d * rho * problem.beta_eff**2 / n_student
    return signal, d * d * rho * s2 * s2 * n_teacher / n_student**2


def _fields(problem: SaddlePointProblem, m: Tensor, q: Tensor, nodes: Tensor) -> Tensor:
    """Fields (K, P*, P) of the memories at the nodes (K, d) of the noise."""
    n, d = nodes.shape[1], len(q)
    # Noise common to all memories changes no share unless there is a uniform component, and
    # adds nothing to the mean of the log norm.
    center = torch.eye(d, dtype=q.dtype) - (1.0 / d if n < d else 0.0)
    values, vectors = torch.linalg.eigh(center @ q @ center)
    root = vectors[:, d - n :] * values[d - n :].clamp_min(0.0).sqrt()  # (P, d)
    noise = math.sqrt(problem.noise) * (nodes @ root.T)  # (K, P)
    shift = 0.5 * problem.noise * (1.0 - q.diagonal()) - problem.log_ratio
    fields: Tensor = problem.beta_eff * m + noise[:, None] + shift
    return fields


def _grid(n_axes: int) -> tuple[Tensor, Tensor]:
    """Nodes (K, axes) and weights (K,) of Gauss and Hermite for standard normal variables."""
    if n_axes == 0:
        return torch.zeros(1, 0, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    n_nodes = min(_NODES_PER_AXIS, int(_NODES ** (1.0 / n_axes)))
    node, weight = (torch.from_numpy(v) for v in np.polynomial.hermite_e.hermegauss(n_nodes))
    nodes = torch.cartesian_prod(*[node] * n_axes).reshape(-1, n_axes)
    weights = torch.cartesian_prod(*[weight / weight.sum()] * n_axes).reshape(-1, n_axes)
    return nodes, weights.prod(1)


def _fluctuation(second: Tensor, noise: Tensor) -> Tensor:
    """D (P, P) = (Λ + noise)⁻¹ with diagonal Λ such that D + D second D has the diagonal 1.

    That is the minimum over Λ of the convex function ½[tr Λ − log det(Λ + noise) + tr D second], by
    Newton's steps.
    """
    scale = torch.ones(len(noise), dtype=noise.dtype)  # Λ

    def value(scale: Tensor) -> float:
        factor, failed = torch.linalg.cholesky_ex(torch.diag(scale) + noise)
        if int(failed):
            return math.inf
        inverse = torch.cholesky_inverse(factor)
        rest = 0.5 * (scale.sum() + (inverse * second).sum())
        return float(rest - factor.diagonal().log().sum())

    for _ in range(100):
        d: Tensor = torch.linalg.inv(torch.diag(scale) + noise)
        mean = d @ second @ d
        slope = 0.5 * (1.0 - d.diagonal() - mean.diagonal())
        if float(slope.abs().max()) < 1e-13:
            break
        step = torch.linalg.solve(0.5 * d * d + d * mean, slope)
        here = value(scale)
        while value(scale - step) > here + 1e-13 * abs(here):
            step = step / 2
        scale = scale - step
    return d
