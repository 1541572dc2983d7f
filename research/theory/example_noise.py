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

s → 0 leaves q = u uᵀ and Eq. (saddle-point). docs/research/theory-derivations.md has the proof.
"""

import math
from dataclasses import dataclass

import torch
from scipy.optimize import brentq
from torch import Tensor

from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import OrderParameters, class_weights, shares
from mnemosphere.theory.solver import NotConvergedError

# The integral over the noise: digits (natural), where normal variables are cut off, most nodes.
_DIGITS, _CUT, _MAX_NODES = 20.0, 6.5, 1 << 20


@dataclass(frozen=True)
class NoisySolution:
    """A solution of the saddle-point equations with the noise of the examples."""

    m: Tensor  # (P*, P) overlaps of the teacher's with the student's memories
    # (P, P) overlaps of the memories of two independent draws from the posterior; the diagonal of a
    # student that overfits exceeds the squared length of its overlaps
    q: Tensor
    p: Tensor  # (P+1, C+1) class weights of the student
    free_entropy: float  # limit of log Z/N relative to the uniform density
    iterations: int


def solve_with_noise(
    problem: SaddlePointProblem, start: OrderParameters, *, tol: float = 1e-9, max_iter: int = 5000
) -> NoisySolution:
    """Solve the saddle-point equations with the noise of the examples, from one start.

    Valid for β = O(√N) at any β* of order √N or more, which includes β* = υN: the paper's equations are
    the limit in which β(1 − ς²)/(2Nς) vanishes. Replica symmetry is assumed. It holds at β = β*; if β is
    far above, the memories of a student may fit noise, and we do not know how accurate the equations are there.

    start: overlaps m (P*, P) and class weights p (P+1, C+1), such as a solution without noise. tol: largest change
    of an overlap in the last step. The integral over the noise has as many dimensions as there are memories.
    """
    if math.isinf(problem.rho):
        raise ValueError("need finite rho, got inf: solve_saddle_point has the limit")
    x, rho, s2 = problem.compressed().patterns, problem.rho, problem.noise
    u = torch.linalg.lstsq(x, start.m).solution.T  # (P, D), m = x uᵀ
    q, p = u @ u.T, start.p
    for i in range(1, max_iter + 1):
        noise, weight = _field_noise(problem, q)  # (K, P), (K,)
        h = problem.beta_eff * (x @ u.T) + noise[:, None] - problem.log_ratio
        r, log_norm = shares(h + 0.5 * s2 * (1.0 - q.diagonal()), p)  # (K, P*, C+1, P+1)
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


def parting_eigenvalues(problem: SaddlePointProblem) -> tuple[float, float, float]:
    """Compute how fast memories part along the teacher's contrasts and along the noise of the examples.

    At the symmetric state the contrasts of a memory fluctuate with the variance d, and

        signal = d ϱ β_eff²/P,     noise = d² ϱ s⁴ P*/P²,     s² = β²(1 − ς²)/N.

    It is stable if neither exceeds 1. If the second does, memories first part along the noise: two draws of
    a memory agree, and its overlaps with the teacher's are still equal. There

        parted = d ϱ β_eff² (1/P − κ),     κ = (E|r|² − 1/P)/(P − 1),

    with r the shares of a row, sharper as κ grows. They part towards the teacher's if this exceeds 1, and
    it may be below 1 though `signal` is far above. Without parting along the noise, it is `signal`. With
    s = 0 that is 1 at β_eff² = P* + P/ϱ, the paper's transition. A student with β = β* and P = P* has d = 1, and
    signal and noise are ϱb⁴/P*, b² = β*²/N.

    (signal, noise, parted): the first two at the symmetric state, the third after parting along the noise as far
    as it goes. For a uniform teacher and a student with equal memories, without a uniform component.
    """
    n_teacher, n_student, rho = problem.n_teacher, problem.n_student, problem.rho
    equal = torch.allclose(problem.p_h[1:], problem.p_h[1:].mean())
    if not problem.uniform_teacher or not equal or float(problem.p_h[0]) or math.isinf(rho):
        raise ValueError(
            "need a uniform teacher, equal memories without a uniform component and finite rho"
        )
    s2 = problem.noise
    common_noise = rho * s2 * n_teacher / n_student  # what the sum of the memories sees
    pull = n_teacher * (rho * problem.beta_eff / n_student) ** 2 + common_noise / n_student

    def variance(own_noise: float) -> float:
        """The d at which memories have length 1, if their contrasts see this noise."""

        def excess(log_d: float) -> float:
            d = math.exp(log_d)
            common = 1.0 / (1.0 / d - own_noise + common_noise)
            contrasts = (d + d * d * own_noise) * (1.0 - 1.0 / n_student)
            return pull * common**2 + contrasts + common / n_student - 1.0

        bound = math.log(n_student / max(n_student - 1, 0.5)) + 40.0
        return math.exp(brentq(excess, -bound, bound, xtol=1e-14))

    def sharpness(q: float) -> float:
        """κ at this variance q of the contrasts between two draws."""
        contrast = torch.eye(n_student, dtype=torch.float64) - 1.0 / n_student
        h, weight = _field_noise(problem, q * contrast)
        square = float(weight @ torch.softmax(h, 1).square().sum(1))
        return (square - 1.0 / n_student) / (n_student - 1)

    def growth(log_q: float) -> float:
        """Contrasts after a step relative to those before, logarithm."""
        own_noise = rho * s2 * n_teacher * sharpness(math.exp(log_q))
        return math.log(variance(own_noise) ** 2 * own_noise) - log_q

    d, kappa = variance(0.0), 0.0
    signal = d * rho * problem.beta_eff**2 / n_student
    noise = d * d * rho * s2 * s2 * n_teacher / n_student**2
    if noise > 1.0 and n_student > 1:
        # Growth falls from the eigenvalue at q = 0 to below 1 at the largest q.
        small, most = math.log(1e-9), math.log(n_student / (n_student - 1))
        if growth(small) > 0.0:
            kappa = sharpness(math.exp(brentq(growth, small, most, xtol=1e-12)))
            d = variance(rho * s2 * n_teacher * kappa)
    return signal, noise, d * rho * problem.beta_eff**2 * (1.0 / n_student - kappa)


def _field_noise(problem: SaddlePointProblem, q: Tensor) -> tuple[Tensor, Tensor]:
    """Values (K, P) of s q^½ ξ, ξ ~ N(0, 1), and their weights (K,): a trapezoidal rule per axis."""
    # Noise common to all memories changes no share unless there is a uniform component, and
    # adds nothing to the mean of the log norm.
    even = float(problem.p_h[0]) == 0.0
    center = torch.eye(len(q), dtype=q.dtype) - (1.0 / len(q) if even else 0.0)
    values, vectors = torch.linalg.eigh(center @ q @ center)
    root = math.sqrt(problem.noise) * vectors * values.clamp_min(0.0).sqrt()  # (P, axes)
    root = root[:, int(even) :]
    others = root if even else torch.cat([root, torch.zeros_like(root[:1])])
    spread = (others.amax(0) - others.amin(0)).tolist()  # largest difference of two fields, per ξ
    axes = [torch.arange(-n, n + 1, dtype=q.dtype) * (_CUT / n) for n in map(_half_nodes, spread)]
    n_nodes = math.prod(map(len, axes))
    if n_nodes > _MAX_NODES:
        raise ValueError(
            f"{problem.n_student} memories with noise {math.sqrt(problem.noise):.2g} of their fields need "
            f"{n_nodes:.1e} nodes, {_MAX_NODES} are allowed: lower beta or take fewer memories"
        )
    if not axes:
        return q.new_zeros(1, len(q)), q.new_ones(1)
    nodes = torch.cartesian_prod(*axes).reshape(-1, len(axes))
    square = (nodes * nodes).sum(1)
    inside = square <= _CUT**2
    weight = torch.exp(-0.5 * square[inside])
    return nodes[inside] @ root.T, weight / weight.sum()


def _half_nodes(slope: float) -> int:
    """Nodes on one side of an axis along which two fields differ by slope·ξ at most.

    Shares have poles at the distance d = π/slope from the axis. Shifting the contour by a ≤ d bounds the
    error of spacing h by exp(a²/2 − 2πa/h).
    """
    a = min(math.pi / max(slope, 1e-300), math.sqrt(2.0 * _DIGITS))
    return math.ceil(_CUT * (_DIGITS + a * a / 2.0) / (2.0 * math.pi * a))


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
