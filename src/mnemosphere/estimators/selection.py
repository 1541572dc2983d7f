"""What `"auto"` means: the number of memories, the normalization and ς, chosen from the data.

The rule, in full. Memories: a fifth of the distinct rows, at least two a class, at most 1000.
Normalization and ς: models are fitted by a few fixed-point passes on part of the rows and judged
by the log-loss of the class on the rest. A coarse round on at most 2000 rows takes every
normalization that gives all rows a direction with every ς of a grid; where there are more rows
than that, a second round tries the neighbouring ς at the full number of memories, because the
best ς grows with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.estimators.preparation import Floats, Normalizer, usable_normalizations
from mnemosphere.model import initialize
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.training.batches import Data
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.loop import train

MAX_MEMORIES = 1000
ROWS_PER_MEMORY = 5
VARSIGMA_GRID = (0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
COARSE_ROWS = 2000
FINE_ROWS = 10_000
_SMALL = 600  # rows below which held-out sets are too small to trust and folds are used
_FOLDS = 5


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the table it was chosen from."""

    normalize: str
    varsigma: float
    trials: tuple[dict[str, Any], ...]


def choose_n_memories(n_rows: int, n_classes: int) -> int:
    """A fifth of the rows, at least two a class, at most 1000 and at most one a row."""
    return max(1, min(max(n_rows // ROWS_PER_MEMORY, 2 * n_classes), MAX_MEMORIES, n_rows))


def default_batch_size(n_rows: int) -> int | None:
    """Twenty steps a pass for large data; below 2000 rows exact full steps are cheap enough."""
    return None if n_rows < 2000 else max(n_rows // 20, 256)


def initial_parameters(
    x: torch.Tensor,
    targets: torch.Tensor,
    weight: torch.Tensor | None,
    *,
    n_memories: int,
    varsigma: float,
    beta: float | None,
    uniform_weight: float,
    generator: torch.Generator,
) -> Parameters:
    """Memories on training rows, class weights that know nothing yet, β that fits the memories."""
    w = initialize.from_data(x, n_memories, generator=generator)
    start = (
        initialize.estimate_beta(w, x, varsigma, generator=generator)
        if beta is None
        else torch.tensor(beta)
    )
    return from_memories(
        w,
        class_prior(targets, weight),
        beta=start,
        varsigma=varsigma,
        uniform_weight=uniform_weight,
    )


def class_prior(targets: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """p_q: the proportions of the classes among labelled rows."""
    q = targets.double() if weight is None else targets.double() * weight.double()[:, None]
    total = q.sum(0)
    return (total / total.sum()).to(targets)


def choose(
    x: Floats,
    targets: Floats,
    index: NDArray[np.intp],
    sample_weight: Floats | None,
    *,
    normalize: str,
    varsigma: float | None,
    beta: float | None,
    n_memories: int,
    uniform_weight: float,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Choice:
    """Choose what is 'auto' (normalize) or None (varsigma); what is given stays as it is.

    `index` holds the class of each row, −1 where it is not known; only labelled rows are judged.
    """
    kinds = usable_normalizations(x) if normalize == "auto" else [normalize]
    grid = VARSIGMA_GRID if varsigma is None else (varsigma,)
    if len(kinds) * len(grid) == 1:
        return Choice(kinds[0], grid[0], ())
    rng = np.random.default_rng(seed)
    trials: list[dict[str, Any]] = []

    def judge(kind: str, vs: float, rows: NDArray[np.intp], stage: str) -> float:
        share = rows.size / x.shape[0]
        memories = max(2, round(n_memories * min(1.0, share)))
        if stage == "fine":
            memories = n_memories
        score = _held_out_loss(
            kind, vs, x[rows], targets[rows], index[rows],
            None if sample_weight is None else sample_weight[rows],
            memories, beta, uniform_weight, seed, dtype, device,
        )  # fmt: skip
        trials.append(
            {
                "stage": stage,
                "normalize": kind,
                "varsigma": vs,
                "log_loss": score,
                "rows": rows.size,
            }
        )
        return score

    coarse = rng.permutation(x.shape[0])[:COARSE_ROWS]
    scores = {(k, v): judge(k, v, coarse, "coarse") for k in kinds for v in grid}
    kind, best = min(scores, key=lambda key: scores[key])
    if varsigma is None and x.shape[0] > COARSE_ROWS:
        fine = rng.permutation(x.shape[0])[:FINE_ROWS]
        at = grid.index(best)
        near = grid[max(0, at - 1) : at + 3]
        finer = {v: judge(kind, v, fine, "fine") for v in near}
        best = min(finer, key=lambda v: finer[v])
    return Choice(kind, best, tuple(trials))


def _held_out_loss(
    kind: str,
    varsigma: float,
    x: Floats,
    targets: Floats,
    index: NDArray[np.intp],
    weight: Floats | None,
    n_memories: int,
    beta: float | None,
    uniform_weight: float,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
) -> float:
    """Mean −log P(class | x) over rows that were not fitted."""
    n_rows = x.shape[0]
    order = np.random.default_rng(seed).permutation(n_rows)
    # Every fold sees every class: rows dealt out in turn, class after class.
    dealt = order[np.argsort(index[order], kind="stable")]
    folds = _FOLDS if n_rows < _SMALL else 1
    loss, total = 0.0, 0.0
    for fold in range(folds):
        held = np.zeros(n_rows, dtype=bool)
        held[dealt[fold::_FOLDS]] = True
        held &= index >= 0
        if held.all() or not held.any():
            return np.inf
        normalizer = Normalizer.fit(kind, x[~held], None if weight is None else weight[~held])

        def tensor(a: Floats) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(a)).to(device, dtype)

        z = tensor(normalizer(x))
        q = tensor(targets)
        t = None if weight is None else tensor(weight)
        mask = torch.from_numpy(~held).to(device)
        data = Data(z[mask], q[mask], None if t is None else t[mask])
        generator = torch.Generator().manual_seed(seed)
        memories = max(1, min(n_memories, data.n_rows))
        params = initial_parameters(
            data.x, data.targets, data.sample_weight, n_memories=memories, varsigma=varsigma,
            beta=beta, uniform_weight=uniform_weight, generator=generator,
        )  # fmt: skip
        batch = default_batch_size(data.n_rows)
        passes = 10 if batch is None else 3
        solver = FixedPoint(batch_size=batch, learn_beta=beta is None)
        result = train(params, data, solver, max_epochs=passes, tol=1e-4, generator=generator)
        scores = log_joint(result.params, z[~mask])[:, :-1].double().log_softmax(1).cpu().numpy()
        own = scores[np.arange(scores.shape[0]), index[held]]
        w = np.ones(own.size) if weight is None else weight[held]
        loss -= float((w * own).sum())
        total += float(w.sum())
    return loss / total
