"""What classifier and clusterer share: scikit-learn's methods as readings of one fitted model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from numbers import Integral, Real
from os import PathLike
from typing import Any, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import TransformerTags
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    StrOptions,
)
from sklearn.utils._set_output import _SetOutputMixin
from torch import Tensor

from mnemosphere import interpret
from mnemosphere.base.machine import threads
from mnemosphere.estimators.inputs import SAMPLED, check_alone, work_on
from mnemosphere.estimators.progress import SearchTable
from mnemosphere.estimators.setup import kept_settings
from mnemosphere.export import Page, explore, files
from mnemosphere.fitted.model import FittedModel, Floats, as_numpy, like
from mnemosphere.interpret import Certificate, CertifiedRadius, Counterfactual, Explanation
from mnemosphere.rows.batches import Dataset
from mnemosphere.training.lineage import Lineage

Answer = TypeVar("Answer")


class _NotFitted:
    """In the place of `model_` until `fit` sets it."""

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self
        raise NotFittedError(
            f"This {owner.__name__} instance is not fitted yet. Call 'fit' with appropriate "
            "arguments before using this estimator."
        )


NOT_FITTED: Any = _NotFitted()
SAVED = ("DAMClassifier", "DAMClusterer")  # what a model file can hold


POSITIVE = Interval(Real, 0, None, closed="neither")
COUNT = Interval(Integral, 1, None, closed="left")
# Parameters that all estimators have, and those of estimators of rows.
CONSTRAINTS: dict[str, Any] = {
    "beta": [POSITIVE, StrOptions({"learn"})],
    "max_iter": [COUNT, None],
    "device": [str],
    "random_state": ["random_state"],
    "callbacks": "no_validation",
    "verbose": ["verbose"],
}
ROW_CONSTRAINTS = CONSTRAINTS | {
    "growth": [None, COUNT],
    "precision": [StrOptions({"auto", "float64", "float32"})],
    "encoder": [None, str, dict, callable, HasMethods("encode"), HasMethods("embed")],
    "categories": ["array-like"],
    "min_frequency": [Interval(Real, 0, 1, closed="left")],
}


def _reading(read: Callable[[FittedModel], Any], told: str) -> Any:
    """A property: what `read` finds in the fitted model."""
    return property(lambda self: read(self.model_), doc=told)


def _predict(model: FittedModel, rows: Any) -> Any:
    best = like(rows, model.log_proba(rows).argmax(1))
    if not isinstance(best, Tensor):
        return model.classes[best]
    if model.classes.dtype.kind in "biuf":
        return torch.from_numpy(model.classes).to(best.device)[best]
    return model.classes[as_numpy(best)]


class MemoryEstimator(_SetOutputMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that holds a `FittedModel`: `model_`, the only thing that `fit` sets.

    Fitted attributes are read from it, so that `model_` may be replaced by an edited one.
    """

    model_: FittedModel = NOT_FITTED

    n_features_in_: int = _reading(lambda m: m.columns.n_columns, "Number of columns of X.")
    history_: list[dict[str, Any]] = _reading(lambda m: m.record.history, "One dict for each pass.")
    n_iter_: int = _reading(lambda m: len(m.record.history), "Number of passes.")
    status_: str = _reading(lambda m: m.record.status, "How training ended.")
    converged_: bool = _reading(lambda m: m.record.converged, "Whether training converged.")
    classes_: NDArray[Any] = _reading(lambda m: m.classes, "Labels, or numbers of clusters, (C,).")
    memories_: Floats = _reading(lambda m: m.memories, "Memories (P, N).")
    n_memories_: int = _reading(lambda m: m.n_memories, "Number of memories P.")
    class_weights_: Floats = _reading(
        lambda m: as_numpy(m.votes.p), "Weight times soft label of each memory, (P+1, C+1)."
    )
    memory_prior_: Floats = _reading(
        lambda m: as_numpy(m.votes.weights), "Weights of the memories, (P+1,)."
    )
    class_prior_: Floats = _reading(lambda m: as_numpy(m.votes.p_q), "Class frequencies (C+1,).")
    beta_: float = _reading(lambda m: float(m.trained.beta), "Inverse temperature as trained.")
    varsigma_: float = _reading(lambda m: m.trained.varsigma, "The regularizer ς.")
    geometry_: str = _reading(lambda m: m.geometry.name, "How rows are put on the sphere.")
    novelty_threshold_: float | None = _reading(
        lambda m: interpret.rejection.novelty_threshold(m),
        "The novelty score that about one held-out row in a hundred exceeds.",
    )
    search_: SearchTable = _reading(lambda m: SearchTable(m.record.search), "Trials of the search.")
    lineage_: Lineage | None = _reading(lambda m: m.lineage, "The tree of splits.")
    typical_rows_: NDArray[np.int64] | None = _reading(
        lambda m: m.exemplars and m.exemplars.typical,
        "Numbers of the training rows most typical of each memory, (P, 3).",
    )
    support_: Floats | None = _reading(
        lambda m: m.exemplars and m.exemplars.support,
        "How many training rows each memory answers for, (P,).",
    )

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the columns; only if X had names."""
        names = self.model_.columns.names
        if names is None:
            raise AttributeError("feature_names_in_: the columns of X had no names")
        return np.array(names, dtype=object)

    def __getstate__(self) -> dict[str, Any]:
        """Settings, and the fitted model as the content of its file: plain data for every container."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = files.pack(self.model_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Undo `__getstate__`; no code of the file is run."""
        content = state.get("model_")
        super().__setstate__({key: value for key, value in state.items() if key != "model_"})
        if content is not None:
            model = files.unpack(content, "the pickled model")
            settings = kept_settings(self.get_params(deep=False))
            columns, encoder = model.columns, settings.get("encoder")
            if encoder is not None and columns.encoder is not None:
                columns = columns.with_encoder(encoder)
            record = replace(model.record, settings=model.record.settings | settings)
            self.model_ = model.replace(columns=columns, record=record)

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

    def _rowwise(self, X: Any, read: Callable[[FittedModel, Any], Answer]) -> Answer:
        """`read(model, rows)`; of a `Dataset`, the answers to all its batches together."""
        model = self.model_
        with threads(work_on(X, model.n_memories)):
            if not isinstance(X, Dataset):
                return read(model, X)
            found: list[Any] = [read(model, rows) for rows, _, _ in X]
        sets = isinstance(found[0], list)
        return cast("Answer", list(chain(*found)) if sets else np.concatenate(found))

    def _on_rows(self, read: Callable[..., Answer], X: Any, y: Any, weight: Any) -> Answer:
        """`read(model, X, y, weight)`; of a `Dataset` that memory does not hold, a sample is read."""
        model = self._current()
        if isinstance(X, Dataset):
            check_alone(y, weight)
            rows = X.sample(SAMPLED, 0)
            X, y, weight = rows.x, rows.y, rows.weight
        with threads(work_on(X, model.n_memories)):
            return read(model, X, y, weight)

    # Rows.

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class, or cluster, of each row.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels; clusters are numbered from 0. A tensor if X is one and labels are numbers.

        Examples
        --------
        >>> clf.predict(X_test[:5])
        array([0, 2, 1, 0, 1])
        """
        return self._rowwise(X, _predict)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Compute P(y | x, y is one of the C classes or clusters).

        It is the sum over memories of share × soft label, corrected for label smoothing. The shares of a
        classifier are at the temperature that `fit` found on held-out rows, or `calibrate` on your rows.
        `explain` shows the same shares and soft labels.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.

        Returns
        -------
        ndarray of shape (n, C)
            Classes in the order of `classes_`. For a tensor, a tensor.

        Examples
        --------
        >>> clf.predict_proba(X_test).shape
        (60, 3)
        """
        return self._rowwise(X, lambda model, rows: like(rows, model.log_proba(rows).exp()))

    def transform(self, X: ArrayLike) -> Floats:
        """Compute how much each memory answers for each row, P(memory | x).

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.

        Returns
        -------
        ndarray of shape (n, P)
            Row sums are at most 1; the rest is the share of the uniform component. For a tensor, a
            tensor.

        Examples
        --------
        >>> clf.transform(X_test).shape
        (60, 6)
        """
        same = getattr(X, "dtype", None) == np.float32

        def read(model: FittedModel, rows: Any) -> Any:
            out = like(rows, model.shares(rows))
            if isinstance(out, Tensor):
                return out
            return out.astype(np.float32 if same else np.float64, copy=False)

        return self._rowwise(X, read)

    def fit_transform(self, X: ArrayLike, y: Any = None, **fit_params: Any) -> Floats:
        """Call `fit`, then `transform` of the same rows.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Training rows.
        y : array-like of shape (n,), default None
            Labels; a clusterer does not read them.
        **fit_params
            Further arguments of `fit`.

        Returns
        -------
        ndarray of shape (n, P)
            P(memory | x).

        Examples
        --------
        >>> clf.fit_transform(X_train, y_train).shape
        (118, 6)
        """
        shares: Floats = self.fit(X, y, **fit_params).transform(X)
        return shares

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Name the columns of `transform`.

        Parameters
        ----------
        input_features : object, default None
            Not read; scikit-learn passes it.

        Returns
        -------
        ndarray of objects of shape (P,)
            The name of the class in lower case and the number of the memory.

        Examples
        --------
        >>> clf.get_feature_names_out()[:2]
        array(['damclassifier0', 'damclassifier1'], dtype=object)
        """
        name = type(self).__name__.lower()
        return np.array([f"{name}{k}" for k in range(self.model_.n_memories)], dtype=object)

    def novelty_score(self, X: ArrayLike) -> Floats:
        """Compute how far each row is from all memories: minus the log of their part of the density.

        It ranks rows as the density does, and saturates at neither end. A row without direction gets the
        largest possible score.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            For a tensor, a tensor.

        Examples
        --------
        >>> near, far = clf.novelty_score(X_test[:1]), clf.novelty_score(-X_test[:1])
        >>> bool(near[0] < far[0])
        True
        """
        return self._rowwise(X, lambda model, rows: like(rows, model.novelty_score(rows)))

    def calibrate(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Keep the scores of held-out rows, by which rates and coverages hold.

        With labels, a classifier also gets the `temperature_` with the lowest log-loss on these rows.
        With n rows, a new row of their kind is rejected with probability at most `rate`, and without
        repeated rows at least `rate` − 1/(n+1). That holds on average over draws of X. Without this
        call, the rows that the fit held out are used, and rates and coverages are about right.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            Rows that were not trained on.
        y : array-like of shape (n,), default None
            Their labels, which `predict_set` needs.
        sample_weight : array-like of shape (n,), default None
            Weights of the rows; None: all 1.

        Returns
        -------
        MemoryEstimator
            The estimator itself.

        Examples
        --------
        >>> clf.calibrate(X_test, y_test).predict_or_reject(X_test, rate=0.05).shape
        (60,)
        """
        found = self._on_rows(interpret.calibrate, X, y, sample_weight)
        self.model_ = self.model_.replace(votes=found.votes, calibration=found.calibration)
        return self

    def recall(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        known: ArrayLike | None = None,
        steps: int = 50,
        path: bool = False,
    ) -> Any:
        """Complete patterns: descend the energy −log P(x|y) of the density from each row.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows to start from. NaN features are imputed; the others stay as given.
        y : array-like of shape (n,), default None
            The class of each row; None: any class.
        known : array-like of bool of shape (n, N), default None
            True for features that must stay; None: all that are not NaN.
        steps : int, default 50
            Maximum number of steps.
        path : bool, default False
            Return rows and energies of every step.

        Returns
        -------
        ndarray or pandas.DataFrame of shape (n, N), or RecallPath
            The completed rows, in the units of X; with geometry="unit" they have norm 1, with "center"
            also mean 0. For a frame, a frame of the same columns: known values stay, and whole
            numbers are whole. With `path`, the way to them, as numbers.

        Examples
        --------
        >>> incomplete = X_test[:1].assign(alcohol=np.nan)
        >>> completed = clf.recall(incomplete)
        >>> completed.shape, bool(completed.isna().any(axis=None))
        ((1, 4), False)
        """
        return interpret.recall(self.model_, X, y, known=known, steps=steps, path=path)

    def sample(
        self, n_samples: int = 1, y: object = None, *, random_state: int | None = None
    ) -> tuple[Any, NDArray[Any]]:
        """Draw rows and their labels from the density of the model.

        Parameters
        ----------
        n_samples : int, default 1
            Number of rows.
        y : object, default None
            One class to draw from; None: any class.
        random_state : int, default None
            Seed; None: another one each time.

        Returns
        -------
        rows : ndarray or pandas.DataFrame of shape (n_samples, N)
            Rows, in the units of X if the geometry keeps them, else unit vectors. A frame if the model was
            trained on one.
        labels : ndarray of shape (n_samples,)
            Their labels; None for "none of them".

        Examples
        --------
        >>> rows, labels = clf.sample(5, y=2, random_state=0)
        >>> rows.shape, labels.tolist()
        ((5, 4), [2, 2, 2, 2, 2])
        """
        return interpret.sample(self.model_, n_samples, y, random_state=random_state)

    # Reasons.

    def explain(self, X: ArrayLike, n_memories: int = 5) -> Explanation:
        """Explain each prediction by the memories that decided it.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows.
        n_memories : int, default 5
            Memories to show, those with the largest share first.

        Returns
        -------
        Explanation
            What was decided and why, which it prints; `pulls(row)` lists the columns, `table()` the
            memories.

        Examples
        --------
        >>> why = clf.explain(X_test[:1], n_memories=2)
        >>> why.predicted, why[0][0].label
        (array([0]), 0)
        """
        return interpret.explain(self.model_, X, n_memories)

    def counterfactual(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        fixed: Sequence[int | str] = (),
        only_rise: Sequence[int | str] = (),
        only_fall: Sequence[int | str] = (),
        max_features: int | None = None,
        probability: float = 0.5,
    ) -> Counterfactual:
        """Find few columns, and values that occur in them, that give each row another class.

        `predict` confirms each result. Other changes may need fewer columns.

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows.
        y : object or array-like of shape (n,), default None
            The wanted class, one for all rows or one each; None: the second most probable.
        fixed : sequence of int or str, default ()
            Columns that must stay, by number or name.
        only_rise : sequence of int or str, default ()
            Columns of numbers that may rise, but not fall.
        only_fall : sequence of int or str, default ()
            Columns of numbers that may fall, but not rise.
        max_features : int, default None
            Maximum number of columns to change; None: any number.
        probability : float in (0, 1), default 0.5
            What the wanted class must reach, besides being the most probable one. Changes that only just
            suffice may not do for another model.

        Returns
        -------
        Counterfactual
            The changed rows; it prints as tables.

        Examples
        --------
        >>> other = clf.counterfactual(X_test[:1], 1, max_features=2)
        >>> other.found, clf.predict(other.rows)
        (array([ True]), array([1]))
        """
        return interpret.counterfactual(
            self.model_, X, y, fixed=fixed, only_rise=only_rise, only_fall=only_fall,
            max_features=max_features, probability=probability,
        )  # fmt: skip

    def memory_table(self) -> Any:
        """List the memories as a pandas frame, one line each.

        Returns
        -------
        pandas.DataFrame
            Label, support, features and typical rows of each memory;
            `interpret.memory_table` lists the columns.

        Examples
        --------
        >>> sorted(clf.memory_table()["label"])
        [0, 0, 1, 1, 2, 2]
        """
        return interpret.memory_table(self._current())

    def certified_radius(self, X: ArrayLike) -> CertifiedRadius:
        """Compute how far each row can move before its class can change: a proven bound.

        It is the length of a change of the row, for models of directions: geometry="unit" or "center".

        Parameters
        ----------
        X : array-like of shape (n, N)
            Rows.

        Returns
        -------
        CertifiedRadius
            Radii and the class that comes next.

        Examples
        --------
        >>> directions = mn.DAMClassifier(2, geometry="unit", random_state=0).fit(X_train, y_train)
        >>> bool((directions.certified_radius(X_test).radius >= 0).all())
        True
        """
        return interpret.certified_radius(self._current(), X)

    def certify(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None,
        *, tol: float = 1e-3, max_iter: int = 100,
    ) -> Certificate:  # fmt: skip
        """Determine if each memory is a minimum, a saddle, or not at rest.

        Training stops before the parameters are at rest, so a copy first takes exact passes; the
        certificate describes that copy. A conditional model has no exact pass: it is certified as it is.

        Parameters
        ----------
        X : array-like of shape (n, N) or Dataset
            The rows that the model was trained on.
        y : array-like of shape (n,), default None
            Their labels; a clusterer needs none.
        sample_weight : array-like of shape (n,), default None
            Weights of the rows; None: all 1.
        tol : float, default 1e-3
            The copy is at rest if nothing moves by more.
        max_iter : int, default 100
            Maximum number of exact passes.

        Returns
        -------
        Certificate
            The kind of each memory; `print` shows a table.

        Examples
        --------
        >>> sum(clf.certify(X_train, y_train).counts.values())
        6
        """
        read = partial(interpret.certify, tol=tol, max_iter=max_iter)
        return self._on_rows(read, X, y, sample_weight)

    # Handing on.

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a safetensors file, atomically.

        Parameters
        ----------
        path : str or path
            The file; `mnemosphere.load` reads it.

        Examples
        --------
        >>> clf.save("wine.safetensors")
        >>> mn.load("wine.safetensors").predict(X_test[:3])
        array([0, 2, 1])
        """
        files.write(saved_model(self), path)

    def explore(
        self,
        path: str | PathLike[str],
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        max_rows: int = 500,
        image_shape: Sequence[int] | str | None = "auto",
        title: str | None = None,
    ) -> Page:
        """Write one HTML file in which the model runs: draw, type or change a row, and see why.

        The file needs no server and no network. Everything in it is computed live, with the numbers of
        Python. Texts can be typed if the model has the packaged encoder.

        Parameters
        ----------
        path : str or path
            The file.
        X : array-like of shape (n, N), default None
            Rows to measure the model on.
        y : array-like of shape (n,), default None
            Their labels.
        max_rows : int, default 500
            Maximum number of rows in the page, classes in proportion.
        image_shape : tuple of int or None or "auto", default "auto"
            (rows, columns) or (rows, columns, 3) of images; None for tables. "auto": a square if rows have no names, no negative
            numbers and a square number of features.
        title : str, default None
            Heading of the page; None: a heading that names the model.

        Returns
        -------
        Page
            Where it is (`path`); as the last line of a notebook's cell it shows itself.

        Examples
        --------
        >>> clf.explore("wine.html", X_test[:3], y_test[:3])
        Page(path=...)
        """
        return explore(
            self._current(), path, X, y, max_rows=max_rows, image_shape=image_shape, title=title
        )


def saved_model(estimator: Any) -> FittedModel:
    """The fitted model of an estimator with its settings as they are now, for a file."""
    if type(estimator).__name__ not in SAVED:
        raise TypeError(
            f"a model file cannot hold a {type(estimator).__name__}, only a {' or a '.join(SAVED)}: use "
            "joblib"
        )
    model: FittedModel = estimator._current()
    del model.record.settings["device"]  # of this machine
    return model
