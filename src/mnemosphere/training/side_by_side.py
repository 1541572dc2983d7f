"""Small problems of one shape solved side by side: all together take about as long as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.m_step import maximize_bound, maximize_memories, share_out
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere

__all__ = ["apart", "joint_pass", "joint_solutions", "rows_together", "together"]

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
    rule = _rule(rows) if tol == 0 else objectives.joint
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


def joint_pass(params: Parameters, rows: Batch, *, learn_beta: bool, steps: int = 12) -> Parameters:
    """One pass over rows in any order, with a step after every batch, as training begins.

    Running means look back for half of the pass, and β is learned from then on: where a memory has
    seen a row or two it would be far too large. Weights of memories are learned at the end.
    """
    rule, n_rows = _rule(rows), rows.x.shape[-2]
    steps = min(steps, n_rows)
    half = max(1, steps // 2)
    w_bar, p_bar = torch.zeros_like(params.w), torch.zeros_like(params.p)
    for k in range(1, steps + 1):
        own = slice((k - 1) * n_rows // steps, k * n_rows // steps)
        stats = accumulate(params, rows.some_of_each(own), rule)
        w_bar.lerp_(stats.w_bar, 1 / min(k, half))
        p_bar.lerp_(stats.p_bar, 1 / min(k, half))
        params = maximize_memories(params, w_bar, p_bar, learn_beta=learn_beta and k > half)
    return share_out(params, p_bar, hold_classes=True)


def _rule(rows: Batch) -> LabelRule:
    """The joint rule, or its shorter form where every row has a full label; a GPU is not asked."""
    full = not rows.x.is_cuda and float((1 - rows.targets.sum(-1)).max()) < _FULL
    return objectives.given if full else objectives.joint
