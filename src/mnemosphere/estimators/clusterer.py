"""`DAMClusterer`: memories and latent classes from rows without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import METRICS, NORMALIZATIONS
from mnemosphere.data.rows import StoredRows, merge_copies
from mnemosphere.data.source import Dataset
from mnemosphere.data.streamed import SourceDataset
from mnemosphere.estimators.base import (
    PASSES,
    sample_weights,
)
from mnemosphere.estimators.class_training import Trained
from mnemosphere.estimators.cluster_model import ClusterModel
from mnemosphere.estimators.cluster_selection import (
    MEMORIES,
    NUMBERS,
    ROWS_PER_MEMORY,
    SHARED_BY,
    choose,
)
from mnemosphere.estimators.from_files import gathered, learn_rows
from mnemosphere.estimators.persistence import register
from mnemosphere.estimators.progress import looking
from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.memory_graph import group_memories
from mnemosphere.model.parameters import from_memories
from mnemosphere.training import latent
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current
from mnemosphere.training.fit import fit, judge
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.sgd import SGD
from mnemosphere.training.solver import Solver

_POSITIVE = Interval(Real, 0, None, closed="neither")
_COUNT = Interval(Integral, 1, None, closed="left")
_START_ROWS, _STARTS = 8192, 100  # rows that memories start on; memories in all starts
_SGD_PASSES = 30
_CLASS_ROWS, _CLASS_STEPS = 4096, 60  # rows per step of the class weights at least; steps in all
_CLASS_RATE, _CLASS_MOMENTUM = 0.1, 0.9
_GRAPH_ROWS = 1 << 17


@register
class DAMClusterer(
    ClusterModel,
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Dense associative memory on the sphere, trained without labels.

    A mixture of von Mises–Fisher memories plus a uniform component, whose memories carry soft
    labels of latent classes: a cluster is the part of the sphere that one memory holds, or several
    together, which gives it any shape. Training is in three steps. Memories start where spherical
    k-means puts them, and maximize the likelihood of the rows. Where there are more memories than
    clusters, those that share rows are grouped, by the graph of who shares with whom. Then class
    weights descend Eq. (unsupervised_loss), under which as few rows as possible are undecided.

    Parameters
    ----------
    n_clusters : int or "auto"
        Latent classes. "auto": as many as `class_prior` has, else the largest number, 2 to 29, that
        is found again: two halves of the rows, clustered apart, divide all rows alike.
    n_memories : int or "auto"
        "auto": one per cluster, or eight (at most one for five distinct rows), whichever halves of
        the rows agree on better; eight with `growth` or `class_prior`.
    class_prior : "auto" or array of shape (n_clusters,)
        Share of the memories each cluster has. "auto": the shares of the groups found. An array is
        met exactly, and should not be uniform if the data do not say so.
    growth : None or int
        Memories to grow from, by splitting those that are saddles. None: all from the start.
    varsigma : float in (0, 1]
        The regularizer ς; 1 is the plain likelihood, which `bic` and `aic` need.
    beta : "learn" or float
        Inverse temperature; a number is held fixed.
    smoothing : float in [0, 1)
        ε of Eq. (unsupervised_loss): how soft the labels of memories stay.
    normalize : {"auto", "center", "unit", "standard", "none"}
        How rows are put on the sphere. "auto": the one under which halves of the rows agree best
        on the clusters; "standard" where features are in unlike units (a tenth of them with
        standard deviations over 10 times the median), "unit" for sparse rows.
    solver : {"fixed-point", "sgd"}, FixedPoint or SGD
        "fixed-point": memories by the exact iteration, then class weights alone by SGD, which
        leaves the density of the rows as it is. "sgd": the paper's constrained SGD with momentum
        for the memories, then for all parameters together.
    max_iter : int or None
        Passes over the data for the memories, and again for the classes. None: up to 50 exact or
        6 incremental fixed-point passes, then 60 steps of the class weights; 30 and 30 of SGD.
    tol : float
        Stop when a pass changes the loss by less than this, relative; 0 to switch off.
    uniform_weight : float
        Weight P_0 of the uniform component relative to a memory.
    precision : {"auto", "float64", "float32", "bfloat16"}
        "auto": float64 up to a million numbers, where it costs nothing, else
        float32, and bfloat16 operands on a GPU that has units for them. "bfloat16": the large
        products of training take operands rounded to it, sums and all else are float32; a
        processor with AMX is faster by that too, others only round. Predictions are not touched.
    device : str
        "auto" (where a tensor X lies, else a GPU where there is one), "cpu", "cuda", …
    random_state : int, RandomState or None
    callbacks : sequence of Callback
        Told about every pass; `Checkpoint(path)` among them stores the run and resumes it.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    labels_ : (n,) the cluster of each training row, 0 to n_clusters − 1
    cluster_centers_ : (n_clusters, n_features) the mean direction of each cluster's memories
    memories_ : (P, n_features) unit vectors; with normalize="standard" in the features' units
    memory_labels_ : (P,) the cluster of each memory; n_clusters is "none of them"
    class_weights_ : (P+1, C+1) class weights p; row 0 is the uniform component, the last column
        the class "none of them"
    memory_prior_, class_prior_ : their row and column sums
    beta_, varsigma_, n_memories_, normalize_ : what was learned or chosen
    classes_ : 0 to n_clusters − 1
    n_clusters_ : how many there are
    selection_ : the trials behind an automatic choice, a list of dicts with their agreement
    typical_rows_ : (P, 3) numbers of the training rows most typical of each memory, −1 for none
    support_ : (P,) how many training rows each memory answers for
    history_ : one dict per pass; the last phase is that of the classes, with their loss
    n_iter_, converged_, status_ : how training ended
    lineage_ : the tree of splits, or None

    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 (scikit-learn's protocol)
        "n_clusters": [_COUNT, StrOptions({"auto"})],
        "n_memories": [_COUNT, StrOptions({"auto"})],
        "class_prior": "no_validation",
        "growth": [None, _COUNT],
        "varsigma": [Interval(Real, 0, 1, closed="right")],
        "beta": [_POSITIVE, StrOptions({"learn"})],
        "smoothing": [Interval(Real, 0, 1, closed="left")],
        "normalize": [StrOptions({"auto", *NORMALIZATIONS} - {*METRICS})],  # which need labels
        "solver": [StrOptions({"fixed-point", "sgd"}), FixedPoint, SGD],
        "max_iter": [_COUNT, None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "uniform_weight": [Interval(Real, 0, None, closed="left")],
        "precision": [StrOptions({"auto", "float64", "float32", "bfloat16"})],
        "device": [str],
        "random_state": ["random_state"],
        "callbacks": "no_validation",
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        n_memories: int | str = "auto",
        class_prior: ArrayLike | str = "auto",
        growth: int | None = None,
        varsigma: float = 1.0,
        beta: float | str = "learn",
        smoothing: float = 0.1,
        normalize: str = "auto",
        solver: str | FixedPoint | SGD = "fixed-point",
        max_iter: int | None = None,
        tol: float = 1e-4,
        uniform_weight: float = 1.0,
        precision: str = "auto",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_memories = n_memories
        self.class_prior = class_prior
        self.growth = growth
        self.varsigma = varsigma
        self.beta = beta
        self.smoothing = smoothing
        self.normalize = normalize
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.uniform_weight = uniform_weight
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    # Training.

    def fit(self, X: Any, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn memories and their latent classes from rows X (n, N); y is not looked at.

        Or from a `Dataset`, which may be larger than memory.
        """
        self._validate_params()
        prior = self._proportions()
        dataset: ArrayDataset | SourceDataset
        if isinstance(X, Dataset) and not X.fits:
            seed, callbacks = self._begin(X)
            with looking(X, callbacks):
                dataset, (stored, *_), weight = learn_rows(self, X, prior, seed)
        else:
            if isinstance(X, Dataset):
                X, _, sample_weight = X.read()
            stored = self._stored(X, reset=True)
            weight = sample_weights(sample_weight, stored.n_rows, stored.device)
            seed, callbacks = self._begin(stored, weight=weight)
            dataset = self._resolve_auto(stored, weight, prior, seed)
        self.__dict__.pop("_stream", None)
        generator = torch.Generator().manual_seed(seed)
        trained = self._train_memories(dataset, generator, callbacks)
        self._set_trained(self._train_classes(trained, dataset, prior, generator, callbacks))
        self._look_at_rows(stored, weight, dataset.n_rows)
        self.labels_ = gathered(self.predict, X) if isinstance(X, Dataset) else self.predict(X)
        self._warn_degenerate()
        return self

    def partial_fit(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """One incremental fixed-point step from a batch, on a fresh or a fitted model.

        A fresh model is fitted to the first batch, which settles what is "auto", the clusters
        among it, so it should look like the rest. From then on memories follow the stream, and
        take their clusters along. `labels_` are those of the last batch.
        """
        if not hasattr(self, "params_"):
            return self.fit(X, sample_weight=sample_weight)
        self._validate_params()
        stored = self._stored(X, reset=False, gaps=True)
        weight = sample_weights(sample_weight, stored.n_rows, stored.device)
        dataset = self._judged(X, self._no_labels(stored.n_rows), weight)
        self._take_in(self.params_, dataset, objectives.marginal, first=False)
        self.labels_ = self.predict(X)
        return self

    def _resolve_auto(
        self,
        stored: StoredRows,
        weight: Tensor | None,
        prior: Tensor | None,
        seed: int,
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
        choice = current().once(lambda: choose(
            stored, weight, normalize=self.normalize, numbers=numbers,
            shapes=[1, MEMORIES] if plain else [MEMORIES],
            generator=torch.Generator().manual_seed(seed),
        ))  # fmt: skip
        self.selection_ = list(choice.trials)
        n_clusters, kind = choice.n_clusters, choice.normalize
        if self.n_memories == "auto":
            wanted = min(choice.memories_per_cluster * n_clusters, n_rows // ROWS_PER_MEMORY)
            most = max(wanted, n_clusters)
        self.n_memories_, self.classes_ = most, np.arange(n_clusters)
        dtype = self._precision(stored.n_numbers)
        x, lost = self._training_rows(stored, kind, weight, dtype)
        rows = Batch(x, labels.to(dtype), None if weight is None else weight.to(dtype))
        if bool(lost.any()):
            self._warn_set_aside(*given)
            rows = rows.take(~lost)
        return ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)

    def _train_memories(
        self,
        dataset: ArrayDataset | SourceDataset,
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
        solver = self._solver(dataset.n_rows, dataset.device)
        passes = PASSES["exact" if solver.rows_per_step is None else "incremental"]
        phase_iter = 2
        if isinstance(solver, SGD):
            passes, phase_iter = _SGD_PASSES, 10
        passes = self.max_iter or passes
        rule = objectives.marginal
        if self.growth is not None:
            grown = grow(
                params, dataset, solver, rule=rule, max_memories=width, phase_iter=phase_iter,
                max_iter=passes, tol=self.tol, generator=generator, callbacks=callbacks,
            )  # fmt: skip
            return Trained(
                grown.params, grown.params.p, 1.0, grown.history, grown.status, grown.lineage
            )
        result = fit(
            params, dataset, solver, rule=rule, max_iter=passes, tol=self.tol,
            generator=generator, callbacks=callbacks,
        )  # fmt: skip
        return Trained(result.params, result.params.p, 1.0, result.history, result.status)

    def _train_classes(
        self,
        trained: Trained,
        dataset: ArrayDataset | SourceDataset,
        prior: Tensor | None,
        generator: torch.Generator,
        callbacks: Sequence[Callback],
    ) -> Trained:
        """Latent classes: from groups of memories, then down Eq. (unsupervised_loss)."""
        n_clusters = len(self.classes_)
        params, history = trained.params, trained.history
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
            return trained._replace(params=params)
        rows = dataset.without_labels(n_clusters + 1)
        solver: Solver = self._solver(dataset.n_rows, dataset.device)
        if isinstance(solver, SGD):
            passes = self.max_iter or _SGD_PASSES
        else:
            size = min(max(dataset.n_rows // 20, _CLASS_ROWS), dataset.n_rows)
            solver = latent.ClassWeightSGD(_CLASS_RATE, _CLASS_MOMENTUM, size)
            passes = self.max_iter or math.ceil(_CLASS_STEPS * size / dataset.n_rows)
        rule = objectives.Unsupervised(self.smoothing)
        result = fit(
            params, rows, solver, rule=rule, max_iter=passes, tol=self.tol,
            generator=generator, callbacks=callbacks, stage="classes",
            phase=history[-1].phase + 1 if history else 1,
        )  # fmt: skip
        # Never worse than the start, nor with fewer clusters: rows are surest where there is one.
        ends = (result.params, params)
        loss, start = (judge(p, rows, rule)[0] for p in ends)
        counts = (log_joint(p, some.x)[:, :-1].argmax(1).bincount() for p in ends)
        used, before = (int((count > 0).sum()) for count in counts)
        better = current().same(loss <= start and used >= before)
        return trained._replace(
            params=result.params if better else params,
            history=(*history, *result.history),
            status=result.status,
        )
