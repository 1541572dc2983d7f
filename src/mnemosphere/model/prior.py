"""Another class prior for a trained model, memories untouched.

A trained p holds both how memories divide among classes and how frequent classes were in training.
Where the frequencies change and the classes themselves do not, P(x|y) stays and P(y) is replaced:

    follow   p'[γ,y] = p[γ,y] π'_y/π_y. Bayes' rule exactly: every posterior P(y|x) is reweighted by
             π'_y/π_y. The weight of a memory follows its classes, p_h' = Σ_y p'[γ,y].
    hold     the p' nearest to p in relative entropy (its I-projection, by Sinkhorn–Knopp) with
             column sums π' and the row sums p_h as they were: p'[γ,y] = a_γ p[γ,y] b_y. Odds
             ratios between memories and classes stay; within a memory the odds of two classes
             change by b_y/b_y', in general not π'_y/π_y. Memories keep their weights, so a class
             that is to become more frequent than its memories are must take over memories of
             other classes, the ambiguous ones first.

Both are the same where p_h need not change, as for classes spread alike over all memories.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import polytope


def with_class_prior(params: Mixture, p_q: Tensor, *, hold: bool = False) -> Mixture:
    """The same memories with column sums p_q (C+1,) of p; hold: see above."""
    p = reweighted(params.p, p_q, hold=hold)
    return params.with_classes(p)


def reweighted(p: Tensor, p_q: Tensor, *, hold: bool = False) -> Tensor:
    """The same of class weights p (P+1, C+1) alone, in float64."""
    if p_q.shape != p.shape[1:] or not bool(((p_q >= 0) & torch.isfinite(p_q)).all()):
        raise ValueError(f"p_q must be {p.shape[1]} finite weights >= 0, got {p_q.tolist()}")
    p, new = p.double(), p_q.double() / p_q.double().sum()
    old = p.sum(0)
    lost = (old == 0) & (new > 0)
    if bool(lost.any()):
        raise ValueError(
            f"class {int(lost.nonzero()[0])} has no weight in the model, so nothing is known of "
            "it: keep its prior at 0"
        )
    if hold:
        p = polytope.project(p, p.sum(1), new)
    else:
        p = p * torch.where(old > 0, new / old, 0.0)
    return p / p.sum()
