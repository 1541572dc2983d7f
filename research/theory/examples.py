"""The worked examples of the pages on the theory: what is computed there, in one result file."""

from __future__ import annotations

import math

import torch
from scipy.optimize import brentq

from mnemosphere import theory
from research.report import Json
from research.theory import weak

_F64 = torch.float64
_IDLE = 0.45  # a memory whose overlaps with the two vectors differ by less is idle
_STARTS = {
    "idle": [[0.9, 0.0, 0.1], [0.0, 0.9, 0.1]],
    "paired": [[0.8, 0.8, 0.0], [0.0, 0.0, 0.9]],
}


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
        "tricritical": tricritical(),
        "branches": branch_levels(),
        "noise": noise(),
    }
