"""What a fitted classifier answers: classes, probabilities, another prior, the reasons."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators.base import Floats, as_numpy, like, sample_weights
from mnemosphere.estimators.calibration import best_temperature
from mnemosphere.estimators.explanation import Explanation, explain
from mnemosphere.estimators.labels import Encoded, as_labels, class_index
from mnemosphere.estimators.memory_model import MemoryModel
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior

__all__ = ["ClassModel"]


class ClassModel(MemoryModel, ABC):
    """All that reads a fitted model and knows of classes."""

    temperature_: float  # of predict_proba; 1 unless `calibrate` found another
    selection_: list[dict[str, Any]]
    _label_mass: Tensor

    @abstractmethod
    def _encode(
        self, y: Any, stored: StoredRows, classes: NDArray[Any] | None, *, require_label: bool
    ) -> Encoded:
        """The labels as indices and weights; sets classes_."""

    @abstractmethod
    def _weights(self, coded: Encoded, sample_weight: Any, stored: StoredRows) -> Tensor | None:
        """Sample weight times class weight; None where all are 1."""

    def _set_params(self, params: Parameters) -> None:
        super()._set_params(params)
        self.temperature_ = 1.0

    def _own_tensors(self) -> dict[str, Tensor]:
        return {"label_mass": self._label_mass}

    def _own_header(self) -> dict[str, Any]:
        return {
            "selection": self.selection_,
            "temperature": self.temperature_,
            "novelty_threshold": self.novelty_threshold_,
        }

    def _set_own(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        self._label_mass = tensors["label_mass"]
        self.selection_ = header["selection"]
        self.temperature_ = float(header["temperature"])
        threshold = header["novelty_threshold"]
        self.novelty_threshold_ = None if threshold is None else float(threshold)

    def _class_index(self, y: Any) -> Tensor:
        labels = as_labels(y)
        return class_index(labels.reshape(-1), self.classes_, self.params_.w.device)[1]

    def _rows_to_judge(self, X: Any, y: Any, sample_weight: Any) -> ArrayDataset:
        stored = self._stored(X, reset=False)
        coded = self._encode(y, stored, self.classes_, require_label=False)
        return self._judged(X, coded.targets, self._weights(coded, sample_weight, stored))

    def _log_proba(self, X: Any) -> Any:
        """Log P(y|x) of the model itself, before any temperature."""
        check_is_fitted(self, "params_")
        log_joint = self._log_joint()
        return self._over_rows(
            X, lambda x, lost: log_joint(x, lost)[:, :-1].double().log_softmax(1)
        )

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Log of `predict_proba`, (n, C)."""
        log_proba: Floats = self._log_proba(X)
        if self.temperature_ != 1.0:
            tempered = (torch.as_tensor(log_proba) / self.temperature_).log_softmax(1)
            log_proba = like(X, tempered)
        return log_proba

    def predict_proba(self, X: ArrayLike) -> Floats:
        """P(y | x, y is one of the C classes), (n, C); at the temperature of `calibrate`.

        For ς = 1 these are the probabilities of the model. For ς < 1 the effective density is not
        normalized, and its ratios are scores that sum to 1: `calibrate` makes them probabilities
        as well as one number can, and held-out rows tell how well that is.
        """
        proba: Floats = like(X, torch.as_tensor(self.predict_log_proba(X)).exp())
        return proba

    def decision_function(self, X: ArrayLike) -> Floats:
        """Log-odds of the second class (n,) for two classes, else log P(y|x) (n, C)."""
        scores = self.predict_log_proba(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row; a tensor where X is one and the labels are numbers.

        Before any temperature, so that rounding cannot make calibration change a prediction.
        """
        best = self._log_proba(X).argmax(1)
        if isinstance(best, Tensor):
            if self.classes_.dtype.kind in "biuf":
                labels: Any = torch.from_numpy(self.classes_).to(best.device)[best]
                answer: NDArray[Any] = labels
                return answer
            best = best.cpu().numpy()
        found: NDArray[Any] = self.classes_[best]
        return found

    def predict_or_reject(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row, None where the row is novel; an array of objects."""
        answer = as_numpy(self.predict(X)).astype(object)
        answer[as_numpy(self.is_novel(X))] = None
        return answer

    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Set `temperature_` to the T with the least log-loss of softmax(log P(y|x)/T) on (X, y).

        Pass labeled rows that were not trained on. Predictions never change, `predict_proba` and
        what is built on it do. Further training, shrinking and the like start again at T = 1.
        """
        log_proba, index = as_numpy(self._log_proba(X)), as_numpy(self._class_index(y))
        if index.shape[0] != log_proba.shape[0]:
            raise ValueError(
                f"X has {log_proba.shape[0]} rows but y has {index.shape[0]}: one label per row"
            )
        weight = sample_weights(sample_weight, index.shape[0], torch.device("cpu"))
        self.temperature_ = best_temperature(
            log_proba, index, None if weight is None else weight.numpy()
        )
        return self

    def with_class_prior(
        self, prior: Mapping[Any, float] | ArrayLike, *, memory_weights: str = "follow"
    ) -> Self:
        """A fitted classifier with other class frequencies and the same memories, not retrained.

        prior: {label: weight} with every class, or weights (C,) in the order of `classes_`; they
        are scaled to sum to 1. The class "none of them" keeps its share.

        memory_weights: "follow", Bayes' rule: probabilities are reweighted by new over old prior,
        and the weights of memories follow. "hold" keeps the weights of memories: p is scaled to
        its new column sums within the polytope of the old row sums, so memories take other soft
        labels. See the user guide for when that is wanted.
        """
        check_is_fitted(self, "params_")
        weights = self._prior_weights(prior)
        p_q = self.params_.p_q.double()
        new = torch.from_numpy(weights / weights.sum()).to(p_q) * p_q[:-1].sum()
        p_q = torch.cat([new, p_q[-1:]])
        return self._copy_with(with_class_prior(self.params_, p_q, memory_weights))

    def _prior_weights(self, prior: Mapping[Any, float] | ArrayLike) -> NDArray[np.float64]:
        names = self.classes_.tolist()
        if isinstance(prior, Mapping):
            if sorted(map(str, prior)) != sorted(map(str, names)):
                raise ValueError(
                    f"prior must name every class once, {names}, got {list(prior)}: "
                    "weights are relative, so pass all of them"
                )
            index = as_numpy(self._class_index(np.array(list(prior))))
            weights = np.empty(len(names))
            weights[index] = np.array(list(prior.values()), dtype=np.float64)
        else:
            weights = as_numpy(prior).astype(np.float64)
        if weights.shape != (len(names),) or not (
            np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0
        ):
            raise ValueError(
                f"prior must be {len(names)} finite weights >= 0, not all 0, got {weights.tolist()}"
            )
        return weights

    def explain(self, X: ArrayLike, n_nearest: int = 5) -> Explanation:
        """Why each row got its class: the memories that decided it, their shares, soft labels."""
        return explain(self, X, n_nearest)
