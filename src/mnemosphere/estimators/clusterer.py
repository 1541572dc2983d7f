"""`DAMClusterer`: memories and latent classes from rows without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from mnemosphere.estimators.base import (
    SphereEstimator,
    check_callbacks,
    check_whole,
    draw_seed,
    pick_device,
)
from mnemosphere.estimators.preparation import (
    NORMALIZATIONS,
    Floats,
    Normalizer,
    merge_duplicates,
)
from mnemosphere.estimators.solvers import fixed_point, onlookers, pick_dtype, sgd
from mnemosphere.model import initialize, kernel, objectives
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.training import latent
from mnemosphere.training.batches import Data, Solver
from mnemosphere.training.callbacks import Callback, Record
from mnemosphere.training.growth import grow
from mnemosphere.training.loop import train
from mnemosphere.training.sgd import SGD

_POSITIVE = Interval(Real, 0, None, closed="neither")
_COUNT = Interval(Integral, 1, None, closed="left")
_CLASSES, _MEMORIES_PER_CLASS, _ROWS_PER_MEMORY = 10, 8, 5
_SGD_PASSES = 30
_CLASS_ROWS, _CLASS_STEPS = 4096, 60  # rows a step of the class weights at least; steps in all
_CLASS_RATE, _CLASS_MOMENTUM = 0.1, 0.9
_TABLE_FEATURES, _TABLE_SPREAD = 8, 10.0  # fewer features, or scales further apart: a table


class DAMClusterer(
    SphereEstimator,
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Dense associative memory on the sphere, trained without labels.

    A mixture of von Mises–Fisher memories plus a uniform component, whose memories carry soft
    labels of latent classes: a cluster is the part of the sphere that several memories hold
    together, of any shape. Training is in three steps. Memories maximize the likelihood of the
    rows. Memories that share rows are grouped, by the graph of who shares with whom. Then class
    weights descend Eq. (unsupervised_loss), under which as few rows as possible are undecided.

    Parameters
    ----------
    n_memories : int or "auto"
        "auto": eight a class, at most one for five distinct rows, at least one a class.
    n_classes : int or "auto"
        Latent classes, the clusters. "auto": as many as `class_prior` has, else ten, or fewer
        where there are fewer distinct rows or memories.
    class_prior : "auto" or array of shape (n_classes,)
        Share of the memories each class has. "auto": the shares of the groups found. An array is
        met exactly, and should not be uniform if the data do not say so.
    varsigma : float in (0, 1]
        The regulariser ς; 1 is the plain likelihood, which `bic` and `aic` need.
    beta : "learn" or float
        Inverse temperature; a number is held fixed.
    smoothing : float in [0, 1)
        ε of Eq. (unsupervised_loss): how soft the labels of memories stay.
    solver : {"fixed-point", "sgd"}
        "fixed-point": memories by the exact iteration, then class weights alone by SGD, which
        leaves the density of the rows as it is. "sgd": the paper's constrained SGD with momentum
        for the memories, then for all parameters together.
    growth : None or "split"
        "split" starts from `n_initial` memories and splits those that are saddles.
    n_initial : int
        Memories to grow from; used with growth="split" only.
    normalize : {"auto", "center", "unit", "standard", "none"}
        How rows are put on the sphere. "auto": "standard" for tables (fewer than 8 features,
        or a tenth of them with standard deviations over 10 times the median) and where a row
        would have no direction, else "unit" where there are negative numbers (embeddings),
        "center" where there are none (images, counts).
    max_epochs : int or None
        Passes over the data for the memories, and again for the classes. None: up to 50 exact or
        6 incremental fixed-point passes, then 60 steps of the class weights; 30 and 30 of SGD.
    tol : float
        Stop when a pass changes the loss by less than this, relative; 0 to switch off.
    batch_size : int, None or "auto"
        Rows a step for the memories. None: all of them. "auto": a twentieth of the rows from 2000
        rows on, else all; 1000 for SGD.
    learning_rate, momentum : float
        Of solver="sgd", heavy ball in the usual convention; the defaults are the paper's.
    uniform_weight : float
        Weight P_0 of the uniform component relative to a memory.
    random_state : int, RandomState or None
    device : str
        "auto" (a GPU where there is one), "cpu", "cuda", …
    dtype : {"auto", "float32", "float64"}
        "auto": float64 up to a million numbers, where it costs nothing, else float32.
    checkpoint : path or None
        Save training there after every pass, and go on from there if the file exists.
    callbacks : sequence of Callback
        Told about every pass; they only look.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    labels_ : (n,) the latent class of each training row, 0 to n_classes − 1
    memories_ : (P, n_features) unit vectors; with normalize="standard" in the features' units
    memory_labels_ : (P,) the latent class of each memory; n_classes is "none of them"
    class_weights_ : (P+1, C+1) class weights p; row 0 is the uniform component, the last column
        the class "none of them"
    memory_prior_, class_prior_ : their row and column sums
    beta_, varsigma_, n_memories_, normalize_ : what was learned or chosen
    classes_ : 0 to n_classes − 1
    history_ : one dict a pass; the last phase is that of the classes, with their loss
    lineage_ : the tree of splits, or None
    status_ : how training ended

    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 (scikit-learn's protocol)
        "n_memories": [_COUNT, StrOptions({"auto"})],
        "n_classes": [_COUNT, StrOptions({"auto"})],
        "class_prior": "no_validation",
        "varsigma": [Interval(Real, 0, 1, closed="right")],
        "beta": [_POSITIVE, StrOptions({"learn"})],
        "smoothing": [Interval(Real, 0, 1, closed="left")],
        "solver": [StrOptions({"fixed-point", "sgd"})],
        "growth": [None, StrOptions({"split"})],
        "n_initial": [_COUNT],
        "normalize": [StrOptions({"auto", *NORMALIZATIONS})],
        "max_epochs": [_COUNT, None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "batch_size": [_COUNT, StrOptions({"auto"}), None],
        "learning_rate": [_POSITIVE],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "uniform_weight": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str],
        "dtype": [StrOptions({"auto", "float32", "float64"})],
        "checkpoint": [str, PathLike, None],
        "callbacks": "no_validation",
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_memories: int | str = "auto",
        n_classes: int | str = "auto",
        *,
        class_prior: ArrayLike | str = "auto",
        varsigma: float = 1.0,
        beta: float | str = "learn",
        smoothing: float = 0.1,
        solver: str = "fixed-point",
        growth: str | None = None,
        n_initial: int = 16,
        normalize: str = "auto",
        max_epochs: int | None = None,
        tol: float = 1e-4,
        batch_size: int | str | None = "auto",
        learning_rate: float = 0.01,
        momentum: float = 0.99,
        uniform_weight: float = 1.0,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        dtype: str = "auto",
        checkpoint: str | PathLike[str] | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
    ) -> None:
        self.n_memories = n_memories
        self.n_classes = n_classes
        self.class_prior = class_prior
        self.varsigma = varsigma
        self.beta = beta
        self.smoothing = smoothing
        self.solver = solver
        self.growth = growth
        self.n_initial = n_initial
        self.normalize = normalize
        self.max_epochs = max_epochs
        self.tol = tol
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.uniform_weight = uniform_weight
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn memories and their latent classes from rows X (n, N); y is not looked at."""
        self._validate_params()
        check_callbacks(self.callbacks)
        X = self._validate_rows(X, reset=True)
        weight: Floats | None = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        prior = self._proportions()
        data = self._prepare(X, weight, prior)
        generator = torch.Generator().manual_seed(draw_seed(self.random_state))
        params, history, status = self._train_memories(data, generator)
        params, history, status = self._train_classes(
            params, data, prior, generator, history, status
        )
        self.history_ = [record.as_dict() for record in history]
        self.status_ = status
        self._keep(params)
        self.labels_ = self.predict(X)
        return self

    def _keep(self, params: Parameters) -> None:
        super()._keep(params)
        self.memory_labels_ = latent.latent_class(params).cpu().numpy()

    def _proportions(self) -> torch.Tensor | None:
        """class_prior (C,) as a tensor; None for "auto"."""
        if isinstance(self.class_prior, str) and self.class_prior == "auto":
            return None
        try:
            given = np.asarray(self.class_prior, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"class_prior must be 'auto' or numbers, got {self.class_prior!r}"
            ) from error
        n_classes = given.size if self.n_classes == "auto" else self.n_classes
        if given.shape != (n_classes,):
            raise ValueError(
                f"class_prior must have one entry for each of {n_classes} classes, got shape "
                f"{given.shape}: pass n_classes={given.size}, or other proportions"
            )
        if not (np.isfinite(given).all() and (given > 0).all()):
            raise ValueError(
                f"class_prior must be positive, got {given.tolist()}: leave empty classes out"
            )
        return torch.from_numpy(given)

    def _prepare(self, X: Floats, weight: Floats | None, prior: torch.Tensor | None) -> Data:
        """Settle everything that is "auto"; return the distinct rows on the sphere."""
        X, labels, weight, number = merge_duplicates(X, np.zeros((X.shape[0], 1)), weight)
        n_rows = X.shape[0]
        n_classes, n_memories = self.n_classes, self.n_memories
        if n_classes == "auto":
            most = n_rows if n_memories == "auto" else int(n_memories)
            n_classes = min(_CLASSES, most) if prior is None else len(prior)
        n_classes = int(n_classes)
        if n_memories == "auto":
            most = max(n_rows // _ROWS_PER_MEMORY, n_classes)
            n_memories = min(_MEMORIES_PER_CLASS * n_classes, most, n_rows)
        if int(n_memories) > n_rows:
            raise ValueError(
                f"n_memories={n_memories} but X has {n_rows} distinct row(s) (n_samples={n_rows}): "
                "use fewer memories or n_memories='auto'"
            )
        if n_classes > int(n_memories):
            raise ValueError(
                f"n_classes={n_classes} needs as many memories, got {n_memories} for "
                f"{n_rows} distinct row(s) (n_samples={n_rows}): ask for fewer classes"
            )
        self.n_memories_, self.classes_ = int(n_memories), np.arange(n_classes)
        self.normalize_ = _choose_normalization(X) if self.normalize == "auto" else self.normalize
        self._normalizer = Normalizer.fit(self.normalize_, X, weight)
        self._device = pick_device(self.device)
        self._dtype = pick_dtype(self.dtype, X.size)
        return self._tensors(self._normalizer(X, number), labels, weight)

    def _train_memories(
        self, data: Data, generator: torch.Generator
    ) -> tuple[Parameters, tuple[Record, ...], str]:
        """Memories of highest likelihood, with one class for all of them."""
        grows = self.growth == "split"
        n_memories = min(self.n_initial, self.n_memories_) if grows else self.n_memories_
        w = initialize.from_data(data.x, n_memories, generator=generator)
        beta = (
            initialize.estimate_beta(w, data.x, self.varsigma, generator=generator)
            if self.beta == "learn"
            else float(self.beta)
        )
        # Splitting leaves p_h(0) alone: P_0 is scaled so that it is right at the final width.
        scale = n_memories / self.n_memories_
        params = from_memories(
            w, w.new_ones(1), beta=beta, varsigma=self.varsigma,
            uniform_weight=self.uniform_weight * scale,
        )  # fmt: skip
        solver: Solver
        if self.solver == "sgd":
            solver, passes = self._sgd(data), self.max_epochs or _SGD_PASSES
        else:
            solver, passes = fixed_point(
                data.n_rows, self.batch_size, self.max_epochs, learn_beta=self.beta == "learn"
            )
        common = self._common(generator, "")
        self.lineage_ = None
        if grows:
            grown = grow(
                params, data, solver, rule=objectives.marginal, max_memories=self.n_memories_,
                max_epochs=2 if self.solver == "fixed-point" else 10, final_epochs=passes,
                **common,
            )  # fmt: skip
            self.lineage_ = grown.lineage
            return grown.params, grown.history, grown.status
        result = train(params, data, solver, rule=objectives.marginal, max_epochs=passes, **common)
        return result.params, result.history, result.status

    def _train_classes(
        self,
        params: Parameters,
        data: Data,
        prior: torch.Tensor | None,
        generator: torch.Generator,
        history: tuple[Record, ...],
        status: str,
    ) -> tuple[Parameters, tuple[Record, ...], str]:
        """Latent classes: from groups of memories, then down Eq. (unsupervised_loss)."""
        n_classes = len(self.classes_)
        if params.n_memories < n_classes:
            raise ValueError(
                f"growth ended at {params.n_memories} memories, fewer than n_classes="
                f"{n_classes}: ask for fewer classes or raise n_initial"
            )
        graph = latent.affinity(params, data, generator=generator)
        groups = latent.group(graph, n_classes, generator=generator)
        params = latent.start_classes(params, groups, prior, self.smoothing)
        if status == "interrupted" or n_classes == 1:
            return params, history, status
        # No row has a label; one row of zeros stands for all of them.
        none = data.x.new_zeros(1, n_classes + 1).expand(data.n_rows, -1)
        rows = Data(data.x, none, data.sample_weight)
        solver: SGD
        if self.solver == "sgd":
            solver, passes = self._sgd(rows), self.max_epochs or _SGD_PASSES
        else:
            size = min(max(data.n_rows // 20, _CLASS_ROWS), data.n_rows)
            solver = latent.ClassWeightSGD(_CLASS_RATE, _CLASS_MOMENTUM, size)
            passes = self.max_epochs or math.ceil(_CLASS_STEPS * size / data.n_rows)
        rule = objectives.Unsupervised(self.smoothing)
        result = train(
            params, rows, solver, rule=rule, max_epochs=passes,
            phase=history[-1].phase + 1 if history else 1,
            **self._common(generator, ".classes"),
        )  # fmt: skip
        weight = {"sample_weight": rows.sample_weight}
        losses = [
            kernel.evaluate(p, rows.x, rows.targets, rule, **weight)
            for p in (params, result.params)
        ]
        best = result.params if losses[1] <= losses[0] else params  # never worse than the start
        return best, (*history, *result.history), result.status

    def _sgd(self, data: Data) -> SGD:
        return sgd(
            data.n_rows, self.batch_size, self.learning_rate, self.momentum,
            learn_beta=self.beta == "learn",
        )  # fmt: skip

    def _common(self, generator: torch.Generator, suffix: str) -> dict[str, Any]:
        """What both trainings share."""
        path = None if self.checkpoint is None else Path(self.checkpoint)
        return {
            "tol": self.tol,
            "generator": generator,
            "callbacks": onlookers(self.callbacks, self.verbose),
            "checkpoint": None if path is None else path.with_name(path.name + suffix),
        }

    def predict_proba(self, X: ArrayLike) -> Floats:
        """P(class | x, the class is one of the C), (n, C)."""
        check_is_fitted(self, "params_")
        scores = kernel.log_joint(self.params_, self._on_sphere(X))[:, :-1]
        proba: Floats = scores.double().softmax(1).cpu().numpy()
        return proba

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The most probable latent class of each row, (n,)."""
        check_is_fitted(self, "params_")
        best = kernel.log_joint(self.params_, self._on_sphere(X))[:, :-1].argmax(1)
        labels: NDArray[np.int64] = best.cpu().numpy()
        return labels

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`, the log-density (ς = 1) or effective log-density of a row."""
        return float(self.score_samples(X).mean())

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion on X, the lower the better; needs varsigma=1."""
        scores = self._log_density(X)
        return -2 * float(scores.sum()) + self._n_parameters() * math.log(len(scores))

    def aic(self, X: ArrayLike) -> float:
        """Akaike information criterion on X, the lower the better; needs varsigma=1."""
        return -2 * float(self._log_density(X).sum()) + 2 * self._n_parameters()

    def _log_density(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "params_")
        if self.varsigma_ != 1.0:
            raise ValueError(
                f"bic and aic need a density that integrates to 1, but varsigma={self.varsigma_:g}:"
                " fit with varsigma=1"
            )
        return self.score_samples(X)

    def _n_parameters(self) -> int:
        """Free numbers of the density of the rows: directions of the memories, and β if learned.

        Class weights do not count: their sums over the classes are fixed, and only those enter.
        Centered rows, and so the memories, lie on a sphere of one dimension less.
        """
        directions = self.params_.n_features - 1 - (self.normalize_ == "center")
        return self.n_memories_ * directions + (self.beta == "learn")

    def at_level(self, level: int) -> Self:
        """The smaller model at the end of one level of growth, as a fitted clusterer.

        A memory's class weights are the sum of those of its descendants.
        """
        check_is_fitted(self, "params_")
        if self.lineage_ is None:
            raise ValueError("this model did not grow: fit with growth='split'")
        check_whole(level, "level")
        tree, early = self.lineage_, self.lineage_.at_level(level)
        place = torch.full((tree.n_nodes,), -1)
        place[tree.members[level]] = torch.arange(early.n_memories)
        p = self.params_.p.new_zeros(early.n_memories + 1, self.params_.n_columns)
        p[0] = self.params_.p[0]
        for leaf, weights in zip(tree.members[-1].tolist(), self.params_.p[1:], strict=True):
            node = leaf
            while place[node] < 0:
                node = int(tree.parent[node])
            p[1 + place[node]] += weights
        return self._with(early.replace(p=p, p_q=self.params_.p_q))


def _choose_normalization(X: Floats) -> str:
    """What normalize="auto" is for these rows."""
    kind = "unit" if X.min() < 0 else "center"
    spread = X.std(axis=0, dtype=np.float64)
    middle, wide = np.quantile(spread[spread > 0], [0.5, 0.9]) if spread.any() else (1.0, 1.0)
    if X.shape[1] < _TABLE_FEATURES or wide > _TABLE_SPREAD * middle:
        return "standard"
    return "standard" if Normalizer(kind).directions(X)[2].any() else kind
