"""How a clusterer is trained: the choice of clusters, memories, latent classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, FileDataset
from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.rows import StoredRows, merge_copies
from mnemosphere.estimators.choice import SearchTable
from mnemosphere.estimators.cluster_selection import (
    MEMORIES,
    NUMBERS,
    ROWS_PER_MEMORY,
    SHARED_BY,
    choose,
)
from mnemosphere.estimators.setup import PASSES, Trained, precision_of, put_on_sphere, solver_of
from mnemosphere.interpret.certify import warn_set_aside
from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.memory_graph import group_memories
from mnemosphere.model.parameters import from_memories
from mnemosphere.model.votes import Votes
from mnemosphere.training import latent
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current
from mnemosphere.training.fit import fit, validate
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.sgd import SGD
from mnemosphere.training.solver import Solver

_START_ROWS, _STARTS = 8192, 100  # rows that memories start on; memories in all starts
_SGD_PASSES = 30
_CLASS_ROWS, _CLASS_STEPS = 4096, 60  # rows per step of the class weights at least; steps in all
_CLASS_RATE, _CLASS_MOMENTUM = 0.1, 0.9
_GRAPH_ROWS = 1 << 17


class ClusterTraining:
    """The training that the settings of a clusterer ask for, on one set of rows."""

    # Settings.
    n_clusters: int | str
    n_memories: int | str
    growth: int | None
    varsigma: float
    beta: float | str
    smoothing: float
    normalize: str
    solver: str | FixedPoint | SGD
    max_iter: int | None
    uniform_weight: float
    precision: str
    # What `resolve` settles.
    n_clusters_: int
    n_memories_: int
    trials: SearchTable
    normalizer: Normalizer

    def __init__(self, settings: Mapping[str, Any]) -> None:
        vars(self).update(settings)

    def precision_for(self, n_numbers: int) -> torch.dtype:
        """The precision of training, by how many numbers it works on."""
        return precision_of(self.precision, n_numbers)

    def train(
        self, dataset: ArrayDataset | FileDataset, prior: Tensor | None, seed: int,
        callbacks: Sequence[Callback],
    ) -> Trained:  # fmt: skip
        """Memories of highest likelihood, then their latent classes."""
        generator = torch.Generator().manual_seed(seed)
        trained = self.train_memories(dataset, generator, callbacks)
        return self.train_classes(trained, dataset, prior, generator, callbacks)

    def resolve(
        self, stored: StoredRows, weight: Tensor | None, prior: Tensor | None, seed: int
    ) -> ArrayDataset:
        """Settle everything that is "auto"; return the distinct rows on the sphere."""
        given = stored, weight
        labels = torch.zeros(stored.n_rows, 1, dtype=torch.float64, device=stored.device)
        stored, labels, weight = merge_copies(stored, labels, weight)
        n_rows = stored.n_rows
        most = n_rows if self.n_memories == "auto" else int(self.n_memories)
        if most > n_rows:
            raise ValueError(
                f"n_memories={most} but X has {n_rows} distinct row(s) (n_samples={n_rows}): "
                "use fewer memories or n_memories='auto'"
            )
        if prior is not None:
            numbers = [len(prior)]
        elif self.n_clusters == "auto":
            numbers = [k for k in NUMBERS if k <= most] or [1]
        else:
            numbers = [int(self.n_clusters)]
        if numbers[0] > most:
            raise ValueError(
                f"n_clusters={numbers[0]} needs as many memories, got {most} for "
                f"{n_rows} distinct row(s) (n_samples={n_rows}): ask for fewer clusters"
            )
        plain = self.n_memories == "auto" and self.growth is None and prior is None
        choice, self.trials = current().on_rank0(lambda: choose(
            stored, weight, normalize=self.normalize, numbers=numbers,
            shapes=[1, MEMORIES] if plain else [MEMORIES],
            generator=torch.Generator().manual_seed(seed),
        ))  # fmt: skip
        n_clusters, kind = choice.n_clusters, choice.normalize
        if self.n_memories == "auto":
            wanted = min(choice.memories_per_cluster * n_clusters, n_rows // ROWS_PER_MEMORY)
            most = max(wanted, n_clusters)
        self.n_memories_, self.n_clusters_ = most, n_clusters
        dtype = self.precision_for(stored.n_numbers)
        self.normalizer, x, lost = put_on_sphere(stored, kind, weight, dtype)
        rows = Batch(x, labels.to(dtype), None if weight is None else weight.to(dtype))
        if bool(lost.any()):
            warn_set_aside(self.normalizer, *given)
            rows = rows.take(~lost)
        return ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)

    def train_memories(
        self,
        dataset: ArrayDataset | FileDataset,
        generator: torch.Generator,
        callbacks: Sequence[Callback],
    ) -> Trained:
        """Memories of highest likelihood, with one class for all of them."""
        width = self.n_memories_
        n_memories = width if self.growth is None else min(self.growth, width)
        some = dataset.sample(max(_START_ROWS, n_memories), generator=generator)
        x = fill_neutrally(some.x)
        w = spherical_kmeans(
            x, n_memories, weight=some.sample_weight, generator=generator,
            restarts=max(1, min(10, _STARTS // n_memories)),
        ).centers  # fmt: skip
        beta: float | Tensor
        if self.beta == "learn":
            beta = initialize.estimate_beta(w, x[: initialize.PROBE_ROWS], self.varsigma)
        else:
            beta = float(self.beta)
        # Splitting leaves p_h(0) alone: P_0 is scaled so that it is right at the final width.
        params = from_memories(
            w, w.new_ones(1), beta=beta, varsigma=self.varsigma,
            uniform_weight=self.uniform_weight * n_memories / width,
        )  # fmt: skip
        solver = solver_of(self.solver, dataset.n_rows, self.beta, dataset.device)
        passes = PASSES["exact" if solver.rows_per_step is None else "incremental"]
        phase_iter = 2
        if isinstance(solver, SGD):
            passes, phase_iter = _SGD_PASSES, 10
        passes = self.max_iter or passes
        rule = objectives.marginal
        if self.growth is not None:
            grown = grow(
                params, dataset, solver, rule=rule, max_memories=width, phase_iter=phase_iter,
                max_iter=passes, tol=solver.tol, generator=generator, callbacks=callbacks,
            )  # fmt: skip
            return Trained(
                Votes.of(grown.params), grown.params, grown.history, grown.status, grown.lineage
            )
        result = fit(
            params, dataset, solver, rule=rule, max_iter=passes, tol=solver.tol,
            generator=generator, callbacks=callbacks,
        )  # fmt: skip
        return Trained(Votes.of(result.params), result.params, result.history, result.status)

    def train_classes(
        self,
        trained: Trained,
        dataset: ArrayDataset | FileDataset,
        prior: Tensor | None,
        generator: torch.Generator,
        callbacks: Sequence[Callback],
    ) -> Trained:
        """Latent classes: from groups of memories, then down Eq. (unsupervised_loss)."""
        n_clusters = self.n_clusters_
        params, history = trained.density, trained.history
        if params.n_memories < n_clusters:
            raise ValueError(
                f"growth ended at {params.n_memories} memories, fewer than n_clusters="
                f"{n_clusters}: ask for fewer clusters or start from more memories"
            )
        some = dataset.sample(_GRAPH_ROWS, generator=generator)
        groups = group_memories(
            params.w, some, n_clusters, shared_by=SHARED_BY, generator=generator
        )
        params = latent.start_classes(params, groups, prior, self.smoothing)
        if trained.status == "interrupted" or n_clusters in (1, params.n_memories):
            return trained._replace(votes=Votes.of(params), density=params)
        rows = dataset.without_labels(n_clusters + 1)
        given = solver_of(self.solver, dataset.n_rows, self.beta, dataset.device)
        solver: Solver = given
        if isinstance(given, SGD):
            passes = self.max_iter or _SGD_PASSES
        else:
            size = min(max(dataset.n_rows // 20, _CLASS_ROWS), dataset.n_rows)
            solver = latent.ClassWeightSGD(_CLASS_RATE, _CLASS_MOMENTUM, size)
            passes = self.max_iter or math.ceil(_CLASS_STEPS * size / dataset.n_rows)
        rule = objectives.Unsupervised(self.smoothing)
        result = fit(
            params, rows, solver, rule=rule, max_iter=passes, tol=given.tol,
            generator=generator, callbacks=callbacks, stage="classes",
            phase=history[-1].phase + 1 if history else 1,
        )  # fmt: skip
        # Never worse than the start, nor with fewer clusters: rows are surest where there is one.
        ends = (result.params, params)
        loss, start = (validate(p, rows, rule)[0] for p in ends)
        counts = (log_joint(p, some.x)[:, :-1].argmax(1).bincount() for p in ends)
        used, before = (int((count > 0).sum()) for count in counts)
        better = current().broadcast(loss <= start and used >= before)
        params = result.params if better else params
        return trained._replace(
            votes=Votes.of(params),
            density=params,
            history=(*history, *result.history),
            status=result.status,
        )
