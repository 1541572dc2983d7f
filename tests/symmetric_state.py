"""The symmetric solution of the saddle-point equations, and problems that have it."""

import torch

from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import OrderParameters
from mnemosphere.theory.solver import solve


def symmetric_state(problem: SaddlePointProblem) -> OrderParameters:
    """What starts symmetric stays so."""
    m = torch.full((1, problem.n_teacher, problem.n_student), 0.5, dtype=torch.float64)
    start = OrderParameters(m, (problem.p_h[:, None] * problem.p_q)[None])
    return solve(problem, start, tol=1e-13)[0]


def uniform(n_teacher=2, n_student=2, p_0=0.0, beta=10.0, rho=2.0, n_features=1000):
    p_h = torch.full((n_student + 1,), (1.0 - p_0) / n_student, dtype=torch.float64)
    p_h[0] = p_0
    x = torch.eye(n_teacher, dtype=torch.float64)
    return SaddlePointProblem(  # no warning where β is not small against N
        patterns=x,
        targets=torch.ones(n_teacher, 1),
        p_h=p_h,
        p_q=torch.ones(1),
        beta=beta,
        rho=rho,
        upsilon=1.0,
        n_features=n_features,
        uniform_teacher=True,
    )
