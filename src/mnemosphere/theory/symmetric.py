"""The symmetric solution of the uniform teacher: where it is, where it breaks, and how.

All overlaps are equal, m[b,μ] = a, and so are all shares m_hat[b,μ] = s. Its first instability
sends different memories to different teachers, with the eigenvalue β_eff a of the Jacobian. What
follows at the transition is read off Landau's expansion of the free entropy F
(docs/research/theory-derivations.md) in ξ[b,μ], a contrast over teachers (Σ_b ξ = 0) and over memories
(Σ_μ ξ = 0):

    F = F_0 + F_2 |ξ|² + (ϱ β_eff³ s/6) Σ ξ³ + F_4(ξ) + ...,     F_2 = 0 at the transition.

With two teachers or two memories ξ changes sign when these are exchanged, and Σ ξ³ = 0. From three
of each on it does not vanish, and the transition is of first order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, log_expit
from torch import Tensor

from mnemosphere.theory.limits import noise_of_varsigma
from mnemosphere.theory.problem import SaddlePointProblem

Order = Literal["continuous", "first order"]

_XTOL, _RTOL = 1e-15, 1e-14  # a few units in the last place


def symmetric_transitions(
    problem: SaddlePointProblem, parameter: str, *, upper: float = 1e6
) -> list[float]:
    """Find all values of β, ϱ or υ at which a symmetric solution changes stability.

    Its eigenvalue β_eff a against parting is 1 if

        ϱ s (β_eff² − P*) = 1,   s = (1−p_0) e / (P [(1−p_0) e + p_0 Ω_N(β)/Ω_N(0)]),

    where s is the share of one memory and p_0 = p_h(0). Without a uniform component this reads
    β_eff² = P* + P/ϱ: one value. With one there are none or two values of β, between which memories part.
    It holds for any P* and P, equal p_h for all memories, and p_q = p_q* or no labels.

    Parameters
    ----------
    problem : SaddlePointProblem
        A problem with a uniform teacher.
    parameter : {"beta", "rho", "upsilon"}
        The parameter to change.
    upper : float, default 1e6
        Largest value to look at.

    Returns
    -------
    list of floats
        Values, smallest first.

    Examples
    --------
    >>> len(mn.theory.symmetric_transitions(problem, "beta"))
    1
    """
    _check_symmetric(problem)
    if problem.n_teacher == 1 or problem.n_student == 1:
        raise ValueError("the transition needs at least two teachers and two memories")
    if parameter == "beta":
        found = _transitions_in_beta(problem, upper)
    elif parameter == "rho":
        excess = problem.beta_eff**2 - problem.n_teacher
        found = [1.0 / (_share(problem, 1.0) * excess)] if excess > 0 else []
    elif parameter == "upsilon":
        squared = problem.n_teacher + 1.0 / (problem.rho * _share(problem, 1.0))
        ratio = math.sqrt(squared) / problem.beta
        found = [noise_of_varsigma(ratio)] if ratio < 1 else []
    else:
        raise ValueError(f"parameter must be one of ('beta', 'rho', 'upsilon'), got {parameter!r}")
    return [value for value in found if value <= upper]


def symmetric_transition(
    problem: SaddlePointProblem, parameter: str, *, upper: float = 1e6
) -> float:
    """Find the smallest value at which the symmetric solution turns unstable.

    Parameters
    ----------
    problem : SaddlePointProblem
        A problem with a uniform teacher.
    parameter : {"beta", "rho", "upsilon"}
        The parameter to change.
    upper : float, default 1e6
        Largest value to look at.

    Returns
    -------
    float
        The smallest of `symmetric_transitions`.

    Raises
    ------
    ValueError
        If there is none up to `upper`.

    Examples
    --------
    >>> line = mn.theory.symmetric_transition(problem, "beta")
    >>> bool(np.isclose((mn.theory.varsigma_of_noise(1.0) * line) ** 2, 2 + 2 / 2.0))
    True
    """
    found = symmetric_transitions(problem, parameter, upper=upper)
    if not found:
        raise ValueError(
            f"the symmetric solution stays stable up to {parameter} = {upper:g}: "
            "change the other parameters"
        )
    return found[0]


def _transitions_in_beta(problem: SaddlePointProblem, upper: float) -> list[float]:
    """Zeros of log[ϱ s (β_eff² − P*)], which is concave in β."""
    ratio = problem.beta_eff / problem.beta  # ς(2υ)
    least = math.sqrt(problem.n_teacher) / ratio
    p_0 = float(problem.p_h[0])
    if math.isinf(problem.rho):
        return [least]
    if p_0 == 0.0:
        return [math.sqrt(problem.n_teacher + problem.n_student / problem.rho) / ratio]

    def excess(beta: float) -> float:
        here = problem.replace(beta=beta)
        # s may be as small as e^−β: it is kept as a logarithm.
        log_share = log_expit(-_log_odds(here, 1.0)) - math.log(problem.n_student)
        square = (ratio * beta) ** 2 - problem.n_teacher
        return float(math.log(problem.rho) + log_share + math.log(max(square, 1e-300)))

    return _zeros(excess, least, upper) if least < upper else []


def _zeros(function: Callable[[float], float], low: float, high: float) -> list[float]:
    """Where a function with one maximum in [low, high] is zero there: at none or two places."""
    peak = minimize_scalar(lambda x: -function(x), bounds=(low, high), method="bounded").x
    ends = ((low, peak), (peak, high))
    return [_root(function, a, b) for a, b in ends if function(a) * function(b) < 0]


def cubic_coefficient(problem: SaddlePointProblem, a: float) -> float:
    """ϱ β_eff³ s/6, what multiplies the cubic invariant Σ ξ³ in F at the symmetric solution a."""
    return problem.rho * problem.beta_eff**3 * _share(problem, problem.beta_eff * a) / 6.0


def quartic_term(problem: SaddlePointProblem, xi: Tensor) -> float:
    """F_4(ξ) at the transition, β_eff a = 1, for contrasts ξ (P*, P) with Σ ξ³ = 0 on all of them.

    What F gains at fourth order once all other modes follow ξ: teachers' and memories' sums of
    squares push the contrasts over teachers or memories alone, and the common overlap.
    """
    n_t, n_s, beta, rho = problem.n_teacher, problem.n_student, problem.beta_eff, problem.rho
    s, a = _share(problem, 1.0), 1.0 / beta
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
    """The breaking of the symmetric solution at one value of a parameter.

    Attributes
    ----------
    parameter : str
        "beta", "rho" or "upsilon".
    value : float
        Its value.
    cubic : float
        Coefficient of Σ ξ³ in F; 0 if that sum vanishes for every ξ.
    quartic : float
        The largest F_4 over unit ξ if it does, else nan.

    Examples
    --------
    >>> mn.theory.transition_order(problem)[0].order
    'continuous'
    """

    parameter: str
    value: float
    cubic: float
    quartic: float

    @property
    def order(self) -> Order:
        """Order of the transition, "continuous" or "first order": the latter if F still rises there by its cubic or quartic term."""
        return "first order" if self.cubic > 0.0 or self.quartic > 0.0 else "continuous"


def transition_order(
    problem: SaddlePointProblem, parameter: str = "beta", *, upper: float = 1e6
) -> list[Transition]:
    """Find the values at which the symmetric solution changes stability, and the order of each transition.

    Parameters
    ----------
    problem : SaddlePointProblem
        A problem with a uniform teacher.
    parameter : {"beta", "rho", "upsilon"}, default "beta"
        The parameter to change.
    upper : float, default 1e6
        Largest value to look at.

    Returns
    -------
    list of Transition
        Each of `symmetric_transitions` with its Landau coefficients.

    Examples
    --------
    >>> [transition.order for transition in mn.theory.transition_order(problem)]
    ['continuous']
    """
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


def _check_symmetric(problem: SaddlePointProblem) -> None:
    if not problem.uniform_teacher:
        raise ValueError("the symmetric solution is known for the uniform teacher only")
    if not torch.allclose(problem.p_h[1:], problem.p_h[1], rtol=1e-12):
        raise ValueError("p_h must be equal for all memories")
    if not torch.allclose(problem.p_q.expand_as(problem.targets), problem.targets, rtol=1e-12):
        raise ValueError("p_q must equal the teacher's p_q*, and all its class weights")


def _log_odds(problem: SaddlePointProblem, exponent: float) -> float:
    """Log of the uniform component's share over the memories', where β_eff m = exponent."""
    p_0 = float(problem.p_h[0])
    if p_0 == 0.0:
        return -math.inf
    return math.log(p_0) - math.log1p(-p_0) + problem.log_ratio - exponent


def _share(problem: SaddlePointProblem, exponent: float) -> float:
    """m_hat of one memory when β_eff m = exponent for all."""
    return float(expit(-_log_odds(problem, exponent))) / problem.n_student


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=_XTOL, rtol=_RTOL))
