"""The solver, the precision and the onlookers that an estimator's settings mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mnemosphere.estimators.progress import ProgressBar
from mnemosphere.estimators.selection import default_batch_size
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD

_FIXED_POINT_PASSES = (50, 6)  # exact full steps, incremental steps
_SGD_ROWS = 1000  # a step
_SMALL_SIZE = 1_000_000  # numbers in X


def fixed_point(
    n_rows: int, batch_size: int | str | None, max_epochs: int | None, *, learn_beta: bool
) -> tuple[FixedPoint, int]:
    """The solver and its passes; batch_size "auto", a number or None for all rows at once."""
    size = default_batch_size(n_rows) if batch_size == "auto" else batch_size
    rows = None if size is None else int(size)
    return FixedPoint(rows, learn_beta), max_epochs or _FIXED_POINT_PASSES[rows is not None]


def sgd(
    n_rows: int,
    batch_size: int | str | None,
    learning_rate: float,
    momentum: float,
    *,
    learn_beta: bool,
    tolerance: float | None = SGD.tolerance,
) -> SGD:
    """The paper's solver; batch_size "auto" and None are the paper's."""
    size = _SGD_ROWS if batch_size in ("auto", None) else int(batch_size or 0)
    rows = min(size, n_rows)
    return SGD(learning_rate, momentum, rows, learn_beta=learn_beta, tolerance=tolerance)


def pick_dtype(name: str, size: int) -> torch.dtype:
    """The dtype of that name; "auto" is double precision for an X of few numbers."""
    if name == "auto":
        return torch.float64 if size <= _SMALL_SIZE else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def onlookers(callbacks: Sequence[Callback], verbose: int) -> list[Callback]:
    """The callbacks, with a progress bar before them if wanted."""
    return [*([ProgressBar()] if verbose else []), *callbacks]
