"""Saddle-point equations of the teacher–student setting.

Both teachers of the paper are one problem. With patterns x (P*, D) and label weights q (P*, C+1),

    m_hat[b,μ]  = Σ_y q[b,y] r[b,y,μ],      r[b,y,γ] = softmax_γ(h[b,γ] + log p[γ,y])
    x_bar[μ]    = Σ_b m_hat[b,μ] x_b
    p_bar[γ,y]  = Σ_b q[b,y] r[b,y,γ]
    w[μ]        = ς(2 β_eff ϱ ‖x_bar[μ]‖) x_bar[μ] / ‖x_bar[μ]‖,      m = x wᵀ
    p           = argmax Σ p_bar log p over the class weights with marginals p_h, p_q

where h[b,μ] = β_eff m[b,μ] − log Ω_N(β)/Ω_N(0), h[b,0] = 0 and β_eff = ς(2υ) β. Clamped patterns
give Eq. (saddle-point); the orthonormal basis of D = P* dimensions with q[b] = g*[b], the teacher's
class weights, gives the uniform teacher. Eq. (uniform_saddle-point) is the case of q[b] = p_q* for
every b; with g* at random its solutions are averaged over g* (`random_labels`).

The first three lines send (m, p) to its conjugate (x_bar, p_bar), the last two send a conjugate
back. Their composition is a minorize–maximize step: it never lowers the free entropy after m_hat
is eliminated (docs/research/theory-derivations.md), with or without damping. The solver (`solver`) leans on
it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.numerics import polytope
from mnemosphere.theory.problem import SaddlePointProblem

Point = tuple[Tensor, Tensor]  # x_bar (..., P, D) and p_bar (..., P+1, C+1)


@dataclass(frozen=True)
class OrderParameters:
    """Unknowns of the saddle-point equations.

    Attributes
    ----------
    m : tensor of shape (..., P*, P)
        Overlaps between the teacher's and the student's memories.
    p : tensor of shape (..., P+1, C+1)
        Class weights of the student.

    Examples
    --------
    >>> state = mn.theory.OrderParameters(solution.m[0], solution.p[0])
    >>> state.m.shape, state.p.shape
    (torch.Size([2, 2]), torch.Size([3, 1]))
    """

    m: Tensor
    p: Tensor


@dataclass(frozen=True)
class Conjugate:
    """Conjugate parameters: what (m, p) sends to the next (m, p).

    m_hat (..., P*, P), x_bar (..., P, D) = m_hatᵀ x, p_bar (..., P+1, C+1), and log_likelihood
    (...,) = Σ_b Σ_y q log Σ_γ p exp(h), relative to the uniform density on the sphere.
    """

    m_hat: Tensor
    x_bar: Tensor
    p_bar: Tensor
    log_likelihood: Tensor


def responsibilities(problem: SaddlePointProblem, state: OrderParameters) -> tuple[Tensor, Tensor]:
    """Shares r (..., P*, C+1, P+1) of the components given pattern and label, and their log norm.

    σ_γ(β_eff m + log p_y) of Eq. (saddle-point).
    """
    return shares(problem.beta_eff * state.m - problem.log_ratio, state.p)


def shares(h: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax (..., P*, C+1, P+1) of h + log p for fields h (..., P*, P), and its log norm."""
    h = torch.cat([torch.zeros_like(h[..., :1]), h], dim=-1)  # (..., P*, P+1)
    # A weight of zero is a log of −∞, and a share of exactly zero.
    log_p = torch.log(p).transpose(-1, -2)  # (..., C+1, P+1)
    logits = h.unsqueeze(-2) + log_p.unsqueeze(-3)  # (..., P*, C+1, P+1)
    log_norm = torch.logsumexp(logits, dim=-1)  # (..., P*, C+1)
    return torch.exp(logits - log_norm.unsqueeze(-1)), log_norm


def conjugate(problem: SaddlePointProblem, state: OrderParameters) -> Conjugate:
    """(m, p) → (m_hat, x_bar, p_bar): the "with" lines of Eq. (saddle-point)."""
    r, log_norm = responsibilities(problem, state)
    weighted = r * problem.targets.unsqueeze(-1)  # (..., P*, C+1, P+1)
    m_hat = weighted[..., 1:].sum(-2)  # (..., P*, P)
    p_bar = weighted.sum(-3).transpose(-1, -2)  # (..., P+1, C+1)
    x_bar = m_hat.transpose(-1, -2) @ problem.patterns  # (..., P, P*) @ (P*, D)
    return Conjugate(m_hat, x_bar, p_bar, (problem.targets * log_norm).sum((-1, -2)))


def mean_memories(problem: SaddlePointProblem, x_bar: Tensor) -> Tensor:
    """W (..., P, D) = ς(2 β_eff ϱ ‖x_bar‖) x_bar/‖x_bar‖, the student's mean memories."""
    norm = x_bar.norm(dim=-1, keepdim=True)  # (..., P, 1)
    return x_bar * shrinkage(problem, norm)


def shrinkage(problem: SaddlePointProblem, norm: Tensor) -> Tensor:
    """ς(k·norm)/norm for k = 2 β_eff ϱ, finite at norm = 0 whenever ϱ is."""
    if math.isinf(problem.rho):
        # ς jumps from 0 to 1 at zero: a vanishing x_bar stays where it is.
        return torch.where(norm > 0, 1.0 / norm.clamp_min(1e-300), torch.zeros_like(norm))
    k = problem.gain
    return k / (torch.hypot(k * norm, torch.ones_like(norm)) + 1.0)


def class_weights(problem: SaddlePointProblem, p_bar: Tensor) -> Tensor:
    """P (..., P+1, C+1) = p_bar/ζ, the exact maximizer of Σ p_bar log p. Eq. (nonlinear)."""
    if problem.n_columns == 1:
        return problem.p_h.unsqueeze(-1).expand(p_bar.shape)
    # A component of weight zero has no row to fill: leave it out of the polytope.
    first = 1 if float(problem.p_h[0]) == 0.0 else 0
    rows = problem.p_h[first:]
    p = polytope.maximize(p_bar[..., first:, :], rows, problem.p_q).p
    return torch.cat([torch.zeros_like(p_bar[..., :first, :]), p], dim=-2)


def respond(problem: SaddlePointProblem, x_bar: Tensor, p_bar: Tensor) -> OrderParameters:
    """(x_bar, p_bar) → (m, p): the first two lines of Eq. (saddle-point)."""
    w = mean_memories(problem, x_bar)
    m = problem.patterns @ w.transpose(-1, -2)  # (P*, D) @ (..., D, P)
    return OrderParameters(m, class_weights(problem, p_bar))


def step(problem: SaddlePointProblem, state: OrderParameters) -> OrderParameters:
    """One plain pass of Eq. (saddle-point): (m, p) → (m, p), batched over leading dimensions."""
    c = conjugate(problem, state)
    return respond(problem, c.x_bar, c.p_bar)


def residual(problem: SaddlePointProblem, state: OrderParameters) -> Tensor:
    """Largest change (...,) of any entry of m or p under one step; 0 at a solution."""
    return distance(step(problem, state), state)


def distance(a: OrderParameters, b: OrderParameters) -> Tensor:
    """Largest difference (...,) of any entry of m or p."""
    return torch.maximum((a.m - b.m).abs().amax((-1, -2)), (a.p - b.p).abs().amax((-1, -2)))


def free_entropy_at(problem: SaddlePointProblem, c: Conjugate, x_bar: Tensor) -> Tensor:
    """f/(ϱ P*) at (m, p) = respond(x_bar, ·) once m_hat is eliminated; no step lowers it.

    The overlap entropy is Σ_μ ½ log(1 − ‖w^μ‖²) with 1 − ς(z)² = 2/(√(z² + 1) + 1).
    """
    value = c.log_likelihood
    if not math.isinf(problem.rho):
        z = problem.gain * x_bar.norm(dim=-1)  # (..., P)
        entropy = -0.5 * torch.log((torch.hypot(z, torch.ones_like(z)) + 1.0) / 2.0)
        value = value + entropy.sum(-1) / problem.rho
    return value / problem.n_teacher


def random_starts(
    problem: SaddlePointProblem, n_starts: int, *, generator: torch.Generator
) -> OrderParameters:
    """Draw random states from the interior of the feasible set.

    Each memory starts on a random mix of the patterns, of random sharpness, and the class weights on a
    random point of their polytope.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    n_starts : int
        How many, S.
    generator : torch.Generator
        Source of the draws.

    Returns
    -------
    OrderParameters
        m (S, P*, P) and p (S, P+1, C+1).

    Examples
    --------
    >>> mn.theory.random_starts(problem, 4, generator=generator).m.shape
    torch.Size([4, 2, 2])
    """
    if n_starts < 1:
        raise ValueError(f"n_starts must be at least 1, got {n_starts}")

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    # Sharpness from near even mixes (0) to near single patterns (8): both basins get starts.
    sharpness = 8.0 * uniform(n_starts, 1, problem.n_student)
    noise = uniform(n_starts, problem.n_teacher, problem.n_student)
    mix = torch.softmax(sharpness * noise, dim=1)  # (S, P*, P)
    x_bar = mix.transpose(-1, -2) @ problem.patterns  # (S, P, D)
    p_bar = 0.05 + uniform(n_starts, problem.n_student + 1, problem.n_columns)
    p_bar = p_bar * problem.p_h.unsqueeze(-1)
    return respond(problem, x_bar, p_bar)
