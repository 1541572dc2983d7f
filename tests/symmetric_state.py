"""The symmetric solution of the saddle-point equations."""

import torch

from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import OrderParameters
from mnemosphere.theory.solver import solve


def symmetric_state(problem: SaddlePointProblem) -> OrderParameters:
    """What starts symmetric stays so."""
    m = torch.full((1, problem.n_teacher, problem.n_student), 0.5, dtype=torch.float64)
    start = OrderParameters(m, (problem.p_h[:, None] * problem.p_q)[None])
    return solve(problem, start, tol=1e-13)[0]
