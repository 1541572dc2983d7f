"""Statistical mechanics of the model, in float64."""

from mnemosphere.theory.diagnostics import Estimate
from mnemosphere.theory.example_noise import NoisySolution, parting_eigenvalues, solve_with_noise
from mnemosphere.theory.finite_size import FiniteSize, finite_size_corrections
from mnemosphere.theory.limits import from_parameters, merging_varsigma, varsigma_of_noise
from mnemosphere.theory.problem import SaddlePointProblem, ValidityWarning
from mnemosphere.theory.saddle_point import OrderParameters, random_starts
from mnemosphere.theory.solutions import DistinctSolution, Symmetry, classify, find_solutions
from mnemosphere.theory.solver import NotConvergedError, Solution
from mnemosphere.theory.solver import solve as solve_saddle_point
from mnemosphere.theory.stability import duplicate, spectrum, split_temperature
from mnemosphere.theory.symmetric import (
    Transition,
    symmetric_transition,
    symmetric_transitions,
    transition_order,
)
from mnemosphere.theory.teacher_student import (
    PlantedData,
    Posterior,
    Teacher,
    sample_data,
    sample_posterior,
    sample_teacher,
)
from mnemosphere.theory.variational import free_entropy

__all__ = [
    "DistinctSolution", "Estimate", "FiniteSize",
    "NoisySolution", "NotConvergedError", "OrderParameters", "PlantedData",
    "Posterior", "SaddlePointProblem", "Solution", "Symmetry", "Teacher", "Transition",
    "ValidityWarning", "classify", "duplicate", "find_solutions", "finite_size_corrections",
    "free_entropy", "from_parameters", "merging_varsigma",
    "parting_eigenvalues", "random_starts", "sample_data",
    "sample_posterior", "sample_teacher", "solve_saddle_point",
    "solve_with_noise", "spectrum", "split_temperature",
    "symmetric_transition", "symmetric_transitions", "transition_order", "varsigma_of_noise",
]  # fmt: skip
