"""`DAMClassifier`: the model as a scikit-learn citizen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, is_dense_array
from mnemosphere.data.normalize import NORMALIZATIONS
from mnemosphere.data.rows import StoredRows, merge_copies
from mnemosphere.estimators import selection
from mnemosphere.estimators.base import draw_seed
from mnemosphere.estimators.class_training import ClassTraining
from mnemosphere.estimators.persistence import register
from mnemosphere.estimators.streaming import forget_stream, known_classes, take_in_labeled
from mnemosphere.model import metric
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import net_class_weights, sharpen
from mnemosphere.model.sparse_rows import inference
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.refinement import Refinement
from mnemosphere.training.sgd import SGD

_POSITIVE = Interval(Real, 0, None, closed="neither")
_COUNT = Interval(Integral, 1, None, closed="left")


@register
class DAMClassifier(
    ClassTraining,
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Dense associative memory on the sphere, a classifier with memories one can look at.

    A class-labeled mixture of von Mises–Fisher distributions plus a uniform component: each
    memory is a unit vector with a soft label, a row is classified by the memories it resembles.

    Parameters
    ----------
    n_memories : int or "auto"
        "auto": a fifth of the distinct rows, at least two per class, at most 1000; √(40·rows), or
        20 per class, from 1000 to 10,000 rows where the refinement is quick. Or, where held-out
        rows prefer it, two per class, or one for two rows, at most 1000.
    objective : {"auto", "joint", "conditional"}, float in [0, 1] or Refinement
        The joint likelihood, or with a weight on its conditional part. The fixed-point solver
        treats any conditional part as a refinement, by Adam on the sphere, that starts from the
        joint solution and is judged by rows held out; `Refinement` has its settings. It also
        learns a metric where rows have at most 150 coordinates and are five times as many.
        "auto": "conditional" up to 10,000 rows and 300 million of rows × memories × (features +
        classes) (10 million with fewer than 2.5 rows per memory), and for texts, of fewer than 40
        classes, where memories are not grown and half of the rows or more have labels, the others
        being left out; else "joint".
    growth : None or int
        Memories to grow from, by splitting those that are saddles. None: all from the start.
    varsigma : float in (0, 1] or "auto"
        The regularizer ς; 1 is the plain likelihood. "auto" chooses it by held-out log-loss.
    beta : "learn" or float
        Inverse temperature; a number is held fixed.
    normalize : {"auto", "center", "unit", "standard", "whitened", "weighted", "none"}
        How rows are put on the sphere; "auto" chooses by held-out log-loss.
    solver : {"fixed-point", "sgd"}, FixedPoint or SGD
        The exact fixed-point iteration, or the paper's constrained SGD with momentum; the objects
        hold batch size, learning rate and the like.
    max_iter : int or None
        Passes over the data; None: 6 incremental or up to 50 exact fixed-point passes (15 beside a
        refinement, or from 2000 rows on), up to 300 of SGD.
    tol : float
        Stop when a pass changes the loss by less than this, relative; 0 to switch off.
    label_smoothing : float in [0, 1)
        ε of the soft labels (1−ε)·onehot + ε/(C+1).
    uniform_weight : float or "auto"
        Weight P_0 of the uniform component relative to a memory. "auto": 1, as in the paper, but
        at most a hundredth of all weight, so less with fewer than 99 memories.
    unlabeled : object or None
        The value of y that marks a row without label; NaN stands for NaN and None. None: every
        row is labeled.
    class_weight : dict, "balanced" or None
        Weights of the classes.
    precision : {"auto", "float64", "float32", "bfloat16"}
        "auto": float64 up to 50,000 numbers in X and y and as many pairs of a row and a memory,
        where it costs little, else float32, and bfloat16 operands on a GPU that has units for
        them. "bfloat16": the large products of training take operands rounded to it, sums and all
        else are float32; a processor with AMX is faster by that too, others only round.
        Predictions are not touched.
    device : str
        "auto" (where a tensor X lies, else a GPU where there is one), "cpu", "cuda", …
    random_state : int, RandomState or None
    callbacks : sequence of Callback
        Told about every pass; `Checkpoint(path)` among them stores the run and resumes it.
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : the labels, sorted
    memories_ : (P, n_features) unit vectors; with normalize="standard" in the features' units
    class_weights_ : (P+1, C+1) class weights p; row 0 is the uniform component, the last column
        the class "none of them"
    memory_prior_, class_prior_ : their row and column sums
    beta_, varsigma_, n_memories_, normalize_ : what was learned or chosen
    temperature_ : of class probabilities, found on rows left out; `calibrate` sets another
    novelty_threshold_ : None, or what `calibrate_novelty` set
    selection_ : the trials behind an automatic choice, a list of dicts
    typical_rows_ : (P, 3) numbers of the training rows most typical of each memory, −1 for none
    support_ : (P,) how many training rows each memory answers for
    history_ : one dict per pass
    n_iter_, converged_, status_ : how training ended
    lineage_ : the tree of splits, or None

    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 (scikit-learn's protocol)
        "n_memories": [_COUNT, StrOptions({"auto"})],
        "objective": [
            Interval(Real, 0, 1, closed="both"),
            StrOptions({"auto", "joint", "conditional"}),
            Refinement,
        ],
        "growth": [None, _COUNT],
        "varsigma": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})],
        "beta": [_POSITIVE, StrOptions({"learn"})],
        "normalize": [StrOptions({"auto", *NORMALIZATIONS})],
        "solver": [StrOptions({"fixed-point", "sgd"}), FixedPoint, SGD],
        "max_iter": [_COUNT, None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "label_smoothing": [Interval(Real, 0, 1, closed="left")],
        "uniform_weight": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "unlabeled": "no_validation",
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "precision": [StrOptions({"auto", "float64", "float32", "bfloat16"})],
        "device": [str],
        "random_state": ["random_state"],
        "callbacks": "no_validation",
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_memories: int | str = "auto",
        *,
        objective: float | str | Refinement = "auto",
        growth: int | None = None,
        varsigma: float | str = "auto",
        beta: float | str = "learn",
        normalize: str = "auto",
        solver: str | FixedPoint | SGD = "fixed-point",
        max_iter: int | None = None,
        tol: float = 1e-4,
        label_smoothing: float = 0.1,
        uniform_weight: float | str = "auto",
        unlabeled: object = None,
        class_weight: dict[Any, float] | str | None = None,
        precision: str = "auto",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
    ) -> None:
        self.n_memories = n_memories
        self.objective = objective
        self.growth = growth
        self.varsigma = varsigma
        self.beta = beta
        self.normalize = normalize
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.label_smoothing = label_smoothing
        self.uniform_weight = uniform_weight
        self.unlabeled = unlabeled
        self.class_weight = class_weight
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    # Training.

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn memories and their soft labels.

        X (n, N) an array, a frame or a tensor on any device; y (n,) labels of any type, or an
        (n, C) matrix of soft labels with row sums at most 1; sample_weight (n,) or None. Or X a
        `Dataset`, which has labels and weights of its own and may be larger than memory.
        """
        self._validate_params()
        stored, weight, dataset, seed, callbacks = self._learn_from(X, y, sample_weight)
        forget_stream(self)
        self._label_mass = dataset.label_mass().cpu()
        trained = self._train(dataset, seed, callbacks)
        if trained.params.metric is not None:
            self._normalizer = self._normalizer.with_metric(trained.params.metric)
            trained = trained._replace(params=trained.params.replace(metric=None))
        self._set_trained(trained)
        counts = trained.label_counts
        self._net_class_weights = net_class_weights(trained.params, self.label_smoothing, counts)
        self._look_at_rows(stored, weight, dataset.n_rows)
        if trained.status != "interrupted":
            with torch.inference_mode(is_dense_array(dataset)):
                found = current().same(self._find_reading(dataset, trained, seed))
            self.temperature_ = found.temperature
            self._net_class_weights = sharpen(self._net_class_weights, found.power)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        rehearse: bool = False,
    ) -> Self:
        """One incremental fixed-point step from a batch, on a fresh or a fitted model.

        On a fresh model the first batch settles what is "auto", the normalization and the first
        memories, so it should look like the rest. The objective is the joint likelihood. A class
        that appears later is learned: it gets memories of others. rehearse: classes that stop
        coming are not forgotten; the model draws rows of theirs itself. How soon the past fades
        is `solver=FixedPoint(half_life=rows)`.
        """
        self._validate_params()
        first = not hasattr(self, "params_")
        stored = self._stored(X, reset=first, gaps=True)
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all rows at once: pass a dict to partial_fit"
            )
        known = known_classes(self, y, classes, first=first)
        before = [] if first else self.classes_.tolist()
        coded = self._encode(y, stored, known, require_label=first)
        weight = self._weights(coded, sample_weight, stored)
        if first:
            seed = draw_seed(self.random_state)
            dataset = self._resolve_auto(stored, coded.targets, weight, seed)
            self.params_ = self._start()(
                dataset, self.varsigma_, torch.Generator().manual_seed(seed)
            )
        else:
            dataset = self._judged(X, coded.targets, weight)
        take_in_labeled(self, dataset, before, first=first, rehearses=rehearse)
        return self

    def _resolve_auto(
        self, stored: StoredRows, targets: Tensor, weight: Tensor | None, seed: int
    ) -> ArrayDataset:
        """Settle everything that is "auto"; return the rows on the sphere."""
        given = stored, weight
        stored, targets, weight = merge_copies(stored, targets, weight)
        n_memories = self.n_memories
        if n_memories == "auto":
            n_memories = selection.choose_n_memories(
                stored.n_rows, self.classes_.shape[0], stored.n_features
            )
        self.n_memories_ = int(n_memories)
        # A pass has two products with the features and three with the classes.
        numbers = stored.n_numbers + 3 * targets.numel() // 2
        dtype = self._precision(max(numbers, stored.n_rows * self.n_memories_))
        self._check_room(stored, targets.shape[1], dtype)
        labeled = bool((targets.sum(1) > 0).all())
        self._learned_weights = labeled and self._learns_weights(stored)
        # Rows that weigh more have no more memories: held to weights, their classes would not fit.
        own = self._takes_own_labels(stored) and given[1] is None
        self._own_labels = self._learned_weights or (labeled and own)
        choose = partial(
            selection.choose,
            stored,
            targets,
            weight,
            self._start(grows=False),
            normalize=self.normalize,
            varsigma=None if self.varsigma == "auto" else float(self.varsigma),
            n_memories=None if self.n_memories == "auto" else self.n_memories_,
            seed=seed,
            dtype=dtype,
        )
        with inference(type(stored.values)):
            choice = current().once(choose)
        self.varsigma_, self.n_memories_ = choice.varsigma, choice.n_memories
        self.selection_ = list(choice.trials)
        x, lost = self._training_rows(stored, choice.normalize, weight, dtype)
        rows = Batch(x, targets.to(dtype), None if weight is None else weight.to(dtype))
        if bool(lost.any()):
            self._warn_set_aside(*given)
            rows = rows.take(~lost)
        if choice.shrinkage is not None:
            a = metric.start(rows, choice.shrinkage, weighted=choice.normalize == "weighted")
            self._normalizer, rows = self._normalizer.with_metric(a), metric.apply(a, rows)
        return ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)
