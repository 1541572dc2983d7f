"""Mixture, the single pass and its readings, objectives, curvature, recall."""

from mnemosphere.model.batch import Batch
from mnemosphere.model.curvature import Curvature, krylov, nearest
from mnemosphere.model.m_step import displacement, maximize_bound
from mnemosphere.model.mixture import Mixture, from_memories
from mnemosphere.model.one_pass import Statistics, accumulate, evaluate, log_joint
from mnemosphere.model.retrieval import sample

__all__ = [
    "Batch",
    "Curvature",
    "Mixture",
    "Statistics",
    "accumulate",
    "displacement",
    "evaluate",
    "from_memories",
    "krylov",
    "log_joint",
    "maximize_bound",
    "nearest",
    "sample",
]  # fmt: skip
