"""Small trials of settings: a few exact steps on some rows, judged by the others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, held_out
from mnemosphere.estimators.start import Start
from mnemosphere.model import metric
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import tempered_log_loss
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.memory_graph import sharing_temperature
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.numerics.bessel import inverse_mean_resultant, mean_resultant
from mnemosphere.training import few_labels
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.side_by_side import joint_solutions

HELD = 0.2  # of the rows judge
ROWS_PER_MEMORY = 5
LEAST_VARSIGMA = 0.05
_TURNS_PARTLY = 3
STEPS = 5
_TOGETHER = 1 << 21  # rows × memories of problems that go side by side

Training = Callable[[Parameters, Batch], Parameters]


def through_metrics(
    fitted: ArrayDataset,
    judged: ArrayDataset,
    kind: str,
    shrinkages: Sequence[float | None],
    dtype: torch.dtype = torch.float64,
) -> list[tuple[ArrayDataset, ArrayDataset]]:
    """Both as the metric of each shrinkage sees them that `fitted` gives; (None,): as they are."""
    amounts = [s for s in shrinkages if s is not None]
    if not amounts:
        return [(fitted, judged)]
    return [
        (ArrayDataset(metric.apply(a, fitted.rows)), ArrayDataset(metric.apply(a, judged.rows)))
        for a in metric.starts(fitted.rows, amounts, weighted=kind == "weighted", dtype=dtype)
    ]


class Problem(NamedTuple):
    """Parameters to start from, rows to fit and rows to judge by; or several of one shape."""

    params: Parameters
    fitted: Batch
    judged: Batch

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, features and memories."""
        return (*self.fitted.x.shape, *self.judged.x.shape, self.params.n_memories)


def hold_out(
    data: ArrayDataset,
    kind: str,
    shrinkages: Sequence[float | None],
    generator: torch.Generator,
    *,
    turn: int = 0,
    share: float = HELD,
    dtype: torch.dtype = torch.float64,
) -> list[tuple[ArrayDataset, ArrayDataset]]:
    """Rows to fit and rows to judge by, as the metrics of the former, in dtype, see them."""
    fitted, judged = data.split(share, generator=generator, turn=turn)
    # Too few rows: judge on what there is.
    judged = fitted if judged is None else judged
    return through_metrics(fitted, judged, kind, shrinkages, dtype)


def problems(
    several: Sequence[tuple[ArrayDataset, ArrayDataset]],
    start: Start,
    varsigmas: Sequence[Sequence[float]],
    seed: int,
) -> list[list[Problem]]:
    """One hold-out as several geometries of one shape see it, for each ς of each."""
    n_rows, n_features = several[0][0].rows.x.shape
    small = replace(start, n_memories=min(start.n_memories, n_rows))
    begun = small.on_same_rows([fitted for fitted, _ in several], seed)
    counts = [*map(len, varsigmas)]
    betas = torch.stack([params.beta for params in begun])
    betas = betas.repeat_interleave(torch.tensor(counts, device=betas.device))
    if start.beta is None:  # as if the start had been told of ς
        given = torch.tensor([vs for own in varsigmas for vs in own]).to(betas)
        resultant = mean_resultant(betas.double(), n_features) * given
        betas = inverse_mean_resultant(resultant, n_features).to(betas)
    return [
        [
            Problem(params.replace(varsigma=vs, beta=beta), fitted.rows, judged.rows)
            for vs, beta in zip(own, its, strict=True)
        ]
        for params, own, its, (fitted, judged) in zip(
            begun, varsigmas, torch.split(betas, counts), several, strict=True
        )
    ]


def judge(trials: list[Problem], start: Start, train: Training) -> list[Tensor]:
    """Log-loss by temperature for each problem, trained in that way.

    Problems are small and many: those of one shape go side by side.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for k, problem in enumerate(trials):
        groups.setdefault(problem.shape, []).append(k)
    losses: dict[int, Tensor] = {}
    for group in groups.values():
        first = trials[group[0]]
        room = max(1, _TOGETHER // (first.fitted.n_rows * first.params.n_memories))
        size = 1 if isinstance(first.fitted.x, SparseRows) else room
        for cut in range(0, len(group), size):
            part = group[cut : cut + size]
            problem = trials[part[0]]
            if len(part) > 1:
                problem = Problem(
                    Parameters.stack([trials[k].params for k in part]),
                    Batch.stack([trials[k].fitted for k in part]),
                    Batch.stack([trials[k].judged for k in part]),
                )
            params, fitted, judged = problem
            found = tempered_log_loss(
                train(params, fitted), judged, start.smoothing, first.fitted.n_rows
            )
            losses |= zip(part, found.reshape(len(part), -1), strict=True)
    return [losses[k] for k in range(len(trials))]


def exact_steps(start: Start, number: int) -> Training:
    """So many exact steps, weights learned."""
    return functools.partial(joint_solutions, learn_beta=start.beta is None, max_iter=number)


class HoldOut(NamedTuple):
    """Rows to fit and rows to judge by, and where the random numbers go on from."""

    fitted: ArrayDataset
    judged: ArrayDataset
    state: Tensor

    @classmethod
    def of(cls, data: ArrayDataset, kind: str, shrinkage: float | None, seed: int) -> Self:
        """A fifth of the rows judges, both as the metric of the others sees them."""
        generator = torch.Generator().manual_seed(seed)
        ((fitted, judged),) = hold_out(data, kind, (shrinkage,), generator)
        return cls(fitted, judged, generator.get_state())


def held_out_loss(data: HoldOut, start: Start, varsigma: float) -> float:
    """Log-loss of the full model over rows that were not fitted, after a few passes."""
    fitted, judged = data.fitted, data.judged
    generator = torch.Generator()
    generator.set_state(data.state)
    small = replace(
        start,
        n_memories=min(start.n_memories, fitted.n_rows),
        # From labels, with weights held, two passes would favor too small a ς.
        own_labels=start.learned_weights,
    )
    params = small(fitted, varsigma, generator)
    learn_beta = start.beta is None
    if few_labels.has_unlabeled(fitted):
        params = few_labels.settle(
            params, fitted, learn_beta=learn_beta, generator=generator
        ).params
    exact = start.learned_weights or small.from_means(fitted)
    solver = FixedPoint(None if exact else -(-fitted.n_rows // 10), learn_beta, exact)
    passes = STEPS if exact else 2
    if not small.is_solution(fitted):
        params = fit(params, fitted, solver, max_iter=passes, generator=generator).params
    rows = judged.rows.take(judged.rows.targets.sum(1) > 0)
    return max(float(tempered_log_loss(params, rows, start.smoothing, fitted.n_rows).amin()), 0.0)


def shared_varsigma(memories: Batch, rows: Batch, start: Start, shared_by: float) -> float:
    """The ς of the scale on which so many memories, on the first rows there, share another row."""
    w, weight = memories.filled().x[: start.n_memories], rows.sample_weight
    overlap = rows.filled().x @ w.to_dense().T
    beta_eff = sharing_temperature(overlap, shared_by, weight)
    if start.beta is not None:
        return min(1.0, max(LEAST_VARSIGMA, beta_eff / start.beta))
    each = ((beta_eff * overlap).softmax(1) * overlap).sum(1)
    mean = each.mean() if weight is None else (weight * each).sum() / weight.sum()
    return _varsigma_for(beta_eff, float(mean), w.shape[1])


def judge_partly(
    data: ArrayDataset, more: ArrayDataset, start: Start, varsigma: float | None, seed: int
) -> dict[str, float]:
    """The trial where some rows have no label: ς as the rows (more of them) have it."""
    if varsigma is None:
        n_memories = max(1, min(start.n_memories, more.n_rows // 2))
        rows = more.rows.to(dtype=torch.float64)
        first, others = (rows.take(p) for p in (slice(n_memories), slice(n_memories, None)))
        varsigma = round(shared_varsigma(first, others, start, few_labels.SHARED_BY), 4)
    generator = torch.Generator().manual_seed(seed)
    width = min(start.n_memories, max(2, data.n_rows // ROWS_PER_MEMORY))
    initial = Start(width, None, start.uniform_weight)(data, varsigma, generator)
    settled = few_labels.settle(initial, data, learn_beta=True, generator=generator).params
    losses = []
    for _ in range(_TURNS_PARTLY):
        held = held_out(data.rows.targets, HELD, generator=generator)
        if not bool(held.any()):
            held = data.rows.targets.sum(1) > 0
        hidden = torch.where(held[:, None], 0.0, data.rows.targets)
        rows = Batch(data.rows.x, hidden, data.rows.sample_weight)
        losses.append(_log_loss(few_labels.label_memories(settled, rows), data.rows.take(held)))
    return {"varsigma": varsigma, "log_loss": sum(losses) / len(losses)}


def _varsigma_for(beta_eff: float, overlap: float, n: int) -> float:
    """The ς in [0.05, 1] with ς·A_N⁻¹(ς·m̄) = β_eff: the ς whose fixed point has that slope.

    In β that is β·A_N(β) = m̄·β_eff with ς = A_N(β)/m̄. With Amos' lower bound on A_N the root is
    known in closed form, and a few Newton steps from there are exact to rounding.
    """
    m = min(max(overlap, 1e-3), 1 - 1e-6)
    target = m * beta_eff
    beta = torch.tensor(target * (target + n), dtype=torch.float64).sqrt()
    for _ in range(4):
        a = mean_resultant(beta, n)
        slope = a + beta * (1 - a * a) - (n - 1) * a  # A_N' = 1 − A_N² − (N−1)A_N/β
        beta = beta - (beta * a - target) / slope
    return min(1.0, max(LEAST_VARSIGMA, float(mean_resultant(beta, n)) / m))


def _log_loss(params: Parameters, judged: Batch) -> float:
    """Mean −log P(class | x) of labeled rows, the class being one of the C."""
    own = log_joint(params, judged.x)[:, :-1].double().log_softmax(1)
    truth = judged.targets[:, :-1].argmax(1)
    return -judged.mean(own.gather(1, truth[:, None])[:, 0])
