"""How a clusterer is trained: the choice of clusters, memories, latent classes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemosphere.estimators.choice import directed, spreads
from mnemosphere.estimators.inputs import FitInputs
from mnemosphere.estimators.progress import Progress, SearchTable
from mnemosphere.estimators.settings import Sample, Settings
from mnemosphere.estimators.setup import (
    as_model,
    place,
    precision_of,
)
from mnemosphere.fitted.model import FittedModel
from mnemosphere.geometry.base import learn, on_sphere
from mnemosphere.model import objectives
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.initialize import Start
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.memory_graph import group_memories
from mnemosphere.model.one_pass import log_joint
from mnemosphere.model.silhouette import MOST_ROWS, REAL, ROWS_OF_A_GROUP, Groupings
from mnemosphere.rows.rows import Rows, sort_and_merge_duplicates
from mnemosphere.training import latent
from mnemosphere.training.callbacks import Run
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.distributed import current
from mnemosphere.training.fit import fit, validate
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import start_joint
from mnemosphere.training.sgd import SGD
from mnemosphere.training.solver import Solver
from mnemosphere.training.train import Spec
from mnemosphere.training.train import train as train_spec

_DOMINANT = 0.75  # share of the variance of one feature that decides all directions
_EACH, _MOST_EACH = 4, 100  # memories of a cluster of any shape, of all together
_START_ROWS, _STARTS = 8192, 100  # rows that memories start on; memories in all starts
_PASSES, _SGD_PASSES = (50, 6), 30  # of the fixed point, exact or incremental steps; of SGD
_CLASS_ROWS, _CLASS_STEPS = 4096, 60  # rows per step of the class weights at least; steps in all
_CLASS_RATE, _CLASS_MOMENTUM = 0.1, 0.9
_GRAPH_ROWS = 1 << 17  # that tell which memories share rows


class Clusters(NamedTuple):
    """What was chosen."""

    geometry: str
    n_clusters: int
    trials: SearchTable
    centers: Tensor | None = None  # of the clusters that were found
    n_memories: int = 0


def train(inputs: FitInputs) -> FittedModel:
    """Choose; then memories of highest likelihood, and their latent classes."""
    settings = inputs.settings
    _, (stored, targets, weight) = sort_and_merge_duplicates(
        inputs.leveled[1], inputs.targets, inputs.weight
    )
    chosen = _clusters(inputs, stored, weight)
    dtype = precision_of(settings.precision, stored.n_numbers)
    sample = Sample(stored, targets, weight, dtype)
    dataset, geometry = place(inputs, chosen.geometry, sample, inputs.leveled[1])
    generator = torch.Generator().manual_seed(inputs.seed)
    solver = settings.solver
    assert isinstance(solver, FixedPoint | SGD)  # there is no conditional likelihood
    solver = solver.resolve(dataset.n_rows, learn_beta=settings.beta is None, device=dataset.device)
    run = _memories(inputs, dataset, chosen, solver, generator)
    run = _classes(inputs, dataset, chosen.n_clusters, run, solver, generator)
    return as_model(
        "clusterer", inputs, geometry, latent.votes_of_memories(run.params), run.params, run,
        n_rows=dataset.n_rows, trials=chosen.trials, is_cut_short=False,
        classes=np.arange(chosen.n_clusters),
    )  # fmt: skip


def _clusters(inputs: FitInputs, stored: Rows, weight: Tensor | None) -> Clusters:
    """What is "auto" settled, for these distinct rows."""
    settings, n_rows = inputs.settings, stored.n_rows
    n_clusters, most = settings.given["n_clusters"], settings.n_memories or n_rows
    if most > n_rows:
        raise ValueError(
            f"n_memories={most} but X has {n_rows} distinct row(s) (n_samples={n_rows}): "
            "use fewer memories or n_memories='auto'"
        )
    if n_clusters != "auto" and n_clusters > most:
        raise ValueError(
            f"n_clusters={n_clusters} needs as many memories, got {most} for "
            f"{n_rows} distinct row(s) (n_samples={n_rows}): ask for fewer clusters"
        )
    chosen: Clusters = current().on_rank0(
        lambda: _choose(settings, stored, weight, most, inputs.seed, inputs.progress)
    )
    if settings.n_memories is None:
        is_found = chosen.centers is not None and settings.growth is None
        wanted = min(_EACH * chosen.n_clusters, _MOST_EACH, n_rows // ROWS_OF_A_GROUP)
        most = chosen.n_clusters if is_found else max(chosen.n_clusters, wanted)
    return chosen._replace(n_memories=most)


def _choose(
    settings: Settings, rows: Rows, weight: Tensor | None, most: int, seed: int,
    progress: Progress,
) -> Clusters:  # fmt: skip
    """The geometry whose clusters exceed one cloud most, with their number; nothing, where nothing is open."""
    wanted, kinds = settings.given["n_clusters"], [settings.geometry]
    if settings.geometry == "auto":
        variance = spreads(rows).square()
        unlike = float(variance.max()) > _DOMINANT * float(variance.sum())
        kinds = [*([] if unlike else directed(rows, weight)), "standard"]
    is_auto = wanted == "auto"
    if wanted == 1 or rows.n_rows < 4 or (len(kinds) == 1 and not is_auto) or most < 2:
        return Clusters(kinds[0], 1 if is_auto else wanted, SearchTable())
    order = torch.randperm(rows.n_rows, generator=torch.Generator().manual_seed(seed))
    order = order[: 2 * MOST_ROWS].to(rows.device)
    groupings: dict[str, Groupings] = {}
    trials, best = SearchTable(), []
    for kind in kinds:
        x, lost = on_sphere(rows.take(order), learn(kind, rows, None, weight), torch.float32)
        kept = (~lost).nonzero()[:, 0]
        if len(kept) < 4:
            continue
        mass = None if weight is None else weight[order][kept]
        own = groupings[kind] = Groupings(fill_neutrally(x[kept]), mass)
        number = own.best(most) if is_auto else wanted
        best.append((own.excess(number), kind, number))
        progress.show("trying clusters", len(best), len(kinds))
        trials += [
            {"geometry": kind, "n_clusters": k, "silhouette": score, "chosen": False}
            for k, score in own.silhouettes.items()
        ]
    if not best:  # no row has a direction, as is said later
        return Clusters(kinds[-1], 1 if is_auto else wanted, trials)
    excess, kind, number = max(best)
    is_one = is_auto and excess <= REAL
    for found, *which in best:
        trial = next(t for t in trials if [t["geometry"], t["n_clusters"]] == which)
        trial |= {"excess": found, "chosen": which == [kind, number] and not is_one}
    if is_one:
        trials.append({"geometry": kind, "n_clusters": 1, "silhouette": 0.0, "chosen": True})
        return Clusters(kind, 1, trials)
    return Clusters(kind, number, trials, groupings[kind].centers(number) if is_auto else None)


def _memories(
    inputs: FitInputs, dataset: ArrayDataset, chosen: Clusters, solver: FixedPoint | SGD,
    generator: torch.Generator,
) -> Run:  # fmt: skip
    """Memories of highest likelihood, with one class for all of them."""
    settings, width = inputs.settings, chosen.n_memories
    growth = settings.growth
    n_memories = width if growth is None else min(growth, width)
    some = dataset.sample(max(_START_ROWS, n_memories), generator=generator)
    centers = chosen.centers  # fewer than asked for, if rows coincide
    start = None if centers is None or len(centers) != n_memories else centers.to(some.x)
    w = spherical_kmeans(
        fill_neutrally(some.x), n_memories, weight=some.sample_weight, generator=generator,
        restarts=max(1, min(10, _STARTS // n_memories)), start=start,
    ).centers  # fmt: skip
    params = start_joint(
        Start(w), some, varsigma=settings.varsigma, beta=settings.beta,
        uniform_weight=(settings.uniform_weight or 0.0) * n_memories / width,
        mass=dataset.label_mass(),
    )  # fmt: skip
    passes = _PASSES[solver.rows_per_step is not None]
    passes = _SGD_PASSES if isinstance(solver, SGD) else passes
    return train_spec(
        dataset, Spec(chosen.geometry, width, "marginal"), solver=solver, growth=growth,
        beta=settings.beta, max_iter=settings.max_iter or passes, start=params,
        generator=generator, callbacks=inputs.callbacks,
    )  # fmt: skip


def _classes(
    inputs: FitInputs, dataset: ArrayDataset, n_clusters: int, trained: Run,
    given: FixedPoint | SGD, generator: torch.Generator,
) -> Run:  # fmt: skip
    """Latent classes: from groups of memories, then down Eq. (unsupervised_loss)."""
    params, history, settings = trained.params, trained.history, inputs.settings
    smoothing = settings.smoothing
    if params.n_memories < n_clusters:
        raise ValueError(
            f"growth ended at {params.n_memories} memories, fewer than n_clusters="
            f"{n_clusters}: ask for fewer clusters or start from more memories"
        )
    some = dataset.sample(_GRAPH_ROWS, generator=generator)
    groups = group_memories(params.w, some, n_clusters, generator=generator)
    params = latent.start_classes(params, groups, None, smoothing)
    if trained.status == "interrupted" or n_clusters in (1, params.n_memories):
        return replace(trained, params=params)
    rows = dataset.without_labels(n_clusters + 1)
    solver: Solver = given
    if isinstance(given, SGD):
        passes = _SGD_PASSES
    else:
        size = min(max(dataset.n_rows // 20, _CLASS_ROWS), dataset.n_rows)
        solver = latent.ClassWeightSGD(_CLASS_RATE, _CLASS_MOMENTUM, size, tol=given.tol)
        passes = math.ceil(_CLASS_STEPS * size / dataset.n_rows)
    rule = objectives.Unsupervised(smoothing)
    result = fit(
        params, rows, solver, rule=rule, max_iter=settings.max_iter or passes,
        generator=generator, callbacks=inputs.callbacks,
    )  # fmt: skip
    # Never worse than the start, nor with fewer clusters: rows are surest where there is one.
    ends = (result.params, params)
    loss, start = (validate(p, rows, rule) for p in ends)
    counts = (log_joint(p, some.x)[:, :-1].argmax(1).bincount() for p in ends)
    used, before = (int((count > 0).sum()) for count in counts)
    better = current().broadcast(loss <= start and used >= before)
    return replace(
        trained, params=result.params if better else params,
        history=[*history, *result.in_phase(history[-1].phase + 1)], status=result.status,
    )  # fmt: skip
