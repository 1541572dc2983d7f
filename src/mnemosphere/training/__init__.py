"""The training loop, its solvers and callbacks, growth."""

from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import (
    Callback,
    PassRecord,
    Run,
    SplitRecord,
)
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.distributed import no_group
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import Splitting, grow
from mnemosphere.training.sgd import SGD
from mnemosphere.training.solver import Solver

__all__ = [
    "SGD",
    "Adam",
    "Callback",
    "Checkpoint",
    "FixedPoint",
    "PassRecord",
    "Run",
    "Solver",
    "SplitRecord",
    "Splitting",
    "fit",
    "grow",
    "no_group",
]
