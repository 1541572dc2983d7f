"""The symmetric solution: all its transitions, by other means."""

import math

import pytest
import torch

from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory import stability, symmetric
from symmetric_state import symmetric_state, uniform


def state_at(problem, a):
    m = torch.full((problem.n_teacher, problem.n_student), a, dtype=torch.float64)
    return sp.OrderParameters(m, problem.p_h[:, None] * problem.p_q)


def test_a_narrow_window_of_instability_is_found_with_both_ends():
    problem = uniform(2, 2, 0.9, rho=0.03)
    low, high = symmetric.symmetric_transitions(problem, "beta")
    assert 35.0 < low < 36.0
    assert 59.0 < high < 60.0
    assert symmetric.symmetric_transition(problem, "beta") == low
    for value in (low, high):
        here = problem.replace(beta=value)
        at = state_at(here, 1 / here.beta_eff)
        assert float(sp.residual(here, at)) < 1e-10
        assert float(stability.spectrum(here, at)[0]) == pytest.approx(1.0, abs=1e-9)
        # The same point, seen along the other parameters.
        assert symmetric.symmetric_transitions(here, "rho") == pytest.approx([0.03], rel=1e-9)
        assert symmetric.symmetric_transitions(here, "upsilon") == pytest.approx([1.0], rel=1e-9)
    # Where the condition holds by a plain scan, memories part: ϱ s (β_eff² − P*) > 1.
    scan = [beta for beta in range(20, 80) if _excess(problem.replace(beta=float(beta))) > 0]
    assert scan == list(range(36, 60))
    middle = problem.replace(beta=45.0)
    assert float(stability.spectrum(middle, symmetric_state(middle))[0]) > 1.01
    below = symmetric.symmetric_transitions(problem, "beta", upper=50.0)
    assert below == pytest.approx([low], rel=1e-12)
    with pytest.raises(ValueError, match="stays stable"):
        symmetric.symmetric_transition(problem.replace(rho=0.02), "beta")


def _excess(problem):
    p_0 = float(problem.p_h[0])
    s = (1 - p_0) * math.e / ((1 - p_0) * math.e + p_0 * math.exp(problem.log_ratio))
    return problem.rho * s / problem.n_student * (problem.beta_eff**2 - problem.n_teacher) - 1
