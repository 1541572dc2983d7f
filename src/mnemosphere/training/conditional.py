"""The conditional likelihood: where it starts, and how it is trained.

log P(y|x) depends on the slope β_eff and the class weights alone: ς, Ω_N(β) and the uniform component belong
to the density of the rows. So a conditional model is trained with ς = 1 and without a uniform component, from
memories that start inside their classes, by Adam on the sphere, in cycles that fade out: each is twice as long as
the one before, goes on from where that stands, and trusts labels more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mnemosphere.model import initialize, objectives
from mnemosphere.model.initialize import Start
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.soft_labels import label_shares
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback, PassRecord, Run
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit

START_BETA = 10.0  # moderately soft votes on the unit sphere, whatever its dimension
SMOOTHING = 0.02  # of labels among the C classes: keeps weights of separable rows finite
FADING = 4.0  # of that, from cycle to cycle
START_ROWS = 50_000  # rows that memories start on


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


def fit_conditional(
    dataset: ArrayDataset,
    n_memories: int,
    *,
    solver: Adam | None = None,
    noise: float = 0.0,
    cycles: int = 1,
    beta: float | None = None,
    max_iter: int | None = None,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Memories, weights and slope of highest conditional likelihood.

    noise: its length on rows, relative to them. max_iter: passes of the first cycle, in place of the usual
    number. beta None: learned.
    """
    rows = dataset.sample(START_ROWS, generator=generator)
    start = initialize.within_classes(
        rows.filled().x, rows.targets, n_memories, generator=generator
    )
    n_rows = dataset.n_rows
    adam = (solver or Adam()).resolve(n_rows, learn_beta=beta is None, device=dataset.device)
    params = start_conditional(start, dataset.label_mass().to(start.w), beta=beta)
    history: list[PassRecord] = []
    for cycle in range(cycles):
        solver, passes = adam.scheduled(n_rows, cycle, max_iter)
        run = fit(
            params, dataset.with_targets(partial(class_targets, cycle=cycle)), replace(solver, noise=noise),
            rule=objectives.conditional, max_iter=passes, generator=generator, callbacks=callbacks,
        )  # fmt: skip
        params, history = run.params, [*history, *run.in_phase(cycle)]
        if run.status != "max_iter":
            break
    # Steps have faded out.
    status = "converged" if run.status == "max_iter" else run.status
    return replace(run, history=history, status=status)
