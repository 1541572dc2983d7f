"""Branches and bifurcations: the analytic transition line, folds of the count, ends of branches."""

import torch

from draws import generator
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory import solver, symmetric
from mnemosphere.theory.problem import SaddlePointProblem
from research.theory import continuation as ct


def uniform(n_teacher=2, n_student=2, p_0=0.0, beta=10.0, rho=2.0, upsilon=1.0):
    p_h = torch.full((n_student + 1,), (1.0 - p_0) / n_student, dtype=torch.float64)
    p_h[0] = p_0
    return SaddlePointProblem.uniform(
        n_teacher, n_student, beta=beta, rho=rho, upsilon=upsilon, n_features=300, p_h=p_h
    )


def test_the_broken_branch_ends_on_the_symmetric_one_at_the_same_place():
    problem = uniform(beta=4.0)
    found = solver.solve(problem, sp.random_starts(problem, 1, generator=generator()))
    expected = symmetric.symmetric_transition(problem, "beta")
    branch = ct.trace_branch(problem, [4.0, 0.95 * expected], found[0])
    assert [b.kind for b in branch.bifurcations] == ["symmetry"]
    assert abs(branch.bifurcations[0].value - expected) < 1e-6
    assert branch.points[0].symmetry.kind == "broken"
    assert branch.points[-1].symmetry.kind == "symmetric"
    # Stable all along: the transition is continuous.
    assert max(float(point.eigenvalues[0]) for point in branch.points) < 1.0 + 1e-9
