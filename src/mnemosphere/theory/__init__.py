"""Statistical mechanics of the model, in float64."""

from mnemosphere.theory.diagnostics import Estimate
from mnemosphere.theory.limits import from_parameters, varsigma_of_noise
from mnemosphere.theory.problem import SaddlePointProblem, ValidityWarning
from mnemosphere.theory.saddle_point import OrderParameters, random_starts
from mnemosphere.theory.solutions import DistinctSolution, Symmetry, classify, find_solutions
from mnemosphere.theory.solver import NotConvergedError, Solution
from mnemosphere.theory.solver import solve as solve_saddle_point
from mnemosphere.theory.stability import duplicate, spectrum, split_temperature
from mnemosphere.theory.symmetric import symmetric_transition, symmetric_transitions
from mnemosphere.theory.teacher_student import (
    PlantedData,
    Posterior,
    Teacher,
    sample_data,
    sample_posterior,
    sample_teacher,
)
from mnemosphere.theory.variational import free_entropy
from mnemosphere.theory.von_mises_fisher import log_density, log_omega

__all__ = [
    "DistinctSolution", "Estimate", "NotConvergedError", "OrderParameters", "PlantedData", "Posterior",
    "SaddlePointProblem", "Solution", "Symmetry", "Teacher", "ValidityWarning", "classify", "duplicate",
    "find_solutions", "free_entropy", "from_parameters", "log_density", "log_omega", "random_starts", "sample_data", "sample_posterior",
    "sample_teacher", "solve_saddle_point", "spectrum", "split_temperature", "symmetric_transition",
    "symmetric_transitions", "varsigma_of_noise",
]  # fmt: skip
