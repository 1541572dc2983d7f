"""What mnemosphere.theory shows to the world."""

import torch

import mnemosphere
from mnemosphere import theory
from mnemosphere.theory import gibbs, saddle_point, solver


def test_every_public_name_is_there_and_says_what_it_is():
    assert mnemosphere.theory is theory
    assert sorted(theory.__all__) == theory.__all__
    for name in theory.__all__:
        assert getattr(theory, name).__doc__, name


def test_public_names_are_those_of_the_modules():
    assert theory.OrderParameters is saddle_point.OrderParameters
    assert theory.GibbsState is gibbs.GibbsState
    assert theory.PlantedData is theory.teacher_student.PlantedData
    # The functions of the design, not modules of the same name.
    assert callable(theory.free_entropy)
    assert callable(theory.split_temperature)
    assert theory.solve_saddle_point is solver.solve


def test_from_a_problem_to_its_free_entropy_by_public_names_alone():
    problem = theory.SaddlePointProblem.uniform(
        2, 2, beta=10.0, rho=2.0, upsilon=1.0, n_features=1000
    )
    generator = torch.Generator().manual_seed(0)
    starts = theory.random_starts(problem, 7, generator=generator)
    solution = theory.solve_saddle_point(problem, starts).raise_if_failed()
    best = int(solution.objective.argmax())
    assert abs(float(solution.m[best].max()) - 0.9603) < 5e-5
    f = theory.free_entropy(problem, solution.m, solution.m_hat, solution.p)
    torch.testing.assert_close(f / (2.0 * 2), solution.objective, rtol=0, atol=1e-9)
