"""The worked examples of the pages on the theory: what is computed there, in one result file."""

from __future__ import annotations

import math

import torch
from scipy.optimize import brentq

from mnemosphere import theory
from mnemosphere.theory import saddle_point, stability
from mnemosphere.theory.newton import newton
from research.report import Json
from research.theory import weak

_F64 = torch.float64
_IDLE = 0.45  # a memory whose overlaps with the two vectors differ by less is idle
_STARTS = {
    "idle": [[0.9, 0.0, 0.1], [0.0, 0.9, 0.1]],
    "paired": [[0.8, 0.8, 0.0], [0.0, 0.0, 0.9]],
}


def _unit(*shape: int, seed: int) -> torch.Tensor:
    x = torch.randn(*shape, dtype=_F64, generator=torch.Generator().manual_seed(seed))
    return x / x.norm(dim=-1, keepdim=True)


def hard_assignment_block(
    problem: theory.SaddlePointProblem, state: theory.OrderParameters, memory: int
) -> torch.Tensor:
    """The paper's 2×2 block form (2D, 2D) for a duplicated memory when β_eff is large.

    Every pattern belongs to the memory of largest share: S(μ). The block is
    ½ (β_eff/‖Σ_S x‖) Σ_S [[A, −A], [−A, A]] with A = x xᵀ(I − t tᵀ), t ∝ Σ_S x; ϱ = ∞.
    `state` is the narrow fixed point.
    """
    m_hat = saddle_point.conjugate(problem, state).m_hat  # (P*, P)
    uniform = 1.0 - m_hat.sum(1, keepdim=True)
    owner = torch.cat([uniform, m_hat], dim=1).argmax(1) - 1
    x = problem.patterns[owner == memory]
    if x.shape[0] == 0:
        raise ValueError(f"memory {memory} owns no pattern: pick another")
    center = x.sum(0)
    t = center / center.norm()
    a = x.T @ x @ (torch.eye(x.shape[1], dtype=x.dtype) - torch.outer(t, t))
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=x.dtype)
    block: torch.Tensor = 0.5 * problem.beta_eff / center.norm() * torch.kron(signs, a)
    return block


def hard_assignments() -> Json:
    """Distance of the paper's block form from the exact one, two clusters of six patterns."""
    centers = torch.eye(5, dtype=_F64)[:2]
    noise = torch.randn(2, 6, 5, dtype=_F64, generator=torch.Generator().manual_seed(8))
    x = (centers[:, None] + 0.3 * noise).reshape(12, 5)
    x = x / x.norm(dim=1, keepdim=True)
    found: Json = {"beta": [5.0, 10.0, 20.0, 40.0], "distance": []}
    for beta in found["beta"]:
        here = theory.SaddlePointProblem.clamped(
            x, n_student=2, beta=beta, rho=math.inf, upsilon=math.inf
        )
        start = theory.OrderParameters((x @ centers.T)[None], here.p_h[None, :, None])
        state = theory.solve_saddle_point(here, start, tol=1e-12).raise_if_failed()[0]
        grown, copy = theory.duplicate(here, state, [0])
        c = saddle_point.conjugate(grown, copy)
        k, factor, _ = stability.linearize(grown, c.x_bar, c.p_bar)
        full = (k @ factor @ factor.T).reshape(3, 5, 3, 5)
        exact = full[[0, 2]][:, :, [0, 2]].reshape(10, 10)
        block = hard_assignment_block(here, state, 0)
        found["distance"].append(float((exact - block).abs().max() / block.abs().max()))
    return found


def finite_rho() -> Json:
    """Twins at finite ϱ, 13 random patterns in 7 dimensions: what they miss, and λ_max."""
    found: Json = {"rho": [30.0, 300.0, 3000.0, math.inf], "missed": [], "eigenvalue": []}
    for rho in found["rho"]:
        here = theory.SaddlePointProblem.clamped(
            _unit(13, 7, seed=0), n_student=3, beta=3.0, rho=rho, upsilon=1.1,
            p_h=torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=_F64),
        )  # fmt: skip
        starts = theory.random_starts(here, 1, generator=torch.Generator().manual_seed(3))
        solved = theory.solve_saddle_point(here, starts, tol=1e-7).raise_if_failed()[0]
        grown, copy = theory.duplicate(here, newton(here, solved, tol=1e-15).state, [0])
        twins = newton(grown, copy).state
        found["beta_eff"] = here.beta_eff
        found["missed"].append(float(saddle_point.residual(grown, copy)))
        found["eigenvalue"].append(float(stability.antisymmetric_spectrum(grown, twins, 0)[0]))
    return found | {"rho": [30, 300, 3000, "inf"]}


def window() -> Json:
    """Ends in β of the phase in which memories part, with a large uniform component."""
    p_h = torch.tensor([0.9, 0.05, 0.05], dtype=_F64)

    def ends(rho: float) -> list[float]:
        problem = theory.SaddlePointProblem.uniform(
            2, 2, beta=1.0, rho=rho, upsilon=1.0, n_features=1000, p_h=p_h
        )
        return theory.symmetric_transitions(problem, "beta")

    return {"rho": [0.03, 0.02], "ends": [ends(0.03), ends(0.02)]}


def tricritical() -> Json:
    """ϱ above which two teacher vectors and P memories part continuously."""

    def quartic(rho: float, n_student: int) -> float:
        problem = theory.SaddlePointProblem.uniform(
            2, n_student, beta=1.0, rho=rho, upsilon=1.0, n_features=1000
        )
        return theory.transition_order(problem)[0].quartic

    sizes = [3, 4, 5, 7, 10]
    return {"memories": sizes, "rho": [brentq(quartic, 0.05, 3.0, args=(p,)) for p in sizes]}


def branches(problem: theory.SaddlePointProblem) -> dict[str, tuple[torch.Tensor, float]]:
    """Overlaps (2, 3) and f of the solutions with an idle memory and with two on one vector.

    A branch that is no stable solution at this β is left out.
    """
    found = {}
    for name, m in _STARTS.items():
        start = torch.tensor([m], dtype=_F64)
        solved = theory.solve_saddle_point(
            problem, theory.OrderParameters(start, problem.p_h[None, :, None])
        ).raise_if_failed()
        idle = float((solved.m[0, 0] - solved.m[0, 1]).abs().min()) < _IDLE
        if idle == (name == "idle") and float(theory.spectrum(problem, solved[0])[0]) < 1:
            f = float(solved.objective[0]) * problem.rho * problem.n_teacher
            found[name] = (solved.m[0], f)
    return found


def branch_levels() -> Json:
    """Free entropies of an idle memory and of a pair at β = 8, and the N at which they balance."""
    problem = theory.SaddlePointProblem.uniform(
        2, 3, beta=8.0, rho=1.0, upsilon=1.0, n_features=1000
    )
    both, p = branches(problem), problem.p_h[:, None]
    f_1 = {
        name: theory.finite_size_corrections(problem, theory.OrderParameters(m, p)).log_z
        for name, (m, _) in both.items()
    }
    gap = both["idle"][1] - both["paired"][1]
    deficit = f_1["paired"] - f_1["idle"]
    return {"gap": gap, "f_1": deficit, "balance": deficit / gap}


def noise() -> Json:
    """Noise of the examples: one memory, memories that noise parts first, and overlaps near a transition."""
    rho, n = 2.0, 10**6
    one = weak.overlaps(1, 1.0, 3.0, rho, n)
    misled = weak.problem_of(2, 2, b=1.0, beta_eff=3.0, rho=rho, n_features=n)
    b = math.sqrt(1.75 / (2 * 0.02))  # drops terms of relative size 0.02
    near = weak.problem_of(2, 2, b=b, beta_eff=1.75, rho=rho, n_features=n)
    return {
        "one": {"factor": one["paper"] / math.sqrt(1.0 + 1.0 / rho), "overlap": one["theory"]},
        "parting": theory.parting_eigenvalues(misled), "misled": weak.with_noise(misled).tolist(),
        "near": {"dropped": near.noise / (2 * near.beta_eff),
                 "paper": weak.without_noise(near)[0].tolist(),
                 "noise": weak.with_noise(near)[0].tolist()},
    }  # fmt: skip


def examples() -> Json:
    """All of them."""
    return {
        "hard": hard_assignments(),
        "finite rho": finite_rho(),
        "window": window(),
        "tricritical": tricritical(),
        "branches": branch_levels(),
        "noise": noise(),
    }
