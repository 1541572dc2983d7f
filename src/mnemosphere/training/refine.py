"""The conditional objective: a descent from the joint solution, judged by rows it never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mnemosphere.data.dataset import Dataset
from mnemosphere.model import objectives
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.numerics import polytope
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback, PassRecord
from mnemosphere.training.fit import FitResult, fit, judge
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.noise import SphereNoise

__all__ = ["Refinement", "Trained", "angular_unit", "join_histories", "refine"]

ALL_AGAIN = 100_000  # up to so many rows the refinement is done again with the held-out ones
_ENOUGH_HELD = 20  # rows to judge by where there are so many, a third of all otherwise
_STEPS = 50  # per pass, on data of a few thousand rows
_PASSES, _ALL_STEPS = 15, 1600  # at least so many of both
_BATCH = (32, 500)
_MARGINALS = 1e-7
_ANGLE = 0.08  # largest turn of a memory in one step, in angular units


@dataclass(frozen=True)
class Refinement:
    """Descend from the joint solution, with weight `conditional` on the conditional likelihood.

    Parameters
    ----------
    conditional : float in (0, 1]
        1 is −log P(y|x) alone.
    noise : float >= 0 or "auto"
        The length, relative to the row, of the noise that is laid anew on every row in every pass;
        a noisy row has the overlap 1/√(1+noise²) with its own. "auto": √N/(ςβ), at most 1; none
        on sparse rows, which it would make dense.
    max_iter : int or None
        Passes; None: 15, more on small data.
    validation_fraction : float in (0, 1)
        Rows that take no part in the training and judge it.
    patience : int
        Passes without improvement on them before stopping, a third of the passes at least: steps
        get smaller towards the end, which is where most is gained.

    """

    conditional: float = 1.0
    noise: float | Literal["auto"] = "auto"
    max_iter: int | None = None
    validation_fraction: float = 0.1
    patience: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.conditional <= 1:
            raise ValueError(f"conditional must lie in (0, 1], got {self.conditional}")
        if self.noise != "auto" and not 0 <= float(self.noise) < math.inf:
            raise ValueError(f"noise must be finite and >= 0, or 'auto', got {self.noise}")
        if self.max_iter is not None and self.max_iter < 1:
            raise ValueError(f"max_iter must be >= 1 or None, got {self.max_iter}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie in (0, 1), got {self.validation_fraction}"
            )
        if self.patience < 1:
            raise ValueError(f"patience must be >= 1, got {self.patience}")

    @property
    def rule(self) -> LabelRule:
        """The objective."""
        return objectives.JointConditional(self.conditional)


class Trained(NamedTuple):
    """What a training of one or more parts came to."""

    params: Parameters
    history: tuple[PassRecord, ...]
    status: str
    lineage: Lineage | None = None
    # Parameters of the same kind and rows they have not seen, where training set some apart.
    unseen: tuple[Parameters, Dataset] | None = None
    # Label weights of the rows that each component answers for, (P+1, C+1), where they are known.
    label_counts: Tensor | None = None


def angular_unit(params: Parameters) -> float:
    """√N/β_eff, at most 1: a random turn by so much moves the exponent of a memory by about 1.

    Of a random direction across the row a part of about 1/√N lies along any one memory, and the
    exponent is β_eff⟨w, x⟩. It is the unit of noise and of a step.
    """
    return min(1.0, math.sqrt(params.n_features) / float(params.beta_eff))


def improves_on_holdout(old: Parameters, new: Parameters, held: Dataset, rule: LabelRule) -> bool:
    """Whether the loss of the held-out rows falls beyond chance and no more of them are wrong.

    Beyond chance: by two standard errors of the mean difference, row by row.
    """
    falls, weights = [], []
    for batch in held.batches(None):
        before, after = (rule(log_joint(p, batch.x), batch.targets)[0] for p in (old, new))
        falls.append((before - after).double())
        weight = batch.sample_weight
        weights.append(torch.ones_like(falls[-1]) if weight is None else weight.double())
    fall, weight = torch.cat(falls), torch.cat(weights)
    share = weight / weight.sum()
    mean = (share * fall).sum()
    error = (share * (fall - mean)).norm()  # √Σ share²·deviation²
    right = [judge(params, held, rule)[1] or 0.0 for params in (old, new)]
    return bool(mean > 2 * error) and right[1] >= right[0]


def refine(
    joint: Callable[[Dataset, str], Trained],
    dataset: Dataset,
    refinement: Refinement,
    *,
    learn_beta: bool,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Find the joint solution and refine it where held-out rows gain by it.

    `joint(rows, stage)` solves for the rows it is given. The rows that judge take no part in the
    joint solution that the refinement starts from. If they gain nothing, the joint solution of all
    rows is what remains. If they do, and there are few rows, the refinement is done again with all
    of them, for as many passes as were best.
    """

    def descend(
        params: Parameters, rows: Dataset, held: Dataset | None, stage: str, stop: int | None = None
    ) -> FitResult:
        return _descend(
            params, rows, held, refinement, stage, stop,
            learn_beta=learn_beta, generator=generator, callbacks=callbacks,
        )  # fmt: skip

    fraction = max(refinement.validation_fraction, min(1 / 3, _ENOUGH_HELD / dataset.n_rows))
    rows, held = dataset.split(fraction, generator=generator)
    if held is None:
        return joint(dataset, "")
    start = joint(rows, "")
    if start.status == "interrupted":
        return start

    first = descend(start.params, rows, held, "refine")
    history = join_histories(start.history, first.history)
    gained = improves_on_holdout(start.params, first.params, held, refinement.rule)
    better = first.params if gained else start.params
    unseen = (better, held)
    best = Trained(better, history, first.status, start.lineage, unseen)
    if first.status == "interrupted" or (gained and dataset.n_rows > ALL_AGAIN):
        return best

    whole = joint(dataset, "all")
    history = join_histories(history, whole.history)
    if not gained:
        return whole._replace(history=history, unseen=unseen)
    if whole.status == "interrupted":
        return best._replace(history=history, status=whole.status)
    losses = [record.validation_loss for record in first.history]
    stop = 1 + losses.index(min(loss for loss in losses if loss is not None))
    again = descend(whole.params, dataset, None, "again", stop)
    history = join_histories(history, again.history)
    if again.status == "interrupted":
        return best._replace(history=history, status=again.status)
    return Trained(again.params, history, first.status, whole.lineage, unseen)


def _descend(
    params: Parameters,
    dataset: Dataset,
    held: Dataset | None,
    refinement: Refinement,
    stage: str,
    stop: int | None,
    *,
    learn_beta: bool,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
) -> FitResult:
    """Descend by Adam with noise; the best by the held-out rows; `stop` ends after so many passes.

    The schedule is that of all passes, whether or not they are taken.
    """
    size = min(max(dataset.n_rows // _STEPS, _BATCH[0]), _BATCH[1])
    unit, steps = angular_unit(params), math.ceil(dataset.n_rows / size)
    passes = refinement.max_iter or max(_PASSES, math.ceil(_ALL_STEPS / steps))
    solver = Adam(passes * steps, angle=_ANGLE * unit, batch_size=size, tolerance=_MARGINALS)
    solver = solver.resolve(dataset.n_rows, learn_beta=learn_beta, device=dataset.device)
    length = unit if refinement.noise == "auto" else float(refinement.noise)
    if length > 0 and isinstance(next(dataset.batches(1)).x, SparseRows):
        if refinement.noise != "auto":
            raise ValueError("noise would make sparse rows dense: pass Refinement(noise=0)")
        length = 0.0
    result = fit(
        params,
        dataset,
        solver,
        rule=refinement.rule,
        max_iter=passes if stop is None else stop,
        validation=held,
        patience=None if held is None else max(refinement.patience, passes // 3),
        generator=generator,
        callbacks=callbacks,
        stage=stage,
        noise=SphereNoise(length) if length > 0 else None,
    )
    if solver.tolerance is not None:
        return result
    # Replayed steps take a set number of sweeps: put the marginals right at the end.
    best = result.params
    p = polytope.retract(best.p, torch.zeros_like(best.p), best.p_h, best.p_q, tol=_MARGINALS)
    return replace(result, params=best.replace(p=p))


def join_histories(
    before: tuple[PassRecord, ...], after: tuple[PassRecord, ...]
) -> tuple[PassRecord, ...]:
    """One history, whose phases go on counting."""
    last = max((record.phase for record in before), default=-1)
    return (*before, *(replace(record, phase=record.phase + last + 1) for record in after))
