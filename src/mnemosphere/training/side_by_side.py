"""Small problems of one shape solved side by side: all together take about as long as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere

__all__ = ["apart", "joint_solutions", "rows_together", "together"]

_FULL = 1e-6  # what a full label may lack, by rounding
_SINGLE_ROWS = 100  # from so many on in single precision: they only judge, and take half the time


def rows_together(several: Sequence[Batch]) -> Batch:
    """Rows of several problems, as many each, in the precision that will do."""
    rows = Batch.stack(several)
    return rows.to(dtype=torch.float32) if rows.x.shape[1] >= _SINGLE_ROWS else rows


def together(several: Sequence[Parameters], rows: Batch) -> Parameters:
    """Parameters of several problems, in the precision of their rows."""
    return Parameters.stack([own.to(dtype=rows.x.dtype) for own in several])


def apart(params: Parameters, like: Sequence[Parameters]) -> list[Parameters]:
    """Undo `together`: each in the precision and with the ς that it came with."""
    wide = [own.to(dtype=old.w.dtype) for own, old in zip(params.unstack(), like, strict=True)]
    return [
        own.replace(w=sphere.project(own.w), varsigma=old.varsigma)
        for own, old in zip(wide, like, strict=True)
    ]


def joint_solutions(
    params: Parameters, rows: Batch, *, learn_beta: bool, max_iter: int, tol: float = 0.0
) -> Parameters:
    """Exact fixed-point steps for the joint likelihood, weights of memories learned.

    params and rows have a leading axis of problems, or are one. Stops when a step changes the loss
    of every problem by less than `tol` relative.
    """
    before: Tensor | None = None
    rule: LabelRule = objectives.joint
    if tol == 0 and not rows.x.is_cuda and float((1 - rows.targets.sum(-1)).max()) < _FULL:
        rule = objectives.given
    for _ in range(max_iter):
        stats = accumulate(params, rows, rule)
        params = maximize_bound(
            params, stats.w_bar, stats.p_bar, learn_beta=learn_beta, hold_weights=False
        )
        now = stats.mean_loss
        # Asking a GPU would wait for it.
        if tol > 0 and before is not None and bool(((before - now).abs() < tol * now.abs()).all()):
            break
        before = now
    return params
