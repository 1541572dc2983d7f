"""Layer 1: statistical mechanics of the model, in float64.

`OrderParameters` are the unknowns of the saddle-point equations, `GibbsState` those of the Gibbs
chains, `PlantedData` a teacher's examples.
"""

from mnemosphere.model.certificates import Certificate, certify
from mnemosphere.model.splits import JointSplit, joint_split
from mnemosphere.theory import teacher_student
from mnemosphere.theory.continuation import (
    Branch,
    newton,
    perturb_unstable_mode,
    trace_branch,
)
from mnemosphere.theory.diagnostics import Estimate, estimate
from mnemosphere.theory.finite_size import FiniteSize, finite_size_corrections, log_weight
from mnemosphere.theory.gibbs import GibbsState
from mnemosphere.theory.limits import (
    from_parameters,
    noise_of_varsigma,
    single_memory_overlap,
    suggest_varsigma_from_neighbors,
    suggest_varsigma_from_overlap,
    suggest_varsigma_from_repeats,
    varsigma_of_noise,
)
from mnemosphere.theory.problem import SaddlePointProblem, ValidityWarning
from mnemosphere.theory.random_labels import LabelAverage, solve_random_labels
from mnemosphere.theory.saddle_point import OrderParameters, random_starts
from mnemosphere.theory.solutions import DistinctSolution, classify, find_solutions
from mnemosphere.theory.solver import NotConvergedError, Solution
from mnemosphere.theory.solver import solve as solve_saddle_point
from mnemosphere.theory.stability import (
    antisymmetric_spectrum,
    duplicate,
    spectrum,
    split_temperature,
)
from mnemosphere.theory.symmetric import (
    Transition,
    cubic_coefficient,
    symmetric_overlap,
    symmetric_overlaps,
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
from mnemosphere.theory.variational import derivatives, free_entropy, free_entropy_per_example

__all__ = [
    "Branch", "Certificate", "DistinctSolution", "Estimate", "FiniteSize", "GibbsState",
    "JointSplit", "LabelAverage", "NotConvergedError", "OrderParameters", "PlantedData",
    "Posterior", "SaddlePointProblem", "Solution", "Teacher", "Transition", "ValidityWarning",
    "antisymmetric_spectrum", "certify", "classify", "cubic_coefficient", "derivatives",
    "duplicate", "estimate", "find_solutions", "finite_size_corrections", "free_entropy",
    "free_entropy_per_example", "from_parameters", "joint_split", "log_weight", "newton",
    "noise_of_varsigma", "perturb_unstable_mode", "random_starts", "sample_data",
    "sample_posterior", "sample_teacher", "single_memory_overlap", "solve_random_labels",
    "solve_saddle_point", "spectrum", "split_temperature", "suggest_varsigma_from_neighbors",
    "suggest_varsigma_from_overlap", "suggest_varsigma_from_repeats", "symmetric_overlap",
    "symmetric_overlaps", "symmetric_transition", "symmetric_transitions", "teacher_student",
    "trace_branch", "transition_order", "varsigma_of_noise",
]  # fmt: skip
