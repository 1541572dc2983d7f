"""The conditional objective: a descent from the joint solution, judged by rows it never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, Dataset
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import has_gaps
from mnemosphere.model.kernel import accumulate, log_joint
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
_PASSES, _ALL_STEPS = 15, 120  # at least so many of both
_BATCH = 500
_LEAST_ROWS = 50  # fewer judge nothing
_FEW_ROWS, _FOLDS = 3000, 3  # up to so many rows, several hold-outs of a third judge
_SINGLE_ROWS = 100  # from so many on, in single precision: they only judge, and take half the time
_MARGINALS = 1e-7
_MOST_NOISE = 0.3
_JUDGED = 60  # times at most: to judge takes a third of a pass
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
        Passes without improvement on them before stopping, two thirds of the passes at least (one
        third up to 3000 rows): steps get smaller towards the end, which is where most is gained.
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
    descent = _Descent(refinement, learn_beta, learn_weights, generator, callbacks)
    if dataset.n_rows < _LEAST_ROWS:
        return joint(dataset, "")
    turns = dataset.n_rows <= _FEW_ROWS and _is_dense_array(dataset)
    splits = []
    for _ in range(_FOLDS if turns else 1):
        fraction = 1 / 3 if turns else refinement.validation_fraction
        rows, held = dataset.split(fraction, generator=generator)
        if held is None:
            return joint(dataset, "")
        splits.append((rows, held))
    starts: list[Trained] = []
    history: tuple[PassRecord, ...] = ()
    for fold, (rows, _) in enumerate(splits):
        starts.append(joint(rows, f"fold{fold}." if turns else ""))
        history = join_histories(history, starts[-1].history)
        if starts[-1].status == "interrupted":
            return starts[-1]._replace(history=history)
    if turns:
        own = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
        found, stop, status = current().once(
            lambda: replace(descent, generator=own).by_turns(starts, splits)
        )
    else:
        result = descent(starts[0].params, *splits[0], "refine")
        found, status = [result.params], result.status
        stop = _best_pass(starts[0].params, result, splits[0][1], refinement.rule)
        history = join_histories(history, result.history)

    trials = [
        (old.params, new, held) for old, new, (_, held) in zip(starts, found, splits, strict=True)
    ]
    group = current()
    stop = group.same(stop)
    beyond = 0.5 if turns else 2.0
    gained = stop > 0 and group.same(_gained(trials, refinement.rule, beyond=beyond))
    unseen = tuple((new if gained else old, held) for old, new, held in trials)
    best = Trained(unseen[-1][0], history, status, starts[-1].lineage, unseen)
    if status == "interrupted":
        return best
    if gained and dataset.n_rows > ALL_AGAIN:
        return best._replace(status="refined")

    whole = joint(dataset, "all")
    history = join_histories(history, whole.history)
    if not gained:
        return whole._replace(history=history, unseen=unseen)
    if whole.status == "interrupted":
        return best._replace(history=history, status=whole.status)
    again = descent(whole.params, dataset, None, "again", stop)
    history = join_histories(history, again.history)
    if again.status == "interrupted":
        return best._replace(history=history, status=again.status)
    # Steps have faded out by then: there is no more to wait for.
    return Trained(again.params, history, "refined", whole.lineage, unseen)


def _is_dense_array(dataset: Dataset) -> bool:
    return isinstance(dataset, ArrayDataset) and not isinstance(dataset.rows.x, SparseRows)


def _best_pass(before: Parameters, result: FitResult, held: Dataset, rule: LabelRule) -> int:
    """The number of passes with the least loss of the rows held out; 0: none at all."""
    losses = [record.validation_loss or 0.0 for record in result.history]
    losses = [judge(before, held, rule)[0], *losses]
    return losses.index(min(losses))


def _gained(
    trials: Sequence[tuple[Parameters, Parameters, Dataset]], rule: LabelRule, *, beyond: float
) -> bool:
    """Whether the loss of the rows held out falls beyond chance."""
    group = current()
    falls, weights = [], []
    for *params, held in trials:
        for batch in held.shard(group.rank, group.size).batches(None):
            before, after = (rule(log_joint(p, batch.x), batch.targets)[0] for p in params)
            falls.append((before - after).double())
            weight = batch.sample_weight
            weights.append(torch.ones_like(falls[-1]) if weight is None else weight.double())
    fall, weight = (torch.cat(group.gather(torch.cat(part).cpu())) for part in (falls, weights))
    return improves(fall, weight, beyond=beyond)


class _Plan(NamedTuple):
    """What a descent starts from, and how it goes."""

    params: Parameters
    solver: Adam
    noise: SphereNoise | None
    passes: int
    patience: int


@dataclass(frozen=True)
class _Descent:
    """Adam with noise; the schedule is that of all passes, whether or not they are taken."""

    refinement: Refinement
    learn_beta: bool
    learn_weights: bool
    generator: torch.Generator
    callbacks: Sequence[Callback]

    def __call__(
        self,
        params: Parameters,
        dataset: Dataset,
        held: Dataset | None,
        stage: str,
        stop: int | None = None,
    ) -> FitResult:
        """The best by the held-out rows; `stop` ends after so many passes."""
        plan = self._plan(params, dataset)
        result = fit(
            plan.params,
            dataset,
            plan.solver,
            rule=self.refinement.rule,
            max_iter=plan.passes if stop is None else stop,
            validation=held,
            # Of many rows, passes with large steps tell little of where small ones will end.
            patience=None if held is None else max(plan.patience, 2 * plan.passes // 3),
            generator=self.generator,
            callbacks=self.callbacks,
            stage=stage,
            noise=plan.noise,
        )
        if plan.solver.tolerance is not None or self.learn_weights:
            return result
        # Replayed steps take a set number of sweeps: put the marginals right at the end.
        best = result.params
        p = polytope.retract(best.p, torch.zeros_like(best.p), best.p_h, best.p_q, tol=_MARGINALS)
        return replace(result, params=best.replace(p=p))

    def by_turns(
        self, starts: Sequence[Trained], splits: Sequence[tuple[Dataset, Dataset]]
    ) -> tuple[list[Parameters], int, str]:
        """(parameters of each hold-out at the best number of passes for all, that, the status).

        The hold-outs go side by side: problems are small, and take as long as one of them.
        """
        rule = self.refinement.rule
        plans = [self._plan(s.params, rows) for s, (rows, _) in zip(starts, splits, strict=True)]
        solver, noise = plans[0].solver, plans[0].noise
        learned = Batch.stack([next(rows.batches(None)) for rows, _ in splits])
        judged = Batch.stack([next(held.batches(None)) for _, held in splits])
        n_rows, size = learned.x.shape[1], solver.batch_size

        def loss(params: Parameters) -> float:
            return judged.mean(rule(log_joint(params, judged.x), judged.targets)[0])

        given = learned.x.dtype
        dtype = torch.float32 if n_rows >= _SINGLE_ROWS else given
        learned, judged = learned.to(dtype=dtype), judged.to(dtype=dtype)
        params = Parameters.stack([plan.params.to(dtype=dtype) for plan in plans])
        state, every = solver.start(params), math.ceil(plans[0].passes / _JUDGED)
        best, least, stop, status = params, loss(params), 0, "max_iter"
        try:
            for n in range(1, plans[0].passes + 1):
                order = torch.randperm(n_rows, generator=self.generator).to(learned.x.device)
                for cut in range(0, n_rows, size):
                    batch = learned.take((slice(None), order[cut : cut + size]))
                    if noise is not None:
                        noisy = noise(batch.x.flatten(0, 1), self.generator)
                        batch = replace(batch, x=noisy.view_as(batch.x))
                    stats = accumulate(params, batch, rule)
                    params, state = solver.step(params, state, stats, batch, size / n_rows)
                if n % every:
                    continue
                now = loss(params)
                if now < least:
                    best, least, stop = params, now, n
                elif n - stop >= plans[0].patience:
                    status = "stopped early"
                    break
        except KeyboardInterrupt:
            status = "interrupted"
        found = [
            own.to(dtype=given).replace(varsigma=plan.params.varsigma)
            for own, plan in zip(best.unstack(), plans, strict=True)
        ]
        return found, stop, status

    def _plan(self, params: Parameters, dataset: Dataset) -> _Plan:
        refinement = self.refinement
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
            learn_weights=self.learn_weights, metric_decay=1 / dataset.n_rows,
        )  # fmt: skip
        solver = solver.resolve(dataset.n_rows, learn_beta=self.learn_beta, device=dataset.device)
        length = min(unit, _MOST_NOISE) if refinement.noise == "auto" else float(refinement.noise)
        if length > 0 and sparse:
            if refinement.noise != "auto":
                raise ValueError("noise would make sparse rows dense: pass Refinement(noise=0)")
            length = 0.0
        noise = SphereNoise(length) if length > 0 else None
        return _Plan(params, solver, noise, passes, max(refinement.patience, passes // 3))


def join_histories(
    before: tuple[PassRecord, ...], after: tuple[PassRecord, ...]
) -> tuple[PassRecord, ...]:
    """One history, whose phases go on counting."""
    last = max((record.phase for record in before), default=-1)
    return (*before, *(replace(record, phase=record.phase + last + 1) for record in after))
