"""What "auto" chooses for rows and classes, and rows to choose for."""

from __future__ import annotations

import numpy as np
import torch

from mnemosphere.data import StoredRows
from mnemosphere.estimators.selection import choose, choose_n_memories
from mnemosphere.estimators.start import Start

CPU = torch.device("cpu")


def targets_of(y, classes):
    """Label weights without smoothing; −1 is no label."""
    q = torch.zeros(len(y), classes + 1, dtype=torch.float64)
    known = np.flatnonzero(y >= 0)
    q[known, y[known]] = 1.0
    return q


def chosen(
    x, y, classes, *, normalize="auto", varsigma=None, memories=None, weight=None, seed=0,
    refined=False,
):  # fmt: skip
    start = Start(memories or choose_n_memories(len(x), classes), refined=refined)
    return choose(
        StoredRows.of(np.asarray(x), CPU), targets_of(y, classes), weight, start,
        normalize=normalize, varsigma=varsigma, n_memories=memories, seed=seed,
        dtype=torch.float64,
    )  # fmt: skip


def thin(seed, rows=307):
    """Two long, thin clouds side by side: told apart across, not along."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    along = 3 * rng.normal(size=(rows, 1)) * [1.0, 1.0, -1.0]
    return along + np.outer(y, [0.3, -0.3, 0.1]) + 0.1 * rng.normal(size=(rows, 3)), y


def clumps(classes, per_class, rows, seed=0, features=7, spread=0.3):
    """Classes of several clumps each, all in places drawn at random."""
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(classes, per_class, features))
    y = np.arange(rows) % classes
    return places[y, rng.integers(per_class, size=rows)] + spread * rng.normal(
        size=(rows, features)
    ), y
