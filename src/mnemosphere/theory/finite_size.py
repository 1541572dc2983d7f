"""Corrections of order 1/N to a solution of the saddle-point equations.

Let u (P, D) be the parts of the memories in the span of the patterns, p the class weights and
s = (u, p). With everything across the span integrated out, Z = ∫ ds exp[N F(s) + √N g(s) + E(s)]:

    F = ½ Σ log(1 − ‖u^μ‖²) + ϱ Σ q log Σ_γ p exp(h)        its maximum: the saddle-point equations
    E = −(D+2)/2 Σ log(1 − ‖u^μ‖²)                          volume of the sphere at given u
        + ½ ϱ β² Σ q {Σ_μ r (1 − ς²)(1 − ‖u^μ‖²) + Σ_μ r ⟨u^μ, C u^μ⟩ − ⟨ū, C ū⟩}
        + ϱ β N[A_N(υN) − ς] Σ q r m                        noise of the examples, to second order
    g   of mean zero over data: how many examples each pattern and label got

C/N is the covariance of an example within the span, ū = Σ_μ r u^μ, ς = ς(2υ). H = −∂²F is
ϱ β_eff B⁻¹(1 − J) with the Jacobian J of the map; the integral is Gaussian around the maximum, and

    log Z = N F + f₁,    f₁ = E − ½ log det H + ½ ⟨∇gᵀ H⁻¹ ∇g⟩,    N Δs = H⁻¹ ∇f₁.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.numerics import bessel
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import OrderParameters

# torch says nothing of their types.
_hessian: Callable[..., Tensor] = torch.autograd.functional.hessian
_jacobian: Callable[..., Tensor] = torch.autograd.functional.jacobian
_INTERIOR = 1e-7  # a class weight below it counts as 0


@dataclass(frozen=True)
class FiniteSize:
    """N times what finite N adds to a solution, averaged over data; terms that vanish as N grows are left out.

    Attributes
    ----------
    m : tensor of shape (P*, P)
        Correction of the overlaps.
    p : tensor of shape (P+1, C+1)
        Correction of the class weights.
    log_z : float
        E log Z − N f for one of the equivalent maxima; with labels, up to a number that is the same for
        all solutions.

    Examples
    --------
    >>> mn.theory.finite_size_corrections(problem, state).m.shape
    torch.Size([2, 2])
    """

    m: Tensor
    p: Tensor
    log_z: float


def finite_size_corrections(problem: SaddlePointProblem, state: OrderParameters) -> FiniteSize:
    """Compute the corrections of order 1/N to a stable solution.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    state : OrderParameters
        A solution m (P*, P), p (P+1, C+1).

    Returns
    -------
    FiniteSize
        N times the corrections.

    Examples
    --------
    >>> mn.theory.finite_size_corrections(problem, state).p.shape
    torch.Size([3, 1])
    """
    landscape = _Landscape(problem, state.p)
    s = landscape.coordinates(state)
    hessian = landscape.hessian(s)
    values = torch.linalg.eigvalsh(hessian)
    if float(values[0]) <= 1e-9 * float(values[-1]):
        raise ValueError("the solution is no isolated maximum: corrections need a stable one")
    s = s.detach().requires_grad_()
    value = landscape.first_order(s) + landscape.disorder(s)
    (slope,) = torch.autograd.grad(value, s)
    du, dp = landscape.parts(torch.linalg.solve(hessian, slope))
    return FiniteSize(landscape.x @ du.T, dp - landscape.p, float(value.detach()))


class _Landscape:
    """F, E and the covariance of ∇g as functions of s = (u, t), p = state's + t times a basis.

    weight (P*, C+1): examples per dimension; mean (P*, C+1, D): their means in the span.
    """

    def __init__(self, problem: SaddlePointProblem, p: Tensor) -> None:
        if math.isinf(problem.rho) or math.isinf(problem.upsilon):
            raise ValueError("corrections need finite rho and upsilon: they are those of few data")
        active = problem.p_h > 0
        if problem.n_columns > 1 and float(p[active].min()) < _INTERIOR:
            raise ValueError(
                "class weights touch 0, where their fluctuations are not Gaussian: smooth labels"
            )
        self.problem, self.p = problem, p
        self.x = problem.compressed().patterns  # (P*, D)
        kappa = problem.upsilon * problem.n_features
        resultant = float(bessel.mean_resultant(kappa, problem.n_features))
        self.varsigma = problem.beta_eff / problem.beta
        self.shift = problem.n_features * (resultant - self.varsigma)
        # N var⟨x_b, x⟩ = dς(2υ)/dυ, with ς'(z) = 1/(√(1 + z²)(√(1 + z²) + 1)).
        root = math.hypot(1.0, 2.0 * problem.upsilon)
        self.along = 2.0 / (root * (root + 1.0))
        self.weight = problem.rho * problem.targets
        self.mean = self.varsigma * self.x[:, None, :].expand(-1, problem.n_columns, -1)
        self._basis = _tangent_basis(active, problem.n_columns)  # (T, P+1, C+1)

    def coordinates(self, state: OrderParameters) -> Tensor:
        u = torch.linalg.lstsq(self.x, state.m).solution.T  # m = x uᵀ
        return torch.cat([u.flatten(), u.new_zeros(len(self._basis))])

    def parts(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Memories u (P, D) and class weights p (P+1, C+1)."""
        size = self.problem.n_student * self.x.shape[1]
        p = self.p + torch.einsum("t,tgy->gy", s[size:], self._basis)
        return s[:size].reshape(self.problem.n_student, -1), p

    def value(self, s: Tensor) -> Tensor:
        u, p = self.parts(s)
        entropy = 0.5 * torch.log1p(-(u * u).sum(1)).sum()
        return entropy + (self.weight * self._log_norm(u, p)).sum()

    def hessian(self, s: Tensor) -> Tensor:
        """H = −∂²F: positive at a stable solution."""
        return -_hessian(self.value, s, create_graph=s.requires_grad)

    def first_order(self, s: Tensor) -> Tensor:
        """E − ½ log det H."""
        u, p = self.parts(s)
        r = self._shares(u, p)  # (P*, C+1, P)
        rest = 1.0 - (u * u).sum(1)  # (P,)
        noise = 1.0 - self.varsigma**2
        m = self.x @ u.T  # (P*, P)
        spread = noise * ((1.0 - rest) - m * m) + self.along * m * m  # ⟨u^μ, C_b u^μ⟩
        mean = r @ u  # ū (P*, C+1, D)
        m_mean = (mean * self.x[:, None]).sum(2)
        spread_mean = noise * ((mean * mean).sum(2) - m_mean**2) + self.along * m_mean**2
        second = (r * (noise * rest + spread[:, None])).sum(2) - spread_mean
        energy = 0.5 * self.problem.beta**2 * (self.weight * second).sum()
        energy = energy + self.problem.beta * self.shift * (self.weight * m_mean).sum()
        entropy = -(self.x.shape[1] + 2) / 2 * rest.log().sum()
        return entropy + energy - 0.5 * torch.logdet(self.hessian(s))

    def disorder(self, s: Tensor) -> Tensor:
        """½ ⟨∇gᵀ H⁻¹ ∇g⟩ over the chance of the data."""
        rho, q = self.problem.rho, self.problem.targets.flatten()
        level = _jacobian(lambda s: self._log_norm(*self.parts(s)).flatten(), s, create_graph=True)
        counts = rho * (torch.diag(q) - torch.outer(q, q) / self.problem.n_teacher)
        spread: Tensor = torch.linalg.solve(self.hessian(s), level.T @ counts @ level)
        return 0.5 * spread.trace()

    def _logits(self, u: Tensor, p: Tensor) -> Tensor:
        """Log of p exp(h) (P*, C+1, P+1), −∞ without a uniform component."""
        h = self.problem.beta * self.mean @ u.T - self.problem.log_ratio  # (P*, C+1, P)
        h = torch.cat([torch.zeros_like(h[..., :1]), h], -1)
        first = 1 if float(self.problem.p_h[0]) == 0.0 else 0
        return (h + p.T.clamp_min(1e-300).log())[..., first:]

    def _log_norm(self, u: Tensor, p: Tensor) -> Tensor:
        return torch.logsumexp(self._logits(u, p), -1)  # (P*, C+1)

    def _shares(self, u: Tensor, p: Tensor) -> Tensor:
        """Of the memories, r (P*, C+1, P)."""
        return torch.softmax(self._logits(u, p), -1)[..., -self.problem.n_student :]


def _tangent_basis(active: Tensor, n_columns: int) -> Tensor:
    """Moves (T, P+1, C+1) of class weights that keep all row and column sums."""
    rows = torch.nonzero(active).flatten().tolist()
    moves = []
    for row in rows[:-1]:
        for column in range(n_columns - 1):
            move = torch.zeros(len(active), n_columns, dtype=torch.float64)
            move[row, column] = move[rows[-1], -1] = 1.0
            move[row, -1] = move[rows[-1], column] = -1.0
            moves.append(move)
    if not moves:
        return torch.zeros(0, len(active), n_columns, dtype=torch.float64)
    return torch.stack(moves)
