"""What `"auto"` means: the number of memories, the normalization and ς, chosen from the data.

The rule, in full. Memories: a fifth of the distinct rows, at least two per class, at most 1000.
Normalization and ς: by the log-loss of the class on held-out rows. A pilot on at most 1000 rows
tries every normalization that gives nearly all rows a direction, each with twelve ς. Where there
are more rows than that, the full number of memories then tries that ς and its neighbors on at most
5000 rows, as long as the loss falls: the best ς grows with the number of memories. Between
normalizations within 5% of each other the paper's (center) goes first.

Where some rows have no label, ς is set by the rows themselves: to the β_eff at which a row is
shared by a few memories, the scale on which labels will spread among them. The normalization is
judged the way training will go, each fifth of the labels left out in turn, if there are 20 (else
the first of center, unit and standard). With 500 labels the second stage goes on from there; fewer
would judge too little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, Dataset, held_out
from mnemosphere.data.normalize import NORMALIZATIONS, Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate, log_joint
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.memory_graph import sharing_temperature
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.numerics.bessel import mean_resultant
from mnemosphere.training import few_labels
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint

__all__ = ["Choice", "Start", "choose", "choose_n_memories"]

MAX_MEMORIES = 1000
ROWS_PER_MEMORY = 5
PILOT_ROWS = 1000
FINE_ROWS = 5000
_LEAST_VARSIGMA, _TRIALS = 0.05, 12
_PILOT_STEPS = 5
_SMALL, _FOLDS = 600, 3  # rows below which one held-out set is too small to trust
_HELD = 0.2
_NEARLY = 1.05  # log-losses on a few hundred rows are not told apart more finely
_FINE_STEP = 1.19
_PILOT_LABELS, _FINE_LABELS = 20, 500  # fewer tell nothing; only where other rows have no label
_LOST = 0.05  # share of rows that a normalization may leave without direction


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the table it was chosen from."""

    normalize: str
    varsigma: float
    trials: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Start:
    """How parameters start: on training rows, with uninformative class weights."""

    n_memories: int
    beta: float | None = None  # None: the one that fits the memories
    uniform_weight: float = 1.0

    def __call__(self, dataset: Dataset, varsigma: float, generator: torch.Generator) -> Parameters:
        """Parameters to train from."""
        rows = dataset.sample(self.n_memories, generator=generator)
        w = initialize.from_data(rows.filled().x, self.n_memories, generator=generator)
        beta: float | Tensor
        if self.beta is None:
            probe = dataset.sample(initialize.PROBE_ROWS, generator=generator)
            beta = initialize.estimate_beta(w, probe.filled().x, varsigma)
        else:
            beta = self.beta
        mass = dataset.label_mass()
        # Where no row has a label, every class is as good as any.
        p_q = mass / mass.sum() if bool(mass.sum() > 0) else torch.ones_like(mass) / len(mass)
        return from_memories(
            w, p_q, beta=beta, varsigma=varsigma, uniform_weight=self.uniform_weight
        )


def choose_n_memories(n_rows: int, n_classes: int) -> int:
    """A fifth of the rows, at least two per class, at most 1000 and at most one per row."""
    return max(1, min(max(n_rows // ROWS_PER_MEMORY, 2 * n_classes), MAX_MEMORIES, n_rows))


def choose(
    rows: StoredRows,
    targets: Tensor,
    sample_weight: Tensor | None,
    start: Start,
    *,
    normalize: str,
    varsigma: float | None,
    seed: int,
    dtype: torch.dtype,
) -> Choice:
    """Choose what is 'auto' (normalize) or None (varsigma); what is given stays as it is."""
    labeled = targets.sum(1) > 0
    order = torch.randperm(rows.n_rows, generator=torch.Generator().manual_seed(seed))
    order = order.to(targets.device)
    n_labeled = int(labeled.sum())
    partly = n_labeled < rows.n_rows
    if partly:
        order = _labeled_in_turn(order, labeled)
    some = order[:FINE_ROWS]
    sample = _Sample(
        rows.take(some),
        targets[some],
        None if sample_weight is None else sample_weight[some],
        dtype,
    )
    kinds = sample.usable() if normalize == "auto" else [normalize]
    if len(kinds) == 1 and varsigma is not None:
        return Choice(kinds[0], varsigma, ())
    if partly and n_labeled < _PILOT_LABELS:  # too few to judge by
        kinds = kinds[:1]

    trials: list[dict[str, Any]] = []
    for kind in kinds:
        more = sample.dataset(kind)
        data = ArrayDataset(more.rows.take(slice(0, PILOT_ROWS)))
        if partly:
            found = [_pilot_partly(data, more, start, varsigma, seed)]
        else:
            share = data.n_rows / max(rows.n_rows, 1)
            found = _pilot(data, start, max(2, round(start.n_memories * share)), varsigma, seed)
        trials += [{"stage": "pilot", "normalize": kind, **trial} for trial in found]
    best = _preferred(trials)
    if varsigma is not None:
        return Choice(best["normalize"], varsigma, tuple(trials))
    if rows.n_rows > PILOT_ROWS and not (partly and n_labeled < _FINE_LABELS):
        data = sample.dataset(best["normalize"])

        def trial(vs: float) -> dict[str, Any]:
            loss = _held_out_loss(data, start, vs, seed)
            trials.append(
                {"stage": "fine", "normalize": best["normalize"], "varsigma": vs, "log_loss": loss}
            )
            return trials[-1]

        best = _climb(trial, best["varsigma"])
    return Choice(best["normalize"], float(best["varsigma"]), tuple(trials))


@dataclass(frozen=True)
class _Sample:
    """Some stored rows, to be put on the sphere in one way or another."""

    rows: StoredRows
    targets: Tensor
    weight: Tensor | None
    dtype: torch.dtype

    def usable(self) -> list[str]:
        """The normalizations that leave hardly a row without direction, the paper's first."""
        kinds = []
        for kind, least in (("center", 3), ("unit", 2)):
            if self.rows.n_features < least:
                continue
            lost = on_sphere(self.rows, Normalizer(kind), self.dtype)[1]
            if int(lost.sum()) <= _LOST * self.rows.n_rows:
                kinds.append(kind)
        return [*kinds, "standard"]

    def dataset(self, kind: str) -> ArrayDataset:
        """The rows that have a direction, on the sphere."""
        normalizer = Normalizer.fit(kind, self.rows, self.weight)
        x, lost = on_sphere(self.rows, normalizer, self.dtype)
        batch = Batch(
            x,
            self.targets.to(self.dtype),
            None if self.weight is None else self.weight.to(self.dtype),
        )
        return ArrayDataset(batch.take(~lost) if bool(lost.any()) else batch)


def _labeled_in_turn(order: Tensor, labeled: Tensor) -> Tensor:
    """The rows in that order, labeled ones and others by turns until one kind runs out."""
    known = labeled[order]
    turn = torch.where(known, known.cumsum(0).double(), (~known).cumsum(0) + 0.5)
    return order[turn.argsort(stable=True)]


def _preferred(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """The best trial; of normalizations that do nearly as well, the paper's first."""
    best = {}
    for kind in NORMALIZATIONS:
        mine = [t for t in trials if t["normalize"] == kind]
        if mine:
            # Rounded, so that where the loss is flat the smoothest wins and not the last bit.
            best[kind] = min(mine, key=lambda t: round(float(t["log_loss"]), 3))
    limit = _NEARLY * min(float(t["log_loss"]) for t in best.values())
    return next(t for t in best.values() if t["log_loss"] <= limit)


def _climb(trial: Callable[[float], dict[str, Any]], start: float) -> dict[str, Any]:
    """Follow a falling loss upwards in ς, or downwards if it rises at once, by steps of 19%."""
    best = trial(start)
    for step in (_FINE_STEP, 1 / _FINE_STEP):
        moved = False
        while _LEAST_VARSIGMA < best["varsigma"] < 1.0 or not moved:
            vs = min(1.0, max(_LEAST_VARSIGMA, round(step * best["varsigma"], 4)))
            if vs == best["varsigma"]:
                break
            other = trial(vs)
            if not other["log_loss"] < best["log_loss"]:
                break
            best, moved = other, True
        if moved:
            break
    return best


def _log_loss(params: Parameters, judged: Batch) -> float:
    """Mean −log P(class | x) of labeled rows, the class being one of the C."""
    own = log_joint(params, judged.x)[:, :-1].double().log_softmax(1)
    truth = judged.targets[:, :-1].argmax(1)
    return -judged.mean(own.gather(1, truth[:, None])[:, 0])


def _pilot(
    data: ArrayDataset, start: Start, n_memories: int, varsigma: float | None, seed: int
) -> list[dict[str, float]]:
    """Held-out log-loss for each ς after a few steps of the fixed point, classes let go."""
    trials = _LEAST_VARSIGMA ** torch.linspace(1, 0, _TRIALS, dtype=torch.float64)
    candidates = [round(vs, 4) for vs in trials.tolist()] if varsigma is None else [varsigma]
    losses = torch.zeros(len(candidates), dtype=torch.float64)
    for fold in range(_FOLDS if data.n_rows < _SMALL else 1):
        generator = torch.Generator().manual_seed(seed + fold)
        fitted, judged = data.split(_HELD, generator=generator)
        judged = fitted if judged is None else judged  # too few rows: judge on what there is
        small = Start(min(n_memories, fitted.n_rows), start.beta, start.uniform_weight)
        drawn = generator.get_state()
        for k, vs in enumerate(candidates):
            params = small(fitted, vs, torch.Generator().manual_seed(0).set_state(drawn))
            for _ in range(_PILOT_STEPS):
                stats = accumulate(params, fitted.rows, objectives.joint)
                params = maximize_bound(
                    params, stats.w_bar, stats.p_bar,
                    learn_beta=start.beta is None, hold_classes=False,
                )  # fmt: skip
            losses[k] += _log_loss(params, judged.rows)
    return [
        {"varsigma": vs, "log_loss": float(loss)}
        for vs, loss in zip(candidates, losses / (fold + 1), strict=True)
    ]


def _pilot_partly(
    data: ArrayDataset, more: ArrayDataset, start: Start, varsigma: float | None, seed: int
) -> dict[str, float]:
    """The trial where some rows have no label: ς as the rows (more of them) have it."""
    x = more.rows.filled().x
    n_memories = max(1, min(start.n_memories, more.n_rows // 2))
    overlap = (x[n_memories:] @ x[:n_memories].to_dense().T).double()  # (rows left, P)
    beta_eff = sharing_temperature(overlap, few_labels.SHARED_BY)
    if varsigma is None:
        mean = ((beta_eff * overlap).softmax(1) * overlap).sum(1).mean()
        varsigma = round(_varsigma_for(beta_eff, float(mean), x.shape[1]), 4)
    generator = torch.Generator().manual_seed(seed)
    width = min(start.n_memories, max(2, data.n_rows // ROWS_PER_MEMORY))
    initial = Start(width, None, start.uniform_weight)(data, varsigma, generator)
    settled = few_labels.settle(initial, data, learn_beta=True, generator=generator).params
    losses = []
    for _ in range(_FOLDS):
        held = held_out(data.rows.targets, _HELD, generator=generator)
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
    return min(1.0, max(_LEAST_VARSIGMA, float(mean_resultant(beta, n)) / m))


def _held_out_loss(data: ArrayDataset, start: Start, varsigma: float, seed: int) -> float:
    """Log-loss of the full model over rows that were not fitted, after two passes."""
    generator = torch.Generator().manual_seed(seed)
    fitted, judged = data.split(_HELD, generator=generator)
    judged = fitted if judged is None else judged
    width = min(start.n_memories, fitted.n_rows)
    learn_beta = start.beta is None
    params = Start(width, start.beta, start.uniform_weight)(fitted, varsigma, generator)
    if few_labels.has_unlabeled(fitted):
        params = few_labels.settle(
            params, fitted, learn_beta=learn_beta, generator=generator
        ).params
    solver = FixedPoint(max(fitted.n_rows // 10, 1), learn_beta)
    result = fit(params, fitted, solver, max_iter=2, generator=generator)
    return _log_loss(result.params, judged.rows)
