"""Scores of components: what recall and the readings of a trained memory have in common.

The scores a[b,γ] = log c_γ + h[b,γ], where c_γ = p[γ,y] for a class y and c_γ = Σ_y p[γ,y] for
any class: their log-sum-exp is the log-density of a row, their softmax the share of each component
in it. Scores are taken class by class, so that a class far from a row loses no digits to the
classes near it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.gaps import overlaps
from mnemosphere.model.kernel import exponents
from mnemosphere.model.votes import Mixture


class Scores:
    """log c_γ + h[b,γ] for a class, or one per row, or any; and what is read from it."""

    def __init__(self, params: Mixture, class_index: int | Tensor | None, n_rows: int) -> None:
        self.params = params
        if class_index is None:
            self.log_c = params.p.sum(1).log()[None]  # (1, P+1)
            self.column = torch.zeros(n_rows, dtype=torch.long, device=params.w.device)
        else:
            self.log_c = params.p.T.log()  # (C+1, P+1)
            self.column = class_column(params, class_index, n_rows)
        self.log_prior = self.log_c.logsumexp(1)  # (C+1,) of the classes

    def of_overlaps(self, overlap: Tensor, rows: slice | Tensor) -> Tensor:
        """Scores (B, P+1) from the overlaps (B, P) of the rows `rows` of the whole."""
        return exponents(self.params, overlap).add_(self.log_c[self.column[rows]])

    def __call__(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """Scores (B, P+1) of x (B, N), which are the rows `rows` of the whole."""
        return self.of_overlaps(overlaps(self.params, x), rows)

    def energy(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """−log P(x|y) of x (B, N) relative to the uniform law, (B,)."""
        return self.log_prior[self.column[rows]] - self(x, rows).logsumexp(1)

    def pull(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """Σ_μ r_μ w^μ up to a positive factor per row, (B, N); zero where no memory has weight."""
        # Among memories alone: far from all of them, their shares would vanish in rounding.
        share = self(x, rows)[:, 1:].softmax(1).nan_to_num(0.0)  # (B, P)
        return share @ self.params.w


def class_column(params: Mixture, class_index: int | Tensor, n_rows: int) -> Tensor:
    """Columns of p (n_rows,) int64; ValueError unless each has some weight."""
    column = torch.as_tensor(class_index, device=params.p.device).long().expand(n_rows)
    empty = ~(params.p.sum(0)[column] > 0)
    if bool(empty.any()):
        raise ValueError(f"class {int(column[empty][0])} has no weight: no row can belong to it")
    return column
