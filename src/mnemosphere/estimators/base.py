"""What every estimator shares: rows in, unit vectors, and all that reads parameters alone."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from mnemosphere.estimators import persistence
from mnemosphere.estimators.module import DAMModule
from mnemosphere.estimators.preparation import Floats, Normalizer, check_finite, check_table
from mnemosphere.model import kernel, retrieval
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics.bessel import log_omega
from mnemosphere.training.batches import Data
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.lineage import Lineage


# scikit-learn wraps `transform` for set_output only in classes that inherit from the mixin.
class SphereEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """Rows on the sphere, density, novelty, shares of memories, model files."""

    params_: Parameters
    n_features_in_: int
    lineage_: Lineage | None
    n_memories_: int
    memories_: Floats
    normalize_: str
    _normalizer: Normalizer
    _device: torch.device
    _dtype: torch.dtype

    def _validate_rows(self, X: ArrayLike, *, reset: bool) -> Floats:
        if isinstance(X, (torch.Tensor, list, tuple)):
            X = as_numpy(X)
        check_table(X)
        try:
            rows: Floats = validate_data(
                self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False
            )
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            text = str(error).partition(": ")[2].removeprefix("np.str_(").removesuffix(")")
            raise ValueError(
                f"X holds text ({text}): encode it as numbers, or drop the column"
            ) from error
        check_finite(rows, getattr(self, "feature_names_in_", None))
        return rows

    def _on_sphere(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self, "params_")
        z = self._normalizer(self._validate_rows(X, reset=False))
        x = torch.from_numpy(np.ascontiguousarray(z)).to(self.params_.w)
        unit: torch.Tensor = x / x.norm(dim=1, keepdim=True)
        return unit

    def _tensors(self, z: Floats, targets: Floats, weight: Floats | None) -> Data:
        dtype = self._dtype
        x = torch.from_numpy(np.ascontiguousarray(z)).to(self._device, dtype)
        if x.shape[1] < 2:
            raise ValueError(
                f"X has {self.n_features_in_} feature(s) after normalize={self.normalize_!r}, the "
                "sphere needs 2: use normalize='standard'"
            )
        return Data(
            x / x.norm(dim=1, keepdim=True),
            torch.from_numpy(np.ascontiguousarray(targets)).to(self._device, dtype),
            None if weight is None else torch.from_numpy(weight).to(self._device, dtype),
        )

    def _keep(self, params: Parameters) -> None:
        """Set the fitted attributes from the parameters."""
        self.params_ = params
        self.n_memories_ = params.n_memories
        self.beta_ = float(params.beta)
        self.varsigma_ = params.varsigma
        self.memories_ = self._normalizer.restore(params.w.cpu().numpy())
        self.class_weights_ = params.p.cpu().numpy()
        self.memory_prior_ = params.p_h.cpu().numpy()
        self.class_prior_ = params.p_q.cpu().numpy()

    @property
    def _n_features_out(self) -> int:
        return int(self.n_memories_)

    def transform(self, X: ArrayLike) -> Floats:
        """How much each memory answers for each row: P(memory | x), (n, P)."""
        x = self._on_sphere(X)
        scores = kernel.log_joint(self.params_, x)
        shares = kernel.responsibilities(self.params_, x, scores.softmax(1))
        kind = getattr(X, "dtype", None)
        out: Floats = shares[:, 1:].cpu().numpy()
        return out.astype(np.float32 if kind == np.float32 else np.float64, copy=False)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Log of the effective density of each row on the sphere, labels summed out, (n,).

        For ς = 1 that is the model's log-density. For ς < 1 it is the log of
        𝒫_{β,ς}(x) of Eq. (effective_loss), which is not normalised: it ranks rows, but its
        exponential does not integrate to 1.
        """
        x = self._on_sphere(X)
        area = log_omega(0.0, x.shape[1])
        scores: Floats = (retrieval.log_marginal(self.params_, x).double().cpu() - area).numpy()
        return scores

    def novelty(self, X: ArrayLike) -> Floats:
        """Posterior weight of the uniform component, in [0, 1]: near 1, no memory answers."""
        x = self._on_sphere(X)
        values: Floats = retrieval.novelty(self.params_, x).cpu().numpy()
        return values

    def at_level(self, level: int) -> Self:
        """The smaller model at the end of one level of growth, as a fitted classifier."""
        check_is_fitted(self, "params_")
        if self.lineage_ is None:
            raise ValueError("this model did not grow: fit with growth='split'")
        check_whole(level, "level")
        return self._with(self.lineage_.at_level(level))

    def _with(self, params: Parameters) -> Self:
        """A copy of this fitted estimator with other parameters and no lineage."""
        other: Self = clone(self)
        other.__dict__.update({k: v for k, v in self.__dict__.items() if k.endswith("_")})
        for name in ("_normalizer", "_device", "_dtype", "_seen"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        other.lineage_ = None
        other._keep(params)
        return other

    def to_torch(self) -> DAMModule:
        """The fitted model as a torch module: log_joint, differentiable in its input."""
        check_is_fitted(self, "params_")
        return DAMModule(self.params_, self._normalizer)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a safetensors file, atomically; `mnemosphere.load` reads it."""
        check_is_fitted(self, "params_")
        persistence.save(self, Path(path))


def check_callbacks(callbacks: object) -> None:
    """Raise TypeError unless these are callbacks."""
    if not isinstance(callbacks, Sequence) or not all(isinstance(c, Callback) for c in callbacks):
        raise TypeError(f"callbacks must be a list of Callback objects, got {callbacks!r}")


def pick_device(name: str) -> torch.device:
    """The device of that name, or ValueError; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))  # 'meta' holds no numbers, say
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} cannot be used here: try 'cpu' or 'auto'") from error
    return device


def check_whole(value: object, name: str, least: int | None = None) -> None:
    """Raise ValueError unless the value is a whole number, and at least `least`."""
    if not isinstance(value, Integral) or (least is not None and value < least):
        bound = "" if least is None else f" >= {least}"
        raise ValueError(f"{name} must be a whole number{bound}, got {value!r}")


def as_numpy(y: Any) -> Any:
    """Y as a NumPy array; None stays None."""
    if y is None:
        return None
    if isinstance(y, torch.Tensor):
        y = y.detach().cpu()
        return (y.float() if y.dtype == torch.bfloat16 else y).numpy()  # NumPy has no bfloat16
    return np.asarray(y)


def draw_seed(random_state: Any) -> int:
    """One whole number out of whatever scikit-learn calls a random state."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
