"""What held-out rows settle: how probabilities are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mnemosphere.data.dataset import Dataset, is_dense_array
from mnemosphere.estimators.selection import takes_long
from mnemosphere.estimators.start import Start
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import Reading, best_reading, net_class_weights
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.distributed import current
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.refine import TWO_TURNS
from mnemosphere.training.side_by_side import apart, joint_solutions, together

_LARGE, _APART = 20_000, 2000  # from so many rows on, as many are set apart for calibration
_SMALL = 5000  # up to so many rows, several hold-outs of a third in turn
_FOLDS = (3, 2)  # of fewer than `TWO_TURNS` rows, and of more
_LEAST_ROWS = 30
_ROUNDING = 2e-6  # of scores in single precision, relative to the largest of them
_PASSES = (20, 10, 4)  # of a model that only tells the reading: exact, of either, and incremental


def share_apart(n_rows: int) -> float:
    """The share of so many rows that is kept out of training for calibration; 0: none."""
    return _APART / n_rows if n_rows > _LARGE else 0.0


def reading_on(
    unseen: Sequence[tuple[Parameters, Dataset]], smoothing: float, counts: Tensor | None = None
) -> Reading:
    """The reading that suits rows which parameters have not seen, in pairs."""
    judged = []
    for params, rows in unseen:
        net = params.replace(p=net_class_weights(params, smoothing, counts))
        judged += [(net, part) for part in map(_labeled, rows.batches(None)) if part.n_rows > 0]
    return best_reading(judged) if judged else Reading()


def cross_fitted_reading(
    dataset: Dataset,
    start: Start,
    varsigma: float,
    smoothing: float,
    *,
    learn_beta: bool,
    max_iter: int | None,
    tol: float,
    seed: int,
) -> Reading:
    """The reading that suits rows left out in turn, by models of the others.

    Each has memories in proportion to its rows; the joint likelihood, by the fixed point.
    """
    if dataset.n_rows < _LEAST_ROWS:
        return Reading()
    small = dataset.n_rows <= _SMALL
    solver = start.solver(FixedPoint())
    solver = solver.resolve(dataset.n_rows, learn_beta=learn_beta, device=dataset.device)
    exact = solver.rows_per_step is None
    two = dataset.n_rows >= TWO_TURNS
    passes = _PASSES[two if exact else 2]
    passes = passes if max_iter is None else min(passes, max_iter)
    folds = []
    for fold in range(_FOLDS[two] if small else 1):
        generator = torch.Generator().manual_seed(seed + fold)
        rows, held = dataset.split(1 / 3 if small else 0.2, generator=generator)
        if held is None:
            return Reading()
        width = max(1, round(start.n_memories * rows.n_rows / dataset.n_rows))
        params = replace(start, n_memories=width)(rows, varsigma, generator)
        folds.append((params, rows, held, generator))
        size = dataset.n_rows, start.n_memories, params.n_features, params.n_columns - 1
        if takes_long(*size):
            break

    def side_by_side() -> list[Parameters]:
        starts = [params for params, *_ in folds]
        learned = Batch.stack([next(rows.batches(None)) for _, rows, *_ in folds])
        try:
            return apart(
                joint_solutions(
                    together(starts, learned), learned,
                    learn_beta=learn_beta, max_iter=passes, tol=tol,
                ), starts,
            )  # fmt: skip
        except KeyboardInterrupt:
            return starts

    nets: list[Parameters] = []
    if exact and start.learned_weights and is_dense_array(dataset):
        for params, (_, rows, *_) in zip(current().once(side_by_side), folds, strict=True):
            counts = params.p * rows.n_rows
            nets.append(params.replace(p=net_class_weights(params, smoothing, counts)))
    else:
        for params, rows, _, generator in folds:
            result = fit(params, rows, solver, max_iter=passes, tol=tol, generator=generator)
            params, counts = result.params, result.params.p * rows.n_rows
            if not start.learned_weights:  # then p gives more than rows have
                counts = solver.label_counts(result.state, rows.n_rows)
            nets.append(params.replace(p=net_class_weights(params, smoothing, counts)))
    return best_reading([
        (net, _labeled(part))
        for net, (_, _, held, _) in zip(nets, folds, strict=True)
        for part in held.batches(None)
    ])  # fmt: skip


def _labeled(batch: Batch) -> Batch:
    return batch.take(batch.targets.sum(1) > 0)
