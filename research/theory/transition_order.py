"""How the symmetric solution of the uniform teacher breaks: continuously, or by a jump.

What follows at the transition is read off Landau's expansion of the free entropy F
(docs/research/theory-derivations.md, section 6a) in ξ[b,μ], a contrast over teachers (Σ_b ξ = 0) and over
memories (Σ_μ ξ = 0):

    F = F_0 + F_2 |ξ|² + (ϱ β_eff³ s/6) Σ ξ³ + F_4(ξ) + ...,     F_2 = 0 at the transition.

With two teachers or two memories ξ changes sign when these are exchanged, and Σ ξ³ = 0. From three
of each on it does not vanish, and the transition is of first order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from scipy.optimize import brentq
from torch import Tensor

from mnemosphere.theory import SaddlePointProblem, symmetric_transitions
from mnemosphere.theory.symmetric import share
from research.report import Json

Order = Literal["continuous", "first order"]


def cubic_coefficient(problem: SaddlePointProblem, a: float) -> float:
    """ϱ β_eff³ s/6, what multiplies the cubic invariant Σ ξ³ in F at the symmetric solution a."""
    return problem.rho * problem.beta_eff**3 * share(problem, problem.beta_eff * a) / 6.0


def quartic_term(problem: SaddlePointProblem, xi: Tensor) -> float:
    """F_4(ξ) at the transition, β_eff a = 1, for contrasts ξ (P*, P) with Σ ξ³ = 0 on all of them.

    What F gains at fourth order once all other modes follow ξ: teachers' and memories' sums of
    squares push the contrasts over teachers or memories alone, and the common overlap.
    """
    n_t, n_s, beta, rho = problem.n_teacher, problem.n_student, problem.beta_eff, problem.rho
    s, a = share(problem, 1.0), 1.0 / beta
    filled = n_t * a * a  # |w|²
    room = 1.0 - filled
    by_teacher, by_memory = (xi * xi).sum(1), (xi * xi).sum(0)
    total = float(by_teacher.sum())
    fourth = s * float((xi**4).sum()) - 3.0 * s * s * float((by_teacher**2).sum())
    direct = rho * beta**4 / 24.0 * fourth - float((by_memory**2).sum()) / (4.0 * room**2)
    # Each mode that follows: (what pushes it)²/(2 × what holds it).
    free = rho * beta**3 * s / 2.0
    left = 1.0 - n_s * s  # share of the uniform component
    length = a * n_t / room**2
    teacher_spread = float(((by_teacher - total / n_t) ** 2).sum())
    memory_spread = float(((by_memory - total / n_s) ** 2).sum())
    held_length = 2.0 * filled * n_t / room**2
    held_share = rho * (beta * s * n_s) ** 2
    follow = (free * left) ** 2 * teacher_spread / held_share
    follow += (free - length) ** 2 * memory_spread / held_length
    follow += ((free * left - length) * total) ** 2 / (n_t * held_share + n_s * held_length)
    return direct + follow / 2.0


@dataclass(frozen=True)
class Transition:
    """The breaking of the symmetric solution at one value of a parameter."""

    parameter: str  # "beta", "rho" or "upsilon"
    value: float
    cubic: float  # coefficient of Σ ξ³ in F; 0 if that sum vanishes for every ξ
    quartic: float  # the largest F_4 over unit ξ if it does, else nan

    @property
    def order(self) -> Order:
        """First order if F still rises there by its cubic or quartic term."""
        return "first order" if self.cubic > 0.0 or self.quartic > 0.0 else "continuous"


def transition_order(
    problem: SaddlePointProblem, parameter: str = "beta", *, upper: float = 1e6
) -> list[Transition]:
    """The values at which the symmetric solution changes stability, with the order of each transition."""
    found = []
    for value in symmetric_transitions(problem, parameter, upper=upper):
        here = problem.replace(**{parameter: value})
        if min(here.n_teacher, here.n_student) >= 3:
            cubic = cubic_coefficient(here, 1.0 / here.beta_eff)
            found.append(Transition(parameter, value, cubic, math.nan))
            continue
        quartic = max(quartic_term(here, xi) for xi in _extreme_contrasts(here))
        found.append(Transition(parameter, value, 0.0, quartic))
    return found


def _extreme_contrasts(problem: SaddlePointProblem) -> list[Tensor]:
    """Unit ξ (P*, P) between which F_4 lies, where teachers or memories are two.

    ξ is then (1, −1) times a contrast of the n others, and F_4 is linear in the sum of fourth
    powers of that. The sum is largest for one against the rest, least for halves.
    """
    n_t, n_s = problem.n_teacher, problem.n_student
    n = n_s if n_t == 2 else n_t
    found = []
    for up in {1, n // 2}:
        one = torch.full((n,), -1.0 / (n - up), dtype=torch.float64)
        one[:up] = 1.0 / up
        pair = torch.tensor([1.0, -1.0], dtype=torch.float64)
        xi = torch.outer(pair, one) if n_t == 2 else torch.outer(one, pair)
        found.append(xi / xi.norm())
    return found


def study_transition_order(
    sizes: Sequence[int], memories: Sequence[int], rho: float, upsilon: float, n_features: int
) -> Json:
    """Orders of the transition for P* and P, and ϱ above which two teacher vectors and P memories part continuously."""

    def first(n_teacher: int, n_student: int, rho: float) -> Transition:
        problem = SaddlePointProblem.uniform(
            n_teacher, n_student, beta=1.0, rho=rho, upsilon=upsilon, n_features=n_features
        )
        return transition_order(problem)[0]

    orders = [
        {"teacher": a, "student": b, "beta": found.value, "order": found.order}
        for a in sizes for b in sizes for found in [first(a, b, rho)]
    ]  # fmt: skip
    tricritical = [
        {"memories": p, "rho": float(brentq(lambda rho, p=p: first(2, p, rho).quartic, 0.05, 3.0))}
        for p in memories
    ]
    return {"orders": orders, "tricritical": tricritical}
