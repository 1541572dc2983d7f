"""`DAMClassifier`: the model as a scikit-learn citizen."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight

from mnemosphere.estimators import refinement, selection
from mnemosphere.estimators.base import as_numpy, check_callbacks, draw_seed, pick_device
from mnemosphere.estimators.inference import FittedModel
from mnemosphere.estimators.labels import Encoded, class_weights, encode
from mnemosphere.estimators.preparation import (
    NORMALIZATIONS,
    Floats,
    Normalizer,
    merge_duplicates,
)
from mnemosphere.estimators.solvers import fixed_point, onlookers, pick_dtype, sgd
from mnemosphere.model import kernel, objectives
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.training import semi_supervised
from mnemosphere.training.batches import Batch, Data, Solver
from mnemosphere.training.callbacks import Callback, Record
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.loop import train
from mnemosphere.training.sgd import SGD

_POSITIVE = Interval(Real, 0, None, closed="neither")
_COUNT = Interval(Integral, 1, None, closed="left")
_SGD_PASSES = 300
_STREAM_SHARE = 0.05  # what one partial_fit call counts, in passes of the running mean


class DAMClassifier(
    FittedModel,
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Dense associative memory on the sphere, a classifier with memories one can look at.

    A class-labelled mixture of von Mises–Fisher distributions plus a uniform component: each
    memory is a unit vector with a soft label, a row is classified by the memories it resembles.

    Parameters
    ----------
    n_memories : int or "auto"
        "auto": a fifth of the distinct rows, at least two a class, at most 1000.
    solver : {"fixed-point", "sgd"}
        The exact fixed-point iteration, or the paper's constrained SGD with momentum.
    growth : None or "split"
        "split" starts from `n_initial` memories and splits those that are saddles.
    n_initial : int
        Memories to grow from; used with growth="split" only.
    varsigma : float in (0, 1] or "auto"
        The regulariser ς; 1 is the plain likelihood. "auto" chooses it by held-out log-loss.
    beta : "learn" or float
        Inverse temperature; a number is held fixed.
    objective : {"joint", "conditional"} or float in [0, 1]
        The joint likelihood, or with a weight on its conditional part. The fixed-point solver
        treats any conditional part as a refinement, by Adam on the sphere, that starts from the
        joint solution; `validation_fraction` of the rows takes no part in either and judges it.
    input_noise : float >= 0 or "auto"
        Of the refinement: the length, relative to the row, of the noise that is laid anew on every
        row in every pass; a noisy row has the overlap 1/√(1+input_noise²) with its own. 0: none.
        "auto": √N/(ςβ) of the joint solution, at most 1.
    label_smoothing : float in [0, 1)
        ε of the soft labels (1−ε)·onehot + ε/(C+1).
    normalize : {"auto", "center", "unit", "standard", "none"}
        How rows are put on the sphere; "auto" chooses by held-out log-loss.
    max_epochs : int or None
        Passes over the data; None: 6 incremental or up to 50 exact fixed-point passes, up to
        300 of SGD. The refinement takes as many again; None: 15, more on small data.
    tol : float
        Stop when a pass changes the loss by less than this, relative; 0 to switch off.
    batch_size : int, None or "auto"
        Rows a step. None: all of them, exact steps whose loss never increases (fixed point).
        "auto": a twentieth of the rows from 2000 rows on, else all; 1000 for SGD.
    learning_rate, momentum : float
        Of SGD, heavy ball in the usual convention; the defaults are the paper's.
    validation_fraction : float in (0, 1)
        Rows held out for early stopping of SGD and of the refinement.
    patience : int
        Passes without improvement on them before stopping; the refinement, whose steps get
        smaller, waits for a third of its passes at least.
    uniform_weight : float
        Weight P_0 of the uniform component relative to a memory.
    unlabeled : object or None
        The value of y that marks a row without label; NaN stands for NaN and None. None: every
        row is labelled.
    class_weight : dict, "balanced" or None
        Weights of the classes.
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
    classes_ : the labels, sorted
    memories_ : (P, n_features) unit vectors; with normalize="standard" in the features' units
    class_weights_ : (P+1, C+1) class weights p; row 0 is the uniform component, the last column
        the class "none of them"
    memory_prior_, class_prior_ : their row and column sums
    beta_, varsigma_, n_memories_, normalize_ : what was learned or chosen
    temperature_, novelty_threshold_ : 1 and None, or what `calibrate` and `calibrate_novelty` set
    selection_ : the trials behind an automatic choice, a list of dicts
    history_ : one dict a pass
    lineage_ : the tree of splits, or None
    status_ : how training ended

    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 (scikit-learn's protocol)
        "n_memories": [_COUNT, StrOptions({"auto"})],
        "solver": [StrOptions({"fixed-point", "sgd"})],
        "growth": [None, StrOptions({"split"})],
        "n_initial": [_COUNT],
        "varsigma": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})],
        "beta": [_POSITIVE, StrOptions({"learn"})],
        "objective": [Interval(Real, 0, 1, closed="both"), StrOptions({"joint", "conditional"})],
        "input_noise": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "label_smoothing": [Interval(Real, 0, 1, closed="left")],
        "normalize": [StrOptions({"auto", *NORMALIZATIONS})],
        "max_epochs": [_COUNT, None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "batch_size": [_COUNT, StrOptions({"auto"}), None],
        "learning_rate": [_POSITIVE],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "patience": [_COUNT],
        "uniform_weight": [Interval(Real, 0, None, closed="left")],
        "unlabeled": "no_validation",
        "class_weight": [StrOptions({"balanced"}), dict, None],
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
        *,
        solver: str = "fixed-point",
        growth: str | None = None,
        n_initial: int = 16,
        varsigma: float | str = "auto",
        beta: float | str = "learn",
        objective: float | str = "joint",
        input_noise: float | str = "auto",
        label_smoothing: float = 0.1,
        normalize: str = "auto",
        max_epochs: int | None = None,
        tol: float = 1e-4,
        batch_size: int | str | None = "auto",
        learning_rate: float = 0.01,
        momentum: float = 0.99,
        validation_fraction: float = 0.1,
        patience: int = 3,
        uniform_weight: float = 1.0,
        unlabeled: object = None,
        class_weight: dict[Any, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        dtype: str = "auto",
        checkpoint: str | PathLike[str] | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
    ) -> None:
        self.n_memories = n_memories
        self.solver = solver
        self.growth = growth
        self.n_initial = n_initial
        self.varsigma = varsigma
        self.beta = beta
        self.objective = objective
        self.input_noise = input_noise
        self.label_smoothing = label_smoothing
        self.normalize = normalize
        self.max_epochs = max_epochs
        self.tol = tol
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.uniform_weight = uniform_weight
        self.unlabeled = unlabeled
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn memories and their soft labels.

        X (n, N); y (n,) labels of any type, or an (n, C) matrix of soft labels with row sums at
        most 1; sample_weight (n,) or None.
        """
        self._validate_params()
        check_callbacks(self.callbacks)
        X, y = self._validate_rows(X, reset=True), as_numpy(y)
        coded = self._encode(X, y, None)
        weight = self._weights(X, coded.index, sample_weight)
        seed = draw_seed(self.random_state)
        prepared = self._choose(X, coded.targets, weight, seed)
        self.__dict__.pop("_stream", None)
        self._seen = _label_mass(prepared).cpu()
        self._train(prepared, torch.Generator().manual_seed(seed))
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """One incremental fixed-point step from a batch, on a fresh or a fitted model.

        On a fresh model the first call needs `classes`, and its batch settles what is "auto", the
        normalization and the first memories, so it should look like the rest. The objective is
        the joint likelihood.
        """
        self._validate_params()
        first = not hasattr(self, "params_")
        X, y = self._validate_rows(X, reset=first), as_numpy(y)
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all rows at once: pass a dict to partial_fit"
            )
        known = None if classes is None else np.unique(as_numpy(classes))
        if not first and known is not None and not np.array_equal(known, self.classes_):
            raise ValueError(
                f"classes {known.tolist()} differ from the model's {self.classes_.tolist()}"
            )
        coded = self._encode(X, y, known if first else self.classes_)
        weight = self._weights(X, coded.index, sample_weight)
        if first:
            seed = draw_seed(self.random_state)
            data = self._choose(X, coded.targets, weight, seed)
            self.params_ = self._initial(data, torch.Generator().manual_seed(seed))
            self._seen = torch.zeros(coded.targets.shape[1], dtype=torch.float64)
            self.history_: list[dict[str, Any]] = []
            self.lineage_, self.status_ = None, "streaming"
        else:
            data = self._tensors(self._normalizer(X), coded.targets, weight)
        self._seen = self._seen + _label_mass(data).cpu()
        # A class not seen yet keeps a sliver, so that it can still be learned.
        p_q = self._seen + 1e-6 * self._seen.sum()
        params = self.params_.replace(p_q=(p_q / p_q.sum()).to(self.params_.p))
        solver = FixedPoint(batch_size=X.shape[0], learn_beta=self.beta == "learn")
        if not hasattr(self, "_stream"):
            self._stream = solver.start(params) if first else solver.resume(params)
        stats = kernel.accumulate(
            params, data.x, data.targets, objectives.joint, sample_weight=data.sample_weight
        )
        batch = Batch(data.x, data.targets, data.sample_weight, _STREAM_SHARE)
        params, self._stream = solver.step(params, self._stream, stats, batch)
        self._keep(params)
        return self

    def _encode(self, X: Floats, y: Any, classes: NDArray[Any] | None) -> Encoded:
        """The labels as indices and weights; sets classes_."""
        coded = encode(
            y, X.shape[0], classes, unlabeled=self.unlabeled, smoothing=self.label_smoothing,
            some=not hasattr(self, "params_"),
        )  # fmt: skip
        self.classes_ = coded.classes
        return coded

    def _weights(
        self, X: Floats, index: NDArray[np.intp], sample_weight: ArrayLike | None
    ) -> Floats | None:
        """Sample weight times class weight; None where all are 1."""
        if sample_weight is None and self.class_weight is None:
            return None
        weight: Floats = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        if self.class_weight is not None:
            each = class_weights(self.class_weight, self.classes_, index, weight)
            weight = np.where(index >= 0, weight * each[index], weight)
        if not weight.sum() > 0:
            raise ValueError("all weights are zero: give some rows a sample_weight above 0")
        return weight

    def _choose(
        self,
        X: Floats,
        targets: Floats,
        weight: Floats | None,
        seed: int,
    ) -> Data:
        """Settle everything that is "auto"; return the data on the sphere."""
        X, labels, weight, number = merge_duplicates(X, targets, weight)
        if self.normalize != "auto":  # first of all: here the rows still have their numbers
            self._normalizer = Normalizer.fit(self.normalize, X, weight)
            z = self._normalizer(X, number)
        labelled = labels.sum(axis=1) > 0
        index = np.where(labelled, labels[:, :-1].argmax(axis=1), -1)
        n_memories = self.n_memories
        if n_memories == "auto":
            n_memories = selection.choose_n_memories(X.shape[0], self.classes_.shape[0])
        self._device = pick_device(self.device)
        self._dtype = pick_dtype(self.dtype, X.size)
        choice = selection.choose(
            X,
            labels,
            index,
            weight,
            normalize=self.normalize,
            varsigma=None if self.varsigma == "auto" else float(self.varsigma),
            beta=None if self.beta == "learn" else float(self.beta),
            n_memories=int(n_memories),
            uniform_weight=self.uniform_weight,
            seed=seed,
            dtype=self._dtype,
            device=self._device,
        )
        self.n_memories_ = int(n_memories)
        self.varsigma_ = choice.varsigma
        self.normalize_ = choice.normalize
        self.selection_ = list(choice.trials)
        if self.normalize == "auto":
            self._normalizer = Normalizer.fit(choice.normalize, X, weight)
            z = self._normalizer(X)
        return self._tensors(z, labels, weight)

    def _initial(self, data: Data, generator: torch.Generator) -> Parameters:
        grows = self.growth == "split"
        n_memories = min(self.n_initial, self.n_memories_) if grows else self.n_memories_
        # Splitting leaves p_h(0) alone: P_0 is scaled so that it is right at the final width.
        scale = n_memories / self.n_memories_ if grows else 1.0
        return selection.initial_parameters(
            data.x,
            data.targets,
            data.sample_weight,
            n_memories=n_memories,
            varsigma=self.varsigma_,
            beta=None if self.beta == "learn" else float(self.beta),
            uniform_weight=self.uniform_weight * scale,
            generator=generator,
        )

    def _train(self, data: Data, generator: torch.Generator) -> None:
        """The solution by the chosen solver, or the conditional refinement of the joint one."""
        rule = self._rule()
        callbacks = onlookers(self.callbacks, self.verbose)
        path = None if self.checkpoint is None else Path(self.checkpoint)
        if self.solver == "sgd" or rule == objectives.joint:
            outcome = self._solve(data, path, generator, callbacks)
        else:
            seed = generator.initial_seed()
            outcome = refinement.refine(
                # Each joint solution from the same seed, as if it were the only one.
                lambda rows, file: self._solve(
                    rows, file, torch.Generator().manual_seed(seed), callbacks
                ),
                data,
                rule,
                refinement.Settings(
                    passes=self.max_epochs,
                    patience=self.patience,
                    noise=None if self.input_noise == "auto" else float(self.input_noise),
                    learn_beta=self.beta == "learn",
                    validation_fraction=self.validation_fraction,
                    generator=generator,
                    callbacks=callbacks,
                    checkpoint=path,
                ),
            )
        self.history_ = [record.as_dict() for record in outcome.history]
        self.status_, self.lineage_ = outcome.status, outcome.lineage
        self._keep(outcome.params)

    def _solve(
        self,
        data: Data,
        checkpoint: Path | None,
        generator: torch.Generator,
        callbacks: Sequence[Callback],
    ) -> refinement.Outcome:
        """The joint solution by the fixed point, or that of the objective by SGD."""
        learn_beta = self.beta == "learn"
        solver: Solver
        rule: LabelRule = objectives.joint
        validation = None
        if self.solver == "sgd":
            rule = self._rule()
            solver = sgd(
                data.n_rows, self.batch_size, self.learning_rate, self.momentum,
                learn_beta=learn_beta,
                # On a GPU the paper's plain sweeps: they ask for nothing, so steps are replayed.
                tolerance=None if data.x.is_cuda else SGD.tolerance,
            )  # fmt: skip
            passes = self.max_epochs or _SGD_PASSES
            data, validation = _hold_out(data, self.validation_fraction, generator)
        else:
            solver, passes = fixed_point(
                data.n_rows, self.batch_size, self.max_epochs, learn_beta=learn_beta
            )
        common: dict[str, Any] = {
            "rule": rule,
            "tol": self.tol,
            "validation": validation,
            "patience": None if validation is None else self.patience,
            "generator": generator,
            "callbacks": callbacks,
            "checkpoint": checkpoint,
        }
        params = self._initial(data, generator)
        early: tuple[Record, ...] = ()
        if semi_supervised.applies(data):
            begun = semi_supervised.start(
                params, data, batch_size=selection.default_batch_size(data.n_rows),
                learn_beta=learn_beta, generator=generator, callbacks=callbacks,
            )  # fmt: skip
            params, early = begun.params, begun.history
            if begun.status == "interrupted":
                return refinement.Outcome(params, early, begun.status, None)
        if self.growth == "split":
            grown = grow(
                params, data, solver, max_memories=self.n_memories_,
                max_epochs=2 if self.solver == "fixed-point" else 100, final_epochs=passes,
                **common,
            )  # fmt: skip
            history = (*early, *grown.history)
            return refinement.Outcome(grown.params, history, grown.status, grown.lineage)
        result = train(params, data, solver, max_epochs=passes, **common)
        return refinement.Outcome(result.params, (*early, *result.history), result.status, None)

    def _rule(self) -> LabelRule:
        names = {"joint": 0.0, "conditional": 1.0}
        weight = names[self.objective] if isinstance(self.objective, str) else self.objective
        return objectives.Blend(float(weight))


def _hold_out(data: Data, fraction: float, generator: torch.Generator) -> tuple[Data, Data | None]:
    """Random rows apart for early stopping; none where there are too few to tell anything."""
    n_held = round(fraction * data.n_rows)
    if n_held < 20:
        return data, None
    order = torch.randperm(data.n_rows, generator=generator).to(data.x.device)
    return data.take(order[n_held:]), data.take(order[:n_held])


def _label_mass(data: Data) -> torch.Tensor:
    """Σ of label weights by class."""
    q = data.targets.double()
    return (q if data.sample_weight is None else q * data.sample_weight.double()[:, None]).sum(0)
