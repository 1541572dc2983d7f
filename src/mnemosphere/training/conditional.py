"""The conditional likelihood: where it starts, and how it is trained.

log P(y|x) depends on the slope β_eff and the class weights alone: ς, Ω_N(β) and the uniform component belong
to the density of the rows. So a conditional model is trained with ς = 1 and without a uniform component, from
memories that start inside their classes, by Adam on the sphere. The budget is a number of steps, with a least
number of passes: few rows need some passes, and with many rows a few are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mnemosphere.model import initialize, objectives
from mnemosphere.model.class_reading import label_shares
from mnemosphere.model.initialize import Start
from mnemosphere.model.mixture import Mixture
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.dataset import TrainingSet
from mnemosphere.training.fit import FitResult, fit
from mnemosphere.training.noise import SphereNoise

START_BETA = 20.0  # moderately soft votes on the unit sphere, whatever its dimension
SMOOTHING = 0.02  # of labels among the C classes: keeps weights of separable rows finite
START_ROWS = 50_000  # rows that memories start on
STEPS = 40  # of Adam, in trials as in the model: its temperature is theirs


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


def class_targets(targets: Tensor) -> Tensor:
    """Label weights for the conditional objective: among the C classes, lightly smoothed.

    targets (..., C+1) may have any smoothing of their own, which is taken off.
    """
    share = label_shares(targets)
    smooth = (1 - SMOOTHING) * share + SMOOTHING / share.shape[-1]
    total = targets.sum(-1, keepdim=True)
    return torch.cat([total * smooth, torch.zeros_like(total)], -1)


def fit_conditional(
    dataset: TrainingSet,
    n_memories: int,
    *,
    solver: Adam | None = None,
    noise: float = 0.0,
    longer: int = 1,
    beta: float | None = None,
    max_iter: int | None = None,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> FitResult:
    """Memories, weights and slope of highest conditional likelihood.

    noise: its length on rows, relative to them. longer: times the usual number of steps. max_iter: passes, in
    place of that number. beta None: learned.
    """
    rows = dataset.sample(START_ROWS, generator=generator)
    start = initialize.within_classes(
        rows.filled().x, rows.targets, n_memories, generator=generator
    )
    n_rows = dataset.n_rows
    adam = (solver or Adam()).resolve(n_rows, learn_beta=beta is None, device=dataset.device)
    adam, passes = adam.scheduled(n_rows, longer * STEPS, max_iter)
    result = fit(
        start_conditional(start, dataset.label_mass().to(start.w), beta=beta),
        dataset.with_targets(class_targets), adam, rule=objectives.conditional, max_iter=passes,
        generator=generator, callbacks=callbacks,
        noise=SphereNoise(noise) if noise > 0 else None,
    )  # fmt: skip
    # Steps have faded out.
    return replace(result, status="converged") if result.status == "max_iter" else result
