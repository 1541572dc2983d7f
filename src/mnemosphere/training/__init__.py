"""The training loop, its solvers and callbacks, growth."""

from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import (
    Callback,
    PassRecord,
    Run,
    SplitRecord,
)
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.distributed import DistributedError, no_group
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import Splitting, grow
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.sgd import SGD
from mnemosphere.training.solver import Solver, SolverState

__all__ = [
    "SGD",
    "Adam",
    "Callback",
    "Checkpoint",
    "DistributedError",
    "FixedPoint",
    "Lineage",
    "PassRecord",
    "Run",
    "Solver",
    "SolverState",
    "SplitRecord",
    "Splitting",
    "fit",
    "grow",
    "no_group",
]
