"""Small problems of one shape solved side by side: all together take about as long as one."""

from __future__ import annotations

from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.parameters import Parameters

__all__ = ["joint_solutions"]


def joint_solutions(
    params: Parameters, rows: Batch, *, learn_beta: bool, max_iter: int, tol: float = 0.0
) -> Parameters:
    """Exact fixed-point steps for the joint likelihood, weights of memories learned.

    params and rows have a leading axis of problems, or are one. Stops when a step changes the loss
    of every problem by less than `tol` relative.
    """
    before: Tensor | None = None
    for _ in range(max_iter):
        stats = accumulate(params, rows, objectives.joint)
        params = maximize_bound(
            params, stats.w_bar, stats.p_bar, learn_beta=learn_beta, hold_weights=False
        )
        now = stats.mean_loss
        # Asking a GPU would wait for it.
        if tol > 0 and before is not None and bool(((before - now).abs() < tol * now.abs()).all()):
            break
        before = now
    return params
