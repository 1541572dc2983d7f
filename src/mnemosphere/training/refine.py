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
from mnemosphere.model.gaps import has_gaps
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.metric import MAX_RANK
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.numerics import polytope
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback, PassRecord
from mnemosphere.training.distributed import current
from mnemosphere.training.fit import FitResult, fit, judge
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.noise import SphereNoise

__all__ = ["Refinement", "Trained", "angular_unit", "join_histories", "refine"]

ALL_AGAIN = 100_000  # up to so many rows the refinement is done again with the held-out ones
_PASSES, _ALL_STEPS = 15, 240  # at least so many of both
_BATCH = 500
_LEAST_ROWS = 50  # fewer judge nothing
_FEW_ROWS, _FOLDS = 3000, 3  # up to so many rows, several hold-outs of a third judge
_MARGINALS = 1e-7
_MOST_NOISE = 0.3
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
        a noisy row has the overlap 1/√(1+noise²) with its own. "auto": √N/(ςβ), at most 0.3; none
        on sparse rows, which it would make dense.
    max_iter : int or None
        Passes; None: 15, more on small data.
    validation_fraction : float in (0, 1)
        Rows that take no part in the training and judge it.
    patience : int
        Passes without improvement on them before stopping, a third of the passes at least: steps
        get smaller towards the end, which is where most is gained.
    metric : "learn" or "none"
        Whether a metric is learned too, where rows have at most 150 coordinates, none of them
        unknown.

    """

    conditional: float = 1.0
    noise: float | Literal["auto"] = "auto"
    max_iter: int | None = None
    validation_fraction: float = 0.1
    patience: int = 3
    metric: Literal["learn", "none"] = "learn"

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
        if self.metric not in ("learn", "none"):
            raise ValueError(f"metric must be 'learn' or 'none', got {self.metric!r}")
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
    unseen: tuple[tuple[Parameters, Dataset], ...] = ()
    # Label weights of the rows that each component answers for, (P+1, C+1), where they are known.
    label_counts: Tensor | None = None


def angular_unit(params: Parameters) -> float:
    """√N/β_eff, at most 1: a random turn by so much moves the exponent of a memory by about 1.

    Of a random direction across the row a part of about 1/√N lies along any one memory, and the
    exponent is β_eff⟨w, x⟩. It is the unit of noise and of a step.
    """
    return min(1.0, math.sqrt(params.n_features) / float(params.beta_eff))


def improves(fall: Tensor, weight: Tensor, *, beyond: float) -> bool:
    """Whether the loss falls on average, by more than so many of its standard errors.

    fall, weight (n,): of rows that were not trained on.
    """
    share = weight / weight.sum()
    mean = (share * fall).sum()
    error = (share * (fall - mean)).norm()  # √Σ share²·deviation²
    return bool(mean > beyond * error)


def refine(
    joint: Callable[[Dataset, str], Trained],
    dataset: Dataset,
    refinement: Refinement,
    *,
    learn_beta: bool,
    learn_weights: bool,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Find the joint solution and refine it where held-out rows gain by it.

    `joint(rows, stage)` solves for the rows it is given. The rows that judge take no part in the
    joint solution that the refinement starts from. Few rows judge by turns, three hold-outs of a
    third; many by one hold-out; fewer than 50 judge nothing. If they gain nothing, the joint
    solution of all rows is what remains. If they do, the refinement is done again with all of
    them, for as many passes as were best, unless there are very many.
    """

    def descend(
        params: Parameters, rows: Dataset, held: Dataset | None, stage: str, stop: int | None = None
    ) -> FitResult:
        return _descend(
            params, rows, held, refinement, stage, stop,
            learn_beta=learn_beta, learn_weights=learn_weights, generator=generator,
            callbacks=callbacks,
        )  # fmt: skip

    if dataset.n_rows < _LEAST_ROWS:
        return joint(dataset, "")
    few = dataset.n_rows <= _FEW_ROWS
    trials: list[_Trial] = []
    history: tuple[PassRecord, ...] = ()
    for fold in range(_FOLDS if few else 1):
        name = f"fold{fold}." if few else ""
        fraction = 1 / 3 if few else refinement.validation_fraction
        rows, held = dataset.split(fraction, generator=generator)
        if held is None:
            return joint(dataset, "")
        start = joint(rows, name)
        if start.status == "interrupted":
            return start
        result = descend(start.params, rows, held, f"{name}refine")
        history = join_histories(join_histories(history, start.history), result.history)
        trials.append(_Trial(start, result, held))
        if result.status == "interrupted":
            break

    group = current()
    stop = group.same(_best_pass(trials, refinement.rule))
    gained = stop > 0 and group.same(_gained(trials, refinement.rule, beyond=0.5 if few else 2.0))
    unseen = tuple((t.result.params if gained else t.start.params, t.held) for t in trials)
    best = Trained(unseen[-1][0], history, result.status, start.lineage, unseen)
    if result.status == "interrupted" or (gained and dataset.n_rows > ALL_AGAIN):
        return best

    whole = joint(dataset, "all")
    history = join_histories(history, whole.history)
    if not gained:
        return whole._replace(history=history, unseen=unseen)
    if whole.status == "interrupted":
        return best._replace(history=history, status=whole.status)
    again = descend(whole.params, dataset, None, "again", stop)
    history = join_histories(history, again.history)
    if again.status == "interrupted":
        return best._replace(history=history, status=again.status)
    return Trained(again.params, history, result.status, whole.lineage, unseen)


class _Trial(NamedTuple):
    """One hold-out: the joint solution of the other rows, and what became of it."""

    start: Trained
    result: FitResult
    held: Dataset


def _best_pass(trials: Sequence[_Trial], rule: LabelRule) -> int:
    """The number of passes with the least mean loss of the rows held out; 0: none at all."""
    curves = []
    for trial in trials:
        losses = [record.validation_loss or 0.0 for record in trial.result.history]
        curves.append([judge(trial.start.params, trial.held, rule)[0], *losses])
    means = [sum(losses) for losses in zip(*curves, strict=False)]  # as far as all of them went
    return means.index(min(means))


def _gained(trials: Sequence[_Trial], rule: LabelRule, *, beyond: float) -> bool:
    """Whether the loss of the rows held out falls beyond chance."""
    group = current()
    falls, weights = [], []
    for trial in trials:
        held = trial.held.shard(group.rank, group.size)
        for batch in held.batches(None):
            before, after = (
                rule(log_joint(params, batch.x), batch.targets)[0]
                for params in (trial.start.params, trial.result.params)
            )
            falls.append((before - after).double())
            weight = batch.sample_weight
            weights.append(torch.ones_like(falls[-1]) if weight is None else weight.double())
    fall, weight = (torch.cat(group.gather(torch.cat(part).cpu())) for part in (falls, weights))
    return improves(fall, weight, beyond=beyond)


def _descend(
    params: Parameters,
    dataset: Dataset,
    held: Dataset | None,
    refinement: Refinement,
    stage: str,
    stop: int | None,
    *,
    learn_beta: bool,
    learn_weights: bool,
    generator: torch.Generator,
    callbacks: Sequence[Callback],
) -> FitResult:
    """Descend by Adam with noise; the best by the held-out rows; `stop` ends after so many passes.

    The schedule is that of all passes, whether or not they are taken.
    """
    size = min(dataset.n_rows, _BATCH)
    unit, steps = angular_unit(params), math.ceil(dataset.n_rows / size)
    passes = refinement.max_iter or max(_PASSES, math.ceil(_ALL_STEPS / steps))
    some = dataset.sample(_FEW_ROWS, generator=torch.Generator().manual_seed(0)).x
    sparse = isinstance(some, SparseRows)
    # A metric would fill sparse rows, and mix gaps with what is known.
    learned = refinement.metric == "learn" and params.n_features <= MAX_RANK
    if learned and not (sparse or has_gaps(some)):
        params = params.replace(metric=torch.eye(params.n_features).to(params.w))
    solver = Adam(
        passes * steps, angle=_ANGLE * unit, batch_size=size, tolerance=_MARGINALS,
        learn_weights=learn_weights, metric_decay=1 / dataset.n_rows,
    )  # fmt: skip
    solver = solver.resolve(dataset.n_rows, learn_beta=learn_beta, device=dataset.device)
    length = min(unit, _MOST_NOISE) if refinement.noise == "auto" else float(refinement.noise)
    if length > 0 and sparse:
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
    if solver.tolerance is not None or learn_weights:
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
