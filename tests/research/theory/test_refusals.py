"""What the studies of the theory cannot answer is refused, with what to try."""

import math

import pytest
import torch

from mnemosphere.theory import OrderParameters, SaddlePointProblem
from research.theory.example_noise import parting_eigenvalues, solve_with_noise
from research.theory.finite_size import finite_size_corrections
from symmetric_state import symmetric_state

TWO = SaddlePointProblem.uniform(2, 2, beta=8.0, rho=2.0, upsilon=1.0, n_features=300)
ENDLESS, STATE = TWO.replace(rho=math.inf), symmetric_state(TWO)
UNEQUAL = TWO.replace(p_h=torch.tensor([0.0, 0.4, 0.6]).double())


def broken(problem):
    m = torch.eye(problem.n_teacher, problem.n_student).double()
    return OrderParameters(m, problem.p_h[:, None] * problem.p_q)


REFUSED = [
    (lambda: finite_size_corrections(TWO, STATE), "no isolated maximum"),
    (lambda: finite_size_corrections(ENDLESS, STATE), "finite rho"),
    (lambda: solve_with_noise(ENDLESS, broken(ENDLESS)), "finite rho"),
    (lambda: solve_with_noise(TWO, broken(TWO), max_iter=2), "raise max_iter"),
    (lambda: parting_eigenvalues(UNEQUAL), "equal memories"),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_cannot_be_answered_says_what_to_try(ask, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        ask()
