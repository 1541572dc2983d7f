"""Splitting steepest descent: train narrow, split the saddles, train on (Alg. splitting_descent).

Between two phases of training the memories of most negative curvature are duplicated, with p and
p_h halved, and each pair is moved apart along its direction of steepest descent. The paper's
rescaling (Alg. rescaled_splitting_descent) only keeps g = (P+P_0)p in step with P; here the
solver reads P and P_0 from the parameters, so nothing needs rescaling.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.copies import parents, split
from mnemosphere.model.curvature import Curvature, nearest
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import evaluate
from mnemosphere.training.callbacks import PassRecord, Run, SplitRecord
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.distributed import current
from mnemosphere.training.fit import fit
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.solver import Solver

_SEARCH_ROWS = 8192  # on which a step of a split is tried
_MAX_HALVINGS = 12  # of that step, until it is given up


@dataclass(frozen=True)
class Splitting:
    """Which memories are split, and how far their copies move (App. splitting).

    The ⌊τP⌋ memories (at least one) of lowest λ_min are split, of those with λ_min < λ_thres, and
    no more than the final width leaves room for. δ is halved until the loss, on 8192 rows at most,
    falls. Where no δ lowers it there is no split, unless the threshold is infinite.
    """

    fraction: float = 1.0  # τ_thres in (0, 1]
    threshold: float = 0.0  # λ_thres <= 0; infinity splits whatever the sign
    delta: float = 0.25
    curvature: Callable[..., Curvature] = nearest
    rows_per_memory: int | None = 64  # random ones, on which curvature is found; None: all rows

    def choose(self, lambda_min: Tensor, max_memories: int) -> Tensor:
        """Indices of the memories to split, most negative curvature first, (R,)."""
        n = lambda_min.shape[0]
        limit = min(max(1, math.floor(self.fraction * n)), max_memories - n)
        order = lambda_min.argsort(stable=True)[: max(limit, 0)]
        return order[lambda_min[order] < self.threshold]


def grow(
    params: Mixture,
    dataset: ArrayDataset,
    solver: Solver,
    *,
    max_memories: int,
    splitting: Splitting | None = None,
    phase_iter: int = 2,
    max_iter: int = 5,
    rule: LabelRule = objectives.joint,
    generator: torch.Generator | None = None,
    **how: Any,
) -> Run:
    """Train `params`, splitting memories between phases, until there are max_memories.

    A phase is a `fit` of at most phase_iter passes, the last one of max_iter; how: more of its settings, which act
    within each phase. Growth ends early where no memory is a saddle any more. The solver's state is expanded
    with the memories. Ctrl-C returns what there is.
    """
    if max_memories < params.n_memories:
        raise ValueError(
            f"cannot grow {params.n_memories} memories to {max_memories}: "
            "start from fewer, or merge them"
        )
    splitting = Splitting() if splitting is None else splitting
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    start: Mixture | Run = params
    lineage, history = Lineage.root(params.n_memories), list[PassRecord]()
    splits: tuple[SplitRecord, ...] = ()
    while True:
        stable = bool(splits) and splits[-1].n_split == 0
        last = stable or params.n_memories == max_memories
        run = fit(
            start, dataset, solver, rule=rule, max_iter=max_iter if last else phase_iter,
            generator=generator, **how,
        )  # fmt: skip
        lineage, status = lineage.with_model(run.params), "stable" if stable else "grown"
        history += run.in_phase(len(splits))
        if run.status == "interrupted":
            status = "interrupted"
        elif not last:
            try:
                params, which, curvature, record = _split(
                    run.params, dataset, rule, splitting, max_memories, generator, len(splits)
                )
                source = parents(run.params.n_memories, which)
                state = solver.expand_state(run.state, params, source)
                start, lineage = Run(params, state), lineage.split(which, curvature)
                splits = (*splits, record)
                continue
            except KeyboardInterrupt:
                status = "interrupted"
        return replace(run, history=history, status=status, lineage=lineage, splits=splits)


def _split(
    params: Mixture,
    dataset: ArrayDataset,
    rule: LabelRule,
    splitting: Splitting,
    max_memories: int,
    generator: torch.Generator,
    phase: int,
) -> tuple[Mixture, Tensor, Curvature, SplitRecord]:
    """Split the memories that are saddles: (parameters, which were split, curvature, record).

    Several processes all do it, on the same rows, and take the result of rank 0.
    """
    began = time.perf_counter()
    each = splitting.rows_per_memory
    n_rows = dataset.n_rows if each is None else each * params.n_memories
    rows = dataset.sample(n_rows, generator=generator)
    curvature = splitting.curvature(params, rows.filled(), rule, generator=generator)
    which = splitting.choose(curvature.lambda_min, max_memories)
    part = rows.n_rows / dataset.n_rows
    grown, delta, passes = params, 0.0, curvature.passes * part
    if which.shape[0] > 0:
        some = dataset.sample(_SEARCH_ROWS, generator=generator)
        grown, delta, searched = line_search(params, some, rule, which, curvature, splitting.delta)
        passes += searched * some.n_rows / dataset.n_rows
        if delta == 0.0 and splitting.threshold < math.inf:  # the curvature was that of other rows
            which = which[:0]
        elif delta == 0.0:  # asked for whatever the sign: as little as was tried
            delta = splitting.delta / 2 ** (_MAX_HALVINGS - 1)
            grown = split(params, which, curvature.direction, delta)
    record = SplitRecord(
        phase=phase,
        n_memories=params.n_memories,
        n_split=which.shape[0],
        lambda_min=float(curvature.lambda_min.amin()),
        delta=delta,
        passes=passes,
        seconds=time.perf_counter() - began,
    )
    return current().broadcast((grown, which, curvature, record))


def line_search(
    params: Mixture,
    batch: Batch,
    rule: LabelRule,
    which: Tensor,
    curvature: Curvature,
    delta: float,
) -> tuple[Mixture, float, float]:
    """Split by the first of δ, δ/2, δ/4, … that lowers the loss; (parameters, δ, passes spent).

    Where none lowers it the parameters come back as they are, and δ = 0.
    """
    before, passes = evaluate(params, batch, rule), 0.5
    growth = 1 + which.shape[0] / params.n_memories
    for halvings in range(_MAX_HALVINGS):
        step = delta / 2**halvings
        candidate = split(params, which, curvature.direction, step)
        passes += 0.5 * growth
        if evaluate(candidate, batch, rule) < before:
            return candidate, step, passes
    return params, 0.0, passes
