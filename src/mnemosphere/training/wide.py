"""Models wider than one device: memories are divided among processes, as rows are.

The processes form a grid. Those of one row of it have the same rows of the data and a part of the
memories each: of every row they exchange its largest exponent and its densities, C + 2 numbers.
Those of one column have the same memories and other rows: they add up their statistics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields

import torch

from mnemosphere.data.dataset import Dataset
from mnemosphere.model import objectives
from mnemosphere.model.kernel import Statistics, accumulate
from mnemosphere.model.m_step import displacement
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sums import ALONE, Sums
from mnemosphere.training.callbacks import Convergence, PassRecord, Run
from mnemosphere.training.distributed import current, together
from mnemosphere.training.fit import FitResult
from mnemosphere.training.fixed_point import FixedPoint

__all__ = ["fit_wide"]


@dataclass(frozen=True)
class _Wide(FixedPoint):
    """Exact steps of memories that are divided."""

    among: Sums = ALONE

    @property
    def axis(self) -> Sums:
        """The processes that memories are divided among."""
        return self.among


@together()
def fit_wide(
    params: Parameters,
    dataset: Dataset,
    *,
    width: int,
    rule: LabelRule = objectives.joint,
    max_iter: int = 100,
    tol: float = 0.0,
    learn_beta: bool = True,
    learn_weights: bool = False,
) -> FitResult:
    """Exact fixed-point passes of a model of which each process holds one part in `width`.

    params: the start, on the processor; a process takes its memories to the device of the rows,
    and the model comes back on the processor. `width` divides the number of processes; with one
    process it is 1, and this is `fit` with `FixedPoint(None)`.
    """
    group = current()
    if width < 1 or group.size % width:
        raise ValueError(
            f"width must divide the number of processes, {group.size}, got {width}: start others"
        )
    rows, axis = group.grid(width)
    params = group.same(params.check().to(device="cpu"))
    own = axis.part(params.n_memories)
    mine = params.replace(w=params.w[own]).to(device=dataset.device)
    solver = _Wide(None, learn_beta, learn_weights, among=axis)
    solver.check_rule(rule)
    shard = dataset.shard(rows.rank, rows.size)
    seeds = next(dataset.batches(None))
    seeds.check(mine)
    run = Run(mine, solver.start(mine), torch.Generator(), max_iter)
    stop = None
    while stop is None:
        began, sums = time.perf_counter(), Statistics.none(mine)
        for batch in shard.batches(None):
            sums = sums + accumulate(mine, batch, rule, axis)
        names = [f.name for f in fields(sums) if getattr(sums, f.name) is not None]
        total = rows.sum(*(getattr(sums, name) for name in names))
        sums = Statistics(**dict(zip(names, total, strict=True)))
        new, state = solver.step(mine, run.state, sums, seeds, 1.0)
        p, beta, p_h, p_q = group.from_first(new.p, new.beta, new.p_h, new.p_q)
        new = new.replace(p=p, beta=beta, p_h=p_h, p_q=p_q)
        moved = axis.largest(displacement(mine, new, axis).largest)
        mine = new
        record = PassRecord(
            n_iter=run.n_iter + 1, loss=float(sums.mean_loss), validation_loss=None,
            validation_accuracy=None, beta=float(mine.beta), residual=float(moved),
            n_memories=params.n_memories, seconds=time.perf_counter() - began,
        )  # fmt: skip
        run.add(group.same(record), mine, state)
        stop = Convergence(tol).stop_reason(run) if tol > 0 else None
        stop = "max_iter" if stop is None and run.n_iter >= max_iter else stop
    w, w_bar = (torch.cat(axis.gather(t.cpu())) for t in (mine.w, run.state["w_bar"]))
    state = {name: t.cpu() for name, t in run.state.items()} | {"w_bar": w_bar}
    return FitResult(mine.to(device="cpu").replace(w=w), state, tuple(run.history), stop)
