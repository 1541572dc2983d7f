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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mnemosphere.numerics import bessel
from mnemosphere.theory import OrderParameters, SaddlePointProblem, solve_saddle_point, spectrum
from mnemosphere.theory.teacher_student import match_memories
from research.report import Json
from research.theory.overlaps import Sampling, read, sample_overlaps
from research.theory.setting import Setting, is_broken, matched, solve_two

# torch says nothing of their types.
_hessian: Callable[..., Tensor] = torch.autograd.functional.hessian
_jacobian: Callable[..., Tensor] = torch.autograd.functional.jacobian
_INTERIOR = 1e-7  # a class weight below it counts as 0


@dataclass(frozen=True)
class FiniteSize:
    """N times what finite N adds to a solution, averaged over data; terms that vanish as N grows are left out."""

    m: Tensor  # (P*, P) correction of the overlaps
    p: Tensor  # (P+1, C+1) correction of the class weights
    # E log Z − N f for one of the equivalent maxima; with labels, up to a number that is the same for
    # all solutions
    log_z: float


def finite_size_corrections(problem: SaddlePointProblem, state: OrderParameters) -> FiniteSize:
    """Corrections of order 1/N to a stable solution m (P*, P), p (P+1, C+1)."""
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


# Settings of the study: broken and symmetric phases, unequal numbers of memories, a uniform component, labels.
SETTINGS = (
    Setting(2, 2, 10.0, 2.0, 1.0), Setting(2, 2, 10.0, 2.0, 0.5), Setting(2, 2, 10.0, 0.5, 1.0),
    Setting(3, 3, 10.0, 2.0, 1.0), Setting(2, 3, 6.0, 2.0, 1.0), Setting(3, 1, 6.0, 1.0, 1.0),
    Setting(2, 2, 10.0, 2.0, 1.0, p_0=0.2), Setting(1, 1, 5.0, 1.0, 0.5),
    Setting(2, 2, 10.0, 1.0, 0.5, soft_labels=((0.8, 0.2), (0.3, 0.7))),
    Setting(2, 2, 6.0, 1.0, 0.3), Setting(3, 3, 5.0, 0.5, 0.3), Setting(2, 2, 4.0, 1.0, 0.3, p_0=0.2),
)  # fmt: skip
_IDLE = 0.45  # a memory whose overlaps with the two vectors differ by less is idle
_STARTS = {"idle": [[0.9, 0.0, 0.1], [0.0, 0.9, 0.1]], "paired": [[0.8, 0.8, 0.0], [0.0, 0.0, 0.9]]}


def study_finite_size(
    sizes: Sequence[int], sampling: Sampling, *, generator: torch.Generator,
    settings: Sequence[Setting] = SETTINGS
) -> Json:  # fmt: skip
    """Overlaps by theory and Gibbs sampling, N times their difference, and what the corrections say.

    The difference is to the theory for each teacher's own vectors, which are not quite orthogonal.
    """
    rows = []
    for setting in settings:
        problem = setting.problem()
        state = _best(problem, generator)
        broken = is_broken(state.m)
        row = {
            "setting": asdict(setting), "phase": "broken" if broken else "symmetric",
            "theory": _own(matched(state.m), broken), "computed": _computed(problem, state, broken),
            "sampled": [],
        }  # fmt: skip
        for n in sizes:
            here = replace(setting, n_features=n)
            found, gaps = [], []
            for _ in range(sampling.n_teachers):
                told, _, teacher = sample_overlaps(here, sampling, broken, generator)
                own = here.problem().replace(patterns=teacher.w, uniform_teacher=False)
                found.append(told[0 if broken else 2])
                expected = _own(matched(solve_two(own, generator=generator).m[0]), broken)
                gaps.append(n * (found[-1] - expected))
            row["sampled"].append({
                "n_features": n, "mean": float(np.mean(found)), "error": _error(found),
                "gap": float(np.mean(gaps)), "gap_error": _error(gaps),
            })  # fmt: skip
        rows.append(row)
    return {"rows": rows, "branches": branch_levels()}


def _best(problem: SaddlePointProblem, generator: torch.Generator) -> OrderParameters:
    solved = solve_two(problem, generator=generator)
    return solved[int(solved.objective.argmax())]


def _own(m: Tensor, broken: bool) -> float:
    return read(m, broken)[0 if broken else 2]


def _computed(problem: SaddlePointProblem, state: OrderParameters, broken: bool) -> float | None:
    """N times the correction of the overlap; None where the state has none."""
    try:
        m = finite_size_corrections(problem, state).m
    except ValueError:
        return None
    return _own(m[:, match_memories(state.m)], broken)


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5)


def branches(problem: SaddlePointProblem) -> dict[str, tuple[Tensor, float]]:
    """Overlaps (2, 3) and f of the solutions with an idle memory and with two on one vector.

    A branch that is no stable solution at this β is left out.
    """
    found = {}
    for name, m in _STARTS.items():
        start = torch.tensor([m], dtype=torch.float64)
        solved = solve_saddle_point(
            problem, OrderParameters(start, problem.p_h[None, :, None])
        ).raise_if_failed()
        idle = float((solved.m[0, 0] - solved.m[0, 1]).abs().min()) < _IDLE
        if idle == (name == "idle") and float(spectrum(problem, solved[0])[0]) < 1:
            f = float(solved.objective[0]) * problem.rho * problem.n_teacher
            found[name] = (solved.m[0], f)
    return found


def branch_levels() -> Json:
    """Free entropies of an idle memory and of a pair at β = 8, and the N at which they balance."""
    problem = SaddlePointProblem.uniform(2, 3, beta=8.0, rho=1.0, upsilon=1.0, n_features=1000)
    both, p = branches(problem), problem.p_h[:, None]
    f_1 = {
        name: finite_size_corrections(problem, OrderParameters(m, p)).log_z
        for name, (m, _) in both.items()
    }
    gap = both["idle"][1] - both["paired"][1]
    deficit = f_1["paired"] - f_1["idle"]
    return {"gap": gap, "f_1": deficit, "balance": deficit / gap}
