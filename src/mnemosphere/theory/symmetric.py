"""The symmetric solution of the uniform teacher: where it is, and where it breaks.

All overlaps are equal, m[b,μ] = a, and so are all shares m_hat[b,μ] = s. Its first instability
sends different memories to different teachers, with the eigenvalue β_eff a of the Jacobian.
"""

import math
from collections.abc import Callable

import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, log_expit

from mnemosphere.theory.limits import noise_of_varsigma
from mnemosphere.theory.problem import SaddlePointProblem

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
        found = [1.0 / (share(problem, 1.0) * excess)] if excess > 0 else []
    elif parameter == "upsilon":
        squared = problem.n_teacher + 1.0 / (problem.rho * share(problem, 1.0))
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


def share(problem: SaddlePointProblem, exponent: float) -> float:
    """m_hat of one memory when β_eff m = exponent for all."""
    return float(expit(-_log_odds(problem, exponent))) / problem.n_student


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=_XTOL, rtol=_RTOL))
