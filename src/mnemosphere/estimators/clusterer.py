"""`DAMClusterer`: memories and latent classes from rows without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClusterMixin
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from mnemosphere.base.machine import threads
from mnemosphere.base.warnings import warn_user
from mnemosphere.estimators.base import COUNT, ROW_CONSTRAINTS, MemoryEstimator
from mnemosphere.estimators.cluster_training import train
from mnemosphere.estimators.inputs import learn_columns, read_inputs, work_on
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.settings import Settings
from mnemosphere.estimators.setup import sound
from mnemosphere.estimators.streaming import take_in
from mnemosphere.fitted.model import FittedModel, Floats, Record, as_numpy
from mnemosphere.geometry import KINDS
from mnemosphere.geometry.base import learn, on_sphere
from mnemosphere.interpret import score_samples
from mnemosphere.model import objectives
from mnemosphere.model.mixture import from_memories
from mnemosphere.model.one_pass import operands
from mnemosphere.rows.columns import MIN_FREQUENCY
from mnemosphere.training import latent
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current, process_group
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD

_EVEN, _ALONE = 0.5, 1.1  # clusters of equal size that the division is worth: per cluster, at least


@dataclass(eq=False, repr=False)
class DAMClusterer(ClusterMixin, MemoryEstimator):  # type: ignore[misc]
    """A clusterer: dense associative memory on the sphere, trained without labels.

    A mixture of von Mises–Fisher memories plus a uniform component. Memories carry soft labels of
    latent classes: a cluster is the part of the sphere of one memory, or of several together, which
    gives it any shape. Training has three steps. Memories start from spherical k-means and maximize
    the likelihood of the rows. If there are more memories than clusters, those that share rows are
    grouped. Then class weights descend Eq. (unsupervised_loss), which leaves as few rows as possible
    undecided.

    Parameters
    ----------
    n_clusters : int or "auto", default "auto"
        Number of latent classes. "auto": up to 512, the least one whose silhouette is within a standard error of
        the highest, for rows that are assigned to clusters of other rows. It is 1, with a warning, if the
        silhouette of a single cloud with the same mean and covariance is about as high.
    n_memories : int or "auto", default "auto"
        Number of memories. "auto": one per cluster if their number was found, else four, which allow any
        shape, but at most 100 together and one for five distinct rows, unless there are more clusters.
    growth : None or int, default None
        Number of memories to start with; those that are saddles are split. None: all from the start.
    varsigma : float in (0, 1], default 1.0
        The regularizer ς; 1 is the plain likelihood, which `bic` and `aic` need.
    beta : "learn" or float, default "learn"
        Inverse temperature; a number is held fixed.
    smoothing : float in [0, 1), default 0.1
        ε of Eq. (unsupervised_loss): how soft the labels of memories stay; 0: as sure as the rows make
        them.
    geometry : {"auto", "center", "unit", "standard", "circles", …}, default "auto"
        How rows are put on the sphere. "auto": the one whose clusters have the clearest silhouette;
        "standard" if features have unlike units (one with more than 75% of the variance, or a tenth of
        them with standard deviations over 10 times the median).
    solver : {"fixed-point", "sgd"} or FixedPoint or SGD, default "fixed-point"
        "fixed-point": memories by the exact iteration, then class weights alone by SGD, which
        leaves the density of the rows as it is. "sgd": the paper's constrained SGD with momentum
        for the memories, then for all parameters together.
    max_iter : int or None, default None
        Passes over the data for the memories, and again for the classes. None: up to 50 exact or
        6 incremental fixed-point passes, then 60 steps of the class weights; 30 and 30 of SGD.
    uniform_weight : float, default 1.0
        Weight P_0 of the uniform component relative to a memory.
    precision : {"auto", "float64", "float32"}, default "auto"
        Precision of training. "auto": float64 up to 50,000 numbers, else float32, and
        bfloat16 operands on a GPU that supports them.
    device : str, default "auto"
        "cpu", "cuda", … "auto": the device of a tensor X, else a GPU if there is one and X has a million
        numbers.
    random_state : int or RandomState or None, default None
        Random seed; None: another one each time.
    callbacks : sequence of Callback, default ()
        Called on every pass: `Checkpoint(path)` stores the run and resumes it.
    encoder : None, "wordllama", a function, an object with encode or embed, or a dict, default None
        Turns a list of texts into vectors, if X holds texts. In a frame of several columns it applies to those
        whose texts average 5 words or more; {column: encoder} names the columns. None: X holds no texts.
    categories : sequence of str, default ()
        Columns of a frame to treat as categories whatever they hold, such as numeric codes.
    min_frequency : float in [0, 1), default 0.005
        Share of the rows that a level of a category needs to get a column of its own; other levels have none.
    verbose : int, default 0
        0: silent. 1: progress on standard error if a fit takes more than a second: stages of the search,
        then passes with the loss.

    Attributes
    ----------
    model_ : FittedModel
        The fitted model, which the other attributes are read from.
    labels_ : ndarray of int of shape (n,)
        Clusters of the training rows, 0 to n_clusters − 1.
    cluster_centers_ : ndarray of shape (C, N)
        Mean direction of each cluster's memories.
    n_clusters_ : int
        Number of clusters C.
    classes_ : ndarray of shape (C,)
        0 to n_clusters − 1.
    memory_labels_ : ndarray of int of shape (P,)
        Clusters of the memories; n_clusters is "none of them".
    memories_ : ndarray of shape (P, N)
        Unit vectors; with geometry="standard" and "circles" in the features' units.
    class_weights_ : ndarray of shape (P+1, C+1)
        Class weights p. Row 0 is the uniform component, the last column the class "none of them".
    memory_prior_ : ndarray of shape (P+1,)
        Weights of the memories, the row sums of `class_weights_`.
    class_prior_ : ndarray of shape (C+1,)
        Class frequencies; the probabilities of rows without direction.
    beta_ : float
        Inverse temperature.
    varsigma_ : float
        The regularizer ς.
    n_memories_ : int
        Number of memories P.
    geometry_ : str
        How rows are put on the sphere.
    novelty_threshold_ : float or None
        The novelty score that one held-out row in a hundred exceeds; None before `calibrate`.
    search_ : list of dicts
        Trials of the search; it prints as a table.
    typical_rows_ : ndarray of int of shape (P, 3)
        Numbers of the training rows most typical of each memory, −1 for none.
    support_ : ndarray of shape (P,)
        How many training rows each memory answers for: its summed shares in their votes.
    history_ : list of dicts
        One for each pass.
    n_iter_ : int
        Number of passes.
    converged_ : bool
        Whether training converged.
    status_ : str
        How training ended.
    lineage_ : Lineage or None
        The tree of splits.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns; only if X had names.

    Examples
    --------
    >>> import mnemosphere as mn
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = mn.DAMClusterer(3, geometry="unit", random_state=0).fit(X)
    >>> model.labels_.shape, model.cluster_centers_.shape
    ((150,), (3, 4))
    >>> [len(set(model.predict(X[k : k + 50]))) for k in (0, 50)]  # setosa, versicolor
    [1, 2]
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = ROW_CONSTRAINTS | {
        "n_clusters": [COUNT, StrOptions({"auto"})],
        "n_memories": [COUNT, StrOptions({"auto"})],
        "varsigma": [Interval(Real, 0, 1, closed="right")],
        "smoothing": [Interval(Real, 0, 1, closed="left")],
        "geometry": [StrOptions({"auto", *(k for k, g in KINDS.items() if not g.of.needs_labels)})],
        "solver": [StrOptions({"fixed-point", "sgd"}), FixedPoint, SGD],
        "uniform_weight": [Interval(Real, 0, None, closed="left")],
    }

    n_clusters: int | str = "auto"
    _: KW_ONLY
    n_memories: int | str = "auto"
    growth: int | None = None
    varsigma: float = 1.0
    beta: float | str = "learn"
    smoothing: float = 0.1
    geometry: str = "auto"
    solver: str | FixedPoint | SGD = "fixed-point"
    max_iter: int | None = None
    uniform_weight: float = 1.0
    precision: str = "auto"
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    callbacks: Sequence[Callback] = ()
    encoder: Any = None
    categories: Sequence[object] = ()
    min_frequency: float = MIN_FREQUENCY
    verbose: int = 0

    @property
    def labels_(self) -> NDArray[np.int64] | None:
        """Clusters of the training rows, (n,)."""
        return self.model_.labels

    @property
    def n_clusters_(self) -> int:
        """Number of clusters."""
        return len(self.model_.classes)

    @property
    def memory_labels_(self) -> NDArray[np.int64]:
        """The cluster of each memory, (P,)."""
        return as_numpy(latent.latent_class(self.model_.density))

    @property
    def cluster_centers_(self) -> Floats:
        """Σ_μ P(memory | cluster) w^μ, the direction of the rows that a cluster holds, (C, N)."""
        votes = self.model_.votes
        means = votes.p[1:, :-1].T @ votes.w  # (C, P) (P, N)
        norm = means.norm(dim=1, keepdim=True).clamp_min(torch.finfo(means.dtype).tiny)
        return as_numpy(self.model_.restore(means / norm))

    @classmethod
    def from_memories(cls, memories: Any, *, beta: float = 100.0, geometry: str = "unit") -> Self:
        """Store patterns as they are, each as a memory of the same weight; nothing is trained.

        Of unit patterns w, one step of `recall` takes a row x without missing values to the direction of
        Σ softmax(β⟨w, x⟩) w: a modern Hopfield network. `transform` returns the softmax.

        Parameters
        ----------
        memories : array-like or frame of shape (P, N)
            Patterns.
        beta : float, default 100.0
            Inverse temperature: a larger one tells more alike patterns apart.
        geometry : str, default "unit"
            How patterns are put on the sphere, as in the constructor, but "auto".

        Returns
        -------
        DAMClusterer
            A fitted estimator of a single cluster, without a uniform component.

        Examples
        --------
        >>> memory = mn.DAMClusterer.from_memories(np.eye(3), beta=20)
        >>> memory.recall([[0.9, 0.3, np.nan]]).round(1).tolist()
        [[0.9, 0.3, 0.0]]
        >>> memory.transform([[0.9, 0.3, 0.1]]).argmax(1).tolist()
        [0]
        """
        own = cls(1, beta=beta, geometry=geometry, uniform_weight=0.0)
        given = own.get_params(deep=False)
        validate_parameter_constraints(cls._parameter_constraints, given, cls.__name__)
        columns, rows = learn_columns(memories, given)
        rows.check_finite(columns.number_names)
        own.set_params(n_memories=rows.n_rows)
        placed = learn(geometry, rows, None, None)
        w, lost = on_sphere(rows, placed, torch.float64)
        if bool(lost.any()):
            raise ValueError(f"memory {int(lost.nonzero()[0])} is {placed.no_direction}: drop it")
        stored = from_memories(w, w.new_tensor([1.0, 0.0]), beta=beta, uniform_weight=0.0)
        own.model_ = FittedModel(
            "clusterer", stored, stored, placed, columns, np.arange(1), learns_beta=False,
            record=Record(own.get_params(deep=False)),
        )  # fmt: skip
        return own

    # Training.

    def fit(self, X: Any, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn memories and their latent classes from rows without labels.

        Parameters
        ----------
        X : array-like, sparse matrix, frame or tensor of shape (n, N), n texts, or Dataset
            Training rows. Texts need an `encoder`. A `Dataset` may be larger than memory.
        y : object, default None
            Not read; scikit-learn passes it.
        sample_weight : array-like of shape (n,), default None
            Weights of the rows; None: all 1.

        Returns
        -------
        DAMClusterer
            The estimator itself, with `model_`.

        Examples
        --------
        >>> fresh = mn.DAMClusterer(3, n_memories=3, geometry="standard", random_state=0)
        >>> fresh.fit(X_train).labels_.shape
        (118,)
        """
        self._validate_params()
        own = threads(work_on(X))
        with process_group(), operands(self.precision), own, Progress(self.verbose) as progress:
            settings = Settings.of(self.get_params(deep=False))
            inputs = read_inputs(settings, X, None, sample_weight, progress, labeled=False)
            self.model_ = train(inputs)
            labels = current().on_rank0(lambda: self.predict(X))
            self.model_ = self.model_.replace(labels=as_numpy(labels))
        _warn_degenerate(self.model_, self.n_clusters)
        return self

    def partial_fit(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Take one incremental fixed-point step from a batch, on a fresh or a fitted model.

        A fresh model is fitted to the first batch, which settles what is "auto", including the clusters,
        so it should look like the rest. From then on memories follow the stream and keep their clusters.
        `labels_` are those of the last batch.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows of the batch.
        y : object, default None
            Not read; scikit-learn passes it.
        sample_weight : array-like of shape (n,), default None
            Weights of the rows; None: all 1.

        Returns
        -------
        DAMClusterer
            The estimator itself.

        Examples
        --------
        >>> clusterer.partial_fit(X_test).labels_.shape
        (60,)
        """
        if "model_" not in self.__dict__:
            return self.fit(X, sample_weight=sample_weight)
        self._validate_params()
        with operands(self.precision), threads(work_on(X)):
            rows = self.model_.labeled(X, None, sample_weight)
            self.model_ = sound(take_in(self.model_, rows, objectives.marginal))
            self.model_ = self.model_.replace(labels=as_numpy(self.predict(X)))
        return self

    # Answers.

    def score_samples(self, X: ArrayLike) -> Floats:
        """Compute the log of the effective density of each row.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            With varsigma=1 the log-density on the sphere; `interpret.score_samples` says more.

        Examples
        --------
        >>> clusterer.score_samples(X_test).shape
        (60,)
        """
        return self._rowwise(X, score_samples)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Compute the mean of `score_samples`.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows.
        y : object, default None
            Not read; scikit-learn passes it.

        Returns
        -------
        float
            The larger, the better the model describes the rows.

        Examples
        --------
        >>> clusterer.score(X_test) > clusterer.score(-X_test)
        True
        """
        return float(as_numpy(self.score_samples(X)).mean())

    def bic(self, X: ArrayLike) -> float:
        """Compute the Bayesian information criterion; the lower, the better.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows.

        Returns
        -------
        float
            −2 log-likelihood + parameters · log n.

        Raises
        ------
        ValueError
            Unless varsigma is 1.

        Examples
        --------
        >>> clusterer.bic(X_train) > clusterer.aic(X_train)
        True
        """
        scores = self._log_density(X)
        return -2 * float(scores.sum()) + self._n_parameters() * math.log(len(scores))

    def aic(self, X: ArrayLike) -> float:
        """Compute the Akaike information criterion; the lower, the better.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows.

        Returns
        -------
        float
            −2 log-likelihood + 2 · parameters.

        Raises
        ------
        ValueError
            Unless varsigma is 1.

        Examples
        --------
        >>> clusterer.aic(X_train) < clusterer.bic(X_train)
        True
        """
        return -2 * float(self._log_density(X).sum()) + 2 * self._n_parameters()

    def _log_density(self, X: ArrayLike) -> Floats:
        varsigma = self.model_.density.varsigma
        if varsigma != 1.0:
            raise ValueError(
                f"bic and aic need a density that integrates to 1, but varsigma={varsigma:g}:"
                " fit with varsigma=1"
            )
        return as_numpy(self.score_samples(X))

    def _n_parameters(self) -> int:
        """Free numbers of the density of the rows: directions of the memories, and β if learned.

        Class weights do not count: their sums over the classes are fixed, and only those enter.
        Centered rows, and so the memories, lie on a sphere of one dimension less.
        """
        model = self.model_
        directions = model.votes.n_features - 1 - model.geometry.n_unused_directions
        return model.n_memories * directions + (self.beta == "learn")


def _warn_degenerate(model: FittedModel, wanted: int | str) -> None:
    """Warn if the clusters are no division of the rows worth the name."""
    n_clusters = len(model.classes)
    if wanted == "auto" and n_clusters == 1:
        warn_user(
            "all rows are in one cluster, since no division is clearer than that of a single cloud: "
            "pass n_clusters, or another geometry"
        )
    assert model.labels is not None
    share = np.bincount(model.labels, minlength=n_clusters) / len(model.labels)
    used = share[share > 0]
    # exp of the entropy: as many clusters of equal size would be as even a division.
    effective = math.exp(-float(used @ np.log(used)))
    empty = n_clusters - len(used)
    if empty or effective < max(_EVEN * n_clusters, _ALONE) <= n_clusters:
        told = f"{empty} of {n_clusters} clusters have no rows, and " if empty else ""
        warn_user(
            f"{told}one cluster has {share.max():.0%} of the rows: ask for another n_clusters "
            "or another geometry",
        )
