"""What classifier and clusterer share: scikit-learn's methods as readings of one fitted model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import TransformerTags
from sklearn.utils._set_output import _SetOutputMixin
from torch import Tensor

from mnemosphere import interpret
from mnemosphere.data.dataset import FileDataset
from mnemosphere.data.files import ahead
from mnemosphere.estimators import saving
from mnemosphere.estimators.from_files import check_features, sample_rows
from mnemosphere.estimators.search import SearchTable
from mnemosphere.estimators.setup import kept_settings
from mnemosphere.export import explore
from mnemosphere.fitted import FittedModel, Floats, as_numpy, like
from mnemosphere.interpret import Certificate, CertifiedRadius, Counterfactual, Explanation
from mnemosphere.training.distributed import together

# Fitted attributes, each read from the model.
ATTRIBUTES: dict[str, Callable[[FittedModel], Any]] = {
    "params_": lambda m: m.params,
    "classes_": lambda m: m.classes,
    "n_features_in_": lambda m: m.features.n_columns,
    "memories_": lambda m: m.memories,
    "n_memories_": lambda m: m.n_memories,
    "class_weights_": lambda m: as_numpy(m.params.p),
    "memory_prior_": lambda m: as_numpy(m.params.p_h),
    "class_prior_": lambda m: as_numpy(m.params.p_q),
    "beta_": lambda m: float(m.params.beta),
    "varsigma_": lambda m: m.params.varsigma,
    "normalize_": lambda m: m.normalizer.kind,
    "novelty_threshold_": interpret.novelty_threshold,
    "search_": lambda m: SearchTable(m.record.search),
    "history_": lambda m: m.record.history,
    "n_iter_": lambda m: len(m.record.history),
    "status_": lambda m: m.record.status,
    "converged_": lambda m: m.record.converged,
    "lineage_": lambda m: m.lineage,
    "typical_rows_": lambda m: None if m.exemplars is None else m.exemplars.typical,
    "support_": lambda m: None if m.exemplars is None else m.exemplars.support,
}


def fitted_attribute(
    estimator: BaseEstimator, name: str, attributes: Mapping[str, Callable[[Any], Any]]
) -> Any:
    """An attribute of an estimator that is a reading of its `model_`; AttributeError for others."""
    model = vars(estimator).get("model_")
    kind = type(estimator).__name__
    if model is not None and name in attributes:
        return attributes[name](model)
    if model is not None and name == "feature_names_in_" and model.features.columns is not None:
        return np.array(model.features.columns, dtype=object)
    if name == "model_":
        raise NotFittedError(
            f"This {kind} instance is not fitted yet. Call 'fit' with appropriate arguments before "
            "using this estimator."
        )
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")


class MemoryEstimator(_SetOutputMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that holds a `FittedModel`: `model_`, the only thing that `fit` sets.

    Fitted attributes are read from it, so that `model_` may be replaced by an edited one.
    """

    model_: FittedModel
    _attributes: Mapping[str, Callable[[FittedModel], Any]] = ATTRIBUTES

    def __getattr__(self, name: str) -> Any:
        return fitted_attribute(self, name, self._attributes)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(self._attributes if "model_" in self.__dict__ else ())]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags = TransformerTags()
        return tags

    def _current(self) -> FittedModel:
        """The fitted model with the settings as they are now."""
        model, settings = self.model_, kept_settings(self.get_params(deep=False))
        return model.replace(record=replace(model.record, settings=settings))

    def _rowwise(self, X: Any, read: Callable[[FittedModel, Any], Any]) -> Any:
        """`read(model, rows)`; for a `Dataset`, an iterator over the answers to its batches."""
        model = self.model_
        if not isinstance(X, FileDataset):
            return read(model, X)
        check_features(model.features, X)
        return (read(model, raw.rows) for raw in ahead(X.files.pieces()))

    # Rows.

    def transform(self, X: ArrayLike) -> Floats:
        """How much each memory answers for each row: P(memory | x), (n, P)."""
        same = getattr(X, "dtype", None) == np.float32

        def read(model: FittedModel, rows: Any) -> Any:
            out = like(rows, model.shares(rows))
            if isinstance(out, Tensor):
                return out
            return out.astype(np.float32 if same else np.float64, copy=False)

        shares: Floats = self._rowwise(X, read)
        return shares

    def fit_transform(self, X: ArrayLike, y: Any = None, **fit_params: Any) -> Floats:
        """`fit`, then `transform` of the same rows."""
        shares: Floats = self.fit(X, y, **fit_params).transform(X)
        return shares

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Names of the columns of `transform`."""
        name = type(self).__name__.lower()
        return np.array([f"{name}{k}" for k in range(self.model_.n_memories)], dtype=object)

    def novelty_score(self, X: ArrayLike) -> Floats:
        """How far a row is from all memories, (n,): minus the log of their part of the density.

        It ranks rows as the density does, and saturates at neither end. A row without direction
        is as far as a row can be.
        """
        scores: Floats = self._rowwise(X, lambda model, rows: like(rows, model.novelty_score(rows)))
        return scores

    def calibrate(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Keep the scores of rows that were not trained on, by which rates and coverages hold.

        With labels, a classifier also gets the `temperature_` with the least log-loss of their
        classes. The promises are for the average over draws of X: with n rows, a new one of their
        kind is rejected with probability at most `rate`, and without repeated rows at least
        `rate` − 1/(n+1). Training and shrinking drop the calibration.
        """
        model = self._current()
        if isinstance(X, FileDataset):
            given = sample_rows(X, 0)
            with together() as group:
                found = group.once(lambda: interpret.calibrate(model, *given).calibration)
        else:
            found = interpret.calibrate(model, X, y, sample_weight).calibration
        self.model_ = self.model_.replace(calibration=found)
        return self

    def recall(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        known: ArrayLike | None = None,
        steps: int = 50,
        method: str = "fixed-point",
        rate: float = 1.0,
    ) -> Floats:
        """Complete patterns: descend the energy −log P(x|y) from each row, (n, N).

        NaN features are found; the others stay as given (up to one factor per row, since length
        means nothing). known: (n, N) booleans, True for the features that are to stay, in place
        of all that are not NaN. y: the class of each row, or None for any class. See
        `interpret.recall` for the rest, and `interpret.recall_path` for every step of the way.
        """
        return interpret.recall(
            self.model_, X, y, known=known, steps=steps, method=method, rate=rate
        )

    def sample(
        self, n_samples: int = 1, y: object = None, *, random_state: int | None = None
    ) -> tuple[Floats, NDArray[Any]]:
        """Draw patterns and their labels from the model; y: one class to draw from, or None.

        A pattern of the class "none of them" is labeled None, in an array of objects.
        """
        return interpret.sample(self.model_, n_samples, y, random_state=random_state)

    # Reasons.

    def explain(self, X: ArrayLike, n_nearest: int = 5) -> Explanation:
        """Why each row got its class: the memories that decided it, their shares, soft labels.

        `features(row)` of the result says what each feature did, with parts that add up.
        """
        return interpret.explain(self.model_, X, n_nearest)

    def counterfactual(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        hold: Sequence[int | str] = (),
        max_features: int | None = None,
        realistic: bool = True,
    ) -> Counterfactual:
        """The smallest change of each row that makes `predict` say y, in the units of X.

        y: one class or one per row; None for the most probable after the predicted one. hold:
        features that must stay, by name or number. max_features: change no more than so many.
        realistic: whole numbers stay whole, and features within the range of the training rows.
        The search is local, so the change is not proved to be the smallest, but it is verified
        by `predict`. See `interpret.counterfactual`.
        """
        return interpret.counterfactual(
            self.model_, X, y, hold=hold, max_features=max_features, realistic=realistic
        )

    def memory_table(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> Any:
        """One line per memory, as a pandas frame: label, support, neighbors, typical rows.

        `interpret.memory_table` names the columns. With rows, all of it is measured on them.
        """
        return interpret.memory_table(self._current(), X, y)

    def certified_radius(self, X: ArrayLike) -> CertifiedRadius:
        """How far each row may move before `predict` can give it another class: a proven bound."""
        return interpret.certified_radius(self._current(), X)

    def certify(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None,
        *, tol: float = 1e-3, max_iter: int = 100,
    ) -> Certificate:  # fmt: skip
        """Is each memory a minimum, a saddle, or not converged, on the rows trained on?

        Training stops short of rest, so a copy first takes exact passes, max_iter at most, until
        nothing moves by more than tol: the certificate is of that copy. A conditional objective
        has no exact pass: there the model is certified as it is.
        """
        model = self._current()
        if not isinstance(X, FileDataset):
            return interpret.certify(model, X, y, sample_weight, tol=tol, max_iter=max_iter)
        given = sample_rows(X, 0)
        with together() as group:
            return group.once(lambda: interpret.certify(model, *given, tol=tol, max_iter=max_iter))

    # Handing on.

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a safetensors file, atomically; `mnemosphere.load` reads it."""
        saving.save(self, Path(path))

    def explore(
        self,
        path: str | PathLike[str],
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        max_rows: int = 500,
        image_shape: Sequence[int] | str | None = "auto",
        layout: str = "auto",
        certificate: Certificate | None = None,
        title: str | None = None,
    ) -> None:
        """Write one HTML file in which the model runs: to draw, recall and look at memories.

        X, y: rows to measure by; up to `max_rows` of them go into the page, of each class its
        share. image_shape: (rows, columns) or (rows, columns, 3), None for tables; "auto": a
        square if rows have no names, no negative numbers and a square number of features.
        layout of the map: "pca", "umap" or "auto". certificate: of `certify`, which is taken
        here if that is a matter of seconds. The file needs no server and no network.
        """
        explore(
            self._current(), path, X, y, max_rows=max_rows, image_shape=image_shape,
            layout=layout, certificate=certificate, title=title,
        )  # fmt: skip
