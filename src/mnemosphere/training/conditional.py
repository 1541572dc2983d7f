"""The conditional likelihood: where its parameters start, and the label weights that it is trained on.

log P(y|x) depends on the slope β_eff and the class weights alone: ς, Ω_N(β) and the uniform component belong
to the density of the rows. So a conditional model is trained with ς = 1 and without a uniform component, from
memories that start inside their classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model.initialize import Start
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.soft_labels import label_shares

START_BETA = 10.0  # moderately soft votes on the unit sphere, whatever its dimension
SMOOTHING = 0.02  # of labels among the C classes: keeps weights of separable rows finite
FADING = 4.0  # of that, from cycle to cycle


def start_conditional(start: Start, mass: Tensor, *, beta: float | None) -> Mixture:
    """Memories of one class each; classes together weigh as much as in the rows.

    Steps multiply class weights, and by little, so the start knows the class frequencies; a class without a
    memory of its own is shared by all. mass: label weights of all rows (C+1,).
    """
    w, _, classes = start
    assert classes is not None
    frequencies = mass[:-1] / mass[:-1].sum()
    soft = torch.where(classes.sum(0) > 0, classes, 1.0)  # (P, C)
    p = soft * (frequencies / soft.sum(0))
    p = torch.nn.functional.pad(p, (0, 1, 1, 0))
    slope = torch.as_tensor(START_BETA if beta is None else beta).to(w)
    return Mixture(w=w, p=p, beta=slope, varsigma=1.0, p_h=p.sum(1), p_q=p.sum(0))


def class_targets(targets: Tensor, cycle: int = 0) -> Tensor:
    """Label weights for the conditional objective: among the C classes, lightly smoothed, less in later cycles.

    targets (..., C+1) may have any smoothing of their own, which is taken off.
    """
    share = label_shares(targets)
    smoothing = SMOOTHING / FADING**cycle
    smooth = (1 - smoothing) * share + smoothing / share.shape[-1]
    total = targets.sum(-1, keepdim=True)
    return torch.cat([total * smooth, torch.zeros_like(total)], -1)
