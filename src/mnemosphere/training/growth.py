"""Splitting steepest descent: train narrow, split the saddles, train on (Alg. splitting_descent).

Between two phases of training the memories of most negative curvature are duplicated, with p and
p_h halved, and each pair is moved apart along its direction of steepest descent. The paper's
rescaling (Alg. rescaled_splitting_descent) only keeps g = (P+P_0)p in step with P; here the
solver reads P and P_0 from the parameters, so nothing needs rescaling.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.curvature import Curvature, CurvatureMethod, Nearest
from mnemosphere.model.duplicate import parents, split
from mnemosphere.model.kernel import evaluate
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.training.batches import Data, Solver, State
from mnemosphere.training.callbacks import Callback, Record, Split
from mnemosphere.training.checkpoint import (
    VERSION,
    checksum,
    fingerprint,
    read_tensors,
    write_tensors,
)
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.loop import train

FORMAT = "mnemosphere-growth"
_SEARCH_ROWS = 8192
_FIRST_DELTA, _MAX_HALVINGS = 0.8, 12


@dataclass(frozen=True)
class Splitting:
    """Which memories are split, and how far their copies move (App. splitting).

    The ⌊τP⌋ memories (at least one) of lowest λ_min are split, of those with λ_min < λ_thres, and
    no more than the final width leaves room for. `delta=None` finds δ by halving from 0.8 as long
    as the loss, on 8192 rows at most, falls.
    """

    fraction: float = 1.0  # τ_thres in (0, 1]
    threshold: float = 0.0  # λ_thres <= 0
    delta: float | None = 0.25
    curvature: CurvatureMethod = dataclasses.field(default_factory=Nearest)

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise ValueError(f"fraction must lie in (0, 1], got {self.fraction}")
        if not self.threshold <= 0.0:
            raise ValueError(f"threshold must be <= 0, got {self.threshold}")
        if self.delta is not None and not self.delta > 0.0:
            raise ValueError(f"delta must be > 0, or None for a line search, got {self.delta}")

    def choose(self, lambda_min: Tensor, max_memories: int) -> Tensor:
        """Indices of the memories to split, most negative curvature first, (R,)."""
        n = lambda_min.shape[0]
        limit = min(max(1, math.floor(self.fraction * n)), max_memories - n)
        order = lambda_min.argsort(stable=True)[: max(limit, 0)]
        return order[lambda_min[order] < self.threshold]


@dataclass(frozen=True)
class GrowthResult:
    """What growth returns."""

    params: Parameters
    state: State  # the solver's, after the last step
    lineage: Lineage
    history: tuple[Record, ...]  # of all phases
    splits: tuple[Split, ...]  # between them
    status: str  # 'grown', 'stable' or 'interrupted'

    @property
    def message(self) -> str:
        """The status in a sentence."""
        width = f"{self.params.n_memories} memories"
        return {
            "grown": f"grown to {width} in {self.lineage.n_levels} phases",
            "stable": f"stopped at {width}: no memory is a saddle any more",
            "interrupted": f"interrupted at {width}: the model is usable as it is",
        }[self.status]

    def cost(self, max_memories: int | None = None) -> float:
        """Arithmetic of training and curvature, in training passes at the final width.

        Validation is not counted; it is half a pass over its rows.
        """
        width = self.params.n_memories if max_memories is None else max_memories
        work = sum(float(record.n_memories) for record in self.history)
        work += sum(s.passes * s.n_memories for s in self.splits)
        return work / width


def start(
    w: Tensor, p_q: Tensor, *, max_memories: int, beta: float | Tensor, varsigma: float = 1.0
) -> Parameters:
    """Parameters to grow from, with P_0 = P/P_max.

    Splitting leaves p_h(0) alone, so in the end the uniform component weighs as much as a memory.
    """
    return from_memories(
        w, p_q, beta=beta, varsigma=varsigma, uniform_weight=w.shape[0] / max_memories
    )


@dataclass(frozen=True)
class _Progress:
    """All that growth needs to go on from the beginning of a phase."""

    phase: int
    params: Parameters
    state: State | None
    lineage: Lineage
    history: tuple[Record, ...]
    splits: tuple[Split, ...]


def grow(
    params: Parameters,
    data: Data,
    solver: Solver,
    *,
    max_memories: int,
    splitting: Splitting | None = None,
    rule: LabelRule = objectives.joint,
    max_epochs: int = 2,
    final_epochs: int = 5,
    tol: float = 0.0,
    validation: Data | None = None,
    patience: int | None = None,
    generator: torch.Generator | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
) -> GrowthResult:
    """Train `params`, splitting memories between phases, until there are max_memories.

    A phase is a run of `train` of at most max_epochs passes, the last one of final_epochs; tol,
    validation and patience act within each phase. Growth ends early where no memory is a saddle
    any more. The solver's state follows the lineage. Ctrl-C returns what there is.

    With `checkpoint`, the run is saved there at each split (and after every pass next to it, in
    `<checkpoint>.phase<k>`) and goes on from there, with the same bits, if the file exists.
    """
    if max_memories < params.n_memories:
        raise ValueError(
            f"cannot grow {params.n_memories} memories to {max_memories}: "
            "start from fewer, or merge them"
        )
    splitting = Splitting() if splitting is None else splitting
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    run = _Progress(0, params, None, Lineage.root(params.n_memories), (), ())
    mark = ""
    if checkpoint is not None:
        mark = fingerprint(
            data,
            validation,
            solver=solver,
            rule=rule,
            splitting=splitting,
            max_memories=max_memories,
            max_epochs=max_epochs,
            tol=tol,
            patience=patience,
            memories=checksum(params.w),
            varsigma=params.varsigma,
            beta=f"{float(params.beta):.6g}",
        )
        if checkpoint.exists():
            run = _load(checkpoint, mark, params.w.device, generator)

    while True:
        stable = bool(run.splits) and run.splits[-1].n_split == 0
        last = stable or run.params.n_memories == max_memories
        result = train(
            run.params,
            data,
            solver,
            rule=rule,
            max_epochs=final_epochs if last else max_epochs,
            tol=tol,
            validation=validation,
            patience=patience,
            generator=generator,
            callbacks=callbacks,
            checkpoint=None if checkpoint is None else _phase_file(checkpoint, run.phase),
            phase=run.phase,
            state=run.state,
        )
        lineage = run.lineage.with_model(result.params)
        history, splits = (*run.history, *result.history), run.splits
        status = "stable" if stable else "grown"
        if result.status == "interrupted":
            status = "interrupted"
        elif not last:
            ended = dataclasses.replace(
                run, params=result.params, state=result.state, lineage=lineage, history=history
            )
            try:
                run = _next_phase(ended, data, solver, rule, splitting, max_memories, generator)
                if checkpoint is not None:
                    _save(checkpoint, run, generator, mark)
                    _phase_file(checkpoint, run.phase - 1).unlink(missing_ok=True)
                for callback in callbacks:
                    callback.on_split(run.splits[-1], run.params)
                continue
            except KeyboardInterrupt:
                status = "interrupted"
        return GrowthResult(result.params, result.state, lineage, history, splits, status)


def _next_phase(
    run: _Progress,
    data: Data,
    solver: Solver,
    rule: LabelRule,
    splitting: Splitting,
    max_memories: int,
    generator: torch.Generator,
) -> _Progress:
    """Split the memories that are saddles: from the end of a phase to the start of the next."""
    began = time.perf_counter()
    params = run.params
    curvature = splitting.curvature(
        params,
        data.x,
        data.targets,
        rule,
        sample_weight=data.sample_weight,
        generator=generator,
    )
    which = splitting.choose(curvature.lambda_min, max_memories)
    delta, passes = splitting.delta or 0.0, curvature.passes
    if which.shape[0] == 0:
        grown, delta = params, 0.0
    elif splitting.delta is None:
        grown, delta, searched = line_search(params, data, rule, which, curvature, generator)
        passes += searched
    else:
        grown = split(params, which, curvature.direction, delta)
    state = run.state
    if state is not None:
        state = solver.follow(state, grown, parents(params.n_memories, which))
    done = Split(
        phase=run.phase,
        n_memories=params.n_memories,
        n_split=which.shape[0],
        lambda_min=float(curvature.lambda_min.amin()),
        delta=delta,
        passes=passes,
        seconds=time.perf_counter() - began,
    )
    return _Progress(
        phase=run.phase + 1,
        params=grown,
        state=state,
        lineage=run.lineage.split(which, curvature),
        history=run.history,
        splits=(*run.splits, done),
    )


def line_search(
    params: Parameters,
    data: Data,
    rule: LabelRule,
    which: Tensor,
    curvature: Curvature,
    generator: torch.Generator,
) -> tuple[Parameters, float, float]:
    """Split by the δ of lowest loss among 0.8, 0.4, 0.2, …; (parameters, δ, passes spent).

    Halving goes on until the loss lies below that of the duplicated network and rises again. The
    loss is taken on 8192 random rows at most.
    """
    rows = data
    if data.n_rows > _SEARCH_ROWS:
        drawn = torch.randperm(data.n_rows, generator=generator, device=generator.device)
        rows = data.take(drawn[:_SEARCH_ROWS].to(data.x.device))

    def loss(candidate: Parameters) -> float:
        return evaluate(candidate, rows.x, rows.targets, rule, sample_weight=rows.sample_weight)

    best, best_delta, best_loss = params, 0.0, loss(params)
    half_pass = 0.5 * rows.n_rows / data.n_rows
    growth = 1 + which.shape[0] / params.n_memories
    passes = half_pass
    candidate, delta = params, 0.0
    for halvings in range(_MAX_HALVINGS):
        delta = _FIRST_DELTA / 2**halvings
        candidate = split(params, which, curvature.direction, delta)
        reached = loss(candidate)
        passes += half_pass * growth
        if reached < best_loss:
            best, best_delta, best_loss = candidate, delta, reached
        elif best_delta > 0:
            break
    if best_delta == 0.0:  # the curvature was that of other rows: move as little as was tried
        best, best_delta = candidate, delta
    return best, best_delta, passes


def _phase_file(checkpoint: Path, phase: int) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.phase{phase}")


def _save(path: Path, run: _Progress, generator: torch.Generator, mark: str) -> None:
    tensors = {"generator": generator.get_state()}
    tensors |= {f"state.{name}": t for name, t in (run.state or {}).items()}
    tensors |= {f"lineage.{name}": t for name, t in run.lineage.to_tensors().items()}
    for field in dataclasses.fields(run.params):
        if field.name != "varsigma":
            tensors[f"params.{field.name}"] = getattr(run.params, field.name)
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": mark,
        "phase": run.phase,
        "varsigma": run.params.varsigma,
        "history": [record.as_dict() for record in run.history],
        "splits": [record.as_dict() for record in run.splits],
    }
    write_tensors(path, tensors, meta)


def _load(path: Path, mark: str, device: torch.device, generator: torch.Generator) -> _Progress:
    meta, tensors = read_tensors(path, FORMAT)
    if meta["fingerprint"] != mark:
        raise ValueError(
            f"checkpoint {path} is of another run (its data or settings differ): "
            "delete it or choose another path"
        )

    def part(prefix: str) -> dict[str, Tensor]:
        start = prefix + "."
        return {k[len(start) :]: v for k, v in tensors.items() if k.startswith(start)}

    generator.set_state(tensors["generator"])
    params = {name: t.to(device) for name, t in part("params").items()}
    state = {name: t.to(device) for name, t in part("state").items()}
    return _Progress(
        phase=meta["phase"],
        params=Parameters(varsigma=meta["varsigma"], **params),
        state=state or None,
        lineage=Lineage.from_tensors(part("lineage"), device=device),
        history=tuple(Record(**record) for record in meta["history"]),
        splits=tuple(Split(**record) for record in meta["splits"]),
    )
