"""The conditional objective: a descent from the joint solution, judged by rows it never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, Dataset, is_dense_array
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import at_temperature
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
from mnemosphere.training.noise import SphereNoise, angular_unit
from mnemosphere.training.refinement import Refinement, Trained
from mnemosphere.training.side_by_side import apart, joint_solutions, rows_together, together

__all__ = ["TWO_TURNS", "ExactSteps", "join_histories", "refine"]

ALL_AGAIN = 100_000  # up to so many rows the refinement is done again with the held-out ones
_PASSES, _ALL_STEPS = 12, 60  # at least so many of both
_MORE_PASSES = 3  # of more rows than _HEATED_ROWS
_BATCH = 500
_LEAST_ROWS = 50  # fewer judge nothing
_FEW_ROWS, _FOLDS = 3000, 3  # up to so many rows, several hold-outs of a third judge
TWO_TURNS = 1000  # rows, from which on two of them do, in fewer looks
_SEVERAL_CLASSES = 20  # from which on one of them does, of so many rows
_MARGINALS = 1e-7
# The descent starts at twice the temperature that suits the classes of rows left out: memories that
# answer for few rows each would soon know those by heart.
_HEAT, _TEMPERATURES = 2.0, (1.0, 1.5, 2.2, 3.3, 5.0, 7.5, 11.0)
_HEATED_ROWS = 10_000  # of more, a memory answers for more
_LAST = 1 / 3  # of the passes: what all rows see of them where there are more than 3000
_MOST_NOISE = {False: 0.3, True: 0.6}  # of more rows than those
_PER_COORDINATE = 5  # rows, from which on a metric is learned
_JUDGED = {3: 15, 2: 10, 1: 10}  # times at most, by hold-outs: to judge takes a third of a pass
_ANGLE = 0.08  # largest turn of a memory in one step, in angular units


def improves(fall: Tensor, weight: Tensor, *, beyond: float) -> bool:
    """Whether the loss falls on average, by more than so many of its standard errors.

    fall, weight (n,): of rows that were not trained on.
    """
    share = weight / weight.sum()
    mean = (share * fall).sum()
    error = (share * (fall - mean)).norm()  # √Σ share²·deviation²
    return bool(mean > beyond * error)


class ExactSteps(NamedTuple):
    """Where exact steps with learned weights start, and when they end."""

    start: Callable[[Dataset], Parameters]
    max_iter: int
    tol: float


def refine(
    joint: Callable[[Dataset, str, bool, Parameters | None], Trained],
    dataset: Dataset,
    refinement: Refinement,
    *,
    learn_beta: bool,
    learn_weights: bool,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
    exact: ExactSteps | None = None,
) -> Trained:
    """Find the joint solution and refine it where held-out rows gain by it.

    `joint(rows, stage, brief, begun)` solves for the rows it is given, briefly where that is but a
    start, and may go on from where a brief solution of most of them has `begun`.
    The rows that judge take no part in the joint solution that the refinement starts from. Few rows
    judge by turns, each third of them (from 1000 on two thirds); many by one hold-out; fewer than
    50 judge nothing. If they gain nothing, the joint solution of all rows is what remains. If they
    do, the refinement is done again with all of them, for as many passes as were best, unless there
    are very many. `exact`: where joint solutions are found by exact steps with learned weights,
    those of hold-outs go side by side.
    """
    widest = min(MAX_RANK, dataset.n_rows // _PER_COORDINATE) if refinement.metric == "learn" else 0
    most_noise = _MOST_NOISE[dataset.n_rows > _HEATED_ROWS]
    descent = _Descent(
        refinement, learn_beta, learn_weights, generator, callbacks, widest, most_noise
    )
    if dataset.n_rows < _LEAST_ROWS:
        return joint(dataset, "", False, None)
    turns = dataset.n_rows <= _FEW_ROWS and is_dense_array(dataset)
    brief = dataset.n_rows >= TWO_TURNS
    splits: list[tuple[Dataset, Dataset | None]] = []
    if turns:
        assert isinstance(dataset, ArrayDataset)
        seed = int(torch.randint(2**62, (), generator=generator))
        several = dataset.rows.targets.shape[1] > _SEVERAL_CLASSES
        for turn in range(_FOLDS - brief - (brief and several)):
            order = torch.Generator().manual_seed(seed)
            splits.append(dataset.split(1 / _FOLDS, generator=order, turn=turn))
    else:
        splits.append(dataset.split(refinement.validation_fraction, generator=generator))
    pairs = [(rows, held) for rows, held in splits if held is not None]
    if not pairs:
        return joint(dataset, "", False, None)
    history: tuple[PassRecord, ...] = ()
    lineage = None
    if turns and exact is not None:
        starts = [exact.start(rows) for rows, _ in pairs]
    else:
        starts = []
        for fold, (rows, _) in enumerate(pairs):
            solved = joint(rows, f"fold{fold}." if turns else "", brief, None)
            history, lineage = join_histories(history, solved.history), solved.lineage
            if solved.status == "interrupted":
                return solved._replace(history=history)
            starts.append(solved.params)
    if turns:
        own = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
        found = (
            current()
            .once(lambda: replace(descent, generator=own).by_turns(starts, pairs, exact))
            .clone()
        )
        stop = found.stop
    else:
        rule, (rows, held), first = refinement.rule, pairs[0], starts[0]
        suited = heat = 1.0
        if descent.heated and dataset.n_rows <= _HEATED_ROWS and is_dense_array(dataset):
            suited = _suited(lambda t: judge(at_temperature(first, t), held, rule)[0])
            heat = _HEAT * suited
        before = at_temperature(first, suited)
        result = descent(at_temperature(first, heat), rows, held, "refine")
        stop = _best_pass(before, result, held, rule)
        history = join_histories(history, result.history)
        passes = descent.schedule(rows.n_rows)[1]
        found = _Turns(starts, [before], [result.params], stop, passes, result.status, heat)

    judges = [held for _, held in pairs]
    trials = [*zip(found.before, found.after, judges, strict=True)]
    group = current()
    stop = group.same(stop)
    beyond = 0.0 if turns else 2.0
    gained = stop > 0 and group.same(_gained(trials, refinement.rule, beyond=beyond))
    best_of = found.after if gained else found.joint
    unseen = (*zip(best_of, judges, strict=True),)
    best = Trained(unseen[-1][0], history, found.status, lineage, unseen)
    if found.status == "interrupted":
        return best
    if gained and dataset.n_rows > ALL_AGAIN:
        return best._replace(status="refined")

    end = stop / found.passes
    start, part = best.params, (end * (1 - _LAST), end)
    if turns or found.heat == 1.0 or not gained:
        begun = starts[0] if brief and not (turns or gained) else None
        whole = joint(dataset, "all", gained, begun)
        history, lineage = join_histories(history, whole.history), whole.lineage
        if not gained:
            return whole._replace(history=history, unseen=unseen)
        if whole.status == "interrupted":
            return best._replace(history=history, status=whole.status)
        start, part = at_temperature(whole.params, found.heat), (0.0, end)
    again = descent(start, dataset, None, "again", part)
    history = join_histories(history, again.history)
    if again.status == "interrupted":
        return best._replace(history=history, status=again.status)
    # Steps have faded out by then: there is no more to wait for.
    return Trained(again.params, history, "refined", lineage, unseen)


def _suited(loss: Callable[[float], float]) -> float:
    """The temperature with the least loss, tried upwards until it rises."""
    best, least = 1.0, math.inf
    for temperature in _TEMPERATURES:
        now = loss(temperature)
        if now >= least:
            break
        best, least = temperature, now
    return best


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


class _Turns(NamedTuple):
    """What hold-outs came to."""

    joint: Sequence[Parameters]
    before: Sequence[Parameters]  # the same at the temperature that suits the classes
    after: Sequence[Parameters]  # refined, for the best number of passes of all
    stop: int  # that number
    passes: int  # of the whole schedule
    status: str
    heat: float  # the temperature from which the descent started

    def clone(self) -> _Turns:
        """The same out of inference mode."""
        parts = (self.joint, self.before, self.after)
        joint, before, after = ([params.clone() for params in part] for part in parts)
        return self._replace(joint=joint, before=before, after=after)


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
    widest: int  # coordinates at most for which a metric is learned
    most_noise: float = _MOST_NOISE[False]

    @property
    def heated(self) -> bool:
        """Whether it starts at a higher temperature: not where a density counts, or β is given."""
        return self.refinement.conditional == 1.0 and self.learn_beta

    def schedule(self, n_rows: int) -> tuple[int, int]:
        """Steps per pass, and passes."""
        steps = math.ceil(n_rows / _BATCH)
        least = _PASSES + _MORE_PASSES * (n_rows > _HEATED_ROWS)
        return steps, self.refinement.max_iter or max(least, math.ceil(_ALL_STEPS / steps))

    def __call__(
        self,
        params: Parameters,
        dataset: Dataset,
        held: Dataset | None,
        stage: str,
        part: tuple[float, float] = (0.0, 1.0),
    ) -> FitResult:
        """The best by the held-out rows; `part`: where in the schedule it begins and ends."""
        plan = self._plan(params, dataset)
        begin, end = (round(share * plan.passes) for share in part)
        state = plan.solver.start(plan.params)
        state["step"] += begin * plan.solver.steps / plan.passes
        result = fit(
            plan.params,
            dataset,
            plan.solver,
            rule=self.refinement.rule,
            max_iter=max(1, end - begin),
            validation=held,
            # Of many rows, passes with large steps tell little of where small ones will end.
            patience=None if held is None else max(plan.patience, 2 * plan.passes // 3),
            generator=self.generator,
            callbacks=self.callbacks,
            stage=stage,
            state=state,
            noise=plan.noise,
        )
        if plan.solver.tolerance is not None or self.learn_weights:
            return result
        # Replayed steps take a set number of sweeps: put the marginals right at the end.
        best = result.params
        p = polytope.retract(best.p, torch.zeros_like(best.p), best.p_h, best.p_q, tol=_MARGINALS)
        return replace(result, params=best.replace(p=p))

    @torch.inference_mode()
    def by_turns(
        self,
        starts: Sequence[Parameters],
        splits: Sequence[tuple[Dataset, Dataset]],
        exact: ExactSteps | None,
    ) -> _Turns:
        """The hold-outs side by side: problems are small, and take as long as one of them."""
        rule = self.refinement.rule
        learned = rows_together([next(rows.batches(None)) for rows, _ in splits])
        judged = Batch.stack([next(held.batches(None)) for _, held in splits])
        judged, n_rows = judged.to(dtype=learned.x.dtype), learned.x.shape[1]

        def loss(params: Parameters) -> float:
            return judged.mean(rule(log_joint(params, judged.x), judged.targets)[0])

        def at(temperature: float) -> list[Parameters]:
            return [at_temperature(start, temperature) for start in starts]

        before = after = starts
        stop, passes, status, heat = 0, 1, "max_iter", 1.0
        try:
            if exact is not None:
                solved = joint_solutions(
                    together(starts, learned), learned,
                    learn_beta=self.learn_beta, max_iter=exact.max_iter, tol=exact.tol,
                )  # fmt: skip
                before = after = starts = apart(solved, starts)
            if self.heated:
                suited = _suited(lambda t: loss(together(at(t), learned)))
                before, heat = at(suited), _HEAT * suited
            pairs = zip(at(heat), splits, strict=True)
            plans = [self._plan(p, rows) for p, (rows, _) in pairs]
            best = params = together([plan.params for plan in plans], learned)
            solver, noise, size = plans[0].solver, plans[0].noise, plans[0].solver.batch_size
            passes = plans[0].passes
            state, every = solver.start(params), math.ceil(passes / _JUDGED[len(splits)])
            least = loss(params)
            for n in range(1, passes + 1):
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
        if stop > 0:
            after = apart(best, [plan.params for plan in plans])
        return _Turns(starts, before, after, stop, passes, status, heat)

    def _plan(self, params: Parameters, dataset: Dataset) -> _Plan:
        refinement = self.refinement
        unit, (steps, passes) = angular_unit(params), self.schedule(dataset.n_rows)
        size = math.ceil(dataset.n_rows / steps)  # no batch much smaller than the others
        some = dataset.sample(_FEW_ROWS, generator=torch.Generator().manual_seed(0)).x
        sparse = isinstance(some, SparseRows)
        # A metric would fill sparse rows, and mix gaps with what is known.
        learned = params.metric is None and params.n_features <= self.widest
        if learned and not (sparse or has_gaps(some)):
            params = params.replace(metric=torch.eye(params.n_features).to(params.w))
        solver = Adam(
            passes * steps, angle=_ANGLE * unit, batch_size=size, tolerance=_MARGINALS,
            learn_weights=self.learn_weights, metric_decay=1 / dataset.n_rows,
        )  # fmt: skip
        solver = solver.resolve(dataset.n_rows, learn_beta=self.learn_beta, device=dataset.device)
        auto = refinement.noise == "auto"
        length = min(unit, self.most_noise) if auto else float(refinement.noise)
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
