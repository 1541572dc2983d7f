"""What every estimator shares: rows in, unit rows on the device, answers out."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.prepare import on_sphere, unit_chunks
from mnemosphere.data.rows import StoredRows
from mnemosphere.data.source import Dataset
from mnemosphere.estimators import persistence
from mnemosphere.estimators.class_training import Trained
from mnemosphere.estimators.from_files import ANSWERS, batch_by_batch
from mnemosphere.estimators.module import DAMModule
from mnemosphere.estimators.progress import ProgressBar, looking
from mnemosphere.estimators.rows_in import RowsIn
from mnemosphere.files import checksum
from mnemosphere.machine import check_memory
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.products import operands
from mnemosphere.model.workspace import reused
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current, together
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.sgd import SGD

Floats = NDArray[np.floating[Any]]

_ENDED = ("converged", "stopped early", "grown", "stable")
_STILL_FALLING = 0.03  # relative fall of the loss in the last pass that still matters
_NAMED = 5  # rows that a warning names
_COPIES = 5  # of memories and class weights that training holds at once: gradients, state, best
# Settings that may change when a run goes on: they change nothing, or only how long it takes.
_NO_MATTER = {"callbacks", "device", "max_iter", "verbose"}
SOLVERS: dict[str, FixedPoint | SGD | Adam] = {
    "fixed-point": FixedPoint(), "sgd": SGD(), "adam": Adam()
}  # fmt: skip
PASSES = {"exact": 50, "incremental": 6}  # of the fixed point where max_iter is None


# scikit-learn wraps `transform` for set_output only in classes that inherit from the mixin.
class SphereEstimator(RowsIn, ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """Rows on the sphere, fitted attributes, model files."""

    n_memories_: int
    memories_: Floats
    classes_: NDArray[Any]
    lineage_: Lineage | None
    history_: list[dict[str, Any]]
    status_: str
    n_iter_: int
    converged_: bool

    # Settings of every estimator.
    solver: str | FixedPoint | SGD
    growth: int | None
    beta: float | str
    max_iter: int | None
    tol: float
    precision: str
    _few_numbers: ClassVar[int] = 1_000_000  # in X: double precision costs nothing there
    random_state: Any
    callbacks: Sequence[Callback]
    verbose: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in set(ANSWERS) & set(cls.__dict__):
            setattr(cls, name, batch_by_batch(cls.__dict__[name]))
        if "fit" in cls.__dict__:
            cls.fit = together()(in_its_precision(cls.__dict__["fit"]))
        if "partial_fit" in cls.__dict__:
            cls.partial_fit = in_its_precision(cls.__dict__["partial_fit"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Rows on the sphere.

    def _training_rows(
        self, stored: StoredRows, kind: str, weight: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """(unit rows, which of the stored rows have no direction); sets the normalizer."""
        self.normalize_ = kind
        self._normalizer = Normalizer.fit(kind, stored, weight)
        if stored.n_features + self._normalizer.extra < 2:
            raise ValueError(
                f"X has {stored.n_features} feature(s) after normalize={kind!r}, the sphere needs "
                "2: use normalize='standard'"
            )
        x, lost = on_sphere(stored, self._normalizer, dtype)
        self._check_some_left(lost)
        return x, lost

    def _check_some_left(self, lost: Tensor) -> None:
        if bool(lost.all()):
            raise ValueError(
                f"every row of X is {self._no_direction}, so none has a direction: use "
                "normalize='standard'"
            )

    def _warn_set_aside(self, given: StoredRows, weight: Tensor | None) -> None:
        """Count and name the rows of X that have no direction, all copies of them."""
        chunks = unit_chunks(given, self._normalizer, torch.float64)
        lost = torch.cat([without for _, without in chunks])
        if weight is not None:
            lost &= weight > 0
        numbers = given.call(lost.nonzero()[:, 0])
        named = ", ".join(map(str, numbers[:_NAMED]))
        more = ", …" if len(numbers) > _NAMED else ""
        warnings.warn(
            f"{len(numbers)} of {given.n_rows} rows of X are {self._no_direction}, so they have no "
            f"direction and were set aside: row {named}{more}; normalize='standard' would keep "
            "them",
            UserWarning,
            stacklevel=4,
        )

    def _over_rows(
        self, X: Any, read: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype | None = None
    ) -> Any:
        """`read(unit rows, which have no direction)` chunk by chunk, where X came from."""
        check_is_fitted(self, "params_")
        rows = self._stored(X, reset=False, gaps=True)
        chunks = unit_chunks(rows, self._normalizer, dtype or self.params_.w.dtype)
        out = torch.cat([read(x, lost) for x, lost in chunks])
        return like(X, out)

    # Settings.

    def _precision(self, n_numbers: int) -> torch.dtype:
        if self.precision == "auto":
            return torch.float64 if n_numbers <= self._few_numbers else torch.float32
        return torch.float64 if self.precision == "float64" else torch.float32

    def _solver(self, n_rows: int, device: torch.device) -> FixedPoint | SGD:
        chosen = SOLVERS[self.solver] if isinstance(self.solver, str) else self.solver
        return chosen.resolve(n_rows, learn_beta=self.beta == "learn", device=device)

    def _check_room(self, rows: StoredRows, n_columns: int, dtype: torch.dtype) -> None:
        """Raise ValueError where n_memories_ cannot be held, before they are made."""
        each = _COPIES * (rows.n_features + 1 + n_columns) * dtype.itemsize
        asked = f"n_memories={self.n_memories_}"
        check_memory(each * self.n_memories_, rows.device, asked, "use fewer memories")

    def _callbacks(self) -> list[Callback]:
        """The callbacks, with a progress bar before them if wanted."""
        given = self.callbacks
        if not isinstance(given, Sequence) or not all(isinstance(c, Callback) for c in given):
            raise TypeError(f"callbacks must be a list of Callback objects, got {given!r}")
        return [*([ProgressBar()] if self.verbose else []), *given]

    def _begin(
        self, stored: StoredRows | Dataset, **more: Tensor | None
    ) -> tuple[int, list[Callback]]:
        """The seed and the callbacks of a fit to these rows; a run that goes on has its own seed.

        more: labels and weights. All settings tell runs apart but those named here.
        """
        callbacks, seed = self._callbacks(), draw_seed(self.random_state)
        group = current()
        if group.first and any(callback.needs_fingerprint for callback in callbacks):
            settings = self.get_params(deep=False).items()
            identity = {k: persistence.to_plain(v) for k, v in settings if k not in _NO_MATTER}
            given = isinstance(self.random_state, Integral | np.random.RandomState)
            identity["random_state"] = seed if given else "drawn"
            with looking(stored, callbacks) if isinstance(stored, Dataset) else nullcontext():
                data = stored.parts() | {k: v for k, v in more.items() if v is not None}
            labels = [repr(label) for label in self.classes_] if "targets" in more else []
            identity |= {"estimator": type(self).__name__, "data": checksum(data, {"": labels})}
            for callback in callbacks:
                if callback.needs_fingerprint:
                    seed = callback.identify(identity, seed)
        return group.same(seed), callbacks

    # Fitted attributes.

    def _set_trained(self, trained: Trained) -> None:
        """Keep what training came to; warn where the default budget ended too early."""
        try:
            trained.params.check()
        except ValueError as error:
            raise ValueError(
                f"training of X came to no model ({error}): scale X, or use other settings"
            ) from error
        self.history_ = [record.as_dict() for record in trained.history]
        self.status_, self.lineage_ = trained.status, trained.lineage
        self.n_iter_ = len(trained.history)
        self.converged_ = trained.status in _ENDED
        self._set_params(trained.params)
        last = [r for r in trained.history if r.phase == trained.history[-1].phase]
        losses = [record.loss for record in last[-2:]]
        if self.max_iter is None and trained.status == "max_iter" and len(losses) == 2:
            fall = (losses[0] - losses[1]) / max(abs(losses[1]), 1e-300)
            if fall > _STILL_FALLING:
                warnings.warn(
                    f"not converged in {self.n_iter_} passes, the last lowered the loss by "
                    f"{fall:.1%}: raise max_iter",
                    ConvergenceWarning,
                    stacklevel=3,
                )

    def _set_params(self, params: Parameters) -> None:
        """Set the fitted attributes, and how classes are read, from new parameters."""
        self._keep(params)

    def _keep(self, params: Parameters) -> None:
        """Set the fitted attributes that the parameters say."""
        self.params_ = params
        self.n_memories_ = params.n_memories
        self.beta_ = float(params.beta)
        self.varsigma_ = params.varsigma
        self.memories_ = self._normalizer.restore(params.w).cpu().numpy()
        self.class_weights_ = params.p.cpu().numpy()
        self.memory_prior_ = params.p_h.cpu().numpy()
        self.class_prior_ = params.p_q.cpu().numpy()

    def _copy_with(self, params: Parameters) -> Self:
        """A copy of this fitted estimator with other parameters and no lineage."""
        other: Self = clone(self)
        other.__dict__.update({k: v for k, v in self.__dict__.items() if k.endswith("_")})
        for name in ("_normalizer", "_encoding", "_named", "_label_mass"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        other.lineage_ = None
        other._set_params(params)
        return other

    def to_torch(self) -> DAMModule:
        """The fitted model as a torch module: log_joint, differentiable in its input."""
        check_is_fitted(self, "params_")
        return DAMModule(self.params_, self._normalizer)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a safetensors file, atomically; `mnemosphere.load` reads it."""
        check_is_fitted(self)
        persistence.save(self, Path(path))


def in_its_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    """Training whose large products take operands in the precision of the estimator.

    Its passes work in memory that stays for all of them.
    """

    @functools.wraps(method)
    def wrapped(self: SphereEstimator, *args: Any, **kwargs: Any) -> Any:
        with operands(self.precision), reused():
            return method(self, *args, **kwargs)

    return wrapped


def like(X: Any, answer: Tensor) -> Any:
    """Answers where the question came from: a tensor for a tensor, else a NumPy array."""
    return answer.to(X.device) if isinstance(X, Tensor) else answer.cpu().numpy()


def as_numpy(values: Any) -> NDArray[Any]:
    """Answers as a NumPy array, wherever they lie."""
    if isinstance(values, Iterator):  # of a data set, batch by batch
        return np.concatenate([as_numpy(part) for part in values])
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def check_whole(value: object, name: str, least: int | None = None) -> None:
    """Raise ValueError unless the value is a whole number, and at least `least`."""
    if not isinstance(value, Integral) or (least is not None and value < least):
        bound = "" if least is None else f" >= {least}"
        raise ValueError(f"{name} must be a whole number{bound}, got {value!r}")


def draw_seed(random_state: Any) -> int:
    """One whole number out of whatever scikit-learn calls a random state."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def sample_weights(given: Any, n_rows: int, device: torch.device) -> Tensor | None:
    """sample_weight (n,) in float64 on the device; None stays None."""
    if given is None:
        return None
    try:
        weight = torch.as_tensor(given if isinstance(given, Tensor) else np.array(given, float))
    except (TypeError, ValueError) as error:
        raise ValueError("sample_weight must be numbers, one per row") from error
    weight = weight.to(device).double()
    if weight.ndim == 0:
        weight = weight.expand(n_rows)
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {tuple(weight.shape)}, expected ({n_rows},): one per row"
        )
    if not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise ValueError("sample_weight must be finite and >= 0: Negative values in data passed")
    if not bool(weight.sum() > 0):
        raise ValueError("all weights are zero: give some rows a sample_weight above 0")
    return relative(weight)


def relative(weight: Tensor) -> Tensor:
    """Weights of which only ratios matter, of a size that single precision holds.

    Rows with 1e-30 of the largest weight add nothing to any sum: they have none.
    """
    largest = float(weight.max())
    weight = weight if 1e-30 < largest < 1e30 else weight / largest
    return torch.where(weight < 1e-30 * float(weight.max()), 0.0, weight)
