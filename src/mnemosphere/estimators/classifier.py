"""`DAMClassifier`: the model as a scikit-learn citizen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import NORMALIZATIONS
from mnemosphere.data.rows import StoredRows, merge_copies
from mnemosphere.estimators import class_training
from mnemosphere.estimators.base import SOLVERS, draw_seed
from mnemosphere.estimators.class_model import ClassModel
from mnemosphere.estimators.class_training import ClassSettings
from mnemosphere.estimators.persistence import register
from mnemosphere.estimators.search import MAX_MEMORIES
from mnemosphere.estimators.start import start_joint, start_memories
from mnemosphere.estimators.streaming import forget_stream, known_classes, take_in_labeled
from mnemosphere.model import objectives
from mnemosphere.model.sparse_rows import inference
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD

_POSITIVE = Interval(Real, 0, None, closed="neither")
_COUNT = Interval(Integral, 1, None, closed="left")


@register
class DAMClassifier(
    ClassModel,
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
        "objective": [StrOptions({"auto", "joint", "conditional"})],
        "growth": [None, _COUNT],
        "varsigma": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})],
        "beta": [_POSITIVE, StrOptions({"learn"})],
        "normalize": [StrOptions({"auto", *NORMALIZATIONS})],
        "solver": [StrOptions({"auto", "fixed-point", "sgd", "adam"}), FixedPoint, SGD, Adam],
        "search": [StrOptions({"auto"}), _COUNT, None],
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
        objective: str = "auto",
        growth: int | None = None,
        varsigma: float | str = "auto",
        beta: float | str = "learn",
        normalize: str = "auto",
        solver: str | FixedPoint | SGD | Adam = "auto",
        search: int | str | None = "auto",
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
        self.search = search
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
        trained, choice = class_training.train(
            self._choice, dataset, self._class_settings, seed=seed, callbacks=callbacks
        )
        self.search_ = self.selection_ = choice.trials
        self.n_memories_, self.varsigma_ = trained.params.n_memories, trained.params.varsigma
        self.objective_ = choice.candidate.objective
        self._set_trained(trained)
        self._net_class_weights, self.temperature_ = trained.class_weights, trained.temperature
        self._look_at_rows(stored, weight, dataset.n_rows)
        return self

    @property
    def _class_settings(self) -> ClassSettings:
        def known(value: Any, auto: str = "auto") -> Any:
            return None if value == auto else value

        solver = SOLVERS.get(self.solver) if isinstance(self.solver, str) else self.solver
        return ClassSettings(
            known(self.n_memories), self.objective, self.growth, known(self.varsigma),
            known(self.beta, "learn"), self.normalize, solver, self.max_iter, self.tol,
            self._smoothing, known(self.uniform_weight), self.search,
        )  # fmt: skip

    @property
    def _rule(self) -> Any:
        return objectives.conditional if self.objective_ == "conditional" else objectives.joint

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
            settings = replace(self._class_settings, objective="joint")
            dataset = self._resolve_auto(stored, coded.targets, weight, seed, settings)
            candidate, rows = self._choice.candidate, dataset.rows
            w, labels = start_memories(
                rows, candidate.n_memories, own_labels=True,
                generator=torch.Generator().manual_seed(seed),
            )  # fmt: skip
            self.params_ = start_joint(
                w, labels, rows, varsigma=settings.varsigma, sharing=candidate.sharing or 1.0,
                beta=settings.beta, uniform_weight=settings.uniform_weight, learned_weights=False,
            )  # fmt: skip
            self.objective_, self.search_ = "joint", self._choice.trials
            self.selection_ = self.search_
        else:
            dataset = self._judged(X, coded.targets, weight)
        take_in_labeled(self, dataset, before, first=first, rehearses=rehearse)
        return self

    def _resolve_auto(
        self, stored: StoredRows, targets: Tensor, weight: Tensor | None, seed: int,
        settings: ClassSettings | None = None,
    ) -> ArrayDataset:  # fmt: skip
        """Settle everything that is "auto"; return the rows on the sphere."""
        settings = self._class_settings if settings is None else settings
        given = stored, weight
        stored, targets, weight = merge_copies(stored, targets, weight)
        self.n_memories_ = settings.n_memories or min(stored.n_rows, MAX_MEMORIES)
        # A pass has two products with the features and three with the classes.
        numbers = stored.n_numbers + 3 * targets.numel() // 2
        dtype = self._precision(max(numbers, stored.n_rows * min(self.n_memories_, 200)))
        self._check_room(stored, targets.shape[1], dtype)
        choose = partial(
            class_training.choose, stored, targets, weight, settings, seed=seed, dtype=dtype
        )
        with inference(type(stored.values)):
            self._choice = current().once(choose)
        candidate = self._choice.candidate
        self.normalize_, self.n_memories_ = candidate.normalize, candidate.n_memories
        if stored.n_features < 2 and candidate.normalize in ("center", "unit", "none"):
            raise ValueError(
                f"X has {stored.n_features} feature(s) after normalize={candidate.normalize!r}, "
                "the sphere needs 2: use normalize='standard'"
            )
        labeled = targets.sum(1) > 0
        if not candidate.unlabeled and not bool(labeled.all()):
            kept = labeled.nonzero()[:, 0]
            stored, targets = stored.take(kept), targets[kept]
            weight = None if weight is None else weight[kept]
        self._normalizer, rows, lost = class_training.place(
            candidate, stored, targets, weight, dtype
        )
        self._check_some_left(lost)
        if bool(lost.any()):
            self._warn_set_aside(*given)
            rows = rows.take(~lost)
        return ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)
